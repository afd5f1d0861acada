"""Workers of two versions of foldline in one group: rows 32, 42 and 46 of the faults.

`next_rules` knows one more version of the rules than this foldline, `next_fold` has the
next version of the fold.
"""

import json
import os
import re
import signal
import subprocess
import sys
from typing import Any

import pytest

from foldline import kafka_meta
from foldline.processors.admission import JUDGES
from foldline.processors.kafka_records import encode_append
from foldline.schemas.avsc import event_schema
from foldline.schemas.codec import unframe
from foldline.schemas.events import UserMessage
from foldline.schemas.recorded import Append
from foldline.schemas.registry_client import avro
from foldline.schemas.topic_records import CONTROL_KEY, RulesInForce
from foldline.schemas.verdicts import ACCEPTED, DUPLICATE, ILLEGAL
from foldline.testing.log_story import make_append
from foldline.testing.samples import created, said
from foldline.topics import partition_for
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog, Worker, running_worker, start_worker
from tests.cluster.processes import ask, free_ports, wait_until
from tests.cluster.shared import ROOT
from tests.kafka_checker import check, read
from tests.kafka_feed import Feed
from tests.processors.next_rules import FORBIDDEN, TOMORROW, judge
from tests.storm_seed import by_name

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

NEXT_RULES = "tests.processors.next_rules"
NEXT_FOLD = "tests.processors.next_fold"


@pytest.fixture(autouse=True)
def _the_checker_knows_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory log judges as tomorrow's does, from the same control record on."""
    monkeypatch.setitem(JUDGES, TOMORROW, judge)


# --- rules ---------------------------------------------------------------------------


def test_new_rules_count_from_one_offset_on_for_workers_of_both_versions(
    make_fresh_log: MakeLog,
) -> None:
    """Row 32. Before it both judge by the old ones; after it the older one stops there."""
    log = make_fresh_log(partitions=2, worker_batch_max=20)
    feed = Feed(log, seed=32)
    with (
        running_worker(log, name="old") as old,
        running_worker(log, name="new", module=NEXT_RULES) as new,
    ):
        has_one(new)
        names = [name_in(log, index) for index in range(2)]
        for name in names:
            feed.append(name, created())
            feed.append(name, forbidden())
        before = feed.settle()
        assert {(v.kind, v.rules_version) for v in before.values()} == {(ACCEPTED, 1)}
        put_in_force(log, TOMORROW)
        for name in names:
            feed.append(name, forbidden())
            feed.append(name, said())
        old.process.wait_for("comes into force, this worker knows 1", timeout_s=30)
        assert "blocked" not in new.said()
        assert old.terminate() == 0
        feed.settle()
        with running_worker(log, name="old") as again:
            has_one(again)

            def stops() -> bool:
                """What it is given was judged by the new rules already."""
                for name in names:
                    feed.append(name, forbidden())
                feed.take(0.2)
                return "is in force, this worker knows 1" in again.said()

            wait_until(stops, timeout_s=60, what=again.said)
            assert again.terminate() == 0
        feed.settle()
        assert new.terminate() == 0
    versions_agree(log, feed)
    check(log, feed.answers, tables=[new.state_dir])


def versions_agree(log: FreshLog, feed: Feed) -> None:
    """In each partition the verdicts before the control record are by the old rules."""
    begins = [second_control(log, index) for index in range(log.partitions)]
    seen: set[tuple[str, int]] = set()
    for event_id, verdicts in feed.verdicts.items():
        append = feed.sent[event_id]
        place = partition_for(append.envelope.session_id, log.partitions)
        for verdict in verdicts:
            is_new = verdict.append_offset > begins[place]
            assert verdict.rules_version == (TOMORROW if is_new else 1), verdict
            event = append.event
            if isinstance(event, UserMessage) and event.message_id == FORBIDDEN:
                seen.add((verdict.kind, verdict.rules_version))
    assert seen - {(DUPLICATE, 1)} == {(ACCEPTED, 1), (ILLEGAL, TOMORROW)}


def second_control(log: FreshLog, index: int) -> int:
    """Where the new rules come into force."""
    records = read(log, log.names.appends, index)
    return [r.offset() for r in records if r.key() == CONTROL_KEY][-1]


def test_a_batch_torn_under_new_rules_is_run_again_by_a_worker_that_knows_only_the_old(
    make_fresh_log: MakeLog,
) -> None:
    """Row 42. It goes up to the unknown version, with the same bytes, and stops there."""
    log = make_fresh_log(partitions=1, transaction_timeout_ms=4_000)
    feed = Feed(log, seed=42)
    name = name_in(log, 0)
    with running_worker(log, name="first") as first:
        # The control record is taken: whatever the next batch has, it has an event.
        feed.append(name, created())
        feed.settle()
        assert first.terminate() == 0
    early = [feed.append(name, forbidden()) for _ in range(5)]
    feed.flush()
    put_in_force(log, TOMORROW)
    late = [feed.append(name, forbidden()), feed.append(name, said())]
    feed.flush()
    torn = start_worker(
        log, name="torn", module=NEXT_RULES, crash_at="CP_WORKER_BEFORE_OFFSETS:1"
    )
    try:
        assert torn.wait_dead() == -signal.SIGKILL
    finally:
        torn.kill()
    with running_worker(log, name="old") as old:
        old.process.wait_for("comes into force, this worker knows 1", timeout_s=30)

        def is_told() -> bool:
            feed.take(0.2)
            return all(one.envelope.event_id in feed.answers for one in early)

        wait_until(is_told, timeout_s=30, what=old.said)
        feed.take(0.2)
        assert [feed.answers[a.envelope.event_id].kind for a in early] == [ACCEPTED] * 5
        assert not any(feed.verdicts[a.envelope.event_id] for a in late)
        assert old.terminate() == 0
    with running_worker(log, name="new", module=NEXT_RULES) as new:
        answers = feed.settle()
        assert new.terminate() == 0
    assert [answers[a.envelope.event_id].kind for a in late] == [ILLEGAL, ACCEPTED]
    checked = check(log, answers, tables=[new.state_dir])
    assert checked.aborted >= 1  # what the uncommitted reader saw of the torn batch


def test_no_field_of_a_newer_writer_is_lost_by_either_worker(
    make_fresh_log: MakeLog,
) -> None:
    """Row 32. The bytes that a field more takes stand in the event, whoever admits it."""
    log = make_fresh_log(partitions=2)
    feed = Feed(log, seed=33)
    with (
        running_worker(log, name="old") as old,
        running_worker(log, name="new", module=NEXT_RULES) as new,
    ):
        has_one(new)
        names = [name_in(log, index) for index in range(2)]
        new_id = register_newer(log)
        put_in_force(log, 1, new_id)
        for name in names:
            feed.append(name, created())
            newer = make_append(name, said(), known_seq=0, epoch=0)
            send_newer(feed, newer, new_id)
            feed.append(name, said("after"))
        feed.settle()
        assert old.terminate() == 0
        assert new.terminate() == 0
    check(log, feed.answers)
    for index in range(log.partitions):
        events = [unframe(r.value()) for r in read(log, log.names.events, index)]
        (body,) = [body for schema_id, body in events if schema_id == new_id]
        assert body.endswith(MOOD)


MOOD = b"\x08calm"
"""The field that the newer writer has, as Avro."""


def register_newer(log: FreshLog) -> int:
    """A schema of messages with one more field, under a subject of its own."""
    schema: dict[str, Any] = event_schema(UserMessage)
    schema["fields"].append({"name": "mood", "type": "string", "default": ""})
    text = json.dumps(schema)
    with log.registry.asking():
        return log.registry.rest.register_schema(f"{log.prefix}newer", avro(text))


def send_newer(feed: Feed, append: Append, schema_id: int) -> None:
    """Send an append as the newer writer does."""
    value, headers = encode_append(append, schema_id=schema_id, reply_to=feed.reply_to)
    envelope = append.envelope
    feed.sent[envelope.event_id] = append
    feed.put(envelope.session_id, value + MOOD, headers, envelope.event_id)


# --- the fold ------------------------------------------------------------------------


@pytest.mark.storm
@by_name
def test_workers_rolled_to_a_new_fold_under_load_fold_no_more_than_the_lag(
    make_fresh_log: MakeLog,
) -> None:
    """Row 46. What a partition waits for is counted, and does not follow the log."""
    lag, batch = 20, 10
    log = make_fresh_log(partitions=2, snapshot_lag_events=lag, worker_batch_max=batch)
    feed = Feed(log, seed=46, sessions=6)
    ports = free_ports(2)
    with running_worker(log, name="a") as a, running_worker(log, name="b") as b:
        feed.tell(300)
        feed.settle()
        run_next_fold(log, "prepare")
        run_next_fold(log, "worker", "--shadow")
        rolled: list[Worker] = []
        try:
            for number, old in enumerate((a, b)):
                feed.tell(10)
                assert old.terminate() == 0
                at = {"FOLDLINE_HEALTH_PORT": str(ports[number])}
                rolled.append(
                    start_worker(log, name=f"n{number}", module=NEXT_FOLD, environment=at)
                )
                rolled[-1].wait_ready()
                feed.tell(10)
                feed.settle()
            metrics = [ask(port, "/metrics")[1] for port in ports]
            assert [worker.terminate() for worker in rolled] == [0, 0]
        finally:
            for worker in rolled:
                worker.kill()
    restores = sum(measured(text, "restore_seconds_count") for text in metrics)
    folded = sum(measured(text, "restored_events_total") for text in metrics)
    assert restores >= 2
    # A restore: what lies above the mark, the batches that the mark is behind, the load.
    assert folded <= restores * (lag + 2 * batch + 20), metrics
    assert folded < 250
    check(log, feed.answers)


def test_a_worker_that_goes_back_to_an_older_fold_takes_nothing_of_the_newer(
    make_fresh_log: MakeLog,
) -> None:
    """Row 32. The newer's table is refused and its snapshots are not read."""
    log = make_fresh_log(partitions=1, snapshot_lag_events=20)
    feed = Feed(log, seed=34, sessions=4)
    with running_worker(log) as old:
        feed.tell(40)
        feed.settle()
        assert old.terminate() == 0
    run_next_fold(log, "prepare")
    with running_worker(log, module=NEXT_FOLD) as newer:
        feed.tell(80)
        feed.settle()
        assert newer.terminate() == 0
    with running_worker(log) as back:
        feed.tell(40)
        feed.settle()
        assert back.terminate() == 0
    assert "set aside as" in newer.said()
    assert "set aside as" in back.said()
    assert int(re.findall(r"(\d+) events folded", back.said())[0]) > 60
    checked = check(log, feed.answers, tables=[back.state_dir])
    assert checked.tables == 1


# --- in few words --------------------------------------------------------------------


def forbidden() -> UserMessage:
    """What the new rules refuse."""
    return said("as it may be").model_copy(update={"message_id": FORBIDDEN})


def put_in_force(log: FreshLog, rules_version: int, *more: int) -> None:
    """Write the control records."""
    rules = RulesInForce(
        rules_version=rules_version,
        schema_ids=(*log.registry.event_ids(), *more),
        partitions=log.partitions,
    )
    kafka_meta.put_in_force(log.cluster, log.settings, rules, registry=log.registry)


def has_one(worker: Worker) -> None:
    """Wait until the group has given a worker one of two partitions."""
    given = re.compile(r"given partitions \d\n").search
    wait_until(lambda: given(worker.said()), timeout_s=60, what=worker.said)


def run_next_fold(log: FreshLog, *arguments: str) -> None:
    """A command of the foldline with the next fold."""
    environment = {"FOLDLINE_STATE_DIR": str(log.folder / "next"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", NEXT_FOLD, *arguments],
        env={**os.environ, **log.environment, **environment},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


def measured(text: str, name: str) -> int:
    """A metric of a worker without labels."""
    (value,) = re.findall(rf"(?m)^foldline_worker_{name} (\S+)$", text)
    return round(float(value))


def name_in(log: FreshLog, index: int) -> str:
    """A session of one partition."""
    names = (f"s{number}" for number in range(1_000))
    return next(n for n in names if partition_for(n, log.partitions) == index)
