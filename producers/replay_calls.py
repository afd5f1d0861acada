"""What came of tool calls, by a record: a replay's only way to a result."""

from collections.abc import Sequence
from typing import NoReturn

from foldline.producers.calls import result_in_log
from foldline.producers.ownership import Ownership
from foldline.producers.replay_script import Script
from foldline.producers.tools import Cancelled, PendingCall, ToolResult, Waiting
from foldline.projections.replay import HARNESS, OUTSIDE, Divergence
from foldline.projections.steering import asked_to_stop, reason_of
from foldline.schemas.state import CALL_EXPIRED, CALL_RUNNING, SessionState


class RecordedResults:
    """Gives results of calls; runs nothing, because it has nothing to run."""

    def __init__(self, owner: Ownership, script: Script) -> None:
        self._owner = owner
        self._script = script

    async def of(self, calls: Sequence[PendingCall]) -> list[ToolResult]:
        """What came of these calls, up to the harness's next recorded step."""
        self._script.progress.tool_calls.update(call.call_id for call in calls)
        await self._script.give(self._owner, upto_seq=self._script.bound())
        state = await self._owner.state()
        return [await self._of_one(call, state) for call in calls]

    async def _of_one(self, call: PendingCall, state: SessionState) -> ToolResult:
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
        asked = asked_to_stop(state)
        if asked is not None:
            return Cancelled(call, reason_of(asked), stop_confirmed=True)
        return await self.never_run(call)

    async def never_run(self, call: PendingCall) -> NoReturn:
        """The record does not say what came of it: nobody makes it up."""
        turn = self._script.turn
        if turn is None or turn.end_seq is None:
            await self._script.end(
                f"the record ends before call {call.call_id} of {call.tool} was run"
            )
        cause = HARNESS if turn.outcome in ("DONE", "LIMIT") else OUTSIDE
        said = f"{call.tool} was run; by the record nobody ran call {call.call_id}"
        await self._script.diverge(Divergence(turn.end_seq, cause, said))
