"""Sessions as a coding agent makes them, appended through the log port.

A session has turns; a turn has a user message and a few model calls, each with a tool
call and its output, some of them with a permission. Nothing is random: the same
arguments give the same events, except for ids and times.
"""

import hashlib
import itertools
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import uuid_utils

from foldline.processors.log import Log
from foldline.schemas.blocks import Blocks, json_block, text_block
from foldline.schemas.codec import encode_content
from foldline.schemas.envelope import Actor, Envelope
from foldline.schemas.events import (
    AssistantMessage,
    CompactionCompleted,
    CompactionStarted,
    GoalSet,
    InstructionsSet,
    KnownEvent,
    ModelCallCompleted,
    ModelCallStarted,
    PermissionGranted,
    PermissionRequested,
    SessionCreated,
    SystemObservation,
    ToolCallRequested,
    ToolDeclaration,
    ToolExecutionCompleted,
    ToolExecutionStarted,
    ToolsDeclared,
    TurnEnded,
    TurnStarted,
    Usage,
    UserMessage,
)
from foldline.schemas.recorded import Append
from foldline.schemas.verdicts import ACCEPTED

BATCH = 250
"""How many appends go to the log at once while a session is built."""

CALLS_PER_TURN = 3
PERMISSION_EVERY = 5
"""Every so many tool calls one waits for a person."""

_TOOLS = ("read_file", "run_tests", "edit_file", "search")
_WORDS = ("test", "assert", "import", "session", "state", "failed", "line", "expected")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many characters people, models and tools say at a time."""

    user: int = 240
    assistant: int = 320
    arguments: int = 120
    output: int = 2_048


@dataclass(frozen=True, slots=True)
class Step:
    """An event, who says it (the owner, or a person), and the batch it belongs to."""

    event: KnownEvent
    person: bool = False
    batch_id: str | None = None


def words(size: int, seed: int) -> str:
    """Text of exactly so many characters, a different one for each seed."""
    count = len(_WORDS)
    text = " ".join(
        f"{_WORDS[(seed + i * 7) % count]}{(seed * 31 + i) % 97}" for i in range(size // 5)
    )
    return text.ljust(size, ".")[:size]


def blocks(size: int, seed: int) -> Blocks:
    """One block of text."""
    return (text_block(words(size, seed)),)


class Script:
    """What happens in a session, one turn after the other."""

    def __init__(
        self,
        sizes: Sizes | None = None,
        *,
        permission_every: int | None = PERMISSION_EVERY,
    ) -> None:
        self._sizes = sizes or Sizes()
        self._permission_every = permission_every
        self._number = itertools.count(1)
        self._calls = itertools.count(1)

    def opening(self) -> list[Step]:
        """The first four events of a session."""
        tools = tuple(
            ToolDeclaration(name=name, effect="IDEMPOTENT", description=words(80, 1))
            for name in _TOOLS
        )
        return [
            Step(SessionCreated(agent="coder")),
            Step(GoalSet(blocks=blocks(120, 1))),
            Step(InstructionsSet(role="system", blocks=blocks(1_500, 2))),
            Step(ToolsDeclared(tools=tools)),
        ]

    def turn(self, *, calls: int = CALLS_PER_TURN) -> list[Step]:
        """A whole turn."""
        steps = self.turn_begin()
        for _ in range(calls):
            steps += self.tool_call()
        return [*steps, *self.model_call(), *self.turn_end()]

    def turn_end(self) -> list[Step]:
        """A turn's last event."""
        return [Step(TurnEnded(outcome="DONE"))]

    def turn_begin(self) -> list[Step]:
        """A turn's first two events."""
        number = next(self._number)
        said = blocks(self._sizes.user, number)
        return [
            Step(TurnStarted(trigger="USER")),
            Step(UserMessage(message_id=f"user_{number}", blocks=said), person=True),
        ]

    def model_call(self, *, model_call_id: str | None = None) -> list[Step]:
        """A model call and its message."""
        number = next(self._number)
        model_call_id = model_call_id or _id("mc")
        usage = Usage(input_tokens=9_000 + number, output_tokens=120)
        said = blocks(self._sizes.assistant, number)
        return [
            Step(
                ModelCallStarted(
                    model_call_id=model_call_id, provider="example", model="example-1"
                ),
                batch_id=model_call_id,
            ),
            Step(
                ModelCallCompleted(
                    model_call_id=model_call_id,
                    finish_reason="stop",
                    usage=usage,
                    latency_ms=2_400,
                ),
                batch_id=model_call_id,
            ),
            Step(
                AssistantMessage(
                    message_id=f"msg_{number}", model_call_id=model_call_id, blocks=said
                ),
                batch_id=model_call_id,
            ),
        ]

    def tool_call(self, *, ends: bool = True) -> list[Step]:
        """A model call that asks for a tool, and the tool's execution."""
        number = next(self._calls)
        model_call_id = _id("mc")
        steps = self.model_call(model_call_id=model_call_id)
        call_id = f"{model_call_id}:1"
        arguments = json.dumps({"path": words(self._sizes.arguments, number)})
        args_hash = hashlib.sha256(arguments.encode()).hexdigest()
        steps.append(
            Step(
                ToolCallRequested(
                    call_id=call_id,
                    provider_call_id=_id("toolu"),
                    tool=_TOOLS[number % len(_TOOLS)],
                    args_hash=args_hash,
                    message_id=f"msg_{number}",
                    position=1,
                    arguments=(json_block(arguments),),
                ),
                batch_id=model_call_id,
            )
        )
        every = self._permission_every
        if every is not None and number % every == 0:
            steps += _permission(call_id, args_hash)
        steps.append(
            Step(
                ToolExecutionStarted(
                    call_id=call_id,
                    effect="IDEMPOTENT",
                    operation_id=str(uuid_utils.uuid7()),
                    start_by_ms=5_000,
                )
            )
        )
        if ends:
            output = blocks(self._sizes.output, number)
            steps.append(
                Step(
                    ToolExecutionCompleted(
                        call_id=call_id, exit_code=0, duration_ms=840, output=output
                    )
                )
            )
        return steps

    def observation(self) -> Step:
        """One event that stands for itself, to come to an exact length."""
        number = next(self._number)
        return Step(SystemObservation(origin="harness", blocks=blocks(160, number)))


def _permission(call_id: str, args_hash: str) -> list[Step]:
    request_id = _id("req")
    return [
        Step(
            PermissionRequested(
                request_id=request_id,
                call_id=call_id,
                args_hash=args_hash,
                options=("allow", "deny"),
                display=blocks(120, 3),
            )
        ),
        Step(
            PermissionGranted(
                request_id=request_id,
                call_id=call_id,
                args_hash=args_hash,
                decided_by="PERSON",
                grant_id=_id("grant"),
            ),
            person=True,
        ),
    ]


def _id(kind: str) -> str:
    return f"{kind}_{uuid_utils.uuid7().hex[8:]}"


class Writer:
    """The owner of one session, and the person beside it, at the log port."""

    def __init__(self, log: Log, session_id: str) -> None:
        self._log = log
        self._session_id = session_id
        self._writer = str(uuid_utils.uuid7())
        self._agent = Actor(kind="AGENT", id=self._writer)
        self._person = Actor(kind="PERSON", id="ada")
        self._turn_id: str | None = None
        self.seq = 0

    def prepared(self, step: Step, *, ahead: int = 0) -> Append:
        """One append as a client makes it; `ahead` of it are others on their way."""
        event = step.event
        if isinstance(event, TurnStarted):
            self._turn_id = str(uuid_utils.uuid7())
        envelope = Envelope(
            event_id=str(uuid_utils.uuid7()),
            session_id=self._session_id,
            occurred_at=time.time_ns() // 1000,
            writer=self._writer,
            epoch=0 if step.person else 1,
            actor=self._person if step.person else self._agent,
            turn_id=self._turn_id,
            batch_id=step.batch_id,
        )
        if isinstance(event, TurnEnded):
            self._turn_id = None
        return Append(envelope, event, encode_content(event), known_seq=self.seq + ahead)

    def append(self, steps: Iterable[Step]) -> None:
        """Append many events, `BATCH` to a transaction."""
        rest = iter(steps)
        while some := list(itertools.islice(rest, BATCH)):
            appends = [self.prepared(step, ahead=i) for i, step in enumerate(some)]
            for verdict in self._log.append(appends):
                assert verdict.kind == ACCEPTED, verdict
                self.seq = verdict.seq

    def append_one(self, step: Step) -> None:
        """Append one event in a transaction of its own."""
        (verdict,) = self._log.append([self.prepared(step)])
        assert verdict.kind == ACCEPTED, verdict
        self.seq = verdict.seq


def fill(writer: Writer, script: Script, *, upto_seq: int) -> None:
    """Whole turns, then single events, until the session ends at exactly this seq."""

    def steps() -> Iterator[Step]:
        left = upto_seq - writer.seq
        while True:
            turn = script.turn()
            if len(turn) > left:
                break
            left -= len(turn)
            yield from turn
        for _ in range(left):
            yield script.observation()

    writer.append(list(steps()))


def compact(writer: Writer, *, kept_events: int = 20) -> None:
    """Replace all but the newest events in context by a summary."""
    base_seq = writer.seq
    compaction_id = _id("compaction")
    started = CompactionStarted(
        compaction_id=compaction_id,
        base_seq=base_seq,
        reason="BUDGET",
        token_before=140_000,
    )
    completed = CompactionCompleted(
        compaction_id=compaction_id,
        from_seq=1,
        to_seq=max(base_seq - kept_events, 1),
        base_seq=base_seq,
        strategy="SUMMARY",
        token_before=140_000,
        token_after=6_000,
        blocks=blocks(4_000, 5),
    )
    writer.append([Step(started), Step(completed)])


def build(
    log: Log,
    session_id: str,
    *,
    events: int,
    sizes: Sizes | None = None,
    compacted_before_end: int | None = None,
    killed: bool = False,
) -> Writer:
    """A session of exactly so many events.

    Args:
        log: where to.
        session_id: its id.
        events: how many.
        sizes: how much is said at a time.
        compacted_before_end: so many events before the end a compaction was completed.
        killed: it ends in the middle of a turn, while a tool executes.
    """
    script = Script(sizes)
    writer = Writer(log, session_id)
    end = [*script.turn_begin(), *script.tool_call(ends=False)] if killed else []
    writer.append(script.opening())
    if compacted_before_end is not None:
        fill(writer, script, upto_seq=events - compacted_before_end - 2)
        compact(writer)
    fill(writer, script, upto_seq=events - len(end))
    writer.append(end)
    assert writer.seq == events, (writer.seq, events)
    return writer
