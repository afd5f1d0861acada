"""What one walk over a session's events keeps for its spans: turns, times, who decides.

A span's parent comes from the ids in the events, never from what happens to run: a call
belongs to the turn that its event names, an execution to its call. Pure.
"""

from dataclasses import dataclass, field

from foldline.projections.otel_genai import (
    AGENT_NAME,
    CONVERSATION_ID,
    ERROR_TYPE,
    INVOKE_AGENT,
    OPERATION,
    Names,
)
from foldline.projections.spans import (
    ERROR,
    INTERNAL,
    NAME_CHARS_MAX,
    OK,
    TURN,
    UNSET,
    Link,
    Span,
    SpanEvent,
    SpanRef,
    Value,
    cut,
    ref_of_traceparent,
    span_id_of,
    trace_id_of,
)
from foldline.schemas.envelope import INFERRED, Envelope
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import MIRRORED

OWNER_LOST = "owner_lost"
"""Why a span ended: whoever had begun it is gone, and another owner took over."""
TURN_ENDED = "turn_ended"
"""... its turn ended without a word about it."""
NEXT_TURN = "next_turn"
"""... another turn began (a mirror may lack an end)."""
SESSION_ENDED = "session_ended"
LOG_ENDS = "log_ends"
"""... it is open as far as the log goes; it may still end."""

RESUME = "RESUME"
RETRY = "RETRY"
FORK = "FORK"
TRACEPARENT = "TRACEPARENT"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a session comes from, as a reader of other sessions found it.

    A subagent's turns are spans below `parent`, the call it works on, in that one's
    trace; a fork's first turn has a `link` to the turn that it was forked in.
    """

    parent: SpanRef | None = None
    link: Link | None = None


@dataclass(slots=True)
class Turn:
    """A turn's span. `implied`: nobody recorded its start."""

    key: str
    span: Span
    implied: bool


@dataclass(slots=True)
class Board:
    """All spans of a session so far, and what the next event needs."""

    session_id: str
    names: Names
    origin: Origin
    content: bool
    agent: str = ""
    tenant: str = ""
    system: str = ""
    mirrored: bool = False
    epoch: int = 0
    seq: int = 0
    now_us: int = 0
    first_us: int = 0
    recorded_us: int = 0
    owner_seen_us: int = 0
    spans: dict[str, Span] = field(default_factory=dict[str, Span])
    turns: dict[str, Turn] = field(default_factory=dict[str, Turn])
    turn: Turn | None = None
    last_turn: SpanRef | None = None
    next_links: list[Link] = field(default_factory=list[Link])
    opened: dict[str, Span] = field(default_factory=dict[str, Span])
    heard_us: dict[str, int] = field(default_factory=dict[str, int])
    """When something last happened, by branch."""

    def begin_event(self, recorded: Recorded) -> None:
        """Take the place and the time of the next event.

        A mirrored fact has its source's time; where that says none, it is the one before.
        """
        envelope = recorded.envelope
        self.seq = envelope.seq
        if not self.mirrored:
            self.now_us = envelope.recorded_at
        elif envelope.occurred_at:
            self.now_us = envelope.occurred_at
        self.first_us = self.first_us or self.now_us
        self.recorded_us = self.recorded_us or envelope.recorded_at

    def end_event(self, recorded: Recorded) -> None:
        """Remember when something was last heard, of whom."""
        envelope = recorded.envelope
        self.heard_us[envelope.branch or ""] = self.now_us
        if envelope.epoch and envelope.epoch == self.epoch:
            self.owner_seen_us = self.now_us
        if self.turn is not None and self.turn.implied:
            self.turn.span.end_us = self.now_us

    @property
    def known_us(self) -> int:
        """The time of what has none: the first one known, else when it was recorded."""
        return self.first_us or self.recorded_us

    def created(self, envelope: Envelope, *, agent: str, mode: str) -> None:
        """Learn who the session is, before its first span."""
        self.agent = agent
        self.tenant = envelope.tenant
        self.mirrored = mode == MIRRORED
        self.epoch = envelope.epoch
        self.system = envelope.source.system if envelope.source else ""
        if self.origin.link is not None:
            self.next_links.append(self.origin.link)

    # --- spans -----------------------------------------------------------------------

    def open(
        self,
        envelope: Envelope,
        *,
        what: str,
        name: str,
        above: Span,
        kind: str = INTERNAL,
        start_us: int = 0,
    ) -> Span:
        """A new span that this event began; `what` tells it from others of the event."""
        span_id = span_id_of(self.session_id, what, envelope.event_id)
        ref = SpanRef(above.ref.trace_id, span_id)
        start_us = max(start_us or self.now_us, above.start_us)
        span = Span(
            ref, what, above.ref.span_id, name, kind, start_us, self.seq, above.turn
        )
        return self._added(span, envelope)

    def _added(self, span: Span, envelope: Envelope) -> Span:
        span.name = str(cut(span.name.strip(), NAME_CHARS_MAX))
        span.set(CONVERSATION_ID, self.session_id)
        span.set(AGENT_NAME, self.agent)
        span.note("event.id", envelope.event_id)
        span.note("seq", envelope.seq)
        span.note("turn.id", span.turn)
        span.note("branch", envelope.branch)
        span.note("epoch", envelope.epoch or None)
        span.note("tenant", self.tenant)
        if envelope.certainty == INFERRED:
            span.note("certainty", INFERRED)
        span.link(ref_of_traceparent(envelope.traceparent), TRACEPARENT)
        self.spans[span.ref.span_id] = self.opened[span.ref.span_id] = span
        return span

    def touch(self, span: Span) -> None:
        """An event changed a span."""
        span.seq = self.seq

    def close(
        self,
        span: Span,
        *,
        status: str = UNSET,
        error_type: str = "",
        reason: str = "",
        at_us: int = 0,
    ) -> None:
        """End a span, or say better how it ended. An error that is over is forgotten."""
        self.touch(span)
        self.opened.pop(span.ref.span_id, None)
        span.closed = True
        span.background = False
        span.end_us = max(at_us or self.now_us, span.start_us)
        span.status = status
        span.attributes.pop(ERROR_TYPE, None)
        span.attributes.pop("foldline.closed.reason", None)
        if status == ERROR:
            span.set(ERROR_TYPE, error_type or "unknown")
        span.note("closed.reason", reason)

    def reopen(self, span: Span) -> None:
        """A span goes on that had ended: it is tried again."""
        self.touch(span)
        self.opened[span.ref.span_id] = span
        span.closed = False
        span.end_us = 0
        span.status = UNSET
        span.attributes.pop(ERROR_TYPE, None)

    def tell(self, span: Span | None, name: str, **values: Value | None) -> None:
        """Add an event to a span; without one it is in no trace."""
        if span is None:
            return
        told = {f"foldline.{key}": cut(v) for key, v in values.items() if v is not None}
        span.tell(SpanEvent(f"foldline.{name}", self.now_us, told))
        self.touch(span)

    def tell_turn(self, envelope: Envelope, name: str, **values: Value | None) -> None:
        """Add an event to the turn that it belongs to, if there is one."""
        turn = self.turns.get(envelope.turn_id or "") or self.turn
        self.tell(turn and turn.span, name, **values)

    # --- turns -----------------------------------------------------------------------

    def turn_of(self, envelope: Envelope) -> Turn:
        """The turn that an event belongs to; where nobody recorded one, it is implied."""
        named = self.turns.get(envelope.turn_id or "")
        if named is not None:
            return named
        if self.turn is not None and not envelope.turn_id:
            return self.turn
        turn = self.start_turn(envelope, implied=True)
        turn.span.note("certainty", INFERRED)
        return turn

    def start_turn(self, envelope: Envelope, *, implied: bool = False) -> Turn:
        """A turn begins with this event."""
        self.leave_turn(NEXT_TURN)
        key = envelope.turn_id or envelope.event_id
        parent = self.origin.parent
        trace_id = parent.trace_id if parent else trace_id_of(self.session_id, key)
        ref = SpanRef(trace_id, span_id_of(self.session_id, TURN, key))
        above_id = parent.span_id if parent else ""
        name = f"{INVOKE_AGENT} {self.agent}"
        span = Span(ref, TURN, above_id, name, INTERNAL, self.now_us, self.seq, key)
        self._added(span, envelope)
        span.set(OPERATION, INVOKE_AGENT)
        for link in self.next_links:
            span.link(link.to, link.kind)
        self.next_links = []
        self.last_turn = ref
        self.turn = self.turns[key] = Turn(key, span, implied)
        return self.turn

    def leave_turn(self, reason: str) -> None:
        """The open turn is over, though nobody said so; what is open in it ends too."""
        turn = self.turn
        if turn is None:
            return
        self.close_below(turn, reason)
        at_us = turn.span.end_us if turn.implied else 0
        self.close(turn.span, reason="" if turn.implied else reason, at_us=at_us)
        self.turn = None

    def close_below(self, turn: Turn, reason: str) -> None:
        """End what is open in a turn, but for what goes on in the background.

        What is known of a span's end is kept: only that it is over is new.
        """
        for span in list(self.opened.values()):
            if span.turn == turn.key and span is not turn.span and not span.background:
                self.settle(span, reason)

    def settle(self, span: Span, reason: str, *, at_us: int = 0) -> None:
        """A span is over without a word of its end, or with what was said so far."""
        if span.end_us and span.status == OK:
            self.close(span, status=OK, at_us=span.end_us)
        else:
            error_type = str(span.attributes.get(ERROR_TYPE, ""))
            self.close(
                span,
                status=span.status,
                error_type=error_type,
                reason=reason,
                at_us=at_us,
            )

    def cut_off(self, what: frozenset[str], *, at_us: int) -> list[Span]:
        """End what a former owner had begun and not ended: it is gone. Gives the spans."""
        lost = [
            span
            for span in self.opened.values()
            if span.what in what and epoch_of(span) < self.epoch
        ]
        for span in lost:
            self.close(
                span, status=ERROR, error_type=OWNER_LOST, reason=OWNER_LOST, at_us=at_us
            )
        return lost


def epoch_of(span: Span) -> int:
    """The epoch in which a span was begun."""
    epoch = span.attributes.get("foldline.epoch", 0)
    return epoch if isinstance(epoch, int) else 0
