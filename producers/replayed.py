"""A session, a turn and a model call of a replay: what a harness has in its hands.

They are the ones that every harness uses, with these differences:

- no tool is run and no reconciler is asked: what came of a call is taken from the record;
- what others said and found out is put in its place, before the harness looks;
- each request to the model, each answer, the tools and each turn's end are compared.

Ids are those of the record (turns, messages, model calls), so that whatever names one of
them names the same.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn, Self

from foldline.errors import SubagentEndedError
from foldline.producers.calls import result_in_log
from foldline.producers.ending import End
from foldline.producers.history import History
from foldline.producers.identity import fresh_id
from foldline.producers.model import ModelResponse
from foldline.producers.owned import OwnedSession
from foldline.producers.ownership import Ownership
from foldline.producers.prepare import Draft, blocks_of
from foldline.producers.recover import RecoveryReport
from foldline.producers.replay_script import Script
from foldline.producers.session import Said
from foldline.producers.tools import (
    Cancelled,
    PendingCall,
    Toolbox,
    ToolResult,
    Waiting,
)
from foldline.producers.turn import ModelCall, Turn
from foldline.projections.context import Context
from foldline.projections.replay import (
    HARNESS,
    OUTSIDE,
    Divergence,
    Request,
    tools_difference,
)
from foldline.schemas.blocks import Blocks
from foldline.schemas.events import (
    ModelCallCancelled,
    ModelCallFailed,
    ModelCallStarted,
    ToolsDeclared,
    TurnStarted,
    UserMessage,
)
from foldline.schemas.state import CALL_EXPIRED, CALL_RUNNING, SessionState
from foldline.schemas.verdicts import Verdict


class ReplayedSession(OwnedSession):
    """An owned session in a throw-away log, driven by a harness, held to a record."""

    _script: Script

    def follow_record(self, script: Script) -> None:
        """Hold what is done with this session to a record."""
        self._script = script

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
            self._history,
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

    async def resume_turn(self) -> Turn:
        """Go on with the turn that is open."""
        turn = await super().resume_turn()
        return ReplayedTurn(
            self._owner, self._history, turn_id=turn.turn_id, script=self._script
        )

    async def recover(self, toolbox: Toolbox, **how: Any) -> RecoveryReport:
        """Nothing is left open by anybody: no tool is asked, and none is run."""
        del toolbox, how
        return RecoveryReport()

    async def settle_subagents(self) -> list[str]:
        """What came of subagents is in the record."""
        return []

    async def _end(self, end: End, *, expire: str) -> Verdict:
        await self._script.check_session_end(end)
        return await super()._end(end, expire=expire)


class ReplayedTurn(Turn):
    """A turn of a replay."""

    def __init__(
        self,
        owner: Ownership,
        history: History,
        *,
        turn_id: str,
        script: Script,
        opening: Sequence[Draft] = (),
    ) -> None:
        super().__init__(owner, history, turn_id=turn_id, opening=opening)
        self._script = script

    async def __aenter__(self) -> Self:
        recorded = self._script.turn
        if recorded is not None:
            if self._script.progress.turns == 1:
                await self._script.give_set_up(self._owner)
            # What is due only in a turn that begins later must be there before it does.
            await self._script.give(self._owner, upto_seq=recorded.seq - 1)
        return await super().__aenter__()

    async def end(self, outcome: str = "DONE", *, reason: str = "") -> None:
        """End the turn, as it was ended."""
        await self._script.check_end(outcome)
        await super().end(outcome, reason=reason)

    async def context(self, **how: Any) -> Context:
        """What the model is to be shown now, with what had come by then."""
        await self._give()
        return await super().context(**how)

    async def _give(self) -> SessionState:
        await self._script.give(self._owner, upto_seq=self._script.bound())
        state = await self._owner.state()
        self._notice_cancellation(state)
        return state

    def model_call(
        self,
        context: Context | None = None,
        *,
        model: str,
        provider: str = "",
        purpose: str = "TURN",
        parameters_json: str = "{}",
        deadline_ms: int | None = None,
    ) -> ModelCall:
        """A call of a model, under the id that it had."""
        del parameters_json  # a part of the request's reference, which nobody reads here
        started = ModelCallStarted(
            model_call_id=self._script.next_call_id() or fresh_id(),
            purpose=purpose,
            provider=provider,
            model=model,
            deadline_ms=deadline_ms,
        )
        made = Request(provider, model, purpose, context)
        return ReplayedModelCall(
            self._owner, self.turn_id, started, script=self._script, made=made
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
        state = await self._run(calls)
        results = [await self._came_of(call, state) for call in calls]
        stopped = [r for r in results if isinstance(r, Cancelled)]
        self.interrupted = stopped[0].reason or "interrupted" if stopped else ""
        return results

    async def subagent(self, call: PendingCall, **how: Any) -> OwnedSession:
        """No child is made: it has ended, and `subagent_result` gives what it came to.

        Raises:
            SubagentEndedError: always, where there was a child.
        """
        del how
        child_id = self._script.recording.child_of(call.call_id)
        if child_id is None:
            return await self._never_run(call)
        raise SubagentEndedError(child_id, "COMPLETED")

    async def subagent_result(self, call: PendingCall) -> ToolResult:
        """What came of a call that a child worked on, by the record."""
        return await self._came_of(call, await self._run([call]))

    async def _stop_children(self) -> None:
        """Nobody is at work."""

    async def _run(self, calls: Sequence[PendingCall]) -> SessionState:
        """Give what the record has of these calls."""
        self._script.progress.tool_calls.update(call.call_id for call in calls)
        return await self._give()

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

    async def _came_of(self, call: PendingCall, state: SessionState) -> ToolResult:
        stands = state.calls.get(call.call_id)
        if stands is not None and stands.status == CALL_RUNNING and self._script.at_end:
            await self._script.end(
                f"the record ends while call {call.call_id} of {call.tool} runs: "
                "its outcome is unknown"
            )
        known = await result_in_log(self._owner, call, state)
        if known is not None:
            return known
        for request in state.requests.values():
            if request.call_id == call.call_id:
                return Waiting(call, request.request_id)
        if stands is not None and stands.status == CALL_EXPIRED:
            return Waiting(call, "", expired=True)
        if self._cancelled:
            return Cancelled(call, self._cancelled, stop_confirmed=True)
        return await self._never_run(call)

    async def _never_run(self, call: PendingCall) -> NoReturn:
        """The record does not say what came of it: nobody makes it up."""
        turn = self._script.turn
        if turn is None or turn.end_seq is None:
            await self._script.end(
                f"the record ends before call {call.call_id} of {call.tool} was run"
            )
        cause = HARNESS if turn.outcome in ("DONE", "LIMIT") else OUTSIDE
        said = f"{call.tool} was run; by the record nobody ran call {call.call_id}"
        await self._script.diverge(Divergence(turn.end_seq, cause, said))


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
    ) -> None:
        super().__init__(owner, turn_id, started)
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
