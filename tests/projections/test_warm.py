"""What is kept warm gives the context of the whole history, whatever happened between."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from foldline.processors.http_wire import pack_sources, unpack_sources
from foldline.processors.lineage import joined_events, lineage_of
from foldline.processors.memory_log import MemoryLog
from foldline.processors.open_log import wall_clock
from foldline.processors.read_sources import opened_sources
from foldline.projections.building import build
from foldline.projections.context import Context, Sources, text_blobs
from foldline.projections.reading import set_up_of
from foldline.projections.service_warm import How, WarmContexts
from foldline.projections.service_contexts import wire_of
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
    SessionCreated,
    SessionResumed,
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
    """What is warm shows what the whole history shows; where it came from."""
    state = log.state(session_id)
    assert state is not None
    warm, how = contexts.sources(state)
    assert warm.upto_seq == state.seq
    expected = whole(log, session_id).sha256()
    assert build(warm.sources).sha256() == expected
    assert build(over_the_wire(log, warm)).sha256() == expected
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
        seq, first = self.story.seq, self.story.state.fork_seq + 1
        to_seq = max(seq - self.numbers(4), first)
        from_seq = 1 if self.numbers(3) else first
        self.tell(
            CompactionCompleted(
                compaction_id=new_id(),
                from_seq=from_seq,
                to_seq=to_seq,
                base_seq=seq,
                strategy="s",
                blocks=(text_block("so far"),),
            )
        )

    def clear(self) -> None:
        self.story.given(ContextCleared())

    def rewind(self) -> None:
        first = self.story.state.fork_seq + 1
        back = self.story.seq - self.numbers(12)
        self.tell(HistoryRewound(to_seq=max(back, first)))

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


STEPS = (
    Teller.say,
    Teller.say,
    Teller.say_much,
    Teller.ask,
    Teller.answer,
    Teller.compact,
    Teller.clear,
    Teller.rewind,
    Teller.prune,
    Teller.retract,
    Teller.steer,
    Teller.apply,
    Teller.set_up,
)


@given(st.data())
@hypothesis_settings(max_examples=60, deadline=None)
def test_every_step_of_any_history_shows_what_the_whole_of_it_shows(
    data: st.DataObject,
) -> None:
    """Asked at each step, and now and then: with what was kept, and what came since."""

    def numbers(below: int) -> int:
        return data.draw(st.integers(0, max(below - 1, 0)))

    with closing(MemoryLog(settings=Settings(), clock=wall_clock)) as log:
        teller = Teller(log, LogStory(log).given(created(), started()), numbers)
        each, rare = WarmContexts(log, Settings()), WarmContexts(log, Settings())
        for step in data.draw(st.lists(st.sampled_from(STEPS), max_size=14)):
            step(teller)
            check(log, each, teller.story.session_id)
            if not numbers(3):
                check(log, rare, teller.story.session_id)
        check(log, rare, teller.story.session_id)
        check(log, each, teller.story.session_id)
        assert check(log, each, teller.story.session_id) == How.KEPT
