"""The timeline: a line per event, for `events`, `show` and `tail`.

seq, time (UTC), who, what, and one line of it. What belongs to a tool call carries the
call's mark, `#` and the seq at which it was requested; the request itself says how the
call stands by now.
"""

from datetime import datetime

from foldline.cli.clean import clean_line, padded
from foldline.cli.content import line_of
from foldline.cli.output import Output, Span
from foldline.projections.views import moment_of
from foldline.schemas.events import ToolCallRequested
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import Call, SessionState

SEQ_CELLS = 7
ACTOR_CELLS = 19
TYPE_CELLS = 23
CALLS_REMEMBERED = 4_096
"""How many calls a timeline can still mark with the seq of their request."""

_STYLES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("Failed", "TimedOut", "Denied", "Cancelled", "Unknown"), "red"),
    (("User", "Steering", "Input", "Goal", "Feedback"), "green"),
    (("Permission",), "yellow"),
    (("Assistant",), "bold"),
    (("Tool", "Background"), "cyan"),
    (("Session", "Turn", "Checkpoint"), "magenta"),
    (("Foreign", "Redaction", "Hook", "Harness", "Config", "Model"), "dim"),
)


class Timeline:
    """Prints events one after the other, and remembers what it needs for the next."""

    def __init__(self, out: Output, state: SessionState | None) -> None:
        self._out = out
        self._day = ""
        self._marks: dict[str, int] = {}
        self._status: dict[str, str] = {}
        for call in _calls(state):
            self._marks[call.call_id] = call.requested_seq
            self._status[call.call_id] = call.status

    def show(self, recorded: Recorded) -> None:
        """Print the line of an event; before it, where the day changes, the day."""
        moment = moment_of(shown_time(recorded))
        self._show_day(moment)
        self._out.line(
            (f"{recorded.seq:>{SEQ_CELLS - 1}} ", "dim"),
            (f"{clock_time(moment)}  ", "dim"),
            (padded(actor_of(recorded), cells=ACTOR_CELLS) + "  ", ""),
            (
                padded(clean_line(recorded.type), cells=TYPE_CELLS) + " ",
                style_of(recorded.type),
            ),
            *self._call_spans(recorded),
            *_branch_spans(recorded),
            (line_of(recorded.event), ""),
        )

    def _show_day(self, moment: datetime | None) -> None:
        day = moment.strftime("%Y-%m-%d") if moment else self._day
        if day != self._day:
            self._day = day
            self._out.line((f"{day} UTC", "bold"))

    def _call_spans(self, recorded: Recorded) -> list[Span]:
        call_id: str | None = getattr(recorded.event, "call_id", None)
        if not call_id:
            return []
        if isinstance(recorded.event, ToolCallRequested):
            self._remember(call_id, recorded.seq)
            status = self._status.get(call_id)
            return [(f"({status}) ", "bold")] if status else []
        seq = self._marks.get(call_id)
        return [(f"#{seq} " if seq else f"{clean_line(call_id)} ", "bold")]

    def _remember(self, call_id: str, seq: int) -> None:
        self._marks[call_id] = seq
        if len(self._marks) > CALLS_REMEMBERED:
            del self._marks[next(iter(self._marks))]


def _calls(state: SessionState | None) -> list[Call]:
    if state is None:
        return []
    return [*state.finished.values(), *state.calls.values()]


def _branch_spans(recorded: Recorded) -> list[Span]:
    branch = recorded.envelope.branch
    return [(f"[{clean_line(branch)}] ", "dim")] if branch else []


def shown_time(recorded: Recorded) -> int | None:
    """When it happened: log time, or for a mirrored fact what its source says."""
    envelope = recorded.envelope
    if envelope.source is not None and envelope.occurred_at:
        return envelope.occurred_at
    return envelope.recorded_at


def clock_time(moment: datetime | None) -> str:
    """The time of day, to the millisecond."""
    if moment is None:
        return "--:--:--.---"
    return moment.strftime("%H:%M:%S.") + f"{moment.microsecond // 1000:03d}"


def actor_of(recorded: Recorded) -> str:
    """Who acted, in a few words."""
    actor = recorded.envelope.actor
    return clean_line(f"{actor.kind.lower()} {actor.id}")


def style_of(event_type: str) -> str:
    """The colour of an event type."""
    for words, style in _STYLES:
        if any(word in event_type for word in words):
            return style
    return ""
