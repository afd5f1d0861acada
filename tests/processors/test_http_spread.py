"""Nodes of ranges of partitions: a client computes which one has a session."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from foldline.errors import AnotherNodeError, LogUnavailableError, RefusedRequestError
from foldline.processors.clock import wall_clock
from foldline.processors.http_calls import Calls
from foldline.processors.http_reads import HttpReads
from foldline.processors.http_spread import SpreadReads, urls_of
from foldline.processors.http_wire import unpack_events
from foldline.processors.memory_log import MemoryLog
from foldline.projections.service_health import metrics_text
from foldline.projections.service_node import Standing
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.samples import created, said, started
from foldline.topics import partition_for
from tests.serving import Served, serving

PARTITIONS = 4
IMPATIENT = Settings(resend_max=1, resend_after_ms=20)


@dataclass
class Range:
    """Partitions of a log, of which a node serves some."""

    served: range
    partitions: int = PARTITIONS
    behind: set[int] = field(default_factory=set[int])
    stopped: set[int] = field(default_factory=set[int])

    def partition_of(self, session_id: str) -> int:
        return partition_for(session_id, self.partitions)

    def standings(self) -> Sequence[Standing]:
        return [self._standing(p) for p in self.served]

    def _standing(self, partition: int) -> Standing:
        stopped = partition in self.stopped
        caught_up = partition not in self.behind
        problem = "a hole" if stopped else ""
        return Standing(partition, 5, 9, caught_up, problem, stopped=stopped)


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    log = MemoryLog(settings=Settings(), clock=wall_clock)
    yield log
    log.close()


@pytest.fixture
def ranges() -> list[Range]:
    """What the first node serves, and what the second."""
    return [Range(range(2)), Range(range(2, 4))]


@pytest.fixture
def nodes(log: MemoryLog, ranges: list[Range]) -> Iterator[list[Served]]:
    with ExitStack() as stack:
        yield [stack.enter_context(serving(log, replicated=one)) for one in ranges]


@pytest.fixture
def reads(nodes: list[Served]) -> Iterator[SpreadReads]:
    reads = spread(nodes)
    yield reads
    reads.close()


def spread(nodes: Sequence[Served], *more: str) -> SpreadReads:
    urls = [*more, *(node.url for node in nodes)]
    return SpreadReads(urls, settings=IMPATIENT, partitions=PARTITIONS)


def told(log: MemoryLog) -> list[LogStory]:
    """A session of each partition."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < PARTITIONS:
        session_id = f"s{number}"
        found.setdefault(partition_for(session_id, PARTITIONS), session_id)
        number += 1
    stories = [LogStory(log, session_id=found[p]) for p in range(PARTITIONS)]
    return [story.given(created(), started(), said()) for story in stories]


def test_every_session_is_read_at_its_own_node(log: MemoryLog, reads: SpreadReads) -> None:
    for story in told(log):
        name = story.session_id
        assert reads.state(name) == story.state
        assert reads.state(name, at_seq=2) == log.state(name, at_seq=2)
        assert [e.seq for e in reads.stored_events(name, after_seq=1)] == [2, 3]
        assert [e.seq for e in reads.follow(name, after_seq=2, timeout_ms=0)] == [3]
        assert list(reads.stored_snapshots(name)) == list(log.stored_snapshots(name))
    assert reads.state("nobody") is None
    assert list(reads.stored_events("nobody")) == []


def test_what_a_context_is_built_from_comes_from_the_sessions_node(
    log: MemoryLog, reads: SpreadReads, ranges: list[Range]
) -> None:
    """In one piece; after a change of ranges, and where there is none, in parts."""
    stories = told(log)
    for story in stories:
        found = reads.sources(story.session_id, min_seq=3)
        assert found is not None
        assert (found.base_seq, found.upto_seq) == (0, 3)
        assert list(unpack_events(found.events)) == list(
            log.stored_events(story.session_id)
        )
    assert reads.sources("nobody") is None
    ranges[0].served, ranges[1].served = ranges[1].served, ranges[0].served
    assert reads.sources(stories[0].session_id) is None


def test_what_goes_over_all_sessions_has_each_of_them_once(
    log: MemoryLog, reads: SpreadReads
) -> None:
    """Both nodes list all of them here, as replicas do."""
    stories = told(log)
    stories[1].given(said("the last one"))
    listed = [row.session_id for row in reads.sessions()]
    assert listed[0] == stories[1].session_id
    assert sorted(listed) == sorted(story.session_id for story in stories)
    assert len(reads.sessions(limit=2)) == 2
    rows = [row.session_id for row in reads.stored_sessions()]
    assert rows == sorted(story.session_id for story in stories)
    assert list(reads.inspect()) == []
    reads.warm_up()


def test_nodes_that_change_their_ranges_are_followed(
    log: MemoryLog, reads: SpreadReads, ranges: list[Range]
) -> None:
    stories = told(log)
    assert reads.state(stories[0].session_id) == stories[0].state
    ranges[0].served, ranges[1].served = ranges[1].served, ranges[0].served
    for story in stories:
        assert reads.state(story.session_id) == story.state


def test_a_replica_answers_for_one_that_is_gone_or_behind(
    log: MemoryLog, nodes: list[Served], ranges: list[Range]
) -> None:
    stories = told(log)
    ranges[0].served = ranges[1].served = range(PARTITIONS)
    ranges[0].behind = {1}
    reads = spread(nodes, "http://127.0.0.1:9")
    for story in stories:
        assert reads.state(story.session_id) == story.state
    reads.close()


def test_what_no_node_serves_is_refused_and_named(
    log: MemoryLog, nodes: list[Served]
) -> None:
    stories = told(log)
    reads = spread(nodes[:1])
    assert reads.state(stories[0].session_id) == stories[0].state
    with pytest.raises(LogUnavailableError, match="no node that answers serves 3"):
        reads.state(stories[3].session_id)
    with pytest.raises(LogUnavailableError, match="serves 2, 3"):
        reads.sessions()
    reads.close()


def test_one_node_alone_says_which_partitions_it_serves(
    log: MemoryLog, nodes: list[Served]
) -> None:
    reads = HttpReads(nodes[0].url, settings=IMPATIENT)
    with pytest.raises(AnotherNodeError, match="here are 0-1, of 4") as caught:
        reads.state(told(log)[3].session_id)
    error = caught.value
    assert (error.partition, error.partitions, error.served) == (3, 4, [0, 1])
    assert not error.retryable
    reads.close()


def test_a_refusal_keeps_what_the_service_said(nodes: list[Served]) -> None:
    calls = Calls(nodes[0].url, settings=IMPATIENT)
    given = {"type": "Nothing"}
    with pytest.raises(RefusedRequestError, match="no event type 'Nothing'") as caught:
        calls.send("POST", "/sessions/s0/appends", json=given)
    error = caught.value
    assert (error.status, error.problem) == (422, "unknown_type")
    with pytest.raises(RefusedRequestError) as caught:
        calls.send("POST", "/admin/checkpoint", json={"folder": "copy"})
    assert (caught.value.status, caught.value.title) == (409, "Conflict")
    calls.close()


def test_addresses_are_separated_by_commas() -> None:
    assert urls_of("http://a") == ["http://a"]
    assert urls_of(" http://a, http://b ,") == ["http://a", "http://b"]


def test_a_node_whose_partition_has_stopped_is_asked_last(log: MemoryLog) -> None:
    """A replica of the same answers at once, and has all sessions of a list."""
    stories = told(log)
    broken = Range(range(4), stopped={1})
    with (
        serving(log, replicated=broken) as first,
        serving(log, replicated=Range(range(4))) as second,
    ):
        reads = spread([first, second])
        for story in stories:
            assert reads.state(story.session_id) == story.state
        assert len(reads.sessions()) == PARTITIONS
        reads.close()
        lines = metrics_text(first.node).decode().splitlines()
        assert not [row for row in lines if "/sessions" in row and 'status="503"' in row]
