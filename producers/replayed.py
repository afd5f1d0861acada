"""A session, a turn and a model call of a replay: what a harness has in its hands.

They are the ones that every harness uses, with these differences:

- no tool is run and no reconciler is asked: what came of a call is taken from the record;
- what others said and found out is put in its place, before the harness looks;
- each request to the model, each answer, the tools and each turn's end are compared.

Ids are those of the record (turns, messages, model calls), so that whatever names one of
them names the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from foldline.errors import PendingSteeringError, ReplayError, SubagentEndedError
from foldline.producers.ending import End
from foldline.producers.identity import fresh_id
from foldline.producers.model import ModelResponse
from foldline.producers.model_call import ModelCall
from foldline.producers.ownership import Ownership
from foldline.producers.prepare import Draft, Said, blocks_of
from foldline.producers.recovery_actions import RecoveryReport
from foldline.producers.replay_calls import RecordedResults
from foldline.producers.replay_script import Script
from foldline.producers.replay_shaping import RecordedShaping
from foldline.producers.session import STEERING, OwnedSession
from foldline.producers.shaping import Shaping, Way
from foldline.producers.tools import (
    Cancelled,
    PendingCall,
    Toolbox,
    ToolResult,
)
from foldline.producers.turn import Turn
from foldline.producers.watching import STEERED
from foldline.projections.context import Context
from foldline.projections.render_anthropic import Caching
from foldline.projections.replay import Request, tools_difference
from foldline.projections.request import Form
from foldline.projections.steering import is_interrupted, pending_steering
from foldline.schemas.blocks import Blocks
from foldline.schemas.choices import TurnOutcome
from foldline.schemas.events import (
    ModelCallCancelled,
    ModelCallFailed,
    ModelCallStarted,
    ToolsDeclared,
    TurnStarted,
    UserMessage,
)
from foldline.schemas.verdicts import Verdict


class ReplayedSession(OwnedSession):
    """An owned session in a throw-away log, driven by a harness, held to a record."""

    _script: Script
    _results: RecordedResults

    def follow_record(self, script: Script) -> None:
        """Hold what is done with this session to a record."""
        self._script = script
        self._results = RecordedResults(self._owner, script)

    def turn(self, said: Said = (), *, trigger: str = "") -> Turn:
        """Begin a turn, under the id that it had."""
        recorded = self._script.begin_turn()
        turn_id = recorded.turn_id if recorded else fresh_id()
        blocks = blocks_of(said)
        started = TurnStarted(trigger=trigger or ("USER" if blocks else "HARNESS"))
        opening = [self._owner.draft(started, turn_id=turn_id)]
        if blocks:
            opening.append(self._opening_message(turn_id, blocks))
        return ReplayedTurn(
            self._owner,
            self._shaping,
            turn_id=turn_id,
            opening=opening,
            script=self._script,
        )

    def _opening_message(self, turn_id: str, blocks: Blocks) -> Draft:
        recorded = self._script.turn
        known = recorded.message if recorded else None
        message = UserMessage(
            message_id=known.message_id if known else fresh_id(),
            replaces=known.replaces if known else None,
            blocks=blocks,
        )
        event_id = recorded.message_event_id if recorded else ""
        draft = self._external(message, turn_id=turn_id, event_id=event_id or None)
        return replace(draft, sent_before=False)

    async def steered_turn(self, *, wait_s: float = 0.0) -> Turn | None:
        """Begin the turn that steering began; nobody is waited for."""
        del wait_s
        recorded = self._script.next_turn
        if recorded is None or recorded.trigger != STEERING:
            return None
        return self.turn(trigger=STEERING)

    async def resume_turn(self) -> Turn:
        """Go on with the turn that is open."""
        turn = await super().resume_turn()
        return ReplayedTurn(
            self._owner, self._shaping, turn_id=turn.turn_id, script=self._script
        )

    async def recover(self, toolbox: Toolbox, **how: Any) -> RecoveryReport:
        """Nothing is left open by anybody: no tool is asked, and none is run."""
        del toolbox, how
        return RecoveryReport()

    async def fork(self, at_seq: int, **how: Any) -> OwnedSession:
        """No fork is made: what one did is in a record of its own.

        Raises:
            ReplayError: always; a harness that forks asks `inputs.live` before.
        """
        del how
        reason = (
            f"its harness forks it at seq {at_seq}: a fork has a record of its own; "
            "replay that by itself, and fork only where inputs.live is true"
        )
        raise ReplayError(self.session_id, reason)

    async def subagent(self, call: PendingCall, **how: Any) -> OwnedSession:
        """No child is made: it has ended, and `subagent_result` gives what it came to.

        Raises:
            SubagentEndedError: always, where there was a child.
        """
        del how
        recording = self._script.recording
        child_id = recording.child_of(call.call_id)
        if child_id is None:
            return await self._results.never_run(call)
        raise SubagentEndedError(child_id, recording.end_of(child_id) or "COMPLETED")

    async def subagent_result(self, call: PendingCall) -> ToolResult:
        """What came of a call that a child worked on, by the record."""
        return (await self._results.of([call]))[0]

    async def settle_subagents(self) -> list[str]:
        """What came of subagents is in the record."""
        return []

    async def _end(self, end: End, *, expire: str, event_id: str | None = None) -> Verdict:
        await self._script.give_between_turns(self._owner)
        pending = pending_steering(await self._owner.state())
        if pending and not expire and self._script.next_turn is not None:
            # As it was: the end was called off, and another turn took the steering up.
            raise PendingSteeringError(self.session_id, [s.event_id for s in pending])
        await self._script.check_session_end(end)
        return await super()._end(end, expire=expire, event_id=event_id)


class ReplayedTurn(Turn):
    """A turn of a replay."""

    def __init__(
        self,
        owner: Ownership,
        shaping: Shaping,
        *,
        turn_id: str,
        script: Script,
        opening: Sequence[Draft] = (),
    ) -> None:
        super().__init__(owner, shaping, turn_id=turn_id, opening=opening)
        self._script = script
        self._results = RecordedResults(owner, script)
        self._as_recorded = RecordedShaping(owner, script, turn_id=turn_id)

    async def __aenter__(self) -> Self:
        recorded = self._script.turn
        if recorded is not None:
            if self._script.progress.turns == 1:
                await self._script.give_set_up(self._owner)
            # What is due only in a turn that begins later must be there before it does.
            await self._script.give(self._owner, upto_seq=recorded.seq - 1)
        return await super().__aenter__()

    async def end(self, outcome: TurnOutcome = "DONE", *, reason: str = "") -> None:
        """End the turn, as it was ended."""
        await self._script.check_end(outcome)
        await super().end(outcome, reason=reason)

    async def context(self, **how: Any) -> Context:
        """What the model is to be shown now, with what had come by then."""
        await self._script.give(self._owner, upto_seq=self._script.bound())
        return await super().context(**how)

    async def _shaped(self, context: Context, way: Way) -> Context:
        """As the record has it: by the harness's own policy other texts would come."""
        return await self._as_recorded.shaped(context, way)

    async def _compacted(self, context: Context, way: Way, to_seq: int | None) -> bool:
        del to_seq
        return await self._as_recorded.shaped(context, way) is not context

    def model_call(
        self,
        context: Context | None = None,
        *,
        model: str,
        provider: str = "",
        format: str = "",  # noqa: A002 - as in a turn
        parameters: Mapping[str, Any] | None = None,
        caching: Caching | None = None,
        purpose: str = "TURN",
        deadline_ms: int | None = None,
    ) -> ModelCall:
        """A call of a model, under the id that it had."""
        started = ModelCallStarted(
            model_call_id=self._script.next_call_id() or fresh_id(),
            purpose=purpose,
            provider=provider,
            model=model,
            deadline_ms=deadline_ms,
        )
        return ReplayedModelCall(
            self._owner,
            self.turn_id,
            started,
            script=self._script,
            made=Request(provider, model, purpose, context),
            form=Form(format, model, provider, parameters or {}, caching),
        )

    # --- tools -----------------------------------------------------------------------

    async def run_tools(
        self, calls: Sequence[PendingCall], toolbox: Toolbox, **how: Any
    ) -> list[ToolResult]:
        """Give what came of calls, by the record. No tool is run, whatever it is."""
        del how
        bound = self._script.bound()
        if calls:
            await self._check_tools(toolbox, bound)
        results = await self._results.of(calls)
        state = await self._owner.state()
        self._notice_cancellation(state)
        # A call that was cancelled alone, or stopped by itself, interrupted no other.
        stopped = any(isinstance(result, Cancelled) for result in results)
        steered = STEERED if is_interrupted(state) else ""
        self.interrupted = (steered or self._cancelled) if stopped else ""
        return results

    async def _stop_children(self) -> None:
        """Nobody is at work."""

    async def _check_tools(self, toolbox: Toolbox, seq: int) -> None:
        declared = self._script.recording.tools_at(seq)
        if declared is None:
            return
        draft = self._owner.draft(ToolsDeclared(tools=toolbox.declarations()))
        # As it would be stored: redacted, its large bodies by their hash.
        event = self._owner.link.preparer.prepare(draft)[0].event
        made = event.tools if isinstance(event, ToolsDeclared) else ()
        found = tools_difference(seq, declared, made)
        if found is not None:
            await self._script.diverge(found)


class ReplayedModelCall(ModelCall):
    """A model call of a replay."""

    def __init__(
        self,
        owner: Ownership,
        turn_id: str,
        started: ModelCallStarted,
        *,
        script: Script,
        made: Request,
        form: Form,
    ) -> None:
        super().__init__(owner, turn_id, started, context=made.context, form=form)
        self._script = script
        self._made = made

    async def __aenter__(self) -> Self:
        await self._script.check_request(self._made)
        return await super().__aenter__()

    async def complete(self, response: ModelResponse) -> list[PendingCall]:
        """Record the answer, which must be the recorded one."""
        preparer = self._owner.link.preparer
        # As it will be stored: redacted, hashed, large bodies by their hash.
        prepared = [preparer.prepare(draft)[0].event for draft in self._answer(response)]
        await self._script.check_answer(prepared)
        return await super().complete(response)

    async def _end(self, event: ModelCallFailed | ModelCallCancelled) -> None:
        if isinstance(event, ModelCallFailed):
            await self._script.check_failure(event.error_type)
        await super()._end(event)
