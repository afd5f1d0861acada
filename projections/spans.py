"""Spans as data: their ids, bounds and links. Pure.

Ids follow from session and event ids, so that whoever builds a trace again builds the
same one. Times are microseconds since 1970; 0 is a time that nobody recorded.
"""

import hashlib
import re
from dataclasses import dataclass, field

from foldline.projections.otel_genai import OURS

Value = str | bool | int | float | tuple[str, ...]

UNSET = "UNSET"
OK = "OK"
ERROR = "ERROR"

INTERNAL = "INTERNAL"
CLIENT = "CLIENT"

TURN = "turn"
CALL = "call"
MODEL = "model"
EXECUTION = "execution"
PERMISSION = "permission"
INPUT = "input"
TAKEOVER = "takeover"

NAME_CHARS_MAX = 200
VALUE_CHARS_MAX = 1_024
"""How long an attribute may be; more is cut."""
CONTENT_CHARS_MAX = 16_384
"""How long an attribute with content may be, where content is asked for."""
EVENTS_MAX = 128
"""How many events one span keeps; the others are counted."""
LINKS_MAX = 32
"""How many links one span keeps; the others are counted."""

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class SpanRef:
    """Which span: of which trace."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class Link:
    """Another span that a span goes back to: RESUME, RETRY, FORK or TRACEPARENT."""

    to: SpanRef
    kind: str


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened at one moment of a span."""

    name: str
    time_us: int
    attributes: dict[str, Value]


@dataclass(slots=True)
class Span:
    """One span. `what` is TURN, CALL and so on; `parent_id` is empty for a root.

    Without `closed` it is still open; its `end_us` is then the last that was heard of it,
    or 0. `seq` is that of the last event that changed it, `turn` the key of its turn.
    What runs in the `background` outlives its turn.
    """

    ref: SpanRef
    what: str
    parent_id: str
    name: str
    kind: str
    start_us: int
    seq: int
    turn: str = ""
    end_us: int = 0
    closed: bool = False
    background: bool = False
    status: str = UNSET
    message: str = ""
    attributes: dict[str, Value] = field(default_factory=dict[str, Value])
    events: list[SpanEvent] = field(default_factory=list[SpanEvent])
    events_dropped: int = 0
    links: list[Link] = field(default_factory=list[Link])
    links_dropped: int = 0

    def tell(self, event: SpanEvent) -> None:
        """Add an event; beyond the limit it is counted."""
        if len(self.events) < EVENTS_MAX:
            self.events.append(event)
        else:
            self.events_dropped += 1

    def link(self, to: SpanRef | None, kind: str) -> None:
        """Add a link, once; beyond the limit it is counted."""
        if to is None or to == self.ref or Link(to, kind) in self.links:
            return
        if len(self.links) < LINKS_MAX:
            self.links.append(Link(to, kind))
        else:
            self.links_dropped += 1

    def note(self, name: str, value: Value | None) -> None:
        """Set an attribute that the conventions have no name for."""
        self.set(OURS + name, value)

    def set(self, name: str, value: Value | None) -> None:
        """Set an attribute, cut to its limit; nothing for none, or without a name."""
        if name and value is not None and value not in ("", ()):
            self.attributes[name] = cut(value)


def cut(value: Value, chars_max: int = VALUE_CHARS_MAX) -> Value:
    """A value within its limit."""
    if isinstance(value, str):
        return value if len(value) <= chars_max else value[: chars_max - 1] + "…"
    if isinstance(value, tuple):
        return tuple(str(cut(part, chars_max)) for part in value[:EVENTS_MAX])
    return value


def trace_id_of(session_id: str, turn: str) -> str:
    """The trace of a turn: 32 hex digits."""
    return _digest("trace", session_id, turn)[:32]


def span_id_of(session_id: str, kind: str, key: str) -> str:
    """The span of a kind that an event of a session began: 16 hex digits."""
    return _digest("span", session_id, kind, key)[:16]


def _digest(*parts: str) -> str:
    """SHA-256 of parts, each with its length; all zeros, which no id may be, is no case."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def ref_of_traceparent(traceparent: str | None) -> SpanRef | None:
    """The span that a W3C traceparent names; None where it names none."""
    found = _TRACEPARENT.fullmatch(traceparent or "")
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return SpanRef(found[1], found[2])
