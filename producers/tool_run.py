"""Running the calls of one message: side by side, each once, results in call order.

For each call: if the log has its end, that is the result. Else its arguments are
checked, permission is asked for where the tool wants it (the request is recorded after
the call is, never before), and the attempt is executed. While anything is under way the
session is followed: an answer lets a call go on, steering or a cancellation stops what
can be stopped and keeps the rest from beginning. One call may be cancelled alone, also
before it is run here: in an earlier owner's time, or while it waits for permission.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from foldline.errors import FencedError
from foldline.producers.appender import raise_refused
from foldline.producers.calls import (
    asked_to_stop_call,
    kept_from_beginning,
    result_in_log,
    unusable,
)
from foldline.producers.execution import Attempt, Execution, end_of
from foldline.producers.identity import fresh_id, operation_id
from foldline.producers.ownership import Ownership
from foldline.producers.permission import (
    Asking,
    NotUsable,
    Permissions,
    Permitted,
    Stopped,
)
from foldline.producers.prepare import Draft
from foldline.producers.tools import (
    Cancelled,
    PendingCall,
    Tool,
    Toolbox,
    ToolResult,
    Waiting,
)
from foldline.producers.watching import STEERED, TAKEN_OVER, watched
from foldline.projections.steering import asked_to_stop, is_interrupted, reason_of
from foldline.schemas.events import (
    CancellationRequested,
    KnownEvent,
    PermissionDenied,
    PermissionGranted,
    SessionResumed,
    SteeringReceived,
    ToolCallValidated,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState


class ToolRun:
    """One run of some calls of a turn."""

    def __init__(
        self, owner: Ownership, *, turn_id: str, toolbox: Toolbox, asking: Asking
    ) -> None:
        self._owner = owner
        self._turn_id = turn_id
        self._toolbox = toolbox
        self._state = SessionState(owner.session_id)
        self._running: dict[str, Execution] = {}
        self._stopped: dict[str, str] = {}
        self._batch_id = fresh_id()
        self._permissions = Permissions(
            owner, turn_id=turn_id, batch_id=self._batch_id, asking=asking
        )
        self.parked = ""
        """Why the session was suspended after the run; empty where it was not."""
        self.interrupted = ""
        self.cancelled = ""

    async def results(self, calls: Sequence[PendingCall]) -> list[ToolResult]:
        """Run the calls; every outcome is recorded, also of those after a failed one.

        Raises:
            FencedError: another owner has the session; running tools were told to stop.
            AppendRefusedError: a start was refused.
            LogUnavailableError: something could not be recorded; the same run again
                records what is left, and runs nothing twice.
        """
        self._state = await self._owner.state()
        self._interrupt_if_asked_before()
        await self._stop_calls_asked_before(calls)
        async with watched(self._owner, self._state.seq, self._notice):
            tasks = [asyncio.create_task(self._one(call)) for call in calls]
            await self._all(tasks)
        return await self._closed([task.result() for task in tasks])

    async def _closed(self, results: list[ToolResult]) -> list[ToolResult]:
        """Suspend the session where the same call was refused too often.

        An interruption is a person's word too: then such calls do not begin, no more.
        Nor does one that was cancelled.
        """
        parking = self._permissions.parking
        closed = [
            await self._not_begun(result.call) if self._is_off(result) else result
            for result in results
        ]
        if parking and not self.interrupted:
            self.parked = await parking.park(turn_id=self._turn_id, batch_id=self._batch_id)
        return closed

    def _is_off(self, result: ToolResult) -> bool:
        """Whether nobody is to be asked about a call any more, whose wait is over."""
        if not isinstance(result, Waiting):
            return False
        unasked = result.call in self._permissions.parking
        return result.call.call_id in self._stopped or bool(self.interrupted and unasked)

    async def _all(self, tasks: list[asyncio.Task[ToolResult]]) -> None:
        """Wait for every call. When cancelled: stop what can be, leave the rest running."""
        if not tasks:
            return
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            self._stop_running("the turn was cancelled")
            self._permissions.waiters.cancel()
            self._leave(tasks)
            raise

    def _leave(self, tasks: list[asyncio.Task[ToolResult]]) -> None:
        """Their outcomes are recorded when they come, beside everything else."""
        for task in tasks:
            self._owner.later(end_of(task))

    # --- one call --------------------------------------------------------------------

    async def _one(self, call: PendingCall) -> ToolResult:
        try:
            return await self._result(call)
        except FencedError:
            self._stop_running(TAKEN_OVER)
            raise

    async def _result(self, call: PendingCall) -> ToolResult:
        known = await result_in_log(self._owner, call, self._state)
        if known is not None:
            return known
        tool = self._toolbox.get(call.tool)
        if tool is None:
            return await self._invalid(call, f"there is no tool {call.tool!r}")
        if call.arguments is None:
            return await self._invalid(call, call.problem)
        if self._why_not(call):
            return await self._not_begun(call)
        permitted = await self._permissions.of(call, tool, call.arguments, self._state)
        match permitted:
            case Permitted(arguments=arguments):
                if self._why_not(call):
                    return await self._not_begun(call)
                return await self._execute(call, tool, arguments)
            case NotUsable(problem=problem):
                return await self._invalid(call, problem)
            case Stopped(request_id=request_id):
                return await self._not_begun(call, request_id)
            case result:
                return result

    async def _invalid(self, call: PendingCall, problem: str) -> ToolResult:
        event = ToolCallValidated(call_id=call.call_id, valid=False, problem=problem)
        await self._owner.decide([self._draft(event)])
        return unusable(call, problem)

    def _why_not(self, call: PendingCall) -> str:
        """Why a call is not to begin any more; empty where it may."""
        return self.interrupted or self._stopped.get(call.call_id, "")

    async def _not_begun(
        self, call: PendingCall, request_id: str | None = None
    ) -> ToolResult:
        """Close a call that an interruption, or a stop, kept from beginning."""
        self._permissions.parking.drop(call)
        why = self._why_not(call)
        denied = kept_from_beginning(call.call_id, why, request_id=request_id)
        answers = await self._owner.attempt([self._draft(denied)])
        if answers[0].verdict.rule == "no_pending_request":
            # Somebody answered in the same moment: the call is closed all the same.
            denied = denied.model_copy(update={"request_id": None})
            answers = await self._owner.attempt([self._draft(denied)])
        if answers[0].verdict.rule == "no_request":
            # And the answer had closed it: that is what became of it.
            state = await self._owner.state()
            known = await result_in_log(self._owner, call, state)
            if known is not None:
                return known
        raise_refused(answers)
        return Cancelled(call, why, stop_confirmed=True)

    async def _execute(
        self, call: PendingCall, tool: Tool, arguments: dict[str, Any]
    ) -> ToolResult:
        known = self._state.calls.get(call.call_id)
        earlier = known.operation_id if known else ""
        execution = Execution(
            self._owner,
            Attempt(
                call=call,
                tool=tool,
                arguments=arguments,
                number=(known.attempt if known else 0) + 1,
                operation_id=earlier or operation_id(self._owner.session_id, call.call_id),
                turn_id=self._turn_id,
                effect=tool.effect,
            ),
        )
        self._running[call.call_id] = execution
        try:
            return await execution.run()
        finally:
            del self._running[call.call_id]

    def _draft(self, event: KnownEvent) -> Draft:
        return self._owner.draft(event, turn_id=self._turn_id, batch_id=self._batch_id)

    # --- what happens meanwhile ------------------------------------------------------

    def _notice(self, recorded: Recorded) -> None:
        match recorded.event:
            case PermissionGranted() | PermissionDenied():
                self._permissions.waiters.noticed(recorded)
            case SteeringReceived(mode="INTERRUPT"):
                self._interrupt(STEERED)
            case CancellationRequested(target="CALL") as request:
                self._stop_call(request.target_id or "", reason_of(request))
            case CancellationRequested() as request:
                self.cancelled = reason_of(request)
                self._interrupt(self.cancelled)
            case SessionResumed() if recorded.envelope.epoch > self._owner.epoch:
                self._stop_running(TAKEN_OVER)
            case _:
                pass

    def _interrupt_if_asked_before(self) -> None:
        state = self._state
        if is_interrupted(state):
            self._interrupt(STEERED)
        asked = asked_to_stop(state)
        if asked is not None:
            self.cancelled = reason_of(asked)
            self._interrupt(self.cancelled)

    async def _stop_calls_asked_before(self, calls: Sequence[PendingCall]) -> None:
        for call in calls:
            known = self._state.calls.get(call.call_id)
            reason = await asked_to_stop_call(self._owner, known) if known else ""
            if reason:
                self._stop_call(call.call_id, reason)

    def _stop_call(self, call_id: str, reason: str) -> None:
        """Stop one call, or keep it from beginning; the others go on."""
        self._stopped.setdefault(call_id, reason)
        self._permissions.waiters.stop(call_id)
        if (execution := self._running.get(call_id)) is not None:
            execution.stop(reason)

    def _interrupt(self, reason: str) -> None:
        """Stop what can be stopped; what has not begun does not begin."""
        self.interrupted = self.interrupted or reason
        self._stop_running(reason)
        self._permissions.waiters.interrupt()

    def _stop_running(self, reason: str) -> None:
        for execution in list(self._running.values()):
            execution.stop(reason)
