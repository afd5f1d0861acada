"""What a fleet worker is told to do with events: the port between Faust and the folding.

No Faust here: `foldline.projections.fleet_folding` is what implements it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.verdicts import Verdict

Rows = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Folded:
    """What an event does: rows to set, in this order (None: to delete), and appends."""

    rows: Sequence[tuple[bytes, bytes | None]] = ()
    appends: Sequence[Append] = ()


class Folding(Protocol):
    """What rows mean. Everything is called from one thread."""

    version: str
    """Rows of another version are not gone on with: they are made anew."""

    stored: tuple[bytes, bytes]
    """From and below which keys `load` wants the rows."""

    def load(self, partition: int, rows: Rows) -> None:
        """Take a partition over."""
        ...

    def forget(self, partition: int) -> None:
        """A partition that others have now."""
        ...

    def session_key(self, session_id: str) -> bytes:
        """The key of a session's row."""
        ...

    def take(
        self, partition: int, offset: int, recorded: Recorded, *, row: bytes | None
    ) -> Folded:
        """Take an event in; `row` is its session's."""
        ...

    def compare(self, session_id: str, snapshot: bytes, *, row: bytes | None) -> None:
        """Compare a session with the snapshot that a worker published of it."""
        ...

    def answered(self, append: Append, verdict: Verdict) -> None:
        """Hear what became of an append."""
        ...

    def skipped(self, why: str) -> None:
        """Hear of a record that could not be taken in."""
        ...
