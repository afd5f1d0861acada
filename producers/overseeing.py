"""Policies at work: watches the sessions of a log, and records what the rules want.

Any number of these may run beside each other. What one does, in this order:

1. It looks at the index of the log. A session with events behind its position is due; one
   that had ended before these rules were first in force is nobody's business.
2. Its events go through the rules. Those up to the position only make the rules know what
   they knew; behind it, what they want is due.
3. That is recorded, under ids that follow from rule and event: what another of these, or a
   former life of this one, has recorded is not recorded twice.
4. Only then the position is moved. A process that dies in between wants the same again.

A rule that fails on an event is out for that session, and the others go on. The position in
the file stays before that event: once the rule is mended, it judges from there.

A stop or a word for a turn or call that is over comes too late and is left out, as is any
for a session that has ended or that another harness runs (mirrored): nobody would heed it.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from itertools import islice
from types import TracebackType
from typing import Self, cast

from foldline.errors import (
    AccessRefusedError,
    AppendRefusedError,
    EncodeError,
    FoldlineError,
)
from foldline.faults import crash_point
from foldline.processors.stored import AuditableLog, StoredSession
from foldline.producers.client import Client, connect
from foldline.producers.overseen import (
    RECORDED,
    REFUSED,
    TOO_LATE,
    Done,
    Look,
    NotJudged,
    Told,
    done_of,
    too_late,
)
from foldline.producers.oversight_positions import OversightPositions
from foldline.producers.session import SessionView
from foldline.projections.oversight import Finding, Policy, Wanted, Watching
from foldline.schemas.choices import CancelTarget
from foldline.schemas.envelope import Actor
from foldline.schemas.events import CancellationRequested
from foldline.schemas.state import ENDED, MIRRORED, SessionState
from foldline.settings import Settings

ACTOR = Actor(kind="SERVICE", id="foldline-policies")
"""Who says what policies say; over HTTP it is the token's actor."""

KEPT_MAX = 256
"""How many sessions stay in memory between two looks; others are read again."""

READ_EVENTS = 512
"""How many events are judged before what they asked for is recorded."""

_logger = logging.getLogger("foldline.policies")


def _nothing() -> None:
    pass


class Overseer:
    """Holds the sessions of one log to some rules. For one task; to be entered."""

    def __init__(
        self,
        log: AuditableLog,
        rules: Sequence[Policy],
        positions: OversightPositions,
        *,
        settings: Settings,
        tenant: str | None = None,
        mirrored: bool = False,
        on_session: Callable[[], object] = _nothing,
    ) -> None:
        """Judge sessions by these rules; `run` begins.

        Args:
            log: the log.
            rules: all of them.
            positions: how far these rules came, see `positions_path`.
            settings: limits and times.
            tenant: only its sessions; None for all.
            mirrored: violations are recorded in mirrored sessions, too.
            on_session: called before each part of a session: a long look goes on.
        """
        self._log = log
        self._settings = settings
        self._client: Client | None = None
        self._entered = AsyncExitStack()
        self._rules = rules
        self._positions = positions
        self._tenant = tenant
        self._mirrored = mirrored
        self._on_session = on_session
        self._content = any(rule.content for rule in rules)
        self._at = positions.all()
        self._begun_at = -1
        self._kept: OrderedDict[str, Watching] = OrderedDict()
        self._broken: dict[str, int] = {}
        self._away: set[str] = set()
        """Sessions that the log gave no answer for: next time the others come first."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._entered.aclose()

    async def run(self, stop: asyncio.Event, *, every_ms: int, told: Told) -> None:
        """Look again and again, until `stop` is set; a log that is away is waited for."""
        while not stop.is_set():
            look = Look()
            try:
                await self._look(look)
            except FoldlineError as error:
                if not error.retryable:
                    raise
                told(look, error)
            else:
                told(look, None)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), every_ms / 1000)

    async def look(self) -> Look:
        """Look at every session once, and do what is due.

        Raises:
            LogUnavailableError: the log gives no answer; the next look goes on.
            AccessRefusedError: this runner may not read, or not append.
        """
        look = Look()
        await self._look(look)
        return look

    async def _look(self, look: Look) -> None:
        """What was done is in `look`, also where this raises."""
        for row in await asyncio.to_thread(self._due):
            try:
                await self._judge(row, look)
            except AccessRefusedError:
                raise
            except FoldlineError as error:
                if error.retryable:
                    self._away.add(row.session_id)
                    raise
                self._gave_up(row, look, error)
            self._away.discard(row.session_id)

    def _due(self) -> list[StoredSession]:
        """1. The sessions with events that were not judged."""
        rows = list(self._log.stored_sessions())
        if self._begun_at < 0:
            now = max((row.recorded_at for row in rows), default=0)
            self._begun_at = self._positions.begun_at(now)
        due = filter(self._is_due, rows)
        return sorted(due, key=lambda row: row.session_id in self._away)

    def _is_due(self, row: StoredSession) -> bool:
        at = self._at.get(row.session_id, 0)
        if row.seq <= max(at, self._broken.get(row.session_id, 0)):
            return False
        if self._tenant is not None and row.tenant != self._tenant:
            return False
        if row.mode == MIRRORED and not self._mirrored:
            return False
        return at > 0 or row.status not in ENDED or row.recorded_at > self._begun_at

    def _gave_up(self, row: StoredSession, look: Look, error: FoldlineError) -> None:
        """Leave a session until it has a new event; the others go on."""
        _logger.error("session %s is not judged", row.session_id, exc_info=error)
        self._kept.pop(row.session_id, None)
        self._broken[row.session_id] = row.seq
        look.failed.append(NotJudged(row.session_id, str(error)))

    async def _judge(self, row: StoredSession, look: Look) -> None:
        """2 to 4, part by part, up to where the index has the session."""
        name = row.session_id
        watching = self._kept.pop(name, None) or Watching(name, self._rules)
        look.sessions += 1
        while watching.seq < row.seq:
            self._on_session()
            before = watching.seq
            findings = await asyncio.to_thread(self._take, watching, row.seq)
            if watching.seq == before:
                break  # the index is ahead of what can be read
            at = self._at.get(name, 0)
            due = [finding for finding in findings if finding.seq > at]
            if due:
                look.done += await self._act(row, due)
                crash_point("CP_POLICIES_AFTER_APPEND")
            look.failed += self._failed(watching, at)
            self._move(watching, at)
        self._kept[name] = watching
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)

    def _failed(self, watching: Watching, at: int) -> Iterator[NotJudged]:
        """The rules that failed on an event that is due; it is told once."""
        name = watching.state.session_id
        for error in watching.failures.values():
            if error.seq > at:
                _logger.error("session %s: %s", name, error, exc_info=error)
                yield NotJudged(name, str(error), error.rule)

    def _move(self, watching: Watching, at: int) -> None:
        """4. In the file, not beyond what a rule failed on."""
        name = watching.state.session_id
        if watching.seq <= at:
            return
        self._at[name] = watching.seq
        failed = [error.seq - 1 for error in watching.failures.values()]
        upto = min([watching.seq, *failed])
        if upto > at:
            self._positions.put(name, upto)

    def _take(self, watching: Watching, upto_seq: int) -> list[Finding]:
        """2. The next events through the rules. Only the session's own: no ancestor's."""
        name, after_seq = watching.state.session_id, watching.seq
        read = self._log.events if self._content else self._log.structure
        events = read(name, after_seq=after_seq, upto_seq=upto_seq)
        findings: list[Finding] = []
        for recorded in islice(events, READ_EVENTS):
            findings += watching.take(recorded)
        return findings

    async def _connected(self) -> Client:
        """The client that appends; there is one as soon as there is something to append."""
        if self._client is None:
            self._client = await self._entered.enter_async_context(
                connect(self._log, settings=self._settings, actor=ACTOR)
            )
        return self._client

    async def _act(self, row: StoredSession, due: Sequence[Finding]) -> list[Done]:
        """3. Record what is wanted, in its order."""
        client = await self._connected()
        view = await client.open(row.session_id)
        try:
            state = await view.state()
            return [
                await self._record(view, state, finding, wanted)
                for finding in due
                for wanted in finding.wanted
            ]
        finally:
            await view.close()

    async def _record(
        self, view: SessionView, state: SessionState, finding: Finding, wanted: Wanted
    ) -> Done:
        late = too_late(state, finding, wanted)
        if late:
            return done_of(finding, wanted, TOO_LATE, late)
        event, event_id = wanted.event, wanted.event_id
        try:
            if isinstance(event, CancellationRequested):
                await view.cancel(
                    event.reason,
                    target=cast("CancelTarget", event.target),  # or the log refuses it
                    target_id=event.target_id,
                    event_id=event_id,
                )
            else:
                await view.append(event, event_id=event_id)
        except (AppendRefusedError, EncodeError) as error:
            # The log's last word on this event. Whatever else goes wrong may be mended:
            # it raises, and the position stays.
            return done_of(finding, wanted, REFUSED, str(error))
        return done_of(finding, wanted, RECORDED)
