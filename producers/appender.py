"""The way of appends from one client to one session.

1. `submit` takes a group of drafts and returns at once: nothing that happens to its
   caller afterwards (a cancelled task) keeps the group from being appended.
2. Groups that have queued up meanwhile go out together, at most `inflight_max` appends
   at a time, in their order, in the client's one append thread.
3. `known_seq` is what this client had seen of the session when an append was first
   sent; a resend is the same append.
4. No answer: the same again, with back-off, at most `resend_max` times. DUPLICATE then
   says that an earlier sending was recorded. In the end its caller is told: either that
   nothing is recorded, or (UncertainAppendError) that it may be.
5. TOO_OLD: the log is asked for the event itself; only if it is not there is the append
   made anew, on what is known now. What others may have sent before, under the same id,
   is sent as if nothing were known, so that it comes to this.

A refusal is a value here. Who decided something raises it (`raise_refused`).
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from foldline.errors import (
    AppendRefusedError,
    ConflictError,
    FencedError,
    FoldlineError,
    LogUnavailableError,
    SessionExistsError,
    UncertainAppendError,
    UnrecoverableError,
)
from foldline.faults import crash_point
from foldline.processors.log import Log
from foldline.producers.prepare import Draft, Prepared, Preparer
from foldline.schemas import verdicts as kinds
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import KnownEvent, SessionCreated, type_of
from foldline.schemas.recorded import Append
from foldline.schemas.verdicts import DUPLICATE, TOO_OLD, Verdict

RESEND_FIRST_MS = 20
"""How long the first wait before a resend is; each further one is twice as long."""

RESEND_LONGEST_MS = 2_000


@dataclass(frozen=True, slots=True)
class Sent:
    """One append and its answer. `event` is as it was sent: redacted and hashed."""

    envelope: Envelope
    event: KnownEvent
    verdict: Verdict
    redacted: bool = False


Answers = tuple[Sent, ...]


@dataclass(slots=True)
class _Group:
    """Drafts that were handed in together. `error` is why none of them was sent."""

    drafts: Sequence[Draft]
    future: asyncio.Future[Answers]
    ready: list[Prepared] | None = None
    appends: list[Append] = field(default_factory=list[Append])
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """How much an appender sends at once, and how often again."""

    inflight_max: int
    resend_max: int


class Appender:
    """Appends to one session; used in one event loop."""

    def __init__(
        self,
        session_id: str,
        *,
        log: Log,
        lane: Executor,
        preparer: Preparer,
        limits: Limits,
        known_seq: int,
    ) -> None:
        self._session_id = session_id
        self._log = log
        self._lane = lane
        self._preparer = preparer
        self._limits = limits
        self._queue: deque[_Group] = deque()
        self._pump: asyncio.Task[None] | None = None
        self.known_seq = known_seq

    def submit(self, drafts: Sequence[Draft]) -> asyncio.Future[Answers]:
        """Hand a group in; its answers come in the order of the drafts.

        What is appended behind a draft because of it (counts of redactions) has no
        answer of its own.

        The future raises RedactionError, EncodeError or LogUnavailableError where
        nothing of the group is recorded; UncertainAppendError where it may be.
        """
        future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self._queue.append(_Group(drafts, future))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
        return future

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        while self._pump is not None and not self._pump.done():
            await asyncio.wait({self._pump})

    def saw(self, seq: int) -> None:
        """This client has read the session up to a seq."""
        self.known_seq = max(self.known_seq, seq)

    async def _run(self) -> None:
        while self._queue:
            groups = self._next_groups()
            try:
                await self._exchange(groups)
            except asyncio.CancelledError:
                for group in (*groups, *self._queue):
                    group.future.cancel()  # nobody may wait for ever for an answer
                raise
            except Exception as error:  # noqa: BLE001 - the group's caller raises it
                for group in groups:
                    group.error = group.error or error
            for group in groups:
                _settle(group)

    def _next_groups(self) -> list[_Group]:
        """The next groups that go out together."""
        groups = [self._queue.popleft()]
        size = len(groups[0].drafts)
        while self._queue:
            size += len(self._queue[0].drafts)
            if size > self._limits.inflight_max:
                break
            groups.append(self._queue.popleft())
        return groups

    async def _exchange(self, groups: list[_Group]) -> None:
        """Deliver groups, again while there is no answer.

        What one sending may have recorded, a later one that recorded nothing cannot
        make certain.
        """
        loop = asyncio.get_running_loop()
        wait_ms = RESEND_FIRST_MS
        uncertain: UncertainAppendError | None = None
        for sending in range(self._limits.resend_max + 1):
            try:
                await loop.run_in_executor(self._lane, self._deliver, groups)
            except LogUnavailableError as error:
                if isinstance(error, UncertainAppendError):
                    uncertain = error
                if sending == self._limits.resend_max:
                    for group in groups:
                        group.error = group.error or uncertain or error
                    return
            else:
                return
            await asyncio.sleep(wait_ms / 1000)
            wait_ms = min(2 * wait_ms, RESEND_LONGEST_MS)

    def _deliver(self, groups: list[_Group]) -> None:
        """In the append thread: prepare, send, and send anew what was too old."""
        for group in groups:
            self._prepare(group)
        going = [group for group in groups if group.error is None]
        for group in going:
            if not group.appends:
                group.appends = [
                    _append_of(prepared, self.known_seq) for prepared in group.ready or ()
                ]
        appends = [append for group in going for append in group.appends]
        verdicts = iter(self._answers(appends))
        for group in going:
            group.verdicts = [next(verdicts) for _ in group.appends]

    def _prepare(self, group: _Group) -> None:
        """Prepare once: a resend carries the same bytes."""
        if group.ready is not None or group.error is not None:
            return
        ready: list[Prepared] = []
        try:
            for draft in group.drafts:
                ready.extend(self._preparer.prepare(draft))
        except LogUnavailableError:
            raise  # a blob found no room: the whole sending is tried again
        except FoldlineError as error:
            group.error = error
            return
        group.ready = ready

    def _answers(self, appends: list[Append]) -> list[Verdict]:
        answers: list[Verdict] = []
        for start in range(0, len(appends), self._limits.inflight_max):
            part = appends[start : start + self._limits.inflight_max]
            answers.extend(self._answers_of(part))
        return answers

    def _answers_of(self, appends: list[Append]) -> list[Verdict]:
        verdicts = self._send(appends)
        for _ in range(self._limits.resend_max):
            old = [i for i, verdict in enumerate(verdicts) if verdict.kind == TOO_OLD]
            if not old:
                break
            self._renew(appends, verdicts, old)
        return verdicts

    def _renew(
        self, appends: list[Append], verdicts: list[Verdict], old: list[int]
    ) -> None:
        """Answer what was too old from the log itself, or make it anew."""
        places = self._places({appends[i].envelope.event_id for i in old})
        anew: list[int] = []
        for i in old:
            seq = places.get(appends[i].envelope.event_id)
            if seq is None:
                anew.append(i)
            else:
                found = {"kind": DUPLICATE, "seq": seq, "detail": ""}
                verdicts[i] = verdicts[i].model_copy(update=found)
        fresh = [appends[i]._replace(known_seq=self.known_seq) for i in anew]
        for i, verdict in zip(anew, self._send(fresh) if fresh else (), strict=True):
            verdicts[i] = verdict

    def _places(self, wanted: set[str]) -> dict[str, int]:
        """Where events stand in the log, of those that stand there at all."""
        found: dict[str, int] = {}
        for recorded in self._log.structure(self._session_id):
            if recorded.envelope.event_id in wanted:
                found[recorded.envelope.event_id] = recorded.seq
        return found

    def _send(self, appends: list[Append]) -> list[Verdict]:
        crash_point("CP_APPEND_BEFORE_SEND")
        verdicts = self._log.append(appends)
        crash_point("CP_APPEND_AFTER_VERDICT")
        self.known_seq = max(
            (self.known_seq, *(verdict.current_seq for verdict in verdicts))
        )
        return verdicts


def _append_of(prepared: Prepared, known_seq: int) -> Append:
    return Append(
        envelope=prepared.envelope,
        event=prepared.event,
        content=prepared.content,
        known_seq=0 if prepared.sent_before else known_seq,
        expected_seq=prepared.expected_seq,
        requires=prepared.requires,
        schema_name=type_of(prepared.event),
    )


def _settle(group: _Group) -> None:
    """Give a group its answers, or the reason why it has none."""
    if group.future.done():
        return
    if group.error is not None:
        group.future.set_exception(group.error)
    else:
        group.future.set_result(_answers_for(group))


def _answers_for(group: _Group) -> Answers:
    wanted = {draft.envelope.event_id for draft in group.drafts}
    pairs = zip(group.ready or (), group.verdicts, strict=True)
    return tuple(
        Sent(prepared.envelope, prepared.event, verdict, redacted=prepared.redacted)
        for prepared, verdict in pairs
        if prepared.envelope.event_id in wanted
    )


def refusal_of(sent: Sent) -> FoldlineError | None:
    """The error that says what a refusal means; None where the event is recorded."""
    verdict = sent.verdict
    if verdict.recorded:
        return None
    session_id = verdict.session_id
    event_type = type_of(sent.event)
    match verdict.kind:
        case kinds.EXISTS if isinstance(sent.event, SessionCreated):
            return SessionExistsError(session_id)
        case kinds.CONFLICT:
            return ConflictError(event_type, session_id, verdict)
        case kinds.FENCED:
            return FencedError(event_type, session_id, verdict)
        case kinds.UNRECOVERABLE:
            return UnrecoverableError(event_type, session_id, verdict)
        case _:
            return AppendRefusedError(event_type, session_id, verdict)


def raise_refused(answers: Answers) -> None:
    """Raise the first refusal among the answers.

    Raises:
        ConflictError: an expected_seq was not the current one.
        FencedError: another owner has the session.
        UnrecoverableError: events of the session were deleted.
        AppendRefusedError: any other refusal; `verdict` says which.
    """
    for sent in answers:
        error = refusal_of(sent)
        if error is not None:
            raise error
