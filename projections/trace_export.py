"""Exports the traces of a whole log, and goes on from where it came to.

For each session whose events moved on since its position:

1. Its new events are taken into its traces.
2. The spans that are over and that changed since the position are sent.
3. Only then the position is moved. A process that dies in between sends them again.

A span that is open is sent once it is over; or, when nothing has happened for a while and
nobody runs the session, as it stands, with the reason. If it goes on after all it is sent
again: the same id, better known. So is a span that a late event corrected.

A session that cannot be read, or whose spans the receiver will not have, is named and left
for a while; the others go on.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Protocol

from foldline.errors import UNREADABLE, FoldlineError, SpansRefusedError
from foldline.processors.stored import AuditableLog, StoredSession
from foldline.projections.otel_genai import Names
from foldline.projections.otlp_sender import OtlpSender, Sent
from foldline.projections.positions_file import path_in
from foldline.projections.trace_board import LOG_ENDS
from foldline.projections.trace_positions import Position, TracePositions
from foldline.projections.trace_reading import end_reason, take_all, traces_of
from foldline.projections.traces import Traces
from foldline.schemas.state import MIRRORED, RUNNING, WAITING_APPROVAL, SessionState

QUIET_MS = 60_000
"""How long a session that nobody runs is silent before what is open in it is sent."""
LEFT_MS = 300_000
"""How long a session is left that could not be read, or that the receiver refused."""
KEPT_MAX = 256
"""The traces of how many sessions stay in memory; others are built again when needed."""


@dataclass(slots=True)
class Swept:
    """What one look at all sessions did.

    `lost` sessions could not be read; of `refused` ones the receiver will not have the
    spans. Both say why.
    """

    sessions: int = 0
    sent: Sent = field(default_factory=Sent)
    lost: dict[str, str] = field(default_factory=dict[str, str])
    refused: dict[str, str] = field(default_factory=dict[str, str])


class Told(Protocol):
    """Who hears what the exporter did, and what went wrong that it will try again."""

    def __call__(self, swept: Swept, trouble: FoldlineError | None, /) -> object:
        """Hear of one look."""
        ...


def _nothing() -> None:
    pass


class TraceExporter:
    """Sends the spans of a log's sessions to one receiver. One thread.

    Args:
        log: The log.
        sender: Where the spans go.
        positions: How far it came.
        names: Which version of the conventions.
        content: Whether what was said goes with the spans.
        quiet_ms: See QUIET_MS.
        left_ms: See LEFT_MS.
        on_session: Called before each session: a long look goes on.
    """

    def __init__(
        self,
        log: AuditableLog,
        sender: OtlpSender,
        positions: TracePositions,
        *,
        names: Names,
        content: bool = False,
        quiet_ms: int = QUIET_MS,
        left_ms: int = LEFT_MS,
        on_session: Callable[[], object] = _nothing,
    ) -> None:
        self._log = log
        self._sender = sender
        self._positions = positions
        self._names = names
        self._content = content
        self._quiet_ms = quiet_ms
        self._left_ms = left_ms
        self._on_session = on_session
        self._kept: OrderedDict[str, Traces] = OrderedDict()
        self._moved_s: dict[str, tuple[int, float]] = {}
        """Sessions that are not whole: the seq at which each was seen first, and when."""
        self._left_until_s: dict[str, float] = {}

    def export(self, *, as_it_stands: bool = False) -> Swept:
        """Look at every session once, and send what is new.

        Args:
            as_it_stands: Send open spans too, ended where the log ends.

        Raises:
            TraceExportError: the receiver is away, or will have nothing of this sender.
                What was sent stays so.
            LogUnavailableError: the log gives no answer; the same again goes on.
        """
        swept = Swept()
        self._sweep(swept, as_it_stands=as_it_stands)
        return swept

    def run(self, stop: Event, *, every_ms: int, told: Told) -> None:
        """Look again and again until told to stop; an outage is waited for.

        Raises:
            FoldlineError: one that does not pass, of the receiver or of the log.
        """
        while not stop.is_set():
            swept = Swept()
            try:
                self._sweep(swept, as_it_stands=False)
            except FoldlineError as error:
                told(swept, error)
                if not error.retryable:
                    raise
            else:
                told(swept, None)
            stop.wait(every_ms / 1000)

    def _sweep(self, swept: Swept, *, as_it_stands: bool) -> None:
        """What was done is in `swept`, also where this raises."""
        for row in self._log.stored_sessions():
            self._on_session()
            name = row.session_id
            position = self._positions.get(name)
            if position == Position(row.seq, whole=True) or self._is_left(name):
                continue
            try:
                sent = self._export_one(row, position, as_it_stands=as_it_stands)
            except UNREADABLE as error:
                swept.lost[name] = str(error)
                self._leave(name)
                continue
            except SpansRefusedError as error:
                swept.refused[name] = str(error)
                self._leave(name)
                continue
            swept.sent += sent
            swept.sessions += sent.spans > 0

    def _leave(self, session_id: str) -> None:
        self._left_until_s[session_id] = time.monotonic() + self._left_ms / 1000

    def _is_left(self, session_id: str) -> bool:
        """Whether it is too early to try a session again."""
        until_s = self._left_until_s.get(session_id)
        if until_s is not None and time.monotonic() >= until_s:
            del self._left_until_s[session_id]
            return False
        return until_s is not None

    def _export_one(
        self, row: StoredSession, position: Position, *, as_it_stands: bool
    ) -> Sent:
        """Steps 1 to 3 of one session."""
        if row.seq < position.seq:
            position = Position()  # another log stands where one was
        quiet = as_it_stands or self._is_quiet(row)
        moved = row.seq != position.seq
        state = self._log.state(row.session_id) if moved or quiet else None
        if state is None:
            return Sent()
        whole = as_it_stands or (quiet and not self._runs(state))
        if not moved and not whole:
            return Sent()
        traces = self._taken(state)
        spans = traces.closed(after_seq=position.seq)
        still_open = traces.open(end_reason(self._log, state))
        if whole:
            spans += still_open
        sent = self._sender.send(spans) if spans else Sent()
        whole = whole or not still_open
        self._positions.put(row.session_id, Position(traces.seq, whole))
        if whole:
            self._moved_s.pop(row.session_id, None)
        return sent

    def _is_quiet(self, row: StoredSession) -> bool:
        """Whether a session has had no event for a while, as far as this process knows."""
        now_s = time.monotonic()
        seq, since_s = self._moved_s.get(row.session_id, (0, now_s))
        if seq != row.seq:
            since_s = now_s
            self._moved_s[row.session_id] = row.seq, since_s
        return now_s - since_s >= self._quiet_ms / 1000

    def _runs(self, state: SessionState) -> bool:
        """Whether somebody who lives runs a session, so that open spans may yet end."""
        running = state.mode != MIRRORED and state.status in {RUNNING, WAITING_APPROVAL}
        return running and end_reason(self._log, state) == LOG_ENDS

    def _taken(self, state: SessionState) -> Traces:
        """The traces of a session with all of its events."""
        name = state.session_id
        traces = self._kept.pop(name, None) or traces_of(
            self._log, state, names=self._names, content=self._content
        )
        take_all(self._log, traces, name)
        self._kept[name] = traces
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return traces


def positions_path(
    folder: Path, *, log_url: str, to_url: str, names: Names, content: bool
) -> Path:
    """Where the positions of an exporter are: one file for each log and receiver."""
    return path_in(folder / "traces", log_url, to_url, names.version, str(content))
