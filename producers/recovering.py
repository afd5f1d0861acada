"""Recovery of many sessions: finds those without an owner, settles them, brings them on.

Any number of these run beside each other and beside harnesses; a claim tells them apart.
What one does about a session, in this order:

1. The session has no living owner, and a turn of it is open. Its state is read and a
   plan made. Where only a person's answer brings it on, it is left alone.
2. Each time that the same turn is taken up the pause before the next is twice as long,
   by this process's own clock: a quiet log has no time.
3. Where nothing is left to settle and no harness is at hand, it only says that the
   session wants to be resumed. Somebody else's `take` ends that.
4. It claims the session, on exactly the state that it read. Another claim in between
   (a harness, another of these) wins; this one leaves the session alone.
5. It settles what the last owner left open (`foldline.producers.recover`), asks people
   for what cannot be found out, and hands the session to the harness if there is one.
6. After `resumes_max` times without an end of the turn it parks the session: a question
   in the inbox, then SUSPENDED. RESUME as the answer begins anew, CANCEL ends it.

Killed at any point, it is one more owner that is gone: the next one begins at 1.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from foldline.errors import (
    AppendRefusedError,
    FencedError,
    FoldlineError,
    LiveOwnerError,
    LogUnavailableError,
    SessionNotFoundError,
)
from foldline.faults import crash_point
from foldline.processors.log import Log, WritesRecovery
from foldline.producers.client import Client
from foldline.producers.owned import OwnedSession
from foldline.producers.recover import ACTIONS as SETTLING
from foldline.producers.recover import RecoveryReport, Step
from foldline.producers.tools import Toolbox
from foldline.projections.recovery import RecoveryPolicy, plan_recovery
from foldline.projections.resuming import (
    ANSWERS,
    CANCEL,
    ResumePolicy,
    count_resumes,
    needs_harness,
    waits_for_people,
)
from foldline.projections.stalled import (
    PARK_QUESTION,
    PARKED,
    PARKED_ONE,
    Stalled,
    is_answered,
    park_question,
    stalled_sessions,
)
from foldline.projections.subagents import children_to_wait_for
from foldline.schemas.blocks import text_block
from foldline.schemas.events import InputProvided, InputRequested
from foldline.schemas.state import SessionState
from foldline.schemas.topic_records import RecoveryAction

TAKEN = "TAKEN"
RESUMED = "RESUMED"
RESUME_FAILED = "RESUME_FAILED"
RESUME_WANTED = "RESUME_WANTED"
PARKED_ACTION = "PARKED"
REOPENED = "REOPENED"

ACTIONS: dict[str, str] = {
    TAKEN: "recovery claimed the session",
    **SETTLING,
    RESUME_WANTED: "nothing is left to settle: a harness should take the session",
    RESUMED: "the harness at hand was given the session, and has given it back",
    RESUME_FAILED: "the harness at hand failed",
    PARKED_ACTION: "a person is asked whether to go on; the session is suspended",
    REOPENED: "a person said that a parked session is to go on",
}
"""What recovery does about a session, word by word; `recovery` holds these records."""

ANSWERS_SCHEMA = '{"enum":["RESUME","CANCEL"]}'

REMEMBERED_MAX = 100_000
"""Of how many sessions it is remembered since when they stand still."""

Resume = Callable[[Client, OwnedSession], Awaitable[None]]
"""A harness that goes on with a session: given the client and the session, owned."""

_logger = logging.getLogger("foldline.recovery")


@dataclass(slots=True)
class _Standing:
    """A session that stands still, since when by this process's clock, and how it went."""

    epoch: int
    seq: int
    since_s: float
    wanted: int = 0


@dataclass(slots=True)
class Sweep:
    """One look at all sessions: how many stood still, and what was done, in order."""

    stalled: int = 0
    waiting: int = 0
    actions: list[RecoveryAction] = field(default_factory=list[RecoveryAction])


class RecoveryWorker:
    """Looks after the sessions of one log. Not for more than one task."""

    def __init__(
        self,
        client: Client,
        *,
        toolbox: Toolbox,
        resume: Resume | None = None,
        policy: RecoveryPolicy | None = None,
        pauses: ResumePolicy | None = None,
        tenant: str | None = None,
    ) -> None:
        """Make ready.

        Args:
            client: of the log.
            toolbox: tools with the reconcilers that are asked; those that may be
                repeated are run again, the others never.
            resume: a harness that goes on with a session, where there is one here.
            policy: how often to go on without a person.
            pauses: how long between the takings up of one turn.
            tenant: only its sessions; None for all.
        """
        self._client = client
        self._toolbox = toolbox
        self._resume = resume
        self._policy = policy or RecoveryPolicy()
        self._pauses = pauses or ResumePolicy()
        self._tenant = tenant
        self._standing: dict[str, _Standing] = {}

    async def run(
        self,
        stop: asyncio.Event,
        *,
        every_ms: int,
        told: Callable[[Sweep], None] = lambda _: None,
    ) -> None:
        """Look again and again, until `stop` is set; a log that is away is waited for."""
        while not stop.is_set():
            try:
                told(await self.sweep())
            except LogUnavailableError as error:
                _logger.warning("recovery waits for the log: %s", error)
            try:
                await asyncio.wait_for(stop.wait(), every_ms / 1000)
            except TimeoutError:
                continue

    async def sweep(self) -> Sweep:
        """Look at every session once, and do what is due.

        Raises:
            LogUnavailableError: the log gives no answer.
        """
        sweep = Sweep()
        found = await asyncio.to_thread(
            lambda: list(stalled_sessions(self._log, tenant=self._tenant))
        )
        self._forget_all_but(found)
        for stalled in found:
            try:
                await self._tend(stalled, sweep)
            except (LiveOwnerError, FencedError, SessionNotFoundError) as error:
                _logger.info("session %s is left alone: %s", stalled.session_id, error)
            except AppendRefusedError as error:
                _logger.warning("session %s: %s", stalled.session_id, error)
        return sweep

    @property
    def _log(self) -> Log:
        return self._client.log

    # --- what is due -----------------------------------------------------------------

    def _forget_all_but(self, found: Sequence[Stalled]) -> None:
        names = {stalled.session_id for stalled in found}
        gone = [name for name in self._standing if name not in names]
        for name in gone:
            del self._standing[name]

    def _since(self, state: SessionState) -> _Standing:
        standing = self._standing.get(state.session_id)
        if standing is None or (standing.epoch, standing.seq) != (state.epoch, state.seq):
            wanted = standing.wanted if standing else 0
            standing = _Standing(state.epoch, state.seq, time.monotonic(), wanted)
            if len(self._standing) < REMEMBERED_MAX:
                self._standing[state.session_id] = standing
        return standing

    async def _tend(self, stalled: Stalled, sweep: Sweep) -> None:
        state = await asyncio.to_thread(self._log.state, stalled.session_id)
        if state is None:
            return
        if stalled.why == PARKED_ONE:
            if is_answered(state):
                await self._go_on_as_answered(state, sweep)
            return
        if await asyncio.to_thread(children_to_wait_for, self._log, state):
            sweep.waiting += 1  # from the leaves up: its subagents are settled first
            return
        sweep.stalled += 1
        standing = self._since(state)
        stood_ms = (time.monotonic() - standing.since_s) * 1000
        resumes = await asyncio.to_thread(self._resumes, state)
        now = state.recorded_at + round(stood_ms * 1000)  # no later than log time
        plan = plan_recovery(state, now, self._policy, resumes=resumes)
        if waits_for_people(state, plan):
            sweep.waiting += 1
            return
        if stood_ms < self._pauses.pause_after(max(resumes, standing.wanted)):
            return
        tired = max(resumes, standing.wanted) >= self._policy.resumes_max
        if self._resume is None and not tired and needs_harness(plan, self._tools(state)):
            standing.wanted += 1
            standing.since_s = time.monotonic()
            await self._note(sweep, state, [Step(RESUME_WANTED)], resumes=standing.wanted)
            return
        await self._take(state, sweep, resumes=resumes, tired=tired)

    def _resumes(self, state: SessionState) -> int:
        if state.turn is None:
            return 0
        events = self._log.structure(state.session_id, after_seq=state.turn.seq)
        return count_resumes(events)

    def _tools(self, state: SessionState) -> frozenset[str]:
        calls = state.calls.values()
        return frozenset(c.call_id for c in calls if self._toolbox.get(c.tool) is not None)

    # --- what is done ----------------------------------------------------------------

    async def _take(
        self, state: SessionState, sweep: Sweep, *, resumes: int, tired: bool
    ) -> None:
        crash_point("CP_RECOVERY_BEFORE_TAKE")
        owned = await self._client.take(state.session_id, reason="recovery")
        crash_point("CP_RECOVERY_AFTER_TAKE")
        try:
            report = await owned.recover(
                self._toolbox, policy=self._policy, leave_tools=True
            )
            steps = [Step(TAKEN), *report.done]
            steps += await self._bring_on(owned, report, tired=tired)
            await self._note(sweep, state, steps, epoch=owned.epoch, resumes=resumes + 1)
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
        except Exception as error:
            _logger.exception("the harness failed on session %s", owned.session_id)
            return [Step(RESUME_FAILED, detail=f"{type(error).__name__}: {error}")]
        return [Step(RESUMED)]

    async def _park(self, owned: OwnedSession, report: RecoveryReport) -> Step:
        """A question that a person finds in the inbox, then rest."""
        why = "; ".join(report.needs_person) or "it was resumed too often"
        question = (
            f"Session {owned.session_id} does not get on: {why}. "
            f"Answer {' or '.join(ANSWERS)}."
        )
        asked = InputRequested(
            request_id=park_question(owned.epoch),
            answer_schema_json=ANSWERS_SCHEMA,
            prompt=(text_block(question),),
        )
        await owned.append(asked)
        crash_point("CP_RECOVERY_BEFORE_PARK")
        await owned.suspend(f"{PARKED}{why}")
        return Step(PARKED_ACTION, detail=why)

    async def _go_on_as_answered(self, state: SessionState, sweep: Sweep) -> None:
        """A parked session whose question was answered: taken up again, or ended."""
        answer = await asyncio.to_thread(self._answer, state)
        owned = await self._client.take(state.session_id, reason="recovery: answered")
        try:
            if answer == CANCEL:
                await owned.cancel("a person answered CANCEL")
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

    # --- telling it ------------------------------------------------------------------

    async def _note(
        self,
        sweep: Sweep,
        state: SessionState,
        steps: Sequence[Step],
        *,
        epoch: int = 0,
        resumes: int = 0,
    ) -> None:
        actions = [
            RecoveryAction(
                session_id=state.session_id,
                tenant=state.tenant,
                action=step.action,
                epoch=epoch,
                seq=state.seq,
                writer=self._client.writer,
                resumes=resumes,
                call_id=step.call_id or None,
                attempt=step.attempt or None,
                detail=step.detail,
            )
            for step in steps
        ]
        sweep.actions.extend(actions)
        log = self._log
        if not isinstance(log, WritesRecovery):
            return
        try:
            await asyncio.to_thread(log.write_recovery, actions)
        except FoldlineError as error:
            # The session's own log has it all; the feed is for whoever watches many.
            _logger.warning("recovery's feed misses %d actions: %s", len(actions), error)
