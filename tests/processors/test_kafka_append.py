"""Appending to Kafka when something fails: workers, brokers' limits, the client itself."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message, Producer

from foldline import kafka, kafka_meta
from foldline.cli.failures import STORAGE
from foldline.errors import LogUnavailableError, NoLogMetaError, UncertainAppendError
from foldline.processors.kafka_append import KafkaAppends
from foldline.processors.kafka_channel import Channel, Channels
from foldline.processors.kafka_log import KafkaLog
from foldline.processors.kafka_records import Outgoing
from foldline.processors.open_log import open_log
from foldline.processors.sending import Limits
from foldline.schemas.verdicts import ACCEPTED, DUPLICATE, TOO_LARGE, UNDECODABLE
from foldline.settings import Settings
from foldline.testing import LogStory, make_append
from foldline.testing.log_story import new_id
from foldline.testing.samples import created, said
from tests.cluster.fixtures import MakeLog, OwnCluster
from tests.cluster.logs import FreshLog, running_worker, start_worker
from tests.cluster.operators import set_config
from tests.cluster.processes import wait_until
from tests.cluster.served import in_environment, served_log
from tests.cluster.shared import Broker
from tests.kafka_checker import read

pytestmark = [pytest.mark.kafka, pytest.mark.crash]

CHILD = Path(__file__).with_name("appending_child.py")
PATIENT = {"verdict_timeout_ms": 60_000}
"""Longer than a dead worker's partitions need to get another."""

RECORDS = 20

HASTY = {"verdict_timeout_ms": 1_500, "resend_after_ms": 200}

BROKERS_BACK_S = 60.0
STARTS_MAX = 5


@pytest.fixture(scope="module")
def served(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Generator[FreshLog]:
    """One log for most of these tests, and its worker."""
    with served_log(broker, tmp_path_factory.mktemp("kafka-appends")) as log:
        yield log


def opened(log: FreshLog, **changed: Any) -> KafkaLog:
    """A client of the log."""
    settings = log.settings.model_copy(update=changed)
    found = open_log(log.cluster.url, settings=settings)
    assert isinstance(found, KafkaLog)
    return found


def _count_appends(log: FreshLog) -> int:
    topic = log.names.appends
    return sum(len(read(log, topic, index)) for index in range(log.partitions))


@pytest.fixture
def log(served: FreshLog) -> Generator[KafkaLog]:
    """A client of the log that the tests share."""
    log = opened(served)
    yield log
    log.close()


# --- workers -------------------------------------------------------------------------


def test_a_lost_verdict_is_asked_for_again_and_the_event_is_there_once(
    fresh_log: FreshLog,
) -> None:
    """Row 38: the worker dies between a commit and its verdicts."""
    log = opened(fresh_log, **PATIENT)

    def tell() -> list[str]:
        story = LogStory(log)
        for n in range(8):
            story.send([story.append(said() if n else created(), known_seq=n)])
            kinds.append(story.verdicts[0].kind)
        return list(log.event_ids(story.session_id))

    kinds: list[str] = []
    crash_at = "CP_WORKER_BEFORE_VERDICTS:4"
    with (
        ThreadPoolExecutor(1) as pool,
        running_worker(fresh_log, crash_at=crash_at) as first,
    ):
        telling = pool.submit(tell)
        first.wait_dead()
        with running_worker(fresh_log, name="w2"):
            recorded = telling.result()
    assert sorted(kinds) == [*[ACCEPTED] * 7, DUPLICATE]
    assert len(recorded) == len(set(recorded)) == 8
    log.close()


def test_without_a_worker_nobody_says_accepted_and_the_resend_finds_out(
    fresh_log: FreshLog,
) -> None:
    """The error says how far it came; the same append is then recorded once."""
    log = opened(fresh_log, **HASTY)
    story = LogStory(log)
    append = story.append(created(), known_seq=0)
    with pytest.raises(UncertainAppendError, match="no worker has answered"):
        log.append([append])
    with running_worker(fresh_log):
        verdict = opened(fresh_log, **PATIENT).append([append])[0]
        assert verdict.recorded
        assert verdict.seq == 1
        assert story.seq == 1
    log.close()


def test_who_closes_the_log_wakes_who_waits(fresh_log: FreshLog) -> None:
    log = opened(fresh_log, **PATIENT)
    append = LogStory(log).append(created(), known_seq=0)
    with ThreadPoolExecutor(1) as pool:
        before = _count_appends(fresh_log)
        waiting = pool.submit(log.append, [append])
        wait_until(
            lambda: _count_appends(fresh_log) > before, timeout_s=20, what=lambda: "sent"
        )
        log.close()
        with pytest.raises(UncertainAppendError, match="closed"):
            waiting.result()
    with pytest.raises(LogUnavailableError, match="closed"):
        log.append([append])


# --- brokers -------------------------------------------------------------------------


def test_brokers_that_do_not_answer_are_named(
    served: FreshLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_meta, "READ_TIMEOUT_MS", 1_000)
    settings = served.settings.model_copy(update={"registry_wait_ms": 0})
    nobody = kafka.Cluster("127.0.0.1:1", served.prefix)
    with pytest.raises(LogUnavailableError, match=r"127\.0\.0\.1:1"):
        KafkaLog(nobody, settings=settings)


def test_a_prefix_without_a_log_says_how_to_make_one(served: FreshLog) -> None:
    elsewhere = kafka.Cluster(served.cluster.bootstrap, f"none{new_id()[:8]}.")
    with pytest.raises(NoLogMetaError, match="topics create"):
        KafkaLog(elsewhere, settings=served.settings)


def test_what_the_broker_finds_too_large_is_answered(fresh_log: FreshLog) -> None:
    """Row 13: somebody set a lower limit on the topic; small ones go through as ever."""
    log = opened(fresh_log)
    with running_worker(fresh_log):  # it would not start on a topic like that
        set_config(fresh_log, fresh_log.names.appends, max_message_bytes=20_000)
        story = LogStory(log).given(created())
        unpackable = random.Random(1).randbytes(25_000).hex()
        story.when(said(unpackable)).then(TOO_LARGE)
        story.when(said("small")).then(ACCEPTED, seq=2)
    log.close()


def test_a_full_queue_holds_its_callers_back_and_loses_nothing(served: FreshLog) -> None:
    """Row 3: a client's memory is bounded, whatever its callers want."""
    extra = Settings().kafka.model_copy(
        update={"extra": {"queue.buffering.max.messages": "3"}}
    )
    log = opened(served, kafka=extra)
    stories = [LogStory(log) for _ in range(40)]
    verdicts = log.append([s.append(created(), known_seq=0) for s in stories])
    assert {verdict.kind for verdict in verdicts} == {ACCEPTED}
    log.close()


@pytest.mark.storm
@pytest.mark.skipif(
    "'storm' not in config.getoption('markexpr')", reason="by name only: -m storm"
)
def test_with_two_of_three_brokers_gone_nothing_is_accepted_and_all_of_it_afterwards(
    own_cluster: OwnCluster, broker: Broker, make_fresh_log: MakeLog
) -> None:
    """Row 3: one gone is a pause; two are no answer, and no loss once they are back."""
    cluster = own_cluster(brokers=3)
    three = Broker(cluster.bootstrap, broker.registry_url, "own")
    fresh = make_fresh_log(on=three, partitions=2, replication=3)
    patient, hasty = opened(fresh, **PATIENT), opened(fresh, verdict_timeout_ms=5_000)
    with running_worker(fresh):
        story = LogStory(patient).given(created())
        hasty.append([story.append(said("connected"))])
    cluster.kill(0)
    with supervised_worker(fresh, name="w2"):
        story.when(said("with two of three"), known_seq=2).then(ACCEPTED, seq=3)
    appends = [story.append(said(str(n)), known_seq=3) for n in range(5)]
    cluster.kill(1)
    with pytest.raises(UncertainAppendError):
        hasty.append(appends)
    cluster.start(0)
    cluster.start(1)
    with supervised_worker(fresh, name="w3"):
        assert all(verdict.recorded for verdict in patient.append(appends))
        ids = _read_ids(patient, story)
        assert ids[-5:] == [append.envelope.event_id for append in appends]
        assert len(ids) == len(set(ids)) == 3 + 5
    patient.close()
    hasty.close()


@contextmanager
def supervised_worker(log: FreshLog, *, name: str) -> Generator[None]:
    """A worker that is started again while brokers have not yet found each other."""
    worker = start_worker(log, name=name)
    for _ in range(STARTS_MAX):
        try:
            worker.wait_ready()
            break
        except AssertionError:
            assert worker.wait_dead() == STORAGE
            worker = start_worker(log, name=name)
    try:
        yield
    finally:
        worker.kill()


def _read_ids(log: KafkaLog, story: LogStory) -> list[str]:
    """What is recorded, as soon as brokers that have just started answer."""
    troubles: list[str] = []

    def read() -> list[str] | None:
        try:
            return list(log.event_ids(story.session_id))
        except LogUnavailableError as error:
            troubles.append(str(error))
            return None

    return wait_until(
        read, timeout_s=BROKERS_BACK_S, what=lambda: f"a read: {troubles[-1]}"
    )


# --- the client itself ---------------------------------------------------------------


def test_a_producer_that_failed_is_replaced_and_says_what_it_lost(
    served: FreshLog,
) -> None:
    """What librdkafka calls fatal: this producer sends nothing any more."""
    hears: list[Callable[[KafkaError], None]] = []

    def make(hear: Callable[[KafkaError], None]) -> Producer:
        hears.append(hear)
        return kafka.client_producer(served.cluster, served.settings, on_error=hear)

    answered: list[KafkaError | None] = []
    done = threading.Event()

    def heard(error: KafkaError | None, _: Message) -> None:
        answered.append(error)
        if len(answered) == RECORDS:
            done.set()

    channel = Channel(make)
    for n in range(RECORDS):
        if n == RECORDS // 2:
            hears[0](cast("Any", KafkaError)(KafkaError._FATAL, "told to fail", True))
            wait_until(lambda: len(hears) == 2, timeout_s=10, what=lambda: "another one")
        channel.send(served.names.rejected, Outgoing(0, b"k", b"v"), heard)
    assert done.wait(10)
    assert answered[RECORDS // 2 :] == [None] * (RECORDS // 2)
    channel.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_who_waits_is_told_when_a_thread_of_the_client_has_failed(
    served: FreshLog,
) -> None:
    """A defect of ours, say: nobody waits for ever."""

    def fail() -> None:
        raise RuntimeError("told to fail")

    channels = Channels(
        lambda hear: kafka.client_producer(served.cluster, served.settings, on_error=hear)
    )
    appends = KafkaAppends(
        url=served.url,
        topic=served.names.appends,
        partitions=served.partitions,
        limits=Limits(32, 8, 1_000, 600_000),
        encode=lambda _: (b"", []),
        channels=channels,
    )
    channels.call_on_tick(fail)
    with pytest.raises(UncertainAppendError, match="foldline-acks"):
        appends.append([make_append(new_id(), created(), known_seq=0)])
    appends.close()
    channels.close()


def test_ids_that_no_verdict_could_carry_are_answered_at_once(log: KafkaLog) -> None:
    for session_id in ("", "\0control", "\ud800", "x" * 600):
        story = LogStory(log, session_id=session_id or None)
        story.session_id = session_id
        append = story.append(created(), known_seq=0)
        assert log.append([append])[0].kind == UNDECODABLE


def test_several_sessions_and_threads_are_answered_side_by_side(log: KafkaLog) -> None:
    def tell(count: int) -> list[int]:
        story = LogStory(log).given(created())
        for _ in range(count):
            story.given(*[said() for _ in range(5)])
        return [r.seq for r in log.structure(story.session_id)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(tell, [4] * 8))
    assert found == [list(range(1, 22))] * 8


@contextmanager
def child(
    log: FreshLog, how: str, **environment: str
) -> Generator["subprocess.Popen[str]"]:
    """A process that appends nine events to a session `crashed`."""
    process = subprocess.Popen(
        [sys.executable, str(CHILD), how, log.cluster.url, _session(log), "9"],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _session(log: FreshLog) -> str:
    return f"crashed-{log.prefix}"


@pytest.mark.parametrize(
    "point",
    ["CP_KAFKA_AFTER_SEND:5", "CP_KAFKA_AFTER_ACK:5", "CP_KAFKA_BEFORE_VERDICT:5"],
)
def test_a_writer_killed_around_an_append_loses_nothing_acknowledged(
    fresh_log: FreshLog, point: str
) -> None:
    """Row 1: what was acknowledged is there once; the fifth once or not at all."""
    with in_environment(fresh_log), running_worker(fresh_log):
        with child(fresh_log, "append", FOLDLINE_CRASH_AT=point) as process:
            lines, _ = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        said_lines = [line.split() for line in lines.splitlines()]
        sent = [rest for word, rest in said_lines if word == "sent"]
        acked = [rest for word, rest in said_lines if word == "acked"]
        assert (len(sent), len(acked)) == (5, 4)
        log = opened(fresh_log)
        story = LogStory(log, session_id=_session(fresh_log))
        story.when(said("behind it")).then(ACCEPTED)
        there = list(log.event_ids(story.session_id))[:-1]
        log.close()
    assert there in (sent, acked)


def test_a_writer_frozen_past_its_time_outs_goes_on_with_one_copy(
    served: FreshLog,
) -> None:
    """Row 4: what got no answer in time is sent again under the same id."""
    stop_at = {"FOLDLINE_STOP_AT": "CP_KAFKA_AFTER_SEND:5"}
    timeout_ms = 2_000
    brief = {"FOLDLINE_VERDICT_TIMEOUT_MS": str(timeout_ms)}
    with child(served, "insist", **stop_at, **brief) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        time.sleep(1.5 * timeout_ms / 1000)
        process.send_signal(signal.SIGCONT)
        lines, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    log = opened(served)
    there = list(log.event_ids(_session(served)))
    log.close()
    acked = [line.split()[1] for line in lines.splitlines() if line.startswith("acked")]
    assert there == acked
    assert len(there) == 9
