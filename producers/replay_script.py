"""Where a replay stands: which recorded step is next, and what is given before it.

A step that differs ends the replay, and so does the end of the record. Whoever made the
step then waits for ever: its task is cancelled (`foldline.producers.replaying`), so
nothing of the harness runs on past that point.
"""

import asyncio
from dataclasses import dataclass, field, replace
from typing import NoReturn

from foldline.errors import RecordedFailureError
from foldline.producers.link import Stamp
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.ownership import Ownership
from foldline.producers.prepare import Draft
from foldline.projections.recorded_steps import RecordedCall, RecordedTurn
from foldline.projections.recording import Recording
from foldline.projections.replay import (
    HARNESS,
    MODEL,
    OUTSIDE,
    Divergence,
    Request,
    answer_difference,
    answer_of,
    request_difference,
)
from foldline.schemas.authority import authority_of
from foldline.schemas.blocks import Blob, Block, Blocks
from foldline.schemas.events import (
    AssistantMessage,
    InputProvided,
    InstructionsSet,
    KnownEvent,
    ToolCallRequested,
    ToolsDeclared,
    UnknownEvent,
    type_of,
)
from foldline.schemas.recorded import Recorded


class RecordedTime:
    """The clock of a replay's log: the log time of what was recorded, going on."""

    def __init__(self) -> None:
        self._now_us = 0

    def reach(self, time_us: int) -> None:
        """It is now at least this time, in microseconds since 1970."""
        self._now_us = max(self._now_us, time_us)

    def __call__(self) -> int:
        """The next microsecond."""
        self._now_us += 1
        return self._now_us


@dataclass(frozen=True, slots=True)
class NotGiven:
    """A recorded event that the replay's log would not take, and the rule."""

    seq: int
    type: str
    rule: str


@dataclass(slots=True)
class Progress:
    """How far a replay has come. `matched_seq` is the last recorded step that matched."""

    matched_seq: int = 0
    turns: int = 0
    model_calls: int = 0
    tool_calls: set[str] = field(default_factory=set[str])
    given: int = 0
    not_given: list[NotGiven] = field(default_factory=list[NotGiven])

    @property
    def steps(self) -> tuple[int, ...]:
        """Changes with every step that a harness takes."""
        steps = self.turns, self.model_calls, len(self.tool_calls), self.given
        return self.matched_seq, *steps


class Script:
    """A recording on its way through a harness."""

    def __init__(self, recording: Recording, clock: RecordedTime) -> None:
        self.recording = recording
        self.progress = Progress()
        self.divergence: Divergence | None = None
        self.ended = ""
        """Where the record ended before the harness did; empty if it did not."""
        self.stopped = asyncio.Event()
        self._clock = clock
        self._turn: RecordedTurn | None = None
        self._seen_seq = recording.first_seq
        self._shaped_seq = recording.first_seq - 1
        self._held: list[Recorded] = []

    # --- how it ends -----------------------------------------------------------------

    async def diverge(self, divergence: Divergence) -> NoReturn:
        """Stop here: the harness has left the record."""
        if not self.stopped.is_set():
            self.divergence = divergence
        await self._stop()

    async def end(self, reason: str) -> NoReturn:
        """Stop here: the record does not go on."""
        if not self.stopped.is_set():
            self.ended = reason
        await self._stop()

    def finish(self) -> None:
        """The harness came to its end: nothing of the record may be left."""
        call = self._next()
        if call is not None:
            said = "the harness ended where the model was asked once more"
            self.divergence = Divergence(call.seq, HARNESS, said)
        elif (turn := self.next_turn) is not None:
            said = "the harness ended where another turn began"
            self.divergence = Divergence(turn.seq, HARNESS, said)

    async def _stop(self) -> NoReturn:
        self.stopped.set()
        while True:
            await asyncio.get_running_loop().create_future()

    # --- turns -----------------------------------------------------------------------

    def begin_turn(self) -> RecordedTurn | None:
        """The recorded turn that the harness begins now; None where there is none."""
        self._turn = self.next_turn
        self.progress.turns += 1
        return self._turn

    @property
    def turn(self) -> RecordedTurn | None:
        """The recorded turn that the harness is in."""
        return self._turn

    @property
    def next_turn(self) -> RecordedTurn | None:
        """The recorded turn that has still to begin; None where there is none."""
        turns, begun = self.recording.turns, self.progress.turns
        return turns[begun] if begun < len(turns) else None

    async def give_between_turns(self, owner: Ownership) -> None:
        """Put in its place what came before the next turn, or before the end."""
        turn, ended = self.next_turn, self.recording.session_end()
        upto_seq = self.recording.last_seq
        if turn is not None:
            upto_seq = turn.seq - 1
        elif ended is not None:
            upto_seq = ended.seq - 1
        await self.give(owner, upto_seq=upto_seq)

    async def check_end(self, outcome: str) -> None:
        """The harness ends its turn: it must not have had more to do."""
        turn = self._turn
        if turn is None or self.stopped.is_set():
            return
        call = self._next()
        if call is not None and (turn.end_seq is None or call.seq < turn.end_seq):
            said = f"the turn ended ({outcome}) where the model was asked once more"
            await self.diverge(Divergence(call.seq, HARNESS, said))
        if turn.end_seq is None:
            return
        if turn.outcome in ("DONE", "LIMIT") and turn.outcome != outcome:
            said = "the turn ended otherwise"
            seq = turn.end_seq
            await self.diverge(Divergence(seq, HARNESS, said, turn.outcome, outcome))
        self._matched(turn.end_seq)

    async def check_session_end(self, event: KnownEvent) -> None:
        """The harness ends the session, as it was ended; an open record ends here."""
        if self.stopped.is_set():
            return
        self.finish()
        if self.divergence is not None:
            await self.diverge(self.divergence)
        ended = self.recording.session_end()
        if ended is None:
            last_seq = self.recording.last_seq
            await self.end(f"the record ends at seq {last_seq}, before the session does")
        made = type_of(event)
        if ended.type != made:
            said = "the session ended otherwise"
            await self.diverge(Divergence(ended.seq, HARNESS, said, ended.type, made))
        self._matched(ended.seq)

    # --- the model -------------------------------------------------------------------

    def _next(self) -> RecordedCall | None:
        made, calls = self.progress.model_calls, self.recording.calls
        return calls[made] if made < len(calls) else None

    @property
    def at_end(self) -> bool:
        """Whether the record goes no further than this, within a turn."""
        turn = self._turn
        return self._next() is None and turn is not None and turn.end_seq is None

    def next_call_id(self) -> str | None:
        """The id of the next recorded model call; None where there is none."""
        call = self._next()
        return None if call is None else call.started.model_call_id

    async def call(self) -> RecordedCall:
        """The recorded model call that the harness makes now."""
        call, turn = self._next(), self._turn
        end_seq = None if turn is None else turn.end_seq
        if call is not None and (end_seq is None or call.seq < end_seq):
            return call
        return await self._past("the model was asked once more")

    async def check_request(self, made: Request) -> None:
        """Compare a request to the model with the recorded one."""
        call = await self.call()
        # Contexts are built again from all events: not in the loop that tools share.
        found = await asyncio.to_thread(request_difference, self.recording, call, made)
        if found is not None:
            await self.diverge(found)
        self._matched(call.seq)

    async def answer(self) -> ModelResponse:
        """What the model answered.

        Raises:
            RecordedFailureError: it failed; a harness that tries again does so here too.
        """
        call = await self.call()
        if call.failed is not None:
            said = "".join(self.text(block) for block in call.failed.blocks)
            raise RecordedFailureError(call.failed.error_type, said)
        done = call.completed
        return ModelResponse(
            parts=[self._part(call, block) for block in call.blocks],
            usage=done.usage if done else None,
            finish_reason=done.finish_reason if done else None,
            response_id=done.response_id if done else None,
            model=done.model if done else None,
        )

    def _part(self, call: RecordedCall, block: Block) -> Block | ToolRequest:
        request = call.requests.get(block.call_id or "")
        if request is None or block.kind != "tool_call":
            return block
        arguments = "".join(self.text(part) for part in request.arguments)
        return ToolRequest(request.tool, arguments, request.provider_call_id)

    def text(self, block: Block) -> str:
        """The whole text of a block, also where it lies in the blob store."""
        body = block.body
        if isinstance(body, Blob):
            return self.recording.texts.get(body.sha256, body.preview or "")
        return body if isinstance(body, str) else ""

    async def check_answer(self, prepared: list[KnownEvent]) -> None:
        """Compare an answer, as it would be recorded, with the recorded one."""
        call = await self.call()
        requests = {e.call_id: e for e in prepared if isinstance(e, ToolCallRequested)}
        blocks: Blocks = ()
        for event in prepared:
            if isinstance(event, AssistantMessage):
                blocks = event.blocks
        if call.failed is not None:
            said = f"an answer where the call failed ({call.failed.error_type})"
            await self.diverge(Divergence(call.seq, MODEL, said))
        found = answer_difference(call, answer_of(blocks, requests))
        if found is not None:
            await self.diverge(found)
        self._answered(call)

    async def check_failure(self, error_type: str) -> None:
        """The harness records that its model failed; so it must be in the record."""
        if self.stopped.is_set():
            return
        call = await self.call()
        if call.failed is None:
            said = f"the call failed ({error_type}) where the model had answered"
            await self.diverge(Divergence(call.seq, MODEL, said))
        self._answered(call)

    def _answered(self, call: RecordedCall) -> None:
        self.progress.model_calls += 1
        self._matched(call.end_seq)

    async def _past(self, what: str) -> NoReturn:
        """The harness does more than was recorded."""
        turn = self._turn
        seq = self.recording.last_seq
        if turn is None:
            await self.diverge(Divergence(seq, HARNESS, f"{what}, beyond the last turn"))
        if turn.end_seq is None:
            await self.end(f"the record ends at seq {seq}, within a turn")
        cause = HARNESS if turn.outcome in ("DONE", "LIMIT") else OUTSIDE
        said = f"{what} where the turn had ended ({turn.outcome})"
        await self.diverge(Divergence(turn.end_seq, cause, said))

    # --- what is given ---------------------------------------------------------------

    def bound(self) -> int:
        """The seq up to which things are given before the harness's next step."""
        call, turn = self._next(), self._turn
        bounds = [self.recording.last_seq]
        bounds += [] if call is None else [call.upto_seq]
        bounds += [] if turn is None or turn.end_seq is None else [turn.end_seq - 1]
        return min(bounds)

    def shaping_upto(self, seq: int) -> list[Recorded]:
        """The recorded events up to a seq that were not asked for here yet."""
        first, self._shaped_seq = self._shaped_seq, max(self._shaped_seq, seq)
        return [r for r in self.recording.events if first < r.seq <= seq]

    async def give_set_up(self, owner: Ownership) -> None:
        """Put in force what was, where the harness has set up nothing of the kind."""
        state = await owner.state()
        for recorded in self.recording.set_up():
            event = recorded.event
            tools = isinstance(event, ToolsDeclared) and state.tools is None
            told = isinstance(event, InstructionsSet) and not state.instructions
            if tools or told:
                await self._give_one(owner, recorded)

    async def give(self, owner: Ownership, *, upto_seq: int) -> None:
        """Put into the replay's log what others said and found out, in its order."""
        for recorded in self._due(upto_seq):
            await self._give_one(owner, recorded)

    async def _give_one(self, owner: Ownership, recorded: Recorded) -> None:
        event = recorded.event
        if isinstance(event, UnknownEvent):
            self._refused(recorded, "unknown type")
            return
        self._clock.reach(recorded.envelope.recorded_at)
        answers = await owner.attempt([await self._draft(owner, recorded, event)])
        verdict = answers[0].verdict
        if verdict.recorded:
            self.progress.given += 1
        else:
            self._refused(recorded, verdict.rule or verdict.kind)

    def _refused(self, recorded: Recorded, rule: str) -> None:
        self.progress.not_given.append(NotGiven(recorded.seq, recorded.type, rule))

    def _due(self, upto_seq: int) -> list[Recorded]:
        """What is to be given now. What came of a call waits until the call is run."""
        recording, first = self.recording, self._seen_seq
        self._seen_seq = max(first, upto_seq)
        fresh = [
            recorded
            for recorded in recording.events
            if first < recorded.seq <= upto_seq and recording.gives(recorded)
        ]
        due: list[Recorded] = []
        held: list[Recorded] = []
        for recorded in (*self._held, *fresh):
            call_id = recording.call_of.get(recorded.seq)
            not_run = call_id is not None and call_id not in self.progress.tool_calls
            (held if not_run else due).append(recorded)
        self._held = held
        return due

    async def _draft(
        self, owner: Ownership, recorded: Recorded, event: KnownEvent
    ) -> Draft:
        envelope = recorded.envelope
        external = authority_of(event) == "external"
        stamp = Stamp(
            envelope.actor, 0 if external else owner.epoch, envelope.turn_id, None
        )
        if isinstance(event, InputProvided) and recorded.seq not in self.recording.call_of:
            event = await self._answering(owner, event)
        draft = owner.link.draft(owner.session_id, event, stamp, event_id=envelope.event_id)
        return replace(draft, sent_before=False)

    async def _answering(self, owner: Ownership, event: InputProvided) -> InputProvided:
        """An answer to the question as this run of the harness has asked it."""
        state = await owner.state()
        asked = [r for r in state.requests.values() if r.kind == "INPUT" and not r.call_id]
        if not asked or event.request_id in state.requests:
            return event
        first = min(asked, key=lambda request: request.seq)
        return event.model_copy(update={"request_id": first.request_id})

    def _matched(self, seq: int) -> None:
        self.progress.matched_seq = max(self.progress.matched_seq, seq)
