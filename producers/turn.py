"""A turn: from a trigger to the agent's being idle again."""

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from foldline.errors import (
    FencedError,
    FoldlineError,
    LogError,
    UncertainAppendError,
)
from foldline.faults import crash_point
from foldline.producers.appender import Answers, raise_refused
from foldline.producers.calls import open_calls
from foldline.producers.identity import fresh_id
from foldline.producers.model_call import ModelCall
from foldline.producers.ownership import Ownership
from foldline.producers.permission import Asking
from foldline.producers.policies import ApprovalLimits, ApprovalPolicy
from foldline.producers.prepare import Draft
from foldline.producers.shaping import NamedPolicy, Shaping, Way, policy_of
from foldline.producers.stopping import stop_as_asked
from foldline.producers.summarisers import Summariser
from foldline.producers.tool_run import ToolRun
from foldline.producers.tools import PendingCall, Toolbox, ToolResult
from foldline.projections.context import Context
from foldline.projections.policy import FULL
from foldline.projections.recorded_steps import COMPACTION
from foldline.projections.render_anthropic import Caching
from foldline.projections.request import Form
from foldline.projections.steering import asked_to_stop, due_steering, reason_of
from foldline.schemas.choices import TurnOutcome
from foldline.schemas.events import (
    KnownEvent,
    ModelCallStarted,
    SteeringApplied,
    ToolResultProjected,
    TurnEnded,
)
from foldline.schemas.state import SessionState
from foldline.schemas.verdicts import CONFLICT, Verdict

FREEZE_TRIES_MAX = 16
"""How often a context is built anew because somebody appended before it was frozen."""


class Turn:
    """An open turn of an owned session. An async context manager: its end is recorded.

    Left without an error it ends DONE; by an error FAILED; cancelled, or when somebody
    asked for its cancellation, ABORTED. `end` says something else, `leave` keeps it open
    for whoever resumes it. A turn that was lost to another owner ends nothing.
    """

    def __init__(
        self,
        owner: Ownership,
        shaping: Shaping,
        *,
        turn_id: str,
        opening: Sequence[Draft] = (),
    ) -> None:
        self.turn_id = turn_id
        self.interrupted = ""
        self.parked = ""
        """Why the session was suspended with a request for a person; else empty."""
        self._owner = owner
        self._shaping = shaping
        self._policy = FULL
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

    async def end(self, outcome: TurnOutcome = "DONE", *, reason: str = "") -> None:
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

    async def context(
        self,
        *,
        policy: NamedPolicy = None,
        budget: int | None = None,
        summariser: Summariser | None = None,
    ) -> Context:
        """What the model is to be shown now: the history, correctly paired, kept small.

        Pending steering is put in and marked as applied. What stands in for a result
        that is not known yet is frozen, so that every rebuild shows the same. Then old
        outputs become references, and old messages a summary, as the policy says; both
        are recorded. If that went on and on without progress the session is suspended for
        a person (`parked` then says why), and the context stays as it was.

        Args:
            policy: how small it is to be: a `ContextPolicy` or the name of one; the
                session's own where not given. "full" makes nothing smaller.
            budget: tokens of its messages; the policy is then kept within it.
            summariser: makes the summaries; the session's own where not given.

        Raises:
            FencedError: another owner has the session.
            LogUnavailableError: something could not be recorded; the same again goes on.
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
        built = await self._frozen()  # it tells by which policy the session was kept
        way = self._way(policy, budget, summariser)
        self._policy = way.policy
        return await self._shaped(built, way)

    async def _frozen(self) -> Context:
        """The context at the head, its stand-ins recorded as they are shown.

        Only at the head that it was built from: an outcome that comes in between would
        stand before what is frozen, and nobody would ever show it.
        """
        answers: Answers = ()
        for _ in range(FREEZE_TRIES_MAX):
            context = await self._shaping.built()
            if not context.stand_ins:
                return context
            answers = await self._owner.attempt(self._freezing(context))
            if answers[0].verdict.kind != CONFLICT:
                break
        raise_refused(answers)
        return await self._shaping.built()

    def _freezing(self, context: Context) -> list[Draft]:
        drafts: list[Draft] = []
        for shown in context.stand_ins:
            event = ToolResultProjected(
                call_id=shown.call_id, form=shown.form, blocks=shown.blocks
            )
            first = [draft.envelope.event_id for draft in drafts[:1]]
            draft = self._owner.draft(
                event,
                turn_id=self.turn_id,
                expected_seq=None if drafts else context.upto_seq,
                requires=tuple(first),
            )
            drafts.append(draft)
        return drafts

    async def _shaped(self, context: Context, way: Way) -> Context:
        if self._owner.over:
            return context  # it rests: nothing is decided here any more
        shaped, parked = await self._shaping.shape(context, way)
        self.parked = parked or self.parked
        return shaped

    async def compact(
        self,
        *,
        to_seq: int | None = None,
        policy: NamedPolicy = None,
        summariser: Summariser | None = None,
    ) -> bool:
        """Put a summary in the place of what is old, whatever the budget.

        Gives whether anything was compacted. The originals stay in the log.

        Args:
            to_seq: up to this event, or as far before it as no call is parted from its
                result; up to the policy's window where not given.
            policy: as in `context`.
            summariser: as in `context`.

        Raises: as `context`.
        """
        built = await self._frozen()
        way = self._way(policy, None, summariser)
        return await self._compacted(built, way, to_seq)

    async def _compacted(self, context: Context, way: Way, to_seq: int | None) -> bool:
        return await self._shaping.compact(context, way, to_seq=to_seq)

    def _way(
        self, named: NamedPolicy, budget: int | None, summariser: Summariser | None
    ) -> Way:
        shaping = self._shaping
        policy = policy_of(named, shaping.policy)
        return Way(
            policy=policy if budget is None else policy.within(budget),
            summariser=summariser or shaping.summariser,
            turn_id=self.turn_id,
            build=self._frozen,
            model_call=self._summary_call,
        )

    def _summary_call(self, data: bytes, *, model: str, provider: str) -> ModelCall:
        """A call for a summary: what is sent is kept, for no events give it again."""
        started = ModelCallStarted(
            model_call_id=fresh_id(),
            purpose=COMPACTION,
            provider=provider,
            model=model,
        )
        return ModelCall(self._owner, self.turn_id, started, sent=data)

    def _notice_cancellation(self, state: SessionState) -> None:
        asked = asked_to_stop(state)
        if asked is not None:
            self._cancelled = reason_of(asked)

    def model_call(
        self,
        context: Context | None = None,
        *,
        model: str,
        provider: str = "",
        format: str = "",  # noqa: A002 - the word for it
        parameters: Mapping[str, Any] | None = None,
        caching: Caching | None = None,
        purpose: str = "TURN",
        deadline_ms: int | None = None,
    ) -> ModelCall:
        """A call of a model; enter it, ask the model, and give `complete` its answer.

        With a format, `call.request` is what to send, once the call is entered. How to
        build the request again is recorded, and the hash of its bytes.

        Args:
            context: what the model is shown; not recorded where it is not given.
            model: whom to ask.
            provider: who serves it; default: whose format it is.
            format: one of `foldline.models.FORMATS`; empty: the harness
                renders the context by itself, and what it adds is its own.
            parameters: the rest of the request.
            caching: breakpoints for Anthropic's cache of prompts.
            purpose: TURN, COMPACTION or another.
            deadline_ms: how long it may take, in log time.
        """
        started = ModelCallStarted(
            model_call_id=fresh_id(),
            purpose=purpose,
            provider=provider,
            model=model,
            deadline_ms=deadline_ms,
        )
        form = Form(format, model, provider, parameters or {}, caching)
        return ModelCall(
            self._owner,
            self.turn_id,
            started,
            context=context,
            form=form,
            policy=self._policy,
            seen=self._shaping.saw,
        )

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
        approval_wait_ms: int | None = None,
        approval_expires_ms: int | None = None,
        policy: ApprovalPolicy | None = None,
        limits: ApprovalLimits | None = None,
    ) -> list[ToolResult]:
        """Run calls side by side and give what became of them, in their order.

        A call whose end is in the log is not run again: that end is its result.

        Args:
            calls: as `ModelCall.complete` or `open_calls` gave them.
            toolbox: the tools; a call of another name is answered as invalid.
            approval_wait_ms: how long to wait for a person before a call is `Waiting`;
                the setting of this name where not given.
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
        wait_ms = approval_wait_ms
        if wait_ms is None:
            wait_ms = self._owner.link.settings.approval_wait_ms
        run = ToolRun(
            self._owner,
            turn_id=self.turn_id,
            toolbox=toolbox,
            asking=Asking(
                wait_ms / 1000, approval_expires_ms, policy, limits or ApprovalLimits()
            ),
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

    async def append(self, *events: KnownEvent) -> list[Verdict]:
        """Record events of the owner in this turn (a plan, an observation)."""
        return [sent.verdict for sent in await self._decide(*events)]

    async def _decide(self, *events: KnownEvent) -> Answers:
        return await self._owner.decide(
            [self._owner.draft(event, turn_id=self.turn_id) for event in events]
        )
