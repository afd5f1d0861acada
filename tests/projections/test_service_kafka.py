"""The service of a log on Kafka: replicas that catch up, clients without a broker."""

import asyncio
import json
import re
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest

from foldline.cli import main
from foldline.processors.clock import Clock, wall_clock
from foldline.processors.http_log import HttpLog
from foldline.processors.http_wire import API
from foldline.processors.kafka_log import KafkaLog
from foldline.processors.open_log import open_log
from foldline.schemas.verdicts import ACCEPTED
from foldline.settings import Settings
from foldline.testing import LogContract, LogStory
from foldline.testing.samples import created, said, started, told
from foldline.testing.verdict_contract import MakeLog
from foldline.topics import partition_for
from tests.cluster.logs import FreshLog
from tests.cluster.processes import Process, wait_until
from tests.cluster.served import served_log
from tests.cluster.shared import Broker

pytestmark = pytest.mark.kafka

MAIN = "import sys; from foldline.cli import main; sys.exit(main())"
WAIT_S = 60
CLIENTS = 1_000
"""How many clients one node serves at once (fault 49)."""

EVENT_BYTES_MAX = 1_000
"""More than an event of theirs has: brokers send each once, not once for each client."""


class Service:
    """`foldline serve` as a process."""

    def __init__(self, log: FreshLog, name: str, *options: str) -> None:
        self.state_dir = log.folder / name
        self.process = Process(
            [sys.executable, "-c", MAIN, "--json", "serve", "--port", "0", *options],
            log=log.folder / f"{name}.out",
            environment={
                **log.environment,
                "FOLDLINE_STATE_DIR": str(self.state_dir),
                "FOLDLINE_TOKEN_RATE_PER_S": "1000000",
                "FOLDLINE_TENANT_RATE_PER_S": "1000000",
                "FOLDLINE_HTTP_BODY_TIMEOUT_MS": "600000",
            },
        )
        wait_until(self._is_up, timeout_s=WAIT_S, what=lambda: f"{name} serves")

    def _is_up(self) -> bool:
        for line in self.process.said().splitlines():
            if line.startswith('{"serving"'):
                self.url: str = json.loads(line)["url"]
                return True
        assert self.process.running, self.process.said()
        return False

    def wait_ready(self) -> None:
        wait_until(
            lambda: httpx2.get(f"{self.url}/readyz", timeout=WAIT_S).status_code == 200,
            timeout_s=WAIT_S,
            what=lambda: f"the service is ready: {self.process.said()}",
        )

    def log(self) -> HttpLog:
        return HttpLog(self.url, settings=Settings())

    def streams(self) -> float:
        """How many clients wait for events."""
        text = httpx2.get(f"{self.url}/metrics", timeout=WAIT_S).text
        (count,) = re.findall(r"^foldline_service_streams (\S+)", text, re.MULTILINE)
        return float(count)

    def read_bytes(self) -> float:
        """How many bytes of events brokers have sent it."""
        text = httpx2.get(f"{self.url}/metrics", timeout=WAIT_S).text
        line = r"(?m)^foldline_service_replica_read_bytes\{.*\} (\S+)$"
        return sum(float(count) for count in re.findall(line, text))

    def get(self, path: str, **params: Any) -> httpx2.Response:
        return httpx2.get(f"{self.url}{API}{path}", params=params, timeout=WAIT_S)


@contextmanager
def service(log: FreshLog, name: str, *options: str) -> Generator[Service]:
    running = Service(log, name, *options)
    try:
        running.wait_ready()
        yield running
    finally:
        running.process.kill()


@pytest.fixture(scope="module")
def kafka(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Generator[FreshLog]:
    with served_log(broker, tmp_path_factory.mktemp("service")) as log:
        yield log


@pytest.fixture(scope="module")
def served(kafka: FreshLog) -> Generator[Service]:
    with service(kafka, "node") as running:
        yield running


class TestHttpLogBeforeKafka(LogContract):
    one_shot_writers = 1_000

    @pytest.fixture
    def tenant(self) -> str:
        return "default"

    @pytest.fixture
    def make_log(self, served: Service) -> MakeLog:
        def make(*, clock: Clock = wall_clock) -> HttpLog:  # noqa: ARG001 - the broker's
            return served.log()

        return make

    @pytest.mark.skip(reason="all sessions of this module are of one tenant")
    def test_sessions_are_listed_the_most_recent_first(
        self, make_log: MakeLog, tenant: str
    ) -> None:
        """It is, before the logs of one machine."""


def in_partition(log: FreshLog, partition: int) -> Iterator[str]:
    """Ids of sessions of one partition."""
    for n in range(1_000_000):
        session_id = f"p{partition}-{log.prefix}{n}"
        if partition_for(session_id, log.partitions) == partition:
            yield session_id


def test_a_node_of_some_partitions_says_what_it_has(kafka: FreshLog) -> None:
    direct = open_log(kafka.cluster.url)
    mine, other = (
        LogStory(direct, session_id=next(in_partition(kafka, p))) for p in (1, 0)
    )
    mine.given(created(), started())
    other.given(created())
    with service(kafka, "part", "--partitions", "1") as node:
        assert node.get(f"/sessions/{mine.session_id}").json()["seq"] == 2
        answer = node.get(f"/sessions/{other.session_id}")
        assert (answer.status_code, answer.json()["served"]) == (421, [1, 1])
        listed = {s["session_id"] for s in node.get("/sessions").json()["sessions"]}
        assert mine.session_id in listed
        assert other.session_id not in listed
        ready = httpx2.get(f"{node.url}/readyz", timeout=WAIT_S).json()
        assert [p["partition"] for p in ready["partitions"]] == [1]
        with service(kafka, "rest", "--partitions", "0") as rest:
            read_url = f"{node.url},{rest.url}"
            settings = kafka.settings.model_copy(update={"read_url": read_url})
            client = KafkaLog(kafka.cluster, settings=settings)
            for story in (mine, other):
                assert client.state(story.session_id) == story.state
            listed = {summary.session_id for summary in client.sessions(limit=1_000)}
            assert {mine.session_id, other.session_id} <= listed
            client.close()
    direct.close()


def test_a_node_starts_from_another_ones_copy(
    kafka: FreshLog,
    served: Service,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    story = LogStory(served.log()).given(created(), started(), said("before the copy"))
    assert main(["--json", "--log", served.url, "checkpoint", "today"]) == 0
    view = json.loads(capsys.readouterr().out)
    copy = Path(view["folder"])
    assert (copy.name, copy.parent.name) == ("today", "checkpoints")
    assert view["partitions"] == [0, 1]
    assert main(["--log", served.url, "checkpoint", str(copy)]) != 0  # it is there
    assert main(["--log", served.url, "checkpoint", str(tmp_path / "elsewhere")]) != 0
    story.given(said("after the copy"))
    with service(kafka, "copied", "--checkpoint", str(copy)) as node:
        assert "started from" in node.process.said()
        client = node.log()
        assert [r.seq for r in client.events(story.session_id)] == [1, 2, 3, 4]
        assert client.state(story.session_id) == story.state
        client.close()
    story.log.close()


def test_a_write_is_read_at_once_through_another_node(
    kafka: FreshLog, served: Service
) -> None:
    with service(kafka, "reader") as reader:
        there = reader.log()
        story = LogStory(served.log()).given(created(), started())
        for n in range(20):
            story.given(said(str(n)))
            state = there.state(story.session_id)
            assert state is not None
            assert state.seq == 3 + n
        story.log.close()
        there.close()


def test_a_stream_goes_on_at_another_node_when_its_own_is_killed(kafka: FreshLog) -> None:
    direct = open_log(kafka.cluster.url)
    story = LogStory(direct).given(created())
    count = 60
    writer = threading.Thread(
        target=lambda: [story.given(said(str(n))) for n in range(count)]
    )
    seen: list[int] = []
    path = f"{API}/sessions/{story.session_id}/events/stream"
    with service(kafka, "first") as first, service(kafka, "second") as second:
        writer.start()
        for node, enough in ((first, 20), (second, count + 1)):
            headers = {"last-event-id": str(seen[-1] if seen else 0)}
            url = f"{node.url}{path}"
            with httpx2.stream("GET", url, headers=headers, timeout=WAIT_S) as stream:
                for line in stream.iter_lines():
                    if line.startswith("id: "):
                        seen.append(int(line.removeprefix("id: ")))
                    if len(seen) >= enough:
                        break
            node.process.kill()
        writer.join()
    assert seen == list(range(1, count + 2))
    direct.close()


def test_a_service_that_is_killed_and_started_again_lost_nothing(kafka: FreshLog) -> None:
    with service(kafka, "again") as node:
        client = node.log()
        story = LogStory(client).given(created(), started())
        told(story, 50)
        client.close()
    with service(kafka, "again") as node:
        client = node.log()
        assert [r.seq for r in client.events(story.session_id)] == list(range(1, 53))
        client.close()


def test_a_thousand_clients_are_one_client_of_the_broker(served: Service) -> None:
    story = LogStory(served.log()).given(created(), started())
    before, before_bytes = sockets_to_brokers(served), served.read_bytes()
    path = f"{API}/sessions/{story.session_id}"

    async def follow_and_append(number: int) -> str:
        client = await Connection.open(served.url)
        await client.ask("GET", f"{path}/events?after_seq=2&limit=1&wait_ms=30000")
        given = {
            "type": "SteeringReceived",
            "fields": {"blocks": f"client {number}"},
            "known_seq": 2,
        }
        answer = await client.ask("POST", f"{path}/appends", json.dumps(given).encode())
        client.writer.close()
        return str(answer["kind"])

    async def all_of_them() -> tuple[list[str], int]:
        waiting = [asyncio.create_task(follow_and_append(n)) for n in range(CLIENTS)]
        await asyncio.to_thread(
            wait_until,
            lambda: served.streams() >= CLIENTS,
            timeout_s=2 * WAIT_S,
            what=lambda: "all clients wait",
        )
        during = sockets_to_brokers(served)
        await asyncio.to_thread(story.given, said("go"))
        return await asyncio.gather(*waiting), during

    kinds, during = asyncio.run(all_of_them())
    assert set(kinds) <= {ACCEPTED, "LIMIT", "TOO_OLD"}
    assert kinds.count(ACCEPTED) == 64  # as many as may wait to be applied
    assert during <= before + 2
    assert 0 < served.read_bytes() - before_bytes < EVENT_BYTES_MAX * (1 + 64)
    story.log.close()


@dataclass
class Connection:
    """HTTP over one connection: a pool of a thousand takes longer than the service."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, url: str) -> Self:
        host, port = url.removeprefix("http://").split(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, method: str, path: str, body: bytes = b"") -> Any:
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        answer = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        (length,) = re.findall(r"content-length: (\d+)", answer)
        return json.loads(await self.reader.readexactly(int(length)))


def sockets_to_brokers(served: Service) -> int:
    """How many established connections of the service are not those of its clients."""
    pid, port = served.process.pid, int(served.url.rpartition(":")[2])
    own = {link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir()}
    inodes = {name[8:-1] for name in own if name.startswith("socket:[")}
    count = 0
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        local_port, established = int(fields[1].split(":")[1], 16), fields[3] == "01"
        if established and fields[9] in inodes and local_port != port:
            count += 1
    return count
