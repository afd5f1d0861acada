"""A turn: from a trigger to the agent's being idle again, and the model calls in it."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from foldline.errors import (
    BlobError,
    EncodeError,
    FencedError,
    FoldlineError,
    LogError,
    RedactionError,
    UncertainAppendError,
)
from foldline.faults import crash_point
from foldline.producers.appender import Answers, Sent, raise_refused, refusal_of
from foldline.producers.calls import open_calls
from foldline.producers.history import History
from foldline.producers.identity import elapsed_clock_s, fresh_id
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.ownership import Ownership
from foldline.producers.permission import Asking
from foldline.producers.policies import ApprovalLimits, ApprovalPolicy
from foldline.producers.prepare import Draft
from foldline.producers.stopping import stop_as_asked
from foldline.producers.tool_run import ToolRun
from foldline.producers.tools import PendingCall, Toolbox, ToolResult, parse_arguments
from foldline.projections.context import (
    POLICY,
    RENDERER,
    RENDERER_VERSION,
    Context,
)
from foldline.projections.steering import asked_to_stop, due_steering
from foldline.schemas.blocks import Block, json_block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    KnownEvent,
    ModelCallCancelled,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallStarted,
    RequestRef,
    SeqRange,
    SteeringApplied,
    ToolCallRequested,
    ToolResultProjected,
    TurnEnded,
)
from foldline.schemas.state import SessionState


class Turn:
    """An open turn of an owned session. An async context manager: its end is recorded.

    Left without an error it ends DONE; by an error FAILED; cancelled, or when somebody
    asked for its cancellation, ABORTED. `end` says something else, `leave` keeps it open
    for whoever resumes it. A turn that was lost to another owner ends nothing.
    """

    def __init__(
        self,
        owner: Ownership,
        history: History,
        *,
        turn_id: str,
        opening: Sequence[Draft] = (),
    ) -> None:
        self.turn_id = turn_id
        self.interrupted = ""
        self.parked = ""
        """Why the session was suspended with a request for a person; else empty."""
        self._owner = owner
        self._history = history
        self._opening = opening
        self._over = False
        self._cancelled = ""

    async def __aenter__(self) -> Self:
        if self._opening:
            try:
                await self._owner.decide(self._opening)
            except asyncio.CancelledError as error:
                # What was sent is recorded all the same: so is its end.
                await self.__aexit__(type(error), error, None)
                raise
            except UncertainAppendError as error:
                ended = TurnEnded(outcome="ABORTED", reason=type(error).__name__)
                end = self._owner.draft(ended, turn_id=self.turn_id)
                self._owner.close_later([self._opening[0], end])
                raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        over = self._over or self._owner.over
        if over or isinstance(error, (FencedError, LogError)):
            return
        if error is None:
            outcome = "ABORTED" if self._cancelled else "DONE"
            await self.end(outcome, reason=self._cancelled)
            return
        cancelled = isinstance(error, (asyncio.CancelledError, KeyboardInterrupt))
        try:
            await self.end(
                "ABORTED" if cancelled else "FAILED", reason=type(error).__name__
            )
        except FoldlineError as problem:
            error.add_note(f"and the turn's end was not recorded: {problem}")

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked for this turn, or the session, to be cancelled."""
        return bool(self._cancelled)

    async def end(self, outcome: str = "DONE", *, reason: str = "") -> None:
        """End the turn: DONE, ABORTED, FAILED or LIMIT.

        Raises:
            AppendRefusedError: DONE, while a call of it has neither outcome nor handle.
        """
        if self._cancelled:
            await self._stop_children()
        await self._decide(TurnEnded(outcome=outcome, reason=reason))
        self._over = True

    def leave(self) -> None:
        """Leave the turn open: this process, or the next owner, resumes it."""
        self._over = True

    # --- the model -------------------------------------------------------------------

    async def context(self) -> Context:
        """What the model is to be shown now: the history, correctly paired.

        Pending steering is put in and marked as applied. What stands in for a result
        that is not known yet is frozen, so that every rebuild shows the same.
        """
        state = await self._owner.state()
        self._notice_cancellation(state)
        applied = [
            SteeringApplied(steering_event_id=steering.event_id)
            for steering in due_steering(state)
        ]
        if applied:
            # The history has it from here on, and nothing else puts it there: whoever
            # builds a context later shows it once, in this place.
            crash_point("CP_STEERING_BEFORE_APPLIED")
            await self._decide(*applied)
            crash_point("CP_STEERING_AFTER_APPLIED")
        context = await self._history.context()
        if not context.stand_ins:
            return context
        await self._decide(
            *(
                ToolResultProjected(
                    call_id=shown.call_id, form=shown.form, blocks=shown.blocks
                )
                for shown in context.stand_ins
            )
        )
        return await self._history.context()

    def _notice_cancellation(self, state: SessionState) -> None:
        asked = asked_to_stop(state)
        if asked is not None:
            self._cancelled = asked.reason or "cancelled"

    def model_call(
        self,
        context: Context | None = None,
        *,
        model: str,
        provider: str = "",
        purpose: str = "TURN",
        parameters_json: str = "{}",
        deadline_ms: int | None = None,
    ) -> "ModelCall":
        """A call of a model; enter it, ask the model, and give `complete` its answer."""
        request = None if context is None else _reference(context, parameters_json)
        started = ModelCallStarted(
            model_call_id=fresh_id(),
            purpose=purpose,
            provider=provider,
            model=model,
            deadline_ms=deadline_ms,
            request=request,
        )
        return ModelCall(self._owner, self.turn_id, started)

    # --- tools -----------------------------------------------------------------------

    async def open_calls(self) -> list[PendingCall]:
        """The calls that have still to run: after a crash, those never begun.

        Calls that ended are not among them, however often the turn is resumed.
        """
        return await open_calls(self._owner, await self._owner.state())

    async def run_tools(
        self,
        calls: Sequence[PendingCall],
        toolbox: Toolbox,
        *,
        approval_wait_s: float | None = None,
        approval_expires_ms: int | None = None,
        policy: ApprovalPolicy | None = None,
        limits: ApprovalLimits | None = None,
    ) -> list[ToolResult]:
        """Run calls side by side and give what became of them, in their order.

        A call whose end is in the log is not run again: that end is its result.

        Args:
            calls: as `ModelCall.complete` or `open_calls` gave them.
            toolbox: the tools; a call of another name is answered as invalid.
            approval_wait_s: how long to wait for a person before a call is `Waiting`;
                the setting `approval_wait_ms` where not given.
            approval_expires_ms: when a request for permission expires, in log time.
            policy: decides which calls may run, may not, or need a person; what it
                leaves open `Tool.approval` decides.
            limits: how often the same call is denied or not answered before the session
                is suspended for a person (`parked` then says why).

        Raises:
            FencedError: another owner has the session. Tools that can stop were stopped.
            LogUnavailableError: something could not be recorded. The same call again
                records what is left, and runs nothing twice.
        """
        wait_ms = self._owner.link.settings.approval_wait_ms
        wait_s = wait_ms / 1000 if approval_wait_s is None else approval_wait_s
        run = ToolRun(
            self._owner,
            turn_id=self.turn_id,
            toolbox=toolbox,
            asking=Asking(wait_s, approval_expires_ms, policy, limits or ApprovalLimits()),
        )
        results = await run.results(calls)
        self.interrupted = run.interrupted
        self.parked = run.parked
        self._cancelled = self._cancelled or run.cancelled
        return results

    async def _stop_children(self) -> None:
        """Hand a cancellation on to the subagents that it is about."""
        owner = self._owner
        await stop_as_asked(owner.link, owner.actor, await owner.state())

    async def append(self, *events: KnownEvent) -> tuple[Sent, ...]:
        """Record events of the owner in this turn (a plan, an observation)."""
        return await self._decide(*events)

    async def _decide(self, *events: KnownEvent) -> Answers:
        return await self._owner.decide(
            [self._owner.draft(event, turn_id=self.turn_id) for event in events]
        )


class ModelCall:
    """One call of a model. Left without an answer, it is recorded as such."""

    def __init__(self, owner: Ownership, turn_id: str, started: ModelCallStarted) -> None:
        self.model_call_id = started.model_call_id
        self._owner = owner
        self._turn_id = turn_id
        self._started = started
        self._began_s = 0.0
        self._answered: list[Draft] = []
        self._texts: dict[str, str] = {}
        self._ended = False

    async def __aenter__(self) -> Self:
        started = self._draft(self._started)
        try:
            await self._owner.decide([started])
        except asyncio.CancelledError as error:
            await self.__aexit__(type(error), error, None)  # as in a turn
            raise
        except UncertainAppendError as error:
            end = self._draft(self._cancelled_as(type(error).__name__))
            self._owner.close_later([started, end])
            raise
        self._began_s = elapsed_clock_s()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ended or isinstance(error, (FencedError, LogError)):
            return
        if error is None:
            await self._end(self._cancelled_as("left without an answer"))
            return
        cancelled = isinstance(error, (asyncio.CancelledError, KeyboardInterrupt))
        try:
            await self._end(
                self._cancelled_as(type(error).__name__)
                if cancelled
                else self._failed_as(type(error).__name__, str(error))
            )
        except FoldlineError as problem:
            error.add_note(f"and the model call's end was not recorded: {problem}")

    async def complete(self, response: ModelResponse) -> list[PendingCall]:
        """Record the answer and the calls it asks for, in one batch; give the calls.

        A call that the provider sent twice in the turn is one call. After a
        LogUnavailableError the same again records the answer once.

        Raises:
            FencedError: another owner has the session.
            LogUnavailableError: not recorded.
        """
        if not self._answered:
            self._answered = self._answer(response)
        self._ended = True  # what is sent is recorded, whoever waits for it
        try:
            answers = await self._owner.attempt(self._answered)
        except (EncodeError, RedactionError, BlobError):
            self._ended = False  # nothing of it is: it failed, which is said on leaving
            raise
        calls: dict[str, PendingCall] = {}
        for sent in answers:
            if isinstance(sent.event, ToolCallRequested):
                call = await self._requested(sent, sent.event)
                calls.setdefault(call.call_id, call)
            elif (error := refusal_of(sent)) is not None:
                raise error
        return list(calls.values())

    async def fail(
        self, error_type: str, message: str = "", *, retryable: bool | None = None
    ) -> None:
        """Record that the model failed to answer."""
        failed = self._failed_as(error_type, message)
        await self._end(failed.model_copy(update={"retryable": retryable}))

    def _answer(self, response: ModelResponse) -> list[Draft]:
        message_id = fresh_id()
        completed = ModelCallCompleted(
            model_call_id=self.model_call_id,
            response_id=response.response_id,
            model=response.model,
            finish_reason=response.finish_reason,
            usage=response.usage,
            latency_ms=round((elapsed_clock_s() - self._began_s) * 1000),
        )
        drafts = [self._draft(completed)]
        blocks: list[Block] = []
        requests: list[Draft] = []
        for position, part in enumerate(response.parts):
            if isinstance(part, Block):
                blocks.append(part)
                continue
            call_id = f"{self.model_call_id}:{position}"
            blocks.append(Block(kind="tool_call", name=part.tool, call_id=call_id))
            request = _request(part, call_id, message_id, position)
            self._texts[call_id] = part.arguments
            requests.append(self._draft(request))
        if blocks:
            message = AssistantMessage(
                message_id=message_id,
                model_call_id=self.model_call_id,
                final=True,
                blocks=tuple(blocks),
            )
            drafts.append(self._draft(message))
        return [*drafts, *requests]

    async def _requested(self, sent: Sent, request: ToolCallRequested) -> PendingCall:
        """The call of a request; of one that was sent again, the open call it repeats."""
        verdict = sent.verdict
        text = self._texts[request.call_id]
        if verdict.rule == "redelivered" and verdict.related is not None:
            # The same arguments, or it would be another call: they run as that one.
            state = await self._owner.state()
            known = state.calls.get(verdict.related) or state.finished[verdict.related]
            return _pending(request, known.call_id, text, known.requested_seq)
        raise_refused((sent,))
        return _pending(request, request.call_id, text, verdict.seq)

    async def _end(self, event: ModelCallFailed | ModelCallCancelled) -> None:
        self._ended = True
        await self._owner.decide([self._draft(event)])

    def _failed_as(self, error_type: str, message: str) -> ModelCallFailed:
        return ModelCallFailed(
            model_call_id=self.model_call_id,
            error_type=error_type,
            blocks=(text_block(message),) if message else (),
        )

    def _cancelled_as(self, reason: str) -> ModelCallCancelled:
        return ModelCallCancelled(model_call_id=self.model_call_id, reason=reason)

    def _draft(self, event: KnownEvent) -> Draft:
        return self._owner.draft(event, turn_id=self._turn_id, batch_id=self.model_call_id)


def _request(
    part: ToolRequest, call_id: str, message_id: str, position: int
) -> ToolCallRequested:
    return ToolCallRequested(
        call_id=call_id,
        provider_call_id=part.provider_call_id,
        tool=part.tool,
        args_hash="",  # of the arguments as they will be stored: when prepared
        message_id=message_id,
        position=position,
        arguments=(json_block(part.arguments),),
    )


def _pending(
    request: ToolCallRequested, call_id: str, text: str, requested_seq: int
) -> PendingCall:
    arguments, problem = parse_arguments(text)
    return PendingCall(
        call_id=call_id,
        provider_call_id=request.provider_call_id,
        tool=request.tool,
        text=text,
        arguments=arguments,
        problem=problem,
        args_hash=request.args_hash,
        requested_seq=requested_seq,
    )


def _reference(context: Context, parameters_json: str) -> RequestRef | None:
    """How to build the request again, from the events that it was built from."""
    if context.upto_seq <= context.base_seq:
        return None
    events = SeqRange(from_seq=context.base_seq + 1, to_seq=context.upto_seq)
    return RequestRef(
        ranges=(events,),
        renderer=RENDERER,
        renderer_version=RENDERER_VERSION,
        policy=POLICY,
        policy_version=RENDERER_VERSION,
        instructions_event_ids=context.instructions_event_ids,
        tools_event_id=context.tools_event_id,
        parameters_json=parameters_json,
        sha256=context.sha256(),
    )
