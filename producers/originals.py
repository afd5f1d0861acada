"""The original events behind a compaction, and the texts of their blobs. Blocks on the log.

Both are bounded: of a history that is longer, its beginning (since it was last cleared) is
read and its newest part, and of what lies between that which is still open, and what takes
something back; of larger texts what the event itself shows of them is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from foldline.processors.blobs import BlobStore
from foldline.processors.log import Log
from foldline.projections.context import text_blobs
from foldline.projections.live import live_of, takes_back
from foldline.projections.reading import Past, read_texts
from foldline.projections.summarising import Originals
from foldline.projections.tales import tales_of
from foldline.schemas.events import (
    AnyEvent,
    ContextCleared,
    InputProvided,
    InputRequested,
    ToolCallRequested,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import NOT_BEGUN, SessionState

FIRST_EVENTS = 200
"""How many events are read from the beginning: they say what the task is."""

NEWEST_EVENTS = 10_000
"""How many are read before the head."""

TEXTS_MAX_BYTES = 64 * 1024 * 1024
"""How much text of blobs is read, that of the newest events first."""


@dataclass(frozen=True, slots=True)
class Origins:
    """Events of a session and its ancestors, as they were recorded, and their texts."""

    events: Sequence[Recorded]
    texts: dict[bytes, str]

    def upto(self, to_seq: int) -> Originals:
        """What a summary of the events up to a seq is made from."""
        return Originals(live_of(self.events), to_seq, self.texts)


class Taking:
    """The events of one history that take others back, without content; read once."""

    def __init__(self) -> None:
        self._known: list[Recorded] = []
        self._upto_seq = 0

    def upto(self, past: Past, seq: int) -> list[Recorded]:
        """Those up to a seq; what was looked at before is not read again."""
        for recorded in past.structure(self._upto_seq, seq):
            self._upto_seq = recorded.seq
            if type(recorded.event) is ContextCleared or takes_back(recorded.event):
                self._known.append(recorded)
        return [recorded for recorded in self._known if recorded.seq <= seq]


def read_origins(
    log: Log, state: SessionState, upto_seq: int, taking: Taking | None = None
) -> Origins:
    """The events up to a seq.

    1. The first and the newest, as many as the limits say. Those before the last clearing
       are told no more, so the first are those behind it.
    2. Of the others those that the session's state names: its plan, calls and questions;
       and those that take something back.
    3. What began among the first and ended between is left out: it is not open.

    Args:
        log: where the session is.
        state: the session's, at its head.
        upto_seq: the last event that is read.
        taking: of the same session, from the time before.

    Raises:
        LineageError: it is a fork, and an ancestor is not there as it was.
    """
    past = Past(log, state)
    if upto_seq <= FIRST_EVENTS + NEWEST_EVENTS:
        events = past.events(0, upto_seq)
    else:
        taken_back = (taking or Taking()).upto(past, upto_seq)
        events = _some(past, state, upto_seq, taken_back)
    return Origins(events, _texts_of(events, log.blobs))


def _some(
    past: Past, state: SessionState, upto_seq: int, taking: Sequence[Recorded]
) -> list[Recorded]:
    """The events of a long history that are read."""
    cleared_seq = _cleared_seq(taking)
    begin = max(cleared_seq - 1, 0)
    first_end = begin + FIRST_EVENTS
    newest = max(upto_seq - NEWEST_EVENTS, first_end)
    named = open_seqs(state) | {recorded.seq for recorded in taking}
    ranges = [(begin, min(first_end, upto_seq)), (newest, upto_seq)]
    ranges += [(seq - 1, seq) for seq in named if not _within(seq, ranges)]
    events = [r for after, upto in sorted(ranges) for r in past.events(after, upto)]
    return _without_ended(events, state, first_end)


def _within(seq: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(after < seq <= upto for after, upto in ranges)


def _cleared_seq(taking: Sequence[Recorded]) -> int:
    """The last clearing that was not taken back itself; 0: there is none."""
    seqs = (r.seq for r in live_of(taking) if isinstance(r.event, ContextCleared))
    return max(seqs, default=0)


def open_seqs(state: SessionState) -> set[int]:
    """The events that say what is open in a state: plan, questions, calls, fork."""
    seqs = {state.fork_seq + 1} if state.fork_seq else set[int]()
    if state.plan is not None:
        seqs.add(state.plan.seq)
    seqs.update(request.seq for request in state.requests.values())
    seqs.update(handle.seq for handle in state.handles.values())
    for call in state.calls.values():
        seqs.add(call.requested_seq)
        if call.status not in NOT_BEGUN or call.earlier:
            seqs.add(call.started_seq)
    return seqs


def _without_ended(
    events: Sequence[Recorded], state: SessionState, first_end: int
) -> list[Recorded]:
    """The events without the first of what is not open any more, and whose end is not here.

    Their end lies in what was not read, or stayed with the session that was forked.
    """
    tales = tales_of(events)
    calls = {name for name, tale in tales.items() if not tale.ends} - state.calls.keys()
    questions = _asked(events) - state.requests.keys()
    return [
        recorded
        for recorded in events
        if recorded.seq > first_end or not _is_of(recorded.event, calls, questions)
    ]


def _asked(events: Sequence[Recorded]) -> set[str]:
    """The questions among these events that none of them answers."""
    asked: set[str] = set()
    for recorded in events:
        match recorded.event:
            case InputRequested(request_id=name):
                asked.add(name)
            case InputProvided(request_id=name):
                asked.discard(name)
            case _:
                pass
    return asked


def _is_of(event: AnyEvent, calls: set[str], questions: set[str]) -> bool:
    match event:
        case InputRequested(request_id=name):
            return name in questions
        case ToolCallRequested(call_id=name):
            return name in calls
        case _:
            return False


def _texts_of(events: Sequence[Recorded], blobs: BlobStore) -> dict[bytes, str]:
    wanted: list[bytes] = []
    left = TEXTS_MAX_BYTES
    for sha256, blob in reversed(text_blobs(events).items()):
        left -= blob.size
        if left < 0:
            break
        wanted.append(sha256)
    return read_texts(blobs, wanted)
