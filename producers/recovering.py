"""Recovery of many sessions: finds those without an owner, settles them, brings them on.

Any number of these run beside each other and beside harnesses; a claim tells them apart.
What one does about a session, in this order:

1. The session has no living owner, and a turn of it is open. Its state is read and a
   plan made. Where only a person's answer brings it on, it is left alone.
2. Each time that the same turn is taken up the pause before the next is twice as long,
   by this process's own clock: a quiet log has no time.
3. Where nothing is left to settle and no harness is at hand, it only says that the
   session wants to be resumed. Somebody else's `take` ends that.
4. It claims the session, in the epoch that it read. Another claim in between (a harness,
   another of these) wins, also if that one is gone by now; this one leaves it alone.
5. It settles what the last owner left open (`foldline.producers.recover`), asks people
   for what cannot be found out, and hands the session to the harness if there is one.
6. After `resumes_max` times without an end of the turn it parks the session: a question
   in the inbox, then SUSPENDED. RESUME as the answer begins anew, CANCEL ends it.

A subagent whose own owner lives is none of these; but the session above may have been
asked to stop by one who died before it was told. It is told here, before anything else.

Killed at any point, it is one more owner that is gone: the next one begins at 1.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from foldline.errors import (
    FencedError,
    FoldlineError,
    LiveOwnerError,
    LogUnavailableError,
    SessionNotFoundError,
)
from foldline.faults import crash_point
from foldline.processors.log import Log, SessionSummary
from foldline.producers.client import Client
from foldline.producers.recovery_actions import (
    PARKED_ACTION,
    REOPENED,
    RESUME_FAILED,
    RESUME_WANTED,
    RESUMED,
    STOP_PASSED_ON,
    STUCK,
    TAKEN,
    RecoveryReport,
    Step,
    Sweep,
)
from foldline.producers.session import OwnedSession
from foldline.producers.standing import Standings
from foldline.producers.threads import is_told_to_stop
from foldline.producers.tools import Toolbox
from foldline.projections.planned import tries_of
from foldline.projections.recovery import RecoveryPolicy, plan_recovery
from foldline.projections.resuming import (
    CANCEL,
    ResumePolicy,
    needs_harness,
    park_request,
    waits_for_people,
)
from foldline.projections.stalled import (
    PARK_QUESTION,
    PARKED,
    PARKED_ONE,
    Silence,
    Stalled,
    is_answered,
    look_at,
)
from foldline.projections.subagents import children_to_wait_for, orders_from_above
from foldline.schemas.events import InputProvided
from foldline.schemas.state import SessionState

AT_ONCE_MAX = 16
"""How many sessions one of these has in its hands at the same time."""

STUCK_MS = 1_800_000
"""How long a running session with a living owner is silent before it may be stuck."""

STOP_WAITS_S = 10.0
"""How long a harness that was cancelled may go on before it is left to its end."""

LOOK_WAITS_S = 1.0
"""How long a look waits for what it began, before it leaves it to itself."""

Resume = Callable[[Client, OwnedSession], Awaitable[None]]
"""A harness that goes on with a session: given the client and the session, owned."""

_logger = logging.getLogger("foldline.recovery")


class RecoveryWorker:
    """Looks after the sessions of one log, several side by side.

    A session that a harness is busy with, for hours perhaps, keeps no other one waiting.
    Not to be shared between asyncio tasks.
    """

    def __init__(
        self,
        client: Client,
        *,
        toolbox: Toolbox,
        resume: Resume | None = None,
        policy: RecoveryPolicy | None = None,
        pauses: ResumePolicy | None = None,
        tenant: str | None = None,
        stuck_ms: int = STUCK_MS,
    ) -> None:
        """Look after a log with these; `run` begins.

        Args:
            client: of the log.
            toolbox: tools with the reconcilers that are asked; those that may be
                repeated are run again, the others never.
            resume: a harness that goes on with a session, where there is one here.
            policy: how often to go on without a person.
            pauses: how long between the takings up of one turn.
            tenant: only its sessions; None for all.
            stuck_ms: after how long without an event a living owner is told to be stuck.
        """
        self._client = client
        self._silence = Silence(after_ms=stuck_ms)
        self._toolbox = toolbox
        self._resume = resume
        self._policy = policy or RecoveryPolicy()
        self._pauses = pauses or ResumePolicy()
        self._tenant = tenant
        self._standing = Standings()
        self._tended: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(AT_ONCE_MAX)

    async def run(
        self,
        stop: asyncio.Event,
        *,
        every_ms: int,
        told: Callable[[Sweep], None] = lambda _: None,
    ) -> None:
        """Look again and again, until `stop` is set; a log that is away is waited for.

        Then it begins nothing any more, and ends once its harnesses have given back what
        they have. Who does not want to wait kills it: the next one goes on.
        """
        sweep = Sweep()
        try:
            while not stop.is_set():
                try:
                    await self._look(sweep)
                    told(sweep.taken_out())
                except LogUnavailableError as error:
                    _logger.warning("recovery waits for the log: %s", error)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), every_ms / 1000)
            await asyncio.gather(*self._tended.values())
            told(sweep.taken_out())
        finally:
            await self._stop_all()

    async def sweep(self) -> Sweep:
        """Look at every session once, do what is due, and wait until it is done.

        Raises:
            LogUnavailableError: the log gives no list of the sessions.
        """
        sweep = Sweep()
        try:
            await self._look(sweep)
            await asyncio.gather(*self._tended.values())
        finally:
            await self._stop_all()
        return sweep

    async def _look(self, sweep: Sweep) -> None:
        """Begin what is due, for each session that is not in hand already."""
        look = await asyncio.to_thread(look_at, self._log, tenant=self._tenant)
        found = look.stalled
        self._standing.keep_only(stalled.session_id for stalled in found)
        await self._pass_on_stops(look.below, sweep)
        for silent in self._silence.broken_by(look.living, now_s=time.monotonic()):
            await self._tell_stuck(silent, sweep)
        begun: list[asyncio.Task[None]] = []
        for stalled in found:
            if stalled.session_id in self._tended:
                continue
            task = asyncio.create_task(self._tend_safely(stalled, sweep))
            self._tended[stalled.session_id] = task
            begun.append(task)
            task.add_done_callback(lambda _, name=stalled.session_id: self._let_go(name))
        if begun:
            await asyncio.wait(begun, timeout=LOOK_WAITS_S)

    async def _pass_on_stops(self, below: Sequence[SessionSummary], sweep: Sweep) -> None:
        """Pass stops on to subagents whose stopper died before telling them."""
        names = [summary.session_id for summary in below]
        for order in await asyncio.to_thread(orders_from_above, self._log, names):
            try:
                view = await self._client.open(order.session_id)
                await view.pass_on_stop()
                state = await view.state()
            except FoldlineError as error:
                _logger.warning("session %s: %s", order.session_id, error)
                continue
            if state.cancellation is not None:
                step = Step(STOP_PASSED_ON, detail=order.reason)
                await self._note(sweep, state, [step])

    async def _tell_stuck(self, silent: SessionSummary, sweep: Sweep) -> None:
        """Only that: to fence a living owner is a person's decision (`steal`)."""
        state = SessionState(silent.session_id, tenant=silent.tenant, seq=silent.seq)
        detail = f"owner {silent.owner} has recorded nothing since seq {silent.seq}"
        await self._note(sweep, state, [Step(STUCK, detail=detail)])

    def _let_go(self, session_id: str) -> None:
        del self._tended[session_id]

    async def _stop_all(self) -> None:
        """Cancelled itself, it cancels whoever is still busy, and waits for a moment."""
        tasks = list(self._tended.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_WAITS_S)

    async def _tend_safely(self, stalled: Stalled, sweep: Sweep) -> None:
        """One session's trouble is its own: the others are looked after all the same."""
        name = stalled.session_id
        async with self._places:
            try:
                await self._tend(stalled, sweep)
            except (LiveOwnerError, FencedError, SessionNotFoundError) as error:
                _logger.info("session %s is left alone: %s", name, error)
            except FoldlineError as error:
                _logger.warning("session %s: %s", name, error)
            except Exception:
                _logger.exception("session %s", name)

    @property
    def _log(self) -> Log:
        return self._client.log

    # --- what is due -----------------------------------------------------------------

    async def _tend(self, stalled: Stalled, sweep: Sweep) -> None:
        state = await asyncio.to_thread(self._log.state, stalled.session_id)
        if state is None or state.ended:
            return
        if stalled.why == PARKED_ONE:
            if is_answered(state):
                await self._go_on_as_answered(state, sweep)
            return
        if await asyncio.to_thread(children_to_wait_for, self._log, state):
            sweep.waiting += 1  # from the leaves up: its subagents are settled first
            return
        sweep.stalled += 1
        standing = self._standing.of(state, now_s=time.monotonic())
        tries = await asyncio.to_thread(tries_of, self._log, state)
        if tries.answered and await asyncio.to_thread(self._answer, state) == CANCEL:
            await self._go_on_as_answered(state, sweep)
            return
        now_s = time.monotonic()
        moved_us = round((now_s - standing.moved_s) * 1_000_000)
        now = state.recorded_at + moved_us  # no later than log time
        resumes = max(tries.resumes, standing.wanted)
        plan = plan_recovery(state, now, self._policy, resumes=tries.resumes)
        if waits_for_people(state, plan):
            sweep.waiting += 1
            return
        stood_ms = (now_s - standing.since_s) * 1000
        if stood_ms < self._pauses.pause_after(resumes):
            return
        tired = resumes >= self._policy.resumes_max
        if self._resume is None and not tired and needs_harness(plan, self._tools(state)):
            standing.wanted += 1
            standing.since_s = time.monotonic()
            await self._note(sweep, state, [Step(RESUME_WANTED)], resumes=standing.wanted)
            return
        await self._take(state, sweep, resumes=tries.resumes, tired=tired)

    def _tools(self, state: SessionState) -> frozenset[str]:
        calls = state.calls.values()
        return frozenset(c.call_id for c in calls if self._toolbox.get(c.tool) is not None)

    # --- what is done ----------------------------------------------------------------

    async def _take(
        self, state: SessionState, sweep: Sweep, *, resumes: int, tired: bool
    ) -> None:
        crash_point("CP_RECOVERY_BEFORE_TAKE")
        owned = await self._client.take(
            state.session_id, reason="recovery", after_epoch=state.epoch
        )
        crash_point("CP_RECOVERY_AFTER_TAKE")
        try:
            report = await owned.recover(
                self._toolbox, policy=self._policy, leave_tools=not tired
            )
            note = partial(self._note, sweep, state, epoch=owned.epoch, resumes=resumes + 1)
            await note([Step(TAKEN), *report.done])
            await note(await self._bring_on(owned, report, tired=tired))
        finally:
            await owned.close()

    async def _bring_on(
        self, owned: OwnedSession, report: RecoveryReport, *, tired: bool
    ) -> list[Step]:
        """Step 5 and 6, once everything is settled that can be."""
        state = await owned.state()
        if state.ended or state.turn is None:
            return []
        if tired or report.needs_person:
            return [await self._park(owned, report)]
        plan = plan_recovery(state, state.recorded_at, self._policy)
        if self._resume is None:
            return [] if waits_for_people(state, plan) else [Step(RESUME_WANTED)]
        if waits_for_people(state, plan):
            return []
        try:
            await self._resume(self._client, owned)
        except (FencedError, LogUnavailableError):
            raise
        except BaseException as error:
            # Also what would end a process: the next one would end of it as well.
            if is_told_to_stop():
                raise
            _logger.exception("the harness failed on session %s", owned.session_id)
            return [Step(RESUME_FAILED, detail=f"{type(error).__name__}: {error}")]
        return [Step(RESUMED)]

    async def _park(self, owned: OwnedSession, report: RecoveryReport) -> Step:
        """A question that a person finds in the inbox, then rest."""
        why = "; ".join(report.needs_person) or "it was resumed too often"
        asked = f"Session {owned.session_id} does not get on: {why}"
        await owned.append(park_request(owned.epoch, asked))
        crash_point("CP_RECOVERY_BEFORE_PARK")
        await owned.suspend(f"{PARKED}{why}")
        self._standing.forget(owned.session_id)  # it begins anew once it is answered
        return Step(PARKED_ACTION, detail=why)

    async def _go_on_as_answered(self, state: SessionState, sweep: Sweep) -> None:
        """A parked session whose question was answered: taken up again, or ended."""
        answer = await asyncio.to_thread(self._answer, state)
        owned = await self._client.take(
            state.session_id, reason="recovery: answered", after_epoch=state.epoch
        )
        try:
            if answer == CANCEL:
                await owned.end_cancelled("a person answered CANCEL")
            await self._note(
                sweep, state, [Step(REOPENED, detail=answer)], epoch=owned.epoch
            )
        finally:
            await owned.close()

    def _answer(self, state: SessionState) -> str:
        """What a person said last to a question of recovery's; RESUME where unclear."""
        after = state.turn.seq if state.turn else 0
        said = ""
        for recorded in self._log.events(state.session_id, after_seq=after):
            match recorded.event:
                case InputProvided(request_id=name, blocks=blocks) if name.startswith(
                    PARK_QUESTION
                ):
                    said = "".join(str(block.body) for block in blocks)
                case _:
                    pass
        return CANCEL if said.strip().strip('"').upper() == CANCEL else "RESUME"

    async def _note(
        self, sweep: Sweep, state: SessionState, steps: Sequence[Step], **known: int
    ) -> None:
        await sweep.note(self._log, state, steps, writer=self._client.writer, **known)
