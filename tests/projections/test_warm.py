"""What is kept warm gives the context of the whole history, whatever happened between."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from foldline.processors.clock import wall_clock
from foldline.processors.http_wire import pack_sources, unpack_sources
from foldline.processors.lineage import joined_events, lineage_of
from foldline.processors.memory_log import MemoryLog
from foldline.processors.open_log import open_log
from foldline.processors.read_sources import opened_sources
from foldline.projections.building import build
from foldline.projections.context import Context, Sources, text_blobs
from foldline.projections.forking import fork_point
from foldline.projections.reading import context_of, set_up_of
from foldline.projections.service_contexts import wire_of
from foldline.projections.service_warm import How, WarmContexts
from foldline.projections.warm import Warm
from foldline.schemas.blocks import Blob, Block, json_block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    CompactionCompleted,
    ConstraintSet,
    ContextCleared,
    ContextPruned,
    GoalSet,
    HistoryRewound,
    InstructionsSet,
    KnownEvent,
    MessageRetracted,
    SessionCancelled,
    SteeringApplied,
    SteeringReceived,
    ToolExecutionCompleted,
    UserMessage,
)
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.log_story import new_id
from foldline.testing.samples import created, said, started
from tests.happenings import request, start


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    with closing(MemoryLog(settings=Settings(), clock=wall_clock)) as log:
        yield log


def whole(log: MemoryLog, session_id: str) -> Context:
    """The context built from the first event on, ancestors included."""
    events = list(joined_events(log, lineage_of(log, session_id)))
    texts = {sha256: log.blobs.get(sha256).decode() for sha256 in text_blobs(events)}
    return build(Sources(events, texts=texts))


def over_the_wire(log: MemoryLog, warm: Warm) -> Sources:
    """The sources as a client has them that was sent them."""
    wire = unpack_sources(pack_sources(wire_of(warm)))
    read = opened_sources(wire, lambda e: log.codec.decode(e.schema_id, e.body))
    assert read is not None
    set_up = set_up_of(read.held, read.base)
    return Sources(read.events, read.base_seq, set_up, read.texts)


def check(log: MemoryLog, contexts: WarmContexts, session_id: str) -> How:
    """What is warm shows what a rebuild shows, here and at a client; where it came from."""
    state = log.state(session_id)
    rebuilt = context_of(log, session_id)
    assert state is not None
    assert rebuilt is not None
    warm, how = contexts.sources(state)
    assert warm.upto_seq == state.seq
    assert build(warm.sources).sha256() == rebuilt.sha256()
    assert build(over_the_wire(log, warm)).sha256() == rebuilt.sha256()
    return how


# --- random histories ----------------------------------------------------------------


@dataclass
class Teller:
    """Tells a session step by step; each number says something that fits."""

    log: MemoryLog
    story: LogStory
    numbers: Callable[[int], int]
    calls: list[str] = field(default_factory=list[str])
    messages: list[str] = field(default_factory=list[str])
    steering: list[str] = field(default_factory=list[str])

    def say(self) -> None:
        message = UserMessage(message_id=new_id(), blocks=(text_block("words"),))
        self.story.given(message)
        self.messages.append(message.message_id)

    def say_much(self) -> None:
        sha256 = self.log.blobs.put(f"a long text {self.numbers(3)}".encode())
        blob = Blob(sha256=sha256, size=13, media_type="text/plain", preview="a long")
        block = Block(kind="text", media_type="text/plain", body=blob)
        self.story.given(UserMessage(message_id=new_id(), blocks=(block,)))

    def ask(self) -> None:
        call_id, message_id = new_id(), new_id()
        block = Block(kind="tool_call", call_id=call_id)
        self.story.given(
            AssistantMessage(message_id=message_id, final=True, blocks=(block,)),
            request(call_id, message_id=message_id, arguments=(json_block("{}"),)),
            start(call_id),
        )
        self.calls.append(call_id)

    def answer(self) -> None:
        if self.calls:
            call_id = self.calls.pop(self.numbers(len(self.calls)))
            output = (text_block(f"output of {call_id}"),)
            self.story.given(ToolExecutionCompleted(call_id=call_id, output=output))

    def compact(self) -> None:
        first = self.story.state.fork_seq + 1
        self.tell(
            CompactionCompleted(
                compaction_id=new_id(),
                from_seq=1 if self.numbers(3) else first,
                to_seq=self.cut(),
                base_seq=self.story.seq,
                strategy="s",
                blocks=(text_block("so far"),),
            )
        )

    def cut(self) -> int:
        """A seq to compact up to, or to rewind to."""
        first = self.story.state.fork_seq + 1
        return max(self.story.seq - self.numbers(9), first)

    def clear(self) -> None:
        self.story.given(ContextCleared())

    def rewind(self) -> None:
        self.tell(HistoryRewound(to_seq=self.cut()))

    def prune(self) -> None:
        for call_id in self.calls[:1]:
            self.story.given(ContextPruned(targets=(call_id,), rule="r"))

    def retract(self) -> None:
        if self.messages:
            gone = self.messages.pop(self.numbers(len(self.messages)))
            self.story.given(MessageRetracted(message_ids=(gone,)))

    def steer(self) -> None:
        self.story.given(SteeringReceived(blocks=(text_block("use nix"),)))
        self.steering.append(list(self.log.event_ids(self.story.session_id))[-1])

    def apply(self) -> None:
        if self.steering:
            self.tell(SteeringApplied(steering_event_id=self.steering.pop(0)))

    def set_up(self) -> None:
        words = (text_block(f"goal {self.numbers(3)}"),)
        events: tuple[KnownEvent, ...] = (
            GoalSet(blocks=words),
            InstructionsSet(role="system", blocks=words),
            ConstraintSet(constraint_id="k", blocks=words),
        )
        self.story.given(events[self.numbers(3)])

    def tell(self, event: KnownEvent) -> None:
        """Append what admission may refuse."""
        self.story.when(event)


STEPS = st.sampled_from(
    (
        "say",
        "say",
        "say_much",
        "ask",
        "answer",
        "compact",
        "clear",
        "rewind",
        "prune",
        "retract",
        "steer",
        "apply",
        "set_up",
    )
)

LIMITS = Settings()

EXPLORED = (Phase.explicit, Phase.reuse, Phase.generate)
"""Without shrinking: a step says what it did."""


@contextmanager
def telling(data: st.DataObject) -> Generator[tuple[Teller, list[str]]]:
    """Who tells a session in a log of its own, and the steps to tell."""

    def numbers(below: int) -> int:
        return data.draw(st.integers(0, max(below - 1, 0)))

    with closing(MemoryLog(settings=Settings(), clock=wall_clock)) as log:
        story = LogStory(log).given(created(), started(), said())
        yield Teller(log, story, numbers), data.draw(st.lists(STEPS, max_size=14))


@given(st.data())
@hypothesis_settings(max_examples=15, deadline=None, phases=EXPLORED)
def test_every_step_of_any_history_shows_what_a_rebuild_shows(data: st.DataObject) -> None:
    """Asked at each step, and now and then: with what was kept, and what came since."""
    with telling(data) as (teller, steps):
        each, rare = WarmContexts(teller.log, LIMITS), WarmContexts(teller.log, LIMITS)
        for step in steps:
            getattr(teller, step)()
            check(teller.log, each, teller.story.session_id)
            if not teller.numbers(3):
                check(teller.log, rare, teller.story.session_id)
        check(teller.log, rare, teller.story.session_id)
        check(teller.log, each, teller.story.session_id)
        assert check(teller.log, each, teller.story.session_id) == How.KEPT


@given(st.data())
@hypothesis_settings(max_examples=15, deadline=None, phases=EXPLORED)
def test_every_step_of_any_history_shows_what_the_whole_of_it_shows(
    data: st.DataObject,
) -> None:
    """From its first event on, however much of it was compacted, cleared or rewound."""
    with telling(data) as (teller, steps):
        contexts = WarmContexts(teller.log, LIMITS)
        for step in steps:
            getattr(teller, step)()
            check(teller.log, contexts, teller.story.session_id)
            state = teller.story.state
            shown = build(contexts.sources(state).warm.sources)
            assert shown.sha256() == whole(teller.log, state.session_id).sha256()


# --- forks ---------------------------------------------------------------------------


def test_a_fork_shows_its_ancestors_and_what_of_it_is_in_force(log: MemoryLog) -> None:
    """Before and behind a compaction of its own; what holds is its own creation."""
    goal = GoalSet(blocks=(text_block("ship it"),))
    parent = LogStory(log).given(created(), goal, started(), said("one"), said("two"))
    point = fork_point(log, parent.session_id, 4, tenant="default", agent="b", labels=[])
    child = LogStory(log)
    envelope = child.append(point.created, known_seq=0).envelope
    envelope = envelope.model_copy(update={"prev_hash": point.prev_hash})
    child.send([child.append(point.created)._replace(envelope=envelope)]).then("ACCEPTED")
    contexts = WarmContexts(log, LIMITS)
    assert check(log, contexts, child.session_id) == How.READ
    child.given(started(), said("three"))
    assert check(log, contexts, child.session_id) == How.GROWN
    seq = child.seq
    child.given(
        CompactionCompleted(
            compaction_id=new_id(),
            from_seq=1,
            to_seq=seq,
            base_seq=seq,
            strategy="s",
            blocks=(text_block("so far"),),
        )
    )
    assert check(log, contexts, child.session_id) == How.READ
    warm = contexts.sources(child.state).warm
    assert (warm.sources.base_seq, warm.base != b"") == (seq, True)
    child.given(said("four"))
    assert check(log, contexts, child.session_id) == How.GROWN


# --- what is kept --------------------------------------------------------------------


def test_what_is_kept_is_bounded_by_sessions_and_by_bytes(log: MemoryLog) -> None:
    """Those that were asked for longest ago leave."""
    stories = [LogStory(log).given(created(), said("a" * 3_000)) for _ in range(5)]
    few = WarmContexts(log, Settings(warm_sessions=2))
    for story in stories:
        check(log, few, story.session_id)
    assert few.kept_sessions == 2
    assert check(log, few, stories[-1].session_id) == How.KEPT
    assert check(log, few, stories[0].session_id) == How.READ
    small = WarmContexts(log, Settings(warm_bytes=10_000))
    for story in stories:
        check(log, small, story.session_id)
    assert 3_000 < small.kept_bytes < 10_000
    none = WarmContexts(log, Settings(warm_sessions=0))
    assert [check(log, none, stories[0].session_id) for _ in range(2)] == [How.READ] * 2
    assert (none.kept_sessions, none.kept_bytes) == (0, 0)


def test_one_that_is_too_large_is_answered_as_far_as_there_is_room(log: MemoryLog) -> None:
    """And not read again at each of its events, until a compaction makes it small."""
    contexts = WarmContexts(log, Settings(warm_session_bytes=5_000))
    story = LogStory(log).given(created(), *(said("a" * 2_000) for _ in range(4)))
    warm, how = contexts.sources(story.state)
    assert (how, warm.complete, len(warm.sources.events)) == (How.READ, False, 3)
    assert (warm.upto_seq, contexts.kept_sessions) == (5, 0)
    contexts.tend(story.given(said("more")).state)
    assert contexts.kept_sessions == 0
    contexts.tend(story.given(ContextCleared()).state)
    assert contexts.kept_sessions == 1


def test_sessions_that_nobody_will_take_are_not_kept(log: MemoryLog) -> None:
    """Mirrored ones, and those that have ended; what is asked for is answered."""
    contexts = WarmContexts(log, LIMITS)
    mirrored = LogStory(log).given(created("MIRRORED"), said("one"))
    contexts.tend(mirrored.state)
    check(log, contexts, mirrored.session_id)
    assert contexts.kept_sessions == 0
    story = LogStory(log).given(created(), said("one"))
    contexts.tend(story.state)
    assert contexts.kept_sessions == 1
    contexts.tend(story.given(SessionCancelled(reason="enough")).state)
    assert contexts.kept_sessions == 0


def test_what_is_of_another_history_is_read_again(log: MemoryLog) -> None:
    """As where a store was built anew from a topic that was made anew."""
    contexts = WarmContexts(log, LIMITS)
    story = LogStory(log).given(created(), said("one"), said("two"))
    contexts.sources(story.state)
    state = story.state
    state.chain_head = b"another" * 4
    assert contexts.sources(state).how == How.READ
    with closing(MemoryLog(settings=Settings(), clock=wall_clock)) as anew:
        other = LogStory(anew, session_id=story.session_id)
        other.given(created(), said("else"), started(), said("three"))
        kept = contexts.sources(story.state).warm
        tail = list(anew.events(story.session_id, after_seq=3))
        assert kept.grown(other.state, tail, {}) is None


def test_what_is_kept_counts_in_bytes_whatever_the_script(log: MemoryLog) -> None:
    """A character of Chinese is three of them; read at once or as it grows."""
    contexts = WarmContexts(log, Settings())
    story = LogStory(log).given(created(), said("one"))
    contexts.sources(story.state)
    sizes: list[int] = []
    for text in ("a" * 30_000, "文" * 30_000):
        sha256 = log.blobs.put(text.encode())
        body = Blob(sha256=sha256, size=len(text.encode()), media_type="text/plain")
        block = Block(kind="text", body=body)
        story.given(UserMessage(message_id=new_id(), blocks=(block,)))
        sizes.append(contexts.sources(story.state).warm.size)
    events = sum(len(recorded.body) for recorded in log.events(story.session_id))
    assert sizes[1] == events + 30_000 + 90_000
    assert WarmContexts(log, Settings()).sources(story.state).warm.size == sizes[1]


def test_a_blob_that_is_not_there_is_left_to_whoever_reads_it(tmp_path: Path) -> None:
    """It is not kept, so it is whole as soon as the blob is back."""
    settings = Settings(blobs=str(tmp_path / "blobs"))
    with closing(open_log(f"sqlite:///{tmp_path}/log.db", settings=settings)) as log:
        sha256 = log.blobs.put(b"a long text")
        blob = Blob(sha256=sha256, size=11, media_type="text/plain", preview="a")
        block = Block(kind="text", body=blob)
        message = UserMessage(message_id=new_id(), blocks=(block,))
        story = LogStory(log).given(created(), message)
        (path,) = (p for p in (tmp_path / "blobs").rglob("*") if p.is_file())
        data = path.read_bytes()
        path.unlink()
        contexts = WarmContexts(log, settings)
        warm = contexts.sources(story.state).warm
        assert (warm.complete, warm.sources.texts, contexts.kept_sessions) == (False, {}, 0)
        path.write_bytes(data)
        assert contexts.sources(story.state).warm.sources.texts == {sha256: "a long text"}
        assert contexts.kept_sessions == 1
