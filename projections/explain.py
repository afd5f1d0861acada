"""Why a context is as it is: where each message came from, and what was left out. Pure.

    explain(context, events, counter)     each message, its events, tokens and reason
    prefix.difference(before, after, ...) what two contexts share, dropped and new

The reasons are these. A message is *in force* (it leads), *in full*, a *summary* (also of
what was taken back since) or a *note*; a result is *in full*, *as it was shown* (frozen),
*pruned* (a reference stands for it) or a *stand-in*. What is not shown was compacted,
cleared, rewound, overtaken (retracted, replaced), said on a branch, or not for the model.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from foldline.projections.calls import end_of
from foldline.projections.context import NOTE, SUMMARY, Context, Message, Part
from foldline.projections.live import OUTLASTS_REWINDS
from foldline.projections.token_count import (
    ANYBODY,
    Reader,
    Sizes,
    TokenCounter,
    message_tokens,
    part_tokens,
    sizes_of,
    tools_tokens,
)
from foldline.schemas.events import (
    AnyEvent,
    AssistantMessage,
    CompactionCompleted,
    ConstraintSet,
    ContextCleared,
    GoalSet,
    HistoryRewound,
    InputProvided,
    InstructionsSet,
    SteeringApplied,
    SummaryCreated,
    SystemObservation,
    ToolCallRequested,
    UserMessage,
)
from foldline.schemas.recorded import Recorded

IN_FORCE = "in force"
IN_FULL = "in full"
A_SUMMARY = "summary"
A_STALE_SUMMARY = "summary, of what was taken back too"
A_NOTE = "note"
AS_SHOWN = "as it was shown"
PRUNED = "pruned"
STAND_IN = "stand-in"
LEFT = "left to the parent"

COMPACTED = "compacted"
CLEARED = "cleared"
REWOUND = "rewound"
ON_BRANCH = "on a branch"
BEFORE = "before the base"
OVERTAKEN = "overtaken"
NOT_FOR_MODELS = "not for the model"

_FORMS: Mapping[str, str] = {
    "": IN_FULL,
    "OUTCOME": IN_FULL,
    "PROJECTED": AS_SHOWN,
    "PRUNED": PRUNED,
    "LEFT": LEFT,
}

_FOR_MODELS = (
    AssistantMessage,
    ConstraintSet,
    GoalSet,
    InputProvided,
    InstructionsSet,
    SteeringApplied,
    SummaryCreated,
    SystemObservation,
    ToolCallRequested,
    UserMessage,
)


@dataclass(frozen=True, slots=True)
class Source:
    """An event that a message came from; without a type where it is not at hand."""

    event_id: str
    seq: int = 0
    type: str = ""


@dataclass(frozen=True, slots=True)
class ShownPart:
    """A piece of a message: what it is, its tokens, and why it is as it is."""

    kind: str
    tokens: int
    why: str
    tool: str = ""
    call_id: str = ""
    form: str = ""
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message: where it stands, what it came from, its tokens, and why it is there."""

    place: int
    role: str
    why: str
    tokens: int
    seq: int
    last_seq: int
    sources: tuple[Source, ...]
    parts: tuple[ShownPart, ...]
    text: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Events that are not shown, for one reason; `by_seq` is of the event that did it."""

    why: str
    events: int
    from_seq: int
    to_seq: int
    by_seq: int | None = None
    types: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """A context, message by message, and what is not in it."""

    messages: tuple[ShownMessage, ...]
    left_out: tuple[LeftOut, ...]
    tools: int
    tools_tokens: int
    sizes: Sizes
    counter: str
    base_seq: int
    upto_seq: int


def explain(
    context: Context,
    events: Iterable[Recorded],
    counter: TokenCounter,
    *,
    reader: Reader = ANYBODY,
) -> Explanation:
    """Each message of a context with its reason, and what was left out with its own.

    Args:
        context: what is shown.
        events: the history up to there. Those up to its base may be missing, and are
            then not told apart by type.
        counter: counts the tokens.
        reader: whom it is for.
    """
    held = list(events)
    by_id = {recorded.envelope.event_id: recorded for recorded in held}
    messages = shown_messages(context, by_id, counter, reader=reader)
    shown = {s.event_id for message in messages for s in message.sources}
    shown |= {event_id for event_id in (context.tools_event_id,) if event_id}
    return Explanation(
        messages=messages,
        left_out=tuple(_left_out(held, shown, context.base_seq)),
        tools=len(context.tools),
        tools_tokens=tools_tokens(context.tools, counter),
        sizes=sizes_of(context, counter, reader=reader),
        counter=counter.name,
        base_seq=context.base_seq,
        upto_seq=context.upto_seq,
    )


# --- what is shown ---------------------------------------------------------------------


def shown_messages(
    context: Context,
    by_id: Mapping[str, Recorded],
    counter: TokenCounter,
    *,
    reader: Reader = ANYBODY,
) -> tuple[ShownMessage, ...]:
    """Each message of a context with its reason.

    Args:
        context: what is shown.
        by_id: the events it came from, by their ids; of others the type is not said.
        counter: counts the tokens.
        reader: whom it is for.
    """
    shown = (
        _message(place, message, by_id, counter, reader)
        for place, message in enumerate(context.messages)
    )
    stale = {A_SUMMARY: A_STALE_SUMMARY} if context.shaped.stale_seq else {}
    return tuple(
        replace(one, why=stale[one.why]) if one.why in stale else one for one in shown
    )


def _message(
    place: int,
    message: Message,
    by_id: Mapping[str, Recorded],
    counter: TokenCounter,
    reader: Reader,
) -> ShownMessage:
    parts = tuple(_part(part, message, by_id, counter, reader) for part in message.parts)
    ids = [*message.event_ids] if message.role != "tool" else []
    ids += [part.source.event_id for part in parts if part.source]
    return ShownMessage(
        place=place,
        role=message.role,
        why=", ".join(dict.fromkeys(part.why for part in parts)),
        tokens=message_tokens(message, counter, reader=reader),
        seq=message.seq,
        last_seq=message.last_seq,
        sources=tuple(_source(event_id, by_id) for event_id in dict.fromkeys(ids)),
        parts=parts,
        text="".join(_words(message.parts)),
    )


def _part(
    part: Part,
    message: Message,
    by_id: Mapping[str, Recorded],
    counter: TokenCounter,
    reader: Reader,
) -> ShownPart:
    return ShownPart(
        kind=part.kind,
        tokens=part_tokens(part, counter, reader=reader),
        why=_why(part, message),
        tool=part.tool,
        call_id=part.call_id,
        form=part.form,
        source=_source(part.event_id, by_id, part.seq) if part.event_id else None,
    )


def _why(part: Part, message: Message) -> str:
    if message.role == "system":
        return IN_FORCE
    if part.kind == "result":
        return _FORMS.get(part.form, STAND_IN)
    return {SUMMARY: A_SUMMARY, NOTE: A_NOTE}.get(message.origin, IN_FULL)


def _source(event_id: str, by_id: Mapping[str, Recorded], seq: int = 0) -> Source:
    recorded = by_id.get(event_id)
    if recorded is None:
        return Source(event_id, seq)
    return Source(event_id, recorded.seq, recorded.type)


def _words(parts: Iterable[Part]) -> Iterable[str]:
    """What the parts say, for people; a call by its tool and arguments."""
    for part in parts:
        if part.kind == "call":
            yield f"{part.tool}({part.text}) "
        elif part.kind == "result":
            yield from _words(part.parts)
            yield " "
        elif part.kind == "text":
            yield part.spoken
        else:
            yield f"[{part.kind}] {part.text} "


# --- what is not -----------------------------------------------------------------------


def _left_out(
    events: Sequence[Recorded], shown: set[str], base_seq: int
) -> Iterable[LeftOut]:
    """The events that are not shown, by reason; those not at hand by their seqs."""
    reasons = _Reasons(events)
    absent = base_seq - sum(1 for recorded in events if recorded.seq <= base_seq)
    if absent > 0:
        why, by_seq = reasons.at(base_seq) or (BEFORE, None)
        yield LeftOut(why, absent, 1, base_seq, by_seq)
    found: dict[tuple[str, int | None], list[Recorded]] = {}
    for recorded in events:
        if recorded.envelope.event_id not in shown:
            found.setdefault(reasons.of(recorded), []).append(recorded)
    for (why, by_seq), those in found.items():
        types = Counter(recorded.type for recorded in those)
        yield LeftOut(
            why, len(those), those[0].seq, those[-1].seq, by_seq, dict(types.most_common())
        )


class _Reasons:
    """Why events of a history are not shown."""

    def __init__(self, events: Sequence[Recorded]) -> None:
        self._cuts = [cut for recorded in events if (cut := _cut(recorded)) is not None]

    def of(self, recorded: Recorded) -> tuple[str, int | None]:
        """The reason of one, and the seq of the event that is the reason."""
        if not _is_for_models(recorded.event):
            return NOT_FOR_MODELS, None
        if recorded.envelope.branch is not None:
            return ON_BRANCH, None
        outlasts = type(recorded.event) in OUTLASTS_REWINDS
        found = self.at(recorded.seq, but_for=REWOUND if outlasts else "")
        return found or (OVERTAKEN, None)

    def at(self, seq: int, *, but_for: str = "") -> tuple[str, int] | None:
        """What took away what stood at a seq; None where nothing did."""
        for cut in self._cuts:
            if cut.first <= seq <= cut.last < cut.by_seq and cut.why != but_for:
                return cut.why, cut.by_seq
        return None


@dataclass(frozen=True, slots=True)
class _Cut:
    why: str
    first: int
    last: int
    by_seq: int


def _cut(recorded: Recorded) -> _Cut | None:
    seq = recorded.seq
    match recorded.event:
        case CompactionCompleted(from_seq=first, to_seq=last):
            return _Cut(COMPACTED, first, last, seq)
        case ContextCleared():
            return _Cut(CLEARED, 1, seq - 1, seq)
        case HistoryRewound(to_seq=to_seq):
            return _Cut(REWOUND, to_seq + 1, seq - 1, seq)
        case _:
            return None


def _is_for_models(event: AnyEvent) -> bool:
    return isinstance(event, _FOR_MODELS) or end_of(event) is not None
