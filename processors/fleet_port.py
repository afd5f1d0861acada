"""What a fleet worker is told to do with events: the port between Faust and the folding.

No Faust here: `foldline.projections.fleet_folding` is what implements it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.verdicts import Verdict

Rows = Iterable[tuple[bytes, bytes]]


class Row(NamedTuple):
    """A row to be kept in a partition; without a value, one to be deleted."""

    partition: int
    key: bytes
    value: bytes | None


class Folding(Protocol):
    """What rows mean. Everything is called from one thread."""

    version: str
    """Rows of another version are not gone on with: they are made anew."""

    stored: tuple[bytes, bytes]
    """The keys between which `load` wants the rows: from the first, below the second."""

    def load(self, partition: int, rows: Rows) -> None:
        """Take a partition over."""
        ...

    def forget(self, partition: int) -> None:
        """A partition that others have now, and what is not kept of it yet."""
        ...

    def session_key(self, session_id: str) -> bytes:
        """The key of a session's row."""
        ...

    def take(
        self,
        partition: int,
        offset: int,
        recorded: Recorded,
        *,
        row: Callable[[], bytes | None],
        now_us: int,
    ) -> Sequence[Append]:
        """Take an event in; what is to be appended because of it.

        Args:
            partition: of the event.
            offset: where it stands there.
            recorded: the whole event.
            row: reads its session's row.
            now_us: microseconds since 1970: of what is old nothing may be appended.
        """
        ...

    @property
    def changes(self) -> int:
        """How many rows have changed since they were kept."""
        ...

    def changed(self) -> Iterable[Row]:
        """Those rows, to be kept in this order; from now on they count as kept."""
        ...

    def compare(
        self, session_id: str, snapshot: bytes, *, row: Callable[[], bytes | None]
    ) -> None:
        """Compare a session with the snapshot that a worker published of it."""
        ...

    def answered(self, append: Append, verdict: Verdict) -> None:
        """Hear what became of an append."""
        ...

    def skipped(self, partition: int, offset: int | None) -> None:
        """Hear of a record that could not be taken in.

        Args:
            partition: of the record.
            offset: where an event stands there; None for what is none.
        """
        ...
