"""The event store: the same reads as the memory log, and nothing that does not fit."""

import random
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from foldline.errors import LogFormatError, LogUnavailableError, TableCorruptError
from foldline.processors import event_rows as rows
from foldline.processors.event_intake import KEPT_STATE_EVENTS, EventRecord, Ways
from foldline.processors.event_rows import Listing
from foldline.processors.event_store import EventStore, open_store
from foldline.processors.memory_log import MemoryLog
from foldline.processors.rocks import Batch, Rocks, asides
from foldline.processors.state_codec import decode_state
from foldline.processors.stored import Problem, StoredEvent
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    InputRequested,
    KnownEvent,
    LabelsSet,
    SessionCreated,
    SessionSuspended,
)
from foldline.settings import Settings
from foldline.testing.log_story import LogStory
from foldline.testing.samples import created, said, started, ticking
from tests.processors.rocksdb_damage import files, fill, flip, small_disk

EVERY = 16
"""How often snapshots are kept here."""


def in_range(
    log: MemoryLog, session_id: str, after: int, upto: int | None
) -> list[StoredEvent]:
    last = 10**9 if upto is None else upto
    return [e for e in log.stored_events(session_id) if after < e.seq <= last]


def tamper(folder: Path, batch: Batch) -> None:
    """Write into a closed store."""
    rocks = Rocks(folder)
    rocks.write(batch)
    rocks.close()


class Told:
    """A memory log, and the topic that a worker would have written of it."""

    def __init__(self) -> None:
        settings = Settings(snapshot_every_events=EVERY)
        self.log = MemoryLog(settings=settings, clock=ticking())
        self.topic: list[EventRecord] = []
        self._written: dict[str, int] = {}

    def story(self, session_id: str) -> LogStory:
        return LogStory(self.log, session_id=session_id)

    def publish(self, session_id: str) -> None:
        """What of a session is new goes to the topic, with a gap as markers leave it."""
        after = self._written.get(session_id, 0)
        for event in in_range(self.log, session_id, after, None):
            offset = self.topic[-1].offset + 1 if self.topic else 0
            record = EventRecord(offset, session_id.encode(), event.schema_id, event.body)
            self.topic.append(record)
            self._written[session_id] = event.seq

    def given(self, session_id: str, *events: KnownEvent) -> None:
        self.story(session_id).given(*events)
        self.publish(session_id)


def ways(told: Told, *, cached_sessions: int = 100) -> Ways:
    return Ways("topic", told.log.codec, EVERY, cached_sessions)


def opened(folder: Path, told: Told, *, cached_sessions: int = 100) -> EventStore:
    return open_store(
        folder,
        log_id="log",
        partition=0,
        ways=ways(told, cached_sessions=cached_sessions),
    )


def assert_same(store: EventStore, told: Told) -> None:
    """Every read of the store is the memory log's, byte for byte."""
    log = told.log
    assert list(store.stored_sessions()) == list(log.stored_sessions())
    assert store.sessions(Listing(limit=1000)) == log.sessions(limit=1000)
    for session in log.stored_sessions():
        name = session.session_id
        for parent in (None, name):
            found = store.stored_sessions(after=name, parent=parent)
            assert list(found) == list(log.stored_sessions(after=name, parent=parent))
        assert list(store.stored_sessions(parent=name)) == list(
            log.stored_sessions(parent=name)
        )
        assert store.state(name) == log.state(name)
        assert list(store.stored_events(name)) == list(log.stored_events(name))
        assert list(store.stored_snapshots(name)) == list(log.stored_snapshots(name))
    assert list(store.inspect()) == []


@pytest.fixture
def told() -> Generator[Told]:
    """Many sessions, their events mixed: suspended, labelled, waiting, long, short."""
    told = Told()
    chance = random.Random(7)
    names = [f"s{n}" for n in range(12)] + [
        "a",
        "a\x00b",
        "a\x00",
        "é",
        "a/b",
        "\U0001f600",
    ]
    for name in names:
        told.given(name, created(), started())
    for number in range(400):
        name = chance.choice(names[:14])
        told.given(name, said(str(number)), said("x"))
    for child in ("kid", "a-kid"):
        parent = {"relation": "SUBAGENT", "parent_session_id": "s1"}
        told.given(child, created().model_copy(update=parent))
    told.given("s1", LabelsSet.model_validate({"labels": [{"key": "k", "value": "v"}]}))
    told.given("s2", SessionSuspended(reason="later"))
    told.given("s3", InputRequested(request_id="q", prompt=(text_block("which?"),)))
    yield told
    told.log.close()


def in_batches(topic: Sequence[EventRecord], size: int) -> list[Sequence[EventRecord]]:
    return [topic[start : start + size] for start in range(0, len(topic), size)]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_reads_are_those_of_the_memory_log(tmp_path: Path, told: Told, size: int) -> None:
    store = opened(tmp_path / "s", told)
    for batch in in_batches(told.topic, size):
        store.apply(batch)
    assert_same(store, told)
    store.close()
    store = opened(tmp_path / "s", told)
    assert store.next_offset == told.topic[-1].offset + 1
    assert store.event_count == len(told.topic)
    assert_same(store, told)
    store.close()


def test_states_are_the_same_at_every_seq(tmp_path: Path, told: Told) -> None:
    store = opened(tmp_path / "s", told)
    store.apply(told.topic)
    for name in ("s0", "s2", "a\x00b"):
        last = told.story(name).seq
        for seq in range(last + 2):
            assert store.state(name, at_seq=seq) == told.log.state(name, at_seq=seq)
    store.close()


def test_ranges_are_the_same(tmp_path: Path, told: Told) -> None:
    store = opened(tmp_path / "s", told)
    store.apply(told.topic)
    for after, upto in ((0, 5), (3, 3), (3, 1), (5, 1000), (-4, 2), (1000, None)):
        expected = in_range(told.log, "s0", after, upto)
        assert list(store.stored_events("s0", after_seq=after, upto_seq=upto)) == expected
    store.close()


def test_few_heads_in_memory_change_nothing(tmp_path: Path, told: Told) -> None:
    store = opened(tmp_path / "s", told, cached_sessions=2)
    for batch in in_batches(told.topic, 5):
        store.apply(batch)
        assert store.cached_sessions <= 2 + 5
    assert_same(store, told)
    store.close()


def test_a_store_opened_anew_after_every_batch_goes_on(tmp_path: Path, told: Told) -> None:
    for batch in in_batches(told.topic, 97):
        store = opened(tmp_path / "s", told)
        store.apply(batch)
        store.close()
    store = opened(tmp_path / "s", told)
    assert_same(store, told)
    store.close()


def test_records_that_come_again_are_dropped(tmp_path: Path, told: Told) -> None:
    store = opened(tmp_path / "s", told)
    for batch in in_batches(told.topic, 50):
        store.apply(batch)
        store.apply(batch)
    assert_same(store, told)
    store.close()


def test_events_that_are_in_the_topic_twice_count_once(tmp_path: Path, told: Told) -> None:
    """A reader that sees what was aborted and done again: other offsets, same events."""
    twice: list[EventRecord] = []
    for batch in in_batches(told.topic, 10):
        for record in (*batch, *batch):
            twice.append(record._replace(offset=len(twice)))
    store = opened(tmp_path / "s", told)
    for batch in in_batches(twice, 45):
        store.apply(batch)
    assert store.duplicates == len(told.topic)
    assert_same(store, told)
    store.close()


def without(told: Told, name: str, seq: int) -> list[EventRecord]:
    """The topic without one event of a session."""
    mine = [record for record in told.topic if record.key == name.encode()]
    return [record for record in told.topic if record is not mine[seq - 1]]


@pytest.mark.parametrize("size", [1, 1000])
def test_a_hole_stops_it_and_is_named(tmp_path: Path, told: Told, size: int) -> None:
    store = opened(tmp_path / "s", told)
    with pytest.raises(LogFormatError, match=r"session 's0', seq 6: a hole"):
        apply_all(store, without(told, "s0", 5), size)
    state = store.state("s0")
    assert state is None or state == told.log.state("s0", at_seq=4)
    store.close()


def apply_all(store: EventStore, topic: Sequence[EventRecord], size: int) -> None:
    for batch in in_batches(topic, size):
        store.apply(batch)


def test_a_session_without_its_beginning_is_a_hole(tmp_path: Path, told: Told) -> None:
    store = opened(tmp_path / "s", told)
    with pytest.raises(LogFormatError, match=r"session 'a', seq 2: a hole"):
        store.apply(without(told, "a", 1))
    store.close()


def test_another_event_under_a_recorded_seq_stops_it(tmp_path: Path, told: Told) -> None:
    other = Told()
    other.given("s0", created(), started())
    store = opened(tmp_path / "s", told)
    store.apply(told.topic)
    foreign = other.topic[0]._replace(offset=store.next_offset)
    with pytest.raises(LogFormatError, match="another event is recorded"):
        store.apply([foreign])
    store.close()


def test_an_event_that_does_not_continue_the_chain_stops_it(
    tmp_path: Path, told: Told
) -> None:
    other = Told()
    other.given("s0", created(), started(), said(), said())
    store = opened(tmp_path / "s", told)
    mine = [record for record in told.topic if record.key == b"s0"]
    forged = [*mine[:3], other.topic[3]._replace(offset=mine[3].offset)]
    with pytest.raises(LogFormatError, match="seq 4: its prev_hash"):
        store.apply(forged)
    store.close()


def test_junk_stops_the_store_that_meets_it(tmp_path: Path, told: Told) -> None:
    store = opened(tmp_path / "s", told)
    junk = told.topic[0]._replace(body=b"junk")
    with pytest.raises(LogFormatError, match="offset 0"):
        store.apply([junk])
    with pytest.raises(LogFormatError, match="offset 0"):
        store.apply([told.topic[0]._replace(key=b"\xff")])
    store.close()


def test_a_session_of_another_partition_stops_it(tmp_path: Path, told: Told) -> None:
    only_s = Ways("topic", told.log.codec, EVERY, 100, lambda name: name.startswith("s"))
    store = EventStore.open(tmp_path / "s", log_id="log", partition=0, ways=only_s)
    with pytest.raises(LogFormatError, match="another partition"):
        store.apply(told.topic)
    store.close()


def test_ids_that_no_session_has_are_no_error(tmp_path: Path, told: Told) -> None:
    store = opened(tmp_path / "s", told)
    store.apply(told.topic)
    for name in ("", "s", "\ud800", "a\x00b\x00", "nobody"):
        assert store.state(name) is None
        assert list(store.stored_events(name)) == []
        assert list(store.stored_snapshots(name)) == []
    store.close()


def test_listings_by_everything_that_they_filter(tmp_path: Path) -> None:
    told = Told()
    told.given("p", created())
    for n in range(5):
        child = SessionCreated(agent=f"a{n % 2}", parent_session_id="p")
        told.given(f"c{n}", child, started())
    told.given("c3", SessionSuspended(reason="later"))
    told.given("c1", InputRequested(request_id="q", prompt=(text_block("which?"),)))
    told.given("c0", LabelsSet.model_validate({"labels": [{"key": "k", "value": "v"}]}))
    store = opened(tmp_path / "s", told)
    store.apply(told.topic)

    def names(**asked: object) -> list[str]:
        return [s.session_id for s in store.sessions(Listing(**asked))]  # pyright: ignore[reportArgumentType]

    assert names() == ["c0", "c1", "c3", "c4", "c2", "p"]
    assert names(limit=2) == ["c0", "c1"]
    assert names(status="SUSPENDED") == ["c3"]
    assert names(status="RUNNING", limit=2) == ["c0", "c4"]
    assert names(tenant="default", limit=1) == ["c0"]
    assert names(tenant="nobody") == []
    assert names(parent_session_id="p") == ["c0", "c1", "c3", "c4", "c2"]
    assert names(agent="a1") == ["c1", "c3"]
    assert names(label=("k", "v")) == ["c0"]
    assert names(pending=True) == ["c1"]
    store.close()


def test_pages_of_a_listing_together_are_the_whole(tmp_path: Path, told: Told) -> None:
    store = opened(tmp_path / "s", told)
    store.apply(told.topic)
    whole = store.sessions(Listing(limit=1000))
    paged = page = store.sessions(Listing(limit=5))
    while page:
        last = (page[-1].recorded_at, page[-1].session_id)
        page = store.sessions(Listing(limit=5, before=last))
        paged = [*paged, *page]
    assert paged == whole
    store.close()


def test_a_state_is_read_again_from_few_events(tmp_path: Path) -> None:
    """However long the session: from the state that was kept last."""
    told = Told()
    told.given("s", created(), *(said() for _ in range(100)))
    told.given("s", *(said() for _ in range(100)))
    store = opened(tmp_path / "s", told)
    for batch in in_batches(told.topic, 1):
        store.apply(batch)
    store.close()
    rocks = Rocks(tmp_path / "s")
    kept = rocks.get(rows.STATE + rows.text_key("s"))
    rocks.close()
    assert kept is not None
    assert 0 <= 201 - decode_state(kept).seq < KEPT_STATE_EVENTS
    store = opened(tmp_path / "s", told)
    assert store.state("s") == told.log.state("s")
    store.close()


def test_a_kept_state_that_does_not_fit_is_not_trusted(tmp_path: Path, told: Told) -> None:
    store = opened(tmp_path / "s", told)
    store.apply(told.topic)
    other = Told()
    other.given("s0", created(), *(said("other") for _ in range(KEPT_STATE_EVENTS)))
    wrong = opened(tmp_path / "w", other)
    wrong.apply(other.topic)
    wrong.close()
    store.close()
    rocks = Rocks(tmp_path / "w")
    row = rows.STATE + rows.text_key("s0")
    kept = rocks.get(row)
    rocks.close()
    assert kept is not None
    batch = Batch()
    batch.put(row, kept)
    tamper(tmp_path / "s", batch)
    store = opened(tmp_path / "s", told)
    assert store.state("s0") == told.log.state("s0")
    store.close()


def test_a_checkpoint_is_a_store_that_goes_on(tmp_path: Path, told: Told) -> None:
    store = opened(tmp_path / "s", told)
    half = len(told.topic) // 2
    store.apply(told.topic[:half])
    store.checkpoint(tmp_path / "copy")
    store.close()
    copy = opened(tmp_path / "copy", told)
    assert copy.next_offset == told.topic[half].offset
    copy.apply(told.topic[half:])
    assert_same(copy, told)
    copy.close()


def test_a_store_of_another_partition_is_set_aside(tmp_path: Path, told: Told) -> None:
    store = opened(tmp_path / "s", told)
    store.apply(told.topic)
    store.close()
    other = open_store(tmp_path / "s", log_id="log", partition=1, ways=ways(told))
    assert (other.next_offset, other.session_count) == (0, 0)
    other.close()
    assert len(asides(tmp_path / "s")) == 1


def test_a_flipped_bit_is_found_and_never_read_as_less(tmp_path: Path, told: Told) -> None:
    store = opened(tmp_path / "s", told)
    store.apply(told.topic)
    store.close()
    Rocks(tmp_path / "s").close()
    flip(files(tmp_path / "s", "sst")[0], at=0.4)
    store = opened(tmp_path / "s", told)
    with pytest.raises(TableCorruptError):
        assert_same(store, told)
    store.close()


def test_rows_that_are_missing_are_told(tmp_path: Path, told: Told) -> None:
    store = opened(tmp_path / "s", told)
    store.apply(told.topic)
    store.close()
    batch = Batch()
    batch.delete(rows.EVENT + rows.text_key("a") + rows.seq_key(1))
    tamper(tmp_path / "s", batch)
    store = opened(tmp_path / "s", told)
    (problem,) = store.inspect()
    assert isinstance(problem, Problem)
    assert "events" in problem.reason
    store.close()


def test_a_full_disk_keeps_nothing_of_the_batch_and_passes(tmp_path: Path) -> None:
    told = Told()
    told.given("s", created(), *(said("x" * 60_000) for _ in range(100)))
    told.given("s", *(said("x" * 60_000) for _ in range(120)))
    with small_disk(tmp_path / "disk", size_mb=24) as disk:
        store = opened(disk / "s", told)
        store.apply(told.topic[:20])
        filler = fill(disk)
        refused = first_refused(store, told.topic[20:])
        assert refused is not None
        before = store.next_offset
        state = store.state("s")
        assert state is not None
        assert state.seq == before
        assert len(list(store.stored_events("s"))) == before
        filler.unlink()
        wait_until_taken(store, told.topic[before : before + 20])
        assert store.state("s") == told.log.state("s", at_seq=before + 20)
        store.close()


def first_refused(store: EventStore, topic: Sequence[EventRecord]) -> str | None:
    for record in topic:
        try:
            store.apply([record])
        except LogUnavailableError as error:
            return error.reason
    return None


def wait_until_taken(store: EventStore, records: Sequence[EventRecord]) -> None:
    for _ in range(300):
        try:
            store.apply(records)
        except LogUnavailableError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("it never recovered")
