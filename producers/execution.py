"""One attempt of one tool call: start, effect, outcome.

1. The ToolExecutionStarted must be ACCEPTED.
2. The effect begins only while less than `start_by_ms` has gone by since the start was
   *sent*: whoever takes over later waits until that time has passed in the log, and
   then knows that it will not begin any more. A process that was frozen in between
   finds the time gone when it wakes. Without a verdict it never begins; a start that
   may be recorded is then closed as not executed, before anything else is decided.
3. The outcome is recorded, whatever has become of whoever waits for it. A tool that
   cannot be stopped is left running: nobody waits for it, its outcome is appended when
   it comes.
"""

import asyncio
import inspect
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import ValidationError

from foldline.errors import (
    FencedError,
    LogUnavailableError,
    StartTooLateError,
    UncertainAppendError,
)
from foldline.faults import crash_point
from foldline.producers.identity import elapsed_clock_s
from foldline.producers.ownership import Outcome, Ownership
from foldline.producers.reconciling import ask_reconciler
from foldline.producers.threads import run_apart
from foldline.producers.tools import (
    Background,
    Backgrounded,
    Cancelled,
    Done,
    Failed,
    PendingCall,
    TimedOut,
    Tool,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolResult,
    in_words,
    said_blocks,
)
from foldline.schemas.blocks import Blocks, text_block
from foldline.schemas.events import (
    ToolBackgrounded,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionStarted,
    ToolExecutionTimedOut,
    ToolOutcomeResolved,
    ToolOutcomeUnknown,
)

STOP_GRACE_S = 2.0
"""How long a cancellable tool has to stop before its stop is not confirmed."""

Work = asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is to be executed: the attempt counts from 1, the operation_id stays."""

    call: PendingCall
    tool: Tool
    arguments: dict[str, Any]
    number: int
    operation_id: str
    turn_id: str | None
    effect: str


class Execution:
    """Executes an attempt. `stop` may be called at any time, from the event loop."""

    def __init__(self, owner: Ownership, attempt: Attempt) -> None:
        self._owner = owner
        self._attempt = attempt
        self._sent_s = 0.0
        self._began_s = 0.0
        self._context = ToolContext(
            session_id=owner.session_id,
            call_id=attempt.call.call_id,
            operation_id=attempt.operation_id,
            attempt=attempt.number,
            deadline_s=attempt.tool.timeout_s,
            secrets=attempt.tool.secrets,
        )

    def stop(self, reason: str) -> None:
        """Tell the tool to stop; one that is not cancellable goes on to its safe end."""
        self._context.stop(reason)

    async def run(self) -> ToolResult:
        """Start, run and record.

        Raises:
            FencedError: another owner has the session; the effect did not begin.
            AppendRefusedError: the start was refused; the effect did not begin.
            LogUnavailableError: the start, or the outcome, is not recorded. The outcome
                is kept.
        """
        self._owner.stop_on_fence(self.stop)
        try:
            await self._start()
            if self._context.cancelled:
                return await self._never_begun()
            return await self._settle(self._begin())
        finally:
            self._owner.no_longer_stop(self.stop)

    async def _start(self) -> None:
        crash_point("CP_TOOL_BEFORE_START")
        attempt = self._attempt
        timeout_s = attempt.tool.timeout_s
        start = ToolExecutionStarted(
            call_id=attempt.call.call_id,
            attempt=attempt.number,
            effect=attempt.effect,
            operation_id=attempt.operation_id,
            cancellable=attempt.tool.cancellable,
            start_by_ms=self._owner.link.settings.start_by_ms,
            deadline_ms=None if timeout_s is None else round(timeout_s * 1000),
        )
        self._sent_s = elapsed_clock_s()
        draft = self._owner.draft(start, turn_id=attempt.turn_id)
        try:
            await self._owner.decide([draft])
        except UncertainAppendError:
            end = self._owner.draft(self._unbegun(), turn_id=attempt.turn_id)
            self._owner.close_later([draft, end])
            raise
        crash_point("CP_TOOL_AFTER_START")

    def _unbegun(self) -> ToolExecutionFailed:
        """The end of a start that may be recorded, and whose effect did not begin."""
        said = "Not run: the log did not answer in time whether it may begin."
        return ToolExecutionFailed(
            call_id=self._attempt.call.call_id,
            attempt=self._attempt.number,
            layer="HARNESS",
            error_type=UncertainAppendError.__name__,
            executed="NO",
            blocks=(text_block(said),),
        )

    # --- the effect ------------------------------------------------------------------

    def _begin(self) -> Work:
        tool = self._attempt.tool
        if inspect.iscoroutinefunction(tool.run):
            return asyncio.ensure_future(self._in_loop())
        loop = asyncio.get_running_loop()
        in_thread = partial(self._in_thread, loop)
        return run_apart(in_thread, name=f"foldline-tool-{tool.name}")

    def _check_in_time(self) -> None:
        """The last thing before the effect, in the thread where it happens."""
        self._began_s = elapsed_clock_s()
        late_ms = round((self._began_s - self._sent_s) * 1000)
        late_ms -= self._owner.link.settings.start_by_ms
        if late_ms >= 0:
            raise StartTooLateError(self._attempt.call.call_id, late_ms)

    async def _in_loop(self) -> Any:
        self._check_in_time()
        try:
            return await self._attempt.tool.run(self._attempt.arguments, self._context)
        except SystemExit as error:
            # Out of a task it would end the event loop, and every other session with it.
            raise ToolError(f"SystemExit: {error}") from error

    def _in_thread(self, loop: asyncio.AbstractEventLoop) -> Any:
        self._check_in_time()
        given = self._attempt.tool.run(self._attempt.arguments, self._context)
        if inspect.isawaitable(given):
            # A function around a coroutine function: nothing has happened yet.
            return asyncio.run_coroutine_threadsafe(_awaited(given), loop).result()
        return given

    async def _never_begun(self) -> ToolResult:
        """It was to stop before its effect began: that is certain, and recorded."""
        outcome, result = self._self_cancelled()
        await self._owner.record(outcome, turn_id=self._attempt.turn_id)
        return result

    # --- its end ---------------------------------------------------------------------

    async def _settle(self, work: Work) -> ToolResult:
        """Wait for the end, the time-out, or the order to stop a tool that can."""
        tool = self._attempt.tool
        stopping = asyncio.ensure_future(self._context.cancellation())
        watched = {work, stopping} if tool.cancellable else {work}
        try:
            await asyncio.wait(
                watched,
                timeout=tool.timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            stopping.cancel()
        # One that raises as soon as it is told to stop was stopped, however quick it is.
        told = self._context.cancelled and tool.cancellable
        if work.done() and not (told and _was_stopped(work)):
            return await self._finish(work)
        timed_out = not self._context.cancelled or not tool.cancellable
        self._context.stop("timed out")
        if tool.cancellable:
            await self._stop(work)
        if work.done() and not _was_stopped(work):
            return await self._finish(work)  # it came to its own end after all
        if timed_out:
            return await self._time_out(work)
        return await self._cancel(work)

    async def _stop(self, work: Work) -> None:
        if isinstance(work, asyncio.Task):
            work.cancel()
        await asyncio.wait({work}, timeout=STOP_GRACE_S)

    async def _time_out(self, work: Work) -> TimedOut:
        after_ms = self._elapsed_ms()
        confirmed = work.done()
        event = ToolExecutionTimedOut(
            call_id=self._attempt.call.call_id,
            attempt=self._attempt.number,
            after_ms=after_ms,
            stop_confirmed=confirmed,
        )
        await self._leave(event, work)
        return TimedOut(self._attempt.call, after_ms, confirmed)

    async def _cancel(self, work: Work) -> Cancelled:
        confirmed = work.done()
        event = ToolExecutionCancelled(
            call_id=self._attempt.call.call_id,
            attempt=self._attempt.number,
            reason=self._context.reason,
            stop_confirmed=confirmed,
        )
        await self._leave(event, work)
        return Cancelled(self._attempt.call, self._context.reason, confirmed)

    async def _leave(self, event: Outcome, work: Work) -> None:
        """Record that nobody waits any longer; the end comes when it comes."""
        if not work.done():
            self._owner.later(self._late(work))
        await self._owner.record(event, turn_id=self._attempt.turn_id)

    async def _late(self, work: Work) -> None:
        await asyncio.wait({work})
        await self._finish(work)

    async def _finish(self, work: Work) -> ToolResult:
        crash_point("CP_TOOL_AFTER_EFFECT")
        outcome, result = self._outcome(work)
        found = await self._found_out(outcome)
        if found is not None:
            return found
        await self._owner.record(outcome, turn_id=self._attempt.turn_id)
        crash_point("CP_TOOL_AFTER_OUTCOME")
        return result

    async def _found_out(self, outcome: Outcome) -> Done | None:
        """The end of a failure that did not keep the effect from happening.

        A tool that dies after its effect fails as one that dies before it. Where it
        can be asked, a yes is evidence; a no is none, the effect may be on its way.
        """
        attempt = self._attempt
        if not isinstance(outcome, ToolExecutionFailed) or outcome.executed != "UNKNOWN":
            return None
        if attempt.tool.reconcile is None:
            return None
        found = await ask_reconciler(
            attempt.tool.reconcile, attempt.arguments, self._context
        )
        if found.executed is not True:
            return None
        unknown = ToolOutcomeUnknown(
            call_id=attempt.call.call_id, attempt=attempt.number, reason=outcome.error_type
        )
        resolved = ToolOutcomeResolved(
            call_id=attempt.call.call_id,
            attempt=attempt.number,
            outcome="COMPLETED",
            resolver=f"reconciler:{attempt.tool.name}",
            evidence=(text_block(found.evidence), *outcome.blocks),
            output=said_blocks(found.said),
        )
        drafts = [
            self._owner.draft(event, turn_id=attempt.turn_id)
            for event in (unknown, resolved)
        ]
        try:
            answers = await self._owner.attempt(drafts)
        except (FencedError, LogUnavailableError):
            return None  # the failure itself is a fact, and kept until it is recorded
        if not all(sent.verdict.recorded for sent in answers):
            return None  # somebody else was quicker; the failure is a fact all the same
        return Done(attempt.call, resolved.output, None, attempt.number)

    def _elapsed_ms(self) -> int:
        return round((elapsed_clock_s() - self._began_s) * 1000)

    def _outcome(self, work: Work) -> tuple[Outcome, ToolResult]:
        if work.cancelled():
            return self._self_cancelled()
        error = work.exception()
        if error is not None:
            return self._failed(error)
        try:
            return self._given(work.result())
        except ValidationError as problem:  # an exit code or a handle that is none
            return self._failed(problem)

    def _given(self, value: object) -> tuple[Outcome, ToolResult]:
        match value:
            case Background() as background:
                return self._backgrounded(background)
            case ToolOutput() as output:
                return self._completed(self._said(output.said), output.exit_code)
            case said:
                return self._completed(self._said(said), None)

    def _said(self, said: object) -> Blocks:
        """What the tool said, without the secrets that it was given."""
        return self._context.secrets.conceal(said_blocks(said))

    def _completed(
        self, blocks: Blocks, exit_code: int | None
    ) -> tuple[Outcome, ToolResult]:
        attempt = self._attempt
        event = ToolExecutionCompleted(
            call_id=attempt.call.call_id,
            attempt=attempt.number,
            exit_code=exit_code,
            duration_ms=self._elapsed_ms(),
            output=blocks,
        )
        return event, Done(attempt.call, blocks, exit_code, attempt.number)

    def _failed(self, error: BaseException) -> tuple[Outcome, ToolResult]:
        attempt = self._attempt
        layer, executed = _judged(error)
        said = self._context.secrets.conceal_text(in_words(error))
        blocks = (text_block(said),) if said else ()
        event = ToolExecutionFailed(
            call_id=attempt.call.call_id,
            attempt=attempt.number,
            layer=layer,
            error_type=type(error).__name__,
            executed=executed,
            duration_ms=self._elapsed_ms(),
            blocks=blocks,
        )
        return event, Failed(
            attempt.call, event.error_type, blocks, executed, layer, attempt.number
        )

    def _backgrounded(self, background: Background) -> tuple[Outcome, ToolResult]:
        attempt = self._attempt
        blocks = self._said(background.said)
        event = ToolBackgrounded(
            call_id=attempt.call.call_id,
            attempt=attempt.number,
            handle=background.handle,
            output=blocks,
        )
        return event, Backgrounded(attempt.call, background.handle, blocks)

    def _self_cancelled(self) -> tuple[Outcome, ToolResult]:
        attempt = self._attempt
        reason = self._context.reason or "the tool cancelled itself"
        event = ToolExecutionCancelled(
            call_id=attempt.call.call_id,
            attempt=attempt.number,
            reason=reason,
            stop_confirmed=True,
        )
        return event, Cancelled(attempt.call, reason, stop_confirmed=True)


async def end_of(task: asyncio.Task[ToolResult]) -> None:
    """Wait for a call that nobody waits for; being cancelled is an end too."""
    try:
        await task
    except asyncio.CancelledError:
        if not task.done():
            raise


async def _awaited(given: Awaitable[Any]) -> Any:
    return await given


def _was_stopped(work: Work) -> bool:
    """Whether the work ended because it was told to: cancelled, or by an error then."""
    return work.cancelled() or work.exception() is not None


def _judged(error: BaseException) -> tuple[str, str]:
    """The layer that failed, and what is known of the effect."""
    match error:
        case StartTooLateError():
            return "HARNESS", "NO"
        case ToolError():
            return "TOOL", error.executed
        case _:
            return "TOOL", "UNKNOWN"
