"""A history written out for a model that is to summarise it. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from foldline.projections.calls import end_of
from foldline.projections.pieces import plain_text
from foldline.projections.pruning import CHARACTERS_PER_TOKEN
from foldline.projections.summarising import Originals
from foldline.projections.token_count import TokenCounter
from foldline.schemas.blocks import Block, clean_text
from foldline.schemas.events import (
    AssistantMessage,
    ContextCleared,
    GoalSet,
    InputProvided,
    PlanUpdated,
    SteeringReceived,
    SystemObservation,
    ToolCallRequested,
    UserMessage,
)
from foldline.schemas.recorded import Recorded

PIECE_MIN_TOKENS = 32
"""What is left of a piece however many there are; then the oldest are left out."""

CUT = "\n[…]\n"


def pieces_of(originals: Originals, *, tokens: int, counter: TokenCounter) -> list[str]:
    """The history up to `originals.to_seq`, a piece for each event that says something.

    Args:
        originals: the events.
        tokens: how much room there is in all; where it is more, long pieces are cut.
        counter: counts tokens.
    """
    pieces = [
        clean_text(f"[{recorded.seq}] {told}")[0]
        for recorded in _since_cleared(originals)
        for told in [_told(recorded, originals.texts)]
        if told
    ]
    if sum(counter.count(piece) for piece in pieces) <= tokens:
        return pieces
    each = max(tokens // max(len(pieces), 1), PIECE_MIN_TOKENS)
    short = [_cut(piece, each * CHARACTERS_PER_TOKEN) for piece in pieces]
    return short[-max(tokens // each, 1) :]


def chunks_of(pieces: Sequence[str], *, tokens: int, counter: TokenCounter) -> list[str]:
    """The pieces in their order, so many together as have room."""
    chunks: list[list[str]] = []
    left = 0
    for piece in pieces:
        size = min(counter.count(piece), tokens)
        if not chunks or size > left:
            chunks.append([])
            left = tokens
        chunks[-1].append(_cut(piece, tokens * CHARACTERS_PER_TOKEN))
        left -= size
    return ["\n".join(chunk) for chunk in chunks]


def _since_cleared(originals: Originals) -> list[Recorded]:
    kept: list[Recorded] = []
    for recorded in originals.events:
        if recorded.seq > originals.to_seq:
            break
        if isinstance(recorded.event, ContextCleared):
            kept = []
        kept.append(recorded)
    return kept


def _told(recorded: Recorded, texts: Mapping[bytes, str]) -> str:
    """What is told of an event; empty where it says nothing to the model."""
    match recorded.event:
        case UserMessage(blocks=blocks) | InputProvided(blocks=blocks):
            return _line("person", blocks, texts)
        case SteeringReceived(blocks=blocks):
            return _line("person, in between", blocks, texts)
        case GoalSet(blocks=blocks):
            return _line("goal", blocks, texts)
        case SystemObservation(blocks=blocks):
            return _line("observed", blocks, texts)
        case AssistantMessage(blocks=blocks):
            return _line("agent", (b for b in blocks if b.kind == "text"), texts)
        case ToolCallRequested(tool=tool, arguments=arguments, call_id=call_id):
            return _line(f"call {call_id} of {tool}", arguments, texts)
        case PlanUpdated(items=items):
            steps = [f"{i.status} {plain_text(i.blocks, texts)}" for i in items]
            return "plan: " + "; ".join(steps)
        case event:
            end = end_of(event)
            named = getattr(event, "call_id", None) or getattr(event, "handle", "")
            failed = ", failed" if end is not None and end.error else ""
            what = f"result of {named}{failed}"
            return "" if end is None else _line(what, end.blocks, texts)


def _line(what: str, blocks: Iterable[Block], texts: Mapping[bytes, str]) -> str:
    text = plain_text(blocks, texts)
    return f"{what}: {text}" if text.strip() else ""


def _cut(text: str, characters: int) -> str:
    """The beginning and the end of a text."""
    if len(text) <= characters:
        return text
    end = characters // 4
    return f"{text[: characters - end]}{CUT}{text[-end:]}"
