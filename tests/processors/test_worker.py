"""A worker answers appends, says how it is, and goes on past what it cannot take."""

import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from foldline import kafka
from foldline.schemas.record_codec import frame_record
from foldline.schemas.topic_records import CONTROL_KEY, RulesInForce
from foldline.schemas.verdicts import ACCEPTED, CONFLICT, FENCED, UNDECODABLE
from foldline.testing.samples import created, said
from foldline.topics import partition_for
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog, running_worker, start_worker
from tests.cluster.processes import Process, ask, free_ports, wait_until
from tests.kafka_checker import check
from tests.kafka_feed import Feed
from tests.processors.rocksdb_damage import fill, small_disk

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def port() -> int:
    """Where a worker's health is."""
    return free_ports(1)[0]


def health_at(port: int) -> dict[str, str]:
    """The environment of a worker whose health listens there."""
    return {"FOLDLINE_HEALTH_PORT": str(port)}


def test_every_append_is_answered_and_state_table_and_snapshots_agree(
    make_fresh_log: MakeLog, port: int
) -> None:
    log = make_fresh_log(partitions=4, snapshot_lag_events=20, worker_batch_max=20)
    feed = Feed(log, seed=8)
    with running_worker(log, environment=health_at(port)) as worker:
        feed.tell(300)
        answers = feed.settle()
        assert ask(port, "/readyz") == (200, '{"ready": true, "waits_for": []}\n')
        assert ask(port, "/healthz")[0] == 200
        metrics = ask(port, "/metrics")[1]
        assert worker.terminate() == 0
    assert {v.kind for v in answers.values()} >= {ACCEPTED, CONFLICT, FENCED}
    checked = check(log, answers, tables=[worker.state_dir])
    assert checked.tables == 4
    assert checked.snapshots
    assert f"foldline_worker_events_total {checked.events}.0" in metrics
    for name in ("lag_appends", "commit_seconds_count", "verdicts_total", "aborts_total"):
        assert f"foldline_worker_{name}" in metrics


def test_a_second_signal_ends_a_worker_at_once(make_fresh_log: MakeLog) -> None:
    log = make_fresh_log(partitions=1)
    with running_worker(log) as worker:
        worker.stop()
        for _ in range(2):
            worker.process.popen.send_signal(signal.SIGTERM)
            time.sleep(0.2)
        worker.wake()
        assert worker.wait_dead() in {0, -signal.SIGTERM}


def test_poison_never_stops_a_partition(make_fresh_log: MakeLog, port: int) -> None:
    log = make_fresh_log(partitions=1)
    feed = Feed(log, sessions=1)
    headers = [("ce_id", b"poison"), ("reply_to", feed.reply_to.encode())]
    with running_worker(log, environment=health_at(port)):
        feed.append("s", created())
        for value in (
            None,
            b"",
            b"\x00",
            b"\x01junk" * 9,
            b"\x00\xff\xff\xff\xff" + b"x" * 50,
        ):
            feed.put("s", value)
            feed.put("s", value, headers)
        good = feed.append("s", said("after it all"), known_seq=0)
        answers = feed.settle()
        metrics = ask(port, "/metrics")[1]
    assert answers[good.envelope.event_id].kind == ACCEPTED
    assert [v.kind for v in feed.verdicts["poison"]] == [UNDECODABLE] * 5
    assert 'foldline_worker_verdicts_total{kind="UNDECODABLE"} 10.0' in metrics
    check(log, answers)


def test_unknown_rules_pause_their_partition_and_no_other(
    make_fresh_log: MakeLog, port: int
) -> None:
    log = make_fresh_log(partitions=2)
    feed = Feed(log)
    names = [next(_names(log, index)) for index in (0, 1)]
    with running_worker(log, environment=health_at(port)) as worker:
        for name in names:
            feed.append(name, created())
        feed.settle()
        _put_in_force(log, 0, rules_version=99)
        blocked = feed.append(names[0], said())
        goes_on = feed.append(names[1], said())
        feed.flush()

        def says() -> bool:
            feed.take(0.1)
            return "comes into force" in ask(port, "/readyz")[1]

        wait_until(says, timeout_s=20, what=worker.said)
        assert ask(port, "/readyz")[0] == 503
        assert ask(port, "/healthz")[0] == 200
        feed.take(0.5)
        assert feed.verdicts[goes_on.envelope.event_id]
        assert not feed.verdicts[blocked.envelope.event_id]
        assert 'partitions{phase="blocked"} 1.0' in ask(port, "/metrics")[1]
        assert worker.terminate() == 0


def test_a_registry_that_is_down_is_waited_for_and_said(
    make_fresh_log: MakeLog, port: int
) -> None:
    log = make_fresh_log(partitions=1)
    feed = Feed(log)
    (gate,) = free_ports(1)
    away = log.settings.registry_url.replace(
        urlsplit(log.settings.registry_url).netloc, f"127.0.0.1:{gate}"
    )
    environment = health_at(port) | {"FOLDLINE_REGISTRY_URL": away}
    worker = start_worker(log, environment=environment)
    try:
        worker.process.wait_for("does not answer", timeout_s=30)
        assert "does not answer" in ask(port, "/readyz")[1]
        with closing(Gate(gate, log.settings.registry_url)):
            worker.wait_ready()
            feed.tell(20)
            feed.settle()
        feed.tell(20)  # what is known already needs no registry
        feed.settle()
        assert worker.terminate() == 0
    finally:
        worker.kill()


def test_a_full_disk_stops_partitions_with_a_word_and_space_starts_them_again(
    make_fresh_log: MakeLog, tmp_path: Path, port: int
) -> None:
    log = make_fresh_log(partitions=1)
    feed = Feed(log, sessions=4)
    with small_disk(tmp_path / "small", size_mb=8) as disk:
        environment = health_at(port) | {
            "FOLDLINE_STATE_DIR": str(disk),
            "FOLDLINE_TABLE_FLUSH_MS": "100",
        }
        with running_worker(log, environment=environment) as worker:
            feed.tell(20)
            feed.settle()
            filler = fill(disk)
            until = time.monotonic() + 30
            while "No space left on device" not in ask(port, "/readyz")[1]:
                assert time.monotonic() < until, worker.said()
                feed.tell(20)
                feed.flush()
                feed.take(0.2)
            filler.unlink()
            feed.settle()
            wait_until(
                lambda: ask(port, "/readyz")[0] == 200, timeout_s=30, what=worker.said
            )
            assert worker.terminate() == 0
    check(log, feed.answers)


def test_json_lines_say_the_same_for_machines(make_fresh_log: MakeLog) -> None:
    log = make_fresh_log(partitions=1)
    worker = Process(
        [sys.executable, "-c", "from foldline.cli import main; main()", "worker", "--json"],
        log=log.folder / "json.log",
        environment={**log.environment, "FOLDLINE_STATE_DIR": str(log.folder / "json")},
    )
    worker.wait_for('"ready": true', timeout_s=60)
    assert worker.terminate() == 0
    views: list[dict[str, Any]] = [json.loads(line) for line in worker.said().splitlines()]
    assert [v["partitions"] for v in views if v.get("ready")] == [[0]]
    assert {v["level"] for v in views if "level" in v} == {"info"}


def _names(log: FreshLog, index: int) -> Iterator[str]:
    """Session ids of one partition."""
    for number in range(10_000):
        if partition_for(f"s{number}", log.partitions) == index:
            yield f"s{number}"


def _put_in_force(log: FreshLog, index: int, *, rules_version: int) -> None:
    rules = RulesInForce(
        rules_version=rules_version,
        schema_ids=log.registry.event_ids(),
        partitions=log.partitions,
    )
    value = frame_record(log.registry.id_of("RulesInForce"), rules)
    producer: Any = kafka.plain_producer(log.cluster, log.settings)
    producer.produce(log.names.appends, value, CONTROL_KEY, index)
    assert producer.flush(10) == 0


class Gate:
    """Forwards connections to a registry, as long as it is open."""

    def __init__(self, port: int, url: str) -> None:
        parts = urlsplit(url)
        self._to = (parts.hostname or "", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", port))
        self._pipes: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Shut it, and cut what is open."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pipe in self._pipes:
            pipe.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._to)
            self._pipes += [client, server]
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return
