"""Owning a session: deciding for it, recording what came of it, and being fenced.

A *decision* is refused once another owner has taken over; this owner then stops: its
lease is renewed no more, its running tools are told to stop, and every further decision
raises the same error.

An *outcome* is never given up. What the log did not take stays in an outbox and goes
out before anything else is decided; the tool is not run again for it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from foldline.errors import (
    AppendRefusedError,
    BlobError,
    EncodeError,
    FencedError,
    FoldlineError,
    LogUnavailableError,
    RedactionError,
    SessionNotFoundError,
)
from foldline.producers.appender import Answers, Appender, Sent, raise_refused
from foldline.producers.identity import elapsed_clock_s
from foldline.producers.link import Link, Stamp
from foldline.producers.prepare import Draft
from foldline.schemas.blocks import Blob, Blocks, Body, text_block
from foldline.schemas.envelope import Actor
from foldline.schemas.events import (
    KnownEvent,
    ToolBackgrounded,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionTimedOut,
    type_of,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState
from foldline.schemas.verdicts import FENCED, TOO_LARGE, Verdict

Outcome = (
    ToolExecutionCompleted
    | ToolExecutionFailed
    | ToolExecutionCancelled
    | ToolExecutionTimedOut
    | ToolBackgrounded
)


class Ownership:
    """One epoch of one session, held by this client."""

    def __init__(
        self,
        link: Link,
        session_id: str,
        *,
        agent: str,
        appender: Appender,
        claim: Verdict,
    ) -> None:
        self.link = link
        self.session_id = session_id
        self.epoch = claim.epoch
        self.fenced: FencedError | None = None
        self.over = False
        """Whether this owner suspended or ended the session: it decides nothing more."""
        self.problems: list[FoldlineError] = []
        self._appender = appender
        self._actor = Actor(kind="AGENT", id=agent or link.writer)
        self._unsent: dict[str, Draft] = {}
        self._unclosed: list[Sequence[Draft]] = []
        self._late: set[asyncio.Task[None]] = set()
        self._stops: set[Callable[[str], None]] = set()
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._seen_at = claim.recorded_at
        self._seen_s = elapsed_clock_s()

    @property
    def actor(self) -> Actor:
        """The actor of this owner's events: the session's agent."""
        return self._actor

    def act_as(self, agent: str) -> None:
        """Another agent works in the session from here on; the owner is the same."""
        self._actor = Actor(kind="AGENT", id=agent)

    # --- time ------------------------------------------------------------------------

    def now(self) -> int:
        """Log time in microseconds: of this owner's last verdict, and what went by."""
        return self._seen_at + round((elapsed_clock_s() - self._seen_s) * 1_000_000)

    def _saw(self, answers: Answers) -> None:
        if answers and answers[-1].verdict.recorded_at >= self._seen_at:
            self._seen_at = answers[-1].verdict.recorded_at
            self._seen_s = elapsed_clock_s()

    # --- deciding --------------------------------------------------------------------

    def draft(
        self,
        event: KnownEvent,
        *,
        turn_id: str | None = None,
        batch_id: str | None = None,
        event_id: str | None = None,
        expected_seq: int | None = None,
        requires: tuple[str, ...] = (),
    ) -> Draft:
        """An event as the owner appends it."""
        stamp = Stamp(self._actor, self.epoch, turn_id, batch_id)
        return self.link.draft(
            self.session_id,
            event,
            stamp,
            event_id=event_id,
            expected_seq=expected_seq,
            requires=requires,
        )

    async def decide(self, drafts: Sequence[Draft]) -> Answers:
        """Append a group and give its answers; nothing of it goes unanswered.

        Raises:
            FencedError: another owner has the session. This one stops.
            AppendRefusedError: another refusal; the first of the group.
            LogUnavailableError: no answer (UncertainAppendError: it may be recorded).
                Outcomes not yet recorded are kept.
        """
        answers = await self.attempt(drafts)
        raise_refused(answers)
        return answers

    async def attempt(self, drafts: Sequence[Draft]) -> Answers:
        """Append a group and give its answers, refusals too, unless it was fenced."""
        if self.fenced is not None:
            raise self.fenced
        await self.flush()
        answers = await asyncio.shield(self._appender.submit(drafts))
        self._saw(answers)
        self._check_fence(answers)
        return answers

    def _check_fence(self, answers: Answers) -> None:
        """A refusal in a later epoch means the same, whatever it is called.

        A zombie finds the session it had CLOSED, say, by whoever took it over.
        """
        for sent in answers:
            verdict = sent.verdict
            later = verdict.kind == FENCED or verdict.epoch > self.epoch
            if not verdict.recorded and later:
                event_type = type_of(sent.event)
                error = FencedError(event_type, self.session_id, verdict)
                self.fence(error)
                raise error

    def fence(self, error: FencedError) -> None:
        """Another owner has taken over: stop renewing, stop the tools."""
        if self.fenced is None:
            self.fenced = error
            self.link.keeper.drop(self.session_id)
        for stop in list(self._stops):
            stop("another owner has taken the session over")

    async def rest(self) -> None:
        """Decide nothing more: the session was suspended or ended, for others to claim."""
        self.over = True
        await self.link.read(self.link.keeper.release, self.session_id)

    def stop_on_fence(self, stop: Callable[[str], None]) -> None:
        """Call this when the session is lost to another owner."""
        self._stops.add(stop)
        self._at_rest.clear()

    def no_longer_stop(self, stop: Callable[[str], None]) -> None:
        """What had to be stopped has ended."""
        self._stops.discard(stop)
        if not self._stops:
            self._at_rest.set()

    # --- outcomes --------------------------------------------------------------------

    async def record(self, outcome: Outcome, *, turn_id: str | None) -> Sent:
        """Record how an execution ended; kept and sent again if the log is away.

        Raises:
            LogUnavailableError: not recorded yet; `flush` tries again.
            AppendRefusedError: the log knows another end already.
        """
        try:
            return await self._record(self.draft(outcome, turn_id=turn_id))
        except (RedactionError, EncodeError, BlobError) as error:
            # The world did change: say so, without what could not be judged or written.
            problem = error
        except AppendRefusedError as error:
            if error.verdict.kind != TOO_LARGE:
                raise
            problem = error
        return await self._record(self.draft(_withheld(outcome, problem), turn_id=turn_id))

    async def _record(self, draft: Draft) -> Sent:
        future = self._appender.submit([draft])
        # Also when whoever waits here is cancelled: the outcome is kept.
        future.add_done_callback(partial(self._keep, draft))
        answers = await asyncio.shield(future)
        self._saw(answers)
        self._check_fence(answers)
        raise_refused(answers)
        return answers[0]

    def _keep(self, draft: Draft, future: asyncio.Future[Answers]) -> None:
        lost = future.cancelled() or isinstance(future.exception(), LogUnavailableError)
        if lost:
            self._unsent[draft.envelope.event_id] = draft
        else:
            self._unsent.pop(draft.envelope.event_id, None)

    def close_later(self, drafts: Sequence[Draft]) -> None:
        """Settle a decision that may be recorded, and that nobody acted upon.

        Args:
            drafts: the decision itself, which is sent again, and what ends it.
        """
        self._unclosed.append(drafts)

    async def flush(self) -> None:
        """Send what the log did not take, before anything else."""
        for draft in list(self._unsent.values()):
            await self._record(draft)
        while self._unclosed:
            # Refused is as good: then there is nothing that would have to be ended.
            answers = await asyncio.shield(self._appender.submit(self._unclosed[0]))
            self._check_fence(answers)
            self._unclosed.pop(0)

    def later(self, ending: Coroutine[Any, Any, None]) -> None:
        """Wait beside everything else for a tool that could not be stopped."""
        task = asyncio.create_task(ending)
        self._late.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._late.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, FoldlineError):
            self.problems.append(error)
        elif error is not None:
            raise error

    async def settle(self, *, timeout_s: float) -> None:
        """Give tools that still run a moment to end, and record what came of them.

        Raises:
            LogUnavailableError: an outcome is not recorded and is lost with this process:
                whoever takes the session finds the call open.
        """
        for stop in list(self._stops):
            stop("the session is being closed")
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._at_rest.wait()
                if self._late:
                    await asyncio.wait(set(self._late))
        for task in list(self._late):
            task.cancel()
        if self.fenced is None:
            await self.flush()
        await self._appender.drained()

    # --- reading ---------------------------------------------------------------------

    async def state(self) -> SessionState:
        """The state at the head, with everything that this owner has recorded."""
        await self.flush()
        log = self.link.log
        state = await self.link.read(log.state, self.session_id)
        if state is None:
            raise SessionNotFoundError(self.session_id, log.url)
        self._appender.saw(state.seq)
        return state

    async def events(
        self, after_seq: int = 0, upto_seq: int | None = None
    ) -> list[Recorded]:
        """Whole events with after_seq < seq <= upto_seq."""
        return await self.link.read(self._read, after_seq, upto_seq)

    def _read(self, after_seq: int, upto_seq: int | None) -> list[Recorded]:
        log = self.link.log
        return list(log.events(self.session_id, after_seq=after_seq, upto_seq=upto_seq))

    async def text(self, blocks: Blocks) -> str:
        """The whole text of blocks, bodies from the blob store included."""
        return await self.link.read(self._text, blocks)

    def _text(self, blocks: Blocks) -> str:
        return "".join(self._body_text(block.body) for block in blocks)

    def _body_text(self, body: Body) -> str:
        if isinstance(body, Blob):
            return self.link.log.blobs.get(body.sha256).decode("utf-8", "replace")
        return body if isinstance(body, str) else ""


def _withheld(outcome: Outcome, error: FoldlineError) -> Outcome:
    """The same outcome with a note in the place of its content."""
    where = "output" if hasattr(outcome, "output") else "blocks"
    changed: dict[str, object] = {where: (text_block(f"[not recorded: {error}]"),)}
    if isinstance(outcome, ToolExecutionCompleted):
        changed["exit_code"] = None  # a tool's own: it may be beyond 64 bits
    return outcome.model_copy(update=changed)
