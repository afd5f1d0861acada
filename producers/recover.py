"""Carrying a recovery plan out. Killed in the middle and begun again, it does the same.

Every step is one event whose being there changes the next plan, or nothing at all; the
only thing done outside the log is asking a reconciler, and running again what is safe to
repeat, under the operation_id that it had.

How an execution of a RECONCILABLE tool is settled:

1. The reconciler is asked at once. "It happened" is true at any time: it is recorded.
2. "It did not happen" may be true only because it has not happened *yet*: the old owner
   may still begin until `start_by`. So that is waited for, in log time, and asked again.
3. Only the second "no" is recorded (NOT_EXECUTED); then the call may be started again,
   with the same operation_id.
4. No answer, or a reconciler that fails: the outcome is unknown, a person is asked.

A call that somebody cancelled is never started again: after a "no" it is closed instead.
"""

import asyncio
from typing import assert_never

from foldline.errors import AppendRefusedError, FencedError
from foldline.faults import crash_point
from foldline.producers.appender import raise_refused
from foldline.producers.calls import (
    asked_to_stop_call,
    kept_from_beginning,
    pending_call,
)
from foldline.producers.ending import end_session
from foldline.producers.execution import Attempt, Execution, end_of
from foldline.producers.ownership import Ownership
from foldline.producers.reconciling import ask_reconciler
from foldline.producers.recovery_actions import (
    ASKED,
    CANCELLED,
    COMPACTION_FAILED,
    MARKED_UNKNOWN,
    MODEL_CALL_CANCELLED,
    NOT_EXECUTED,
    REQUEST_EXPIRED,
    RESOLVED,
    RETRIED,
    RecoveryReport,
    Step,
)
from foldline.producers.stopping import stop_as_asked
from foldline.producers.tools import (
    Reconciled,
    Toolbox,
    ToolContext,
    said_blocks,
)
from foldline.producers.watching import stop_of, watched
from foldline.projections.planned import tries_of
from foldline.projections.recovery import (
    AskPerson,
    CancelModelCall,
    CloseCall,
    ExpireRequest,
    FailCompaction,
    HonourCancellation,
    KeepHandle,
    MarkUnknown,
    NeedsPerson,
    OfferAgain,
    PlannedAction,
    Reconcile,
    RecoveryPolicy,
    Retry,
    RetryLater,
    RunCall,
    is_to_stop,
    outcome_question,
    plan_recovery,
    unknown,
)
from foldline.projections.shaped import CRASHED
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    CompactionFailed,
    KnownEvent,
    ModelCallCancelled,
    PermissionExpired,
    SessionCancelled,
    ToolOutcomeResolved,
    ToolOutcomeUnknown,
    TurnEnded,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import Call, SessionState

PLAN_TRIES_MAX = 16
"""How often recovery plans anew because somebody else settled something meanwhile."""

LOG_TIME_TRIES_MAX = 20
"""How often an append is made again that the log says is a moment too early."""

LOG_TIME_STEP_S = 0.05


class Recovery:
    """One recovery of a session by its new owner."""

    def __init__(
        self,
        owner: Ownership,
        toolbox: Toolbox,
        policy: RecoveryPolicy,
        *,
        leave_tools: bool = False,
    ) -> None:
        """Recover a session with these; `run` begins.

        Args:
            owner: the new owner.
            toolbox: the tools that are here.
            policy: how often to go on without a person.
            leave_tools: leave an execution that may be repeated, or that its tool can be
                asked about, to another process if the tool is not here; otherwise it is
                unknown how it ended.
        """
        self._owner = owner
        self._toolbox = toolbox
        self._policy = policy
        self._leave_tools = leave_tools
        self._state = SessionState(owner.session_id)
        self.report = RecoveryReport()

    async def run(self) -> RecoveryReport:
        """Plan on the state at the head, and carry the plan out.

        People and the late outcomes of the old owner do not wait for it: where one came
        first, the step is refused, and what is left is planned anew.
        """
        tries_left = PLAN_TRIES_MAX
        while True:
            self._state = await self._owner.state()
            try:
                await self._carry_out()
            except FencedError:
                raise
            except AppendRefusedError:
                tries_left -= 1
                moved = (await self._owner.state()).seq != self._state.seq
                if not tries_left or not moved:
                    raise
            else:
                return self.report

    async def _carry_out(self) -> None:
        report, resumes = self.report, await self._resumes()
        for found in (
            report.left,
            report.to_run,
            report.waiting,
            report.handles,
            report.retries,
        ):
            found.clear()
        report.needs_person.clear()
        for action in plan_recovery(
            self._state, self._owner.now(), self._policy, resumes=resumes
        ):
            await self._do(action)

    async def _resumes(self) -> int:
        """How many owners have claimed the session since the open turn began."""
        link = self._owner.link
        return (await link.read(tries_of, link.log, self._state)).resumes

    def _did(
        self, action: str, *, call_id: str = "", attempt: int = 0, detail: str = ""
    ) -> None:
        self.report.done.append(Step(action, call_id, attempt, detail))

    async def _do(self, action: PlannedAction) -> None:
        match action:
            case CancelModelCall():
                await self._cancel_model_call(action)
            case FailCompaction(compaction_id=name):
                await self._decide(CompactionFailed(compaction_id=name, reason=CRASHED))
                self.report.compactions_failed += 1
                self._did(COMPACTION_FAILED, detail=name)
            case ExpireRequest():
                await self._expire(action)
            case Retry():
                await self._retry(action)
            case Reconcile():
                await self._reconcile(action)
            case MarkUnknown():
                await self._mark(action)
            case AskPerson():
                await self._ask(action)
            case CloseCall(call_id=call_id):
                await self._close(self._state.calls[call_id])
            case HonourCancellation():
                await self._cancel(action)
            case _:
                self._leave(action)

    def _leave(
        self, action: RunCall | OfferAgain | KeepHandle | RetryLater | NeedsPerson
    ) -> None:
        """What others do: it is told."""
        report = self.report
        match action:
            case RunCall(call_id=call_id):
                report.to_run.append(call_id)
            case OfferAgain(request_id=request_id):
                report.waiting.append(request_id)
            case KeepHandle(handle=handle):
                report.handles.append(handle)
            case RetryLater(target=target):
                report.retries.append(target)
            case NeedsPerson(reason=reason):
                report.needs_person.append(reason)
            case _:
                assert_never(action)

    async def _decide(self, event: KnownEvent) -> None:
        turn = self._state.turn
        turn_id = turn.turn_id if turn else None
        await self._owner.decide([self._owner.draft(event, turn_id=turn_id)])

    async def _decide_in_time(self, event: KnownEvent) -> None:
        """Decide what the log allows only after a `start_by`: its clock has the word."""
        turn_id = self._state.turn.turn_id if self._state.turn else None
        tries_left = LOG_TIME_TRIES_MAX
        while True:
            answers = await self._owner.attempt([self._owner.draft(event, turn_id=turn_id)])
            tries_left -= 1
            early = answers[0].verdict.rule == "start_by_not_passed"
            if not early or not tries_left:
                raise_refused(answers)
                return
            await asyncio.sleep(LOG_TIME_STEP_S)

    async def _wait_until(self, log_time: int) -> None:
        """Wait until log time has passed a moment; the claim's verdict sets the clock."""
        left = log_time + 1 - self._owner.now()
        if left > 0:
            await asyncio.sleep(left / 1_000_000)

    # --- what is not a tool ----------------------------------------------------------

    async def _cancel_model_call(self, action: CancelModelCall) -> None:
        await self._decide(
            ModelCallCancelled(
                model_call_id=action.model_call_id, reason="its owner is gone"
            )
        )
        self.report.model_calls_cancelled += 1
        self._did(MODEL_CALL_CANCELLED, detail=action.model_call_id)

    async def _expire(self, action: ExpireRequest) -> None:
        await self._decide(PermissionExpired(request_id=action.request_id))
        self.report.requests_expired += 1
        request = self._state.requests[action.request_id]
        self._did(REQUEST_EXPIRED, call_id=request.call_id, detail=action.request_id)
        if request.call_id:
            self.report.to_run.append(request.call_id)

    async def _cancel(self, action: HonourCancellation) -> None:
        """What somebody asked for; what may have happened in it was settled before."""
        if action.target == "SESSION":
            ended = SessionCancelled(reason=action.reason)
            await end_session(self._owner, ended, expire="the session was cancelled")
        else:
            await stop_as_asked(self._owner.link, self._owner.actor, self._state)
            await self._decide(TurnEnded(outcome="ABORTED", reason=action.reason))
        self.report.cancelled = action.target
        self._did(CANCELLED, detail=f"{action.target}: {action.reason}")
        self.report.to_run.clear()

    # --- executions without an end ---------------------------------------------------

    async def _retry(self, action: Retry) -> None:
        call = self._state.calls[action.call_id]
        tool = self._toolbox.get(call.tool)
        if tool is None and self._leave_tools:
            self.report.left.append(call.call_id)
            return
        pending = await pending_call(self._owner, call)
        if tool is None or pending.arguments is None:
            reason = pending.problem or f"there is no tool {call.tool!r} to repeat it with"
            await self._give_up(call, reason)
            return
        await self._wait_until(action.not_before_at)
        if await self._is_to_stop(call):
            await self._give_up(call, "somebody wanted it stopped before it was repeated")
            return
        attempt = Attempt(
            call=pending,
            tool=tool,
            arguments=pending.arguments,
            number=action.attempt,
            operation_id=action.operation_id,
            turn_id=self._state.turn.turn_id if self._state.turn else None,
            effect=call.effect,
        )
        await self._executed(attempt)
        self.report.retried += 1
        self._did(RETRIED, call_id=call.call_id, attempt=action.attempt)

    async def _is_to_stop(self, call: Call) -> bool:
        """Whether somebody wants a call stopped by now; the plan was made before."""
        state = await self._owner.state()
        known = state.calls.get(call.call_id)
        return known is not None and is_to_stop(state, known)

    async def _executed(self, attempt: Attempt) -> None:
        for _ in range(LOG_TIME_TRIES_MAX):
            try:
                await self._execute(attempt)
            except AppendRefusedError as error:
                if error.verdict.rule != "start_by_not_passed":
                    raise
                await asyncio.sleep(LOG_TIME_STEP_S)
            else:
                return
        await self._execute(attempt)

    async def _execute(self, attempt: Attempt) -> None:
        """Execute; whoever waits for the recovery may be cancelled, the outcome stays.

        As in a turn the session is followed meanwhile: a tool that can be stopped is.
        """
        owner, execution = self._owner, Execution(self._owner, attempt)

        def notice(recorded: Recorded) -> None:
            call_id = attempt.call.call_id
            if reason := stop_of(recorded, call_id=call_id, epoch=owner.epoch):
                execution.stop(reason)

        async with watched(owner, self._state.seq, notice):
            task = asyncio.create_task(execution.run())
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                execution.stop("the recovery was cancelled")
                owner.later(end_of(task))
                raise

    async def _reconcile(self, action: Reconcile) -> None:
        call = self._state.calls[action.call_id]
        if self._leave_tools and self._toolbox.get(call.tool) is None:
            self.report.left.append(call.call_id)
            return
        found = await self._ask_tool(call)
        if found.executed is False and self._owner.now() <= action.not_before_at:
            await self._wait_until(action.not_before_at)
            found = await self._ask_tool(call)
        match found.executed:
            case None:
                await self._give_up(call, found.evidence or "the reconciler cannot tell")
            case True:
                await self._resolve(call, "COMPLETED", found)
                self.report.resolved += 1
                self._did_settle(RESOLVED, call, found)
            case False:
                await self._resolve(call, "NOT_EXECUTED", found)
                self.report.not_executed += 1
                self._did_settle(NOT_EXECUTED, call, found)
                await self._run_or_close(call)

    async def _run_or_close(self, call: Call) -> None:
        """What becomes of a call that has certainly not happened."""
        if call.cancel_seq and self._state.turn is not None:
            await self._close(call)
        else:
            self.report.to_run.append(call.call_id)

    async def _close(self, call: Call) -> None:
        """Close a call that somebody cancelled, and that has not happened."""
        why = await asked_to_stop_call(self._owner, call)
        await self._decide(kept_from_beginning(call.call_id, why))
        self._did(CANCELLED, call_id=call.call_id, attempt=call.attempt, detail=why)

    def _did_settle(self, action: str, call: Call, found: Reconciled) -> None:
        self._did(action, call_id=call.call_id, attempt=call.attempt, detail=found.evidence)

    async def _ask_tool(self, call: Call) -> Reconciled:
        tool = self._toolbox.get(call.tool)
        if tool is None or tool.reconcile is None:
            return Reconciled(None, evidence=f"no reconciler for tool {call.tool!r}")
        pending = await pending_call(self._owner, call)
        context = ToolContext(
            session_id=self._owner.session_id,
            call_id=call.call_id,
            operation_id=call.operation_id,
            attempt=call.attempt,
            secrets=tool.secrets,
        )
        crash_point("CP_RECOVER_BEFORE_RECONCILE")
        answer = await ask_reconciler(tool.reconcile, pending.arguments or {}, context)
        crash_point("CP_RECOVER_AFTER_RECONCILE")
        return answer

    async def _resolve(self, call: Call, outcome: str, found: Reconciled) -> None:
        resolved = ToolOutcomeResolved(
            call_id=call.call_id,
            attempt=call.attempt,
            outcome=outcome,
            resolver=f"reconciler:{call.tool}",
            evidence=(text_block(found.evidence),) if found.evidence else (),
            output=said_blocks(found.said),
        )
        await self._decide_in_time(resolved)
        crash_point("CP_RECOVER_AFTER_RESOLVED")

    async def _give_up(self, call: Call, reason: str) -> None:
        """Nobody knows: say so, and ask a person."""
        for action in unknown(self._state, call, reason):
            await self._do(action)

    async def _mark(self, action: MarkUnknown) -> None:
        await self._decide(
            ToolOutcomeUnknown(
                call_id=action.call_id, attempt=action.attempt, reason=action.reason
            )
        )
        self.report.unknown += 1
        self._did(
            MARKED_UNKNOWN,
            call_id=action.call_id,
            attempt=action.attempt,
            detail=action.reason,
        )

    async def _ask(self, action: AskPerson) -> None:
        call = self._state.calls[action.call_id]
        await self._decide(outcome_question(call, request_id=action.request_id))
        self.report.asked += 1
        self._did(
            ASKED,
            call_id=action.call_id,
            attempt=action.attempt,
            detail=action.request_id,
        )
