"""The table of one partition in a worker: states, dirty sessions, where they stand.

One RocksDB database per partition, written behind: one batch per flush, not synced. So
it may go back in time when the machine loses its power, but its position goes back with
it: what is missing is folded again from `events`. A table that is damaged, or is of
another log, partition or version, is set aside and built anew, never patched.

| key | value |
| --- | --- |
| `m` | what it is (log, partition, layout), the position, the number of states |
| `s` session_id | a state (`foldline.processors.state_codec`) |
| `d` session_id | the offset of its first event that no published snapshot covers |
| `l` session_id | of a lost session, instead of both: what is missing |
"""

import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec

from foldline.errors import DecodeError, TableCorruptError
from foldline.processors.lost_sessions import decode_lost, encode_lost
from foldline.processors.partition import Flush, Position, Rules
from foldline.processors.rocks import (
    META,
    Batch,
    MetaRow,
    Rocks,
    destroy,
    open_or_set_aside,
    read_meta,
    set_aside,
)
from foldline.processors.state_codec import LAYOUT, decode_state, encode_state
from foldline.schemas.state import SessionState
from foldline.schemas.topic_records import LostSession

TABLE_FORMAT = 1
"""The version of the rows, beside the layout of states."""

LOAD_STATES = 500
"""How many states of snapshots one batch writes during a restore."""

KNOWN_SESSIONS = 10_000
"""How many sessions a table remembers to have a row for, so as not to look again."""

KNOWN_PER_CACHED = 5
"""The same in a worker, for each session whose state the partition keeps in memory."""

_STATE = b"s"
_DIRTY = b"d"
_LOST = b"l"

_logger = logging.getLogger("foldline.table")


class _Meta(MetaRow, array_like=True):
    """The meta row. A position is (input offset, event offset, rules, schema ids)."""

    states: int = 0
    position: tuple[int, int, int, tuple[int, ...]] | None = None
    lost: int = 0


class Table:
    """One open table. `get` may be called from any thread, the rest from one at a time.

    Raises (each): TableCorruptError for damage, LogUnavailableError for no space.
    """

    def __init__(self, rocks: Rocks, meta: _Meta, *, known_max: int) -> None:
        self._rocks = rocks
        self._meta = meta
        self.known_max = known_max
        self._known: set[str] = set()

    @classmethod
    def open(
        cls, folder: Path, *, log_id: str, partition: int, known_max: int = KNOWN_SESSIONS
    ) -> "Table":
        """Open or make it; one whose first loading never ended is begun again.

        Args:
            folder: where.
            log_id: the log's.
            partition: its number.
            known_max: how many sessions it remembers to have a row for.

        Raises:
            TableCorruptError: damaged, or of another partition, log or version.
            LogUnavailableError: another process holds its lock, no space.
        """
        identity = f"{TABLE_FORMAT}/{LAYOUT}/{log_id}/{partition}"
        return cls.of(folder, identity, known_max=known_max)

    @classmethod
    def of(cls, folder: Path, identity: str, *, known_max: int) -> "Table":
        """Open or make the table of an identity; see `open`."""
        rocks = Rocks(folder)
        try:
            meta = read_meta(rocks, _Meta, identity)
        except BaseException:
            rocks.close()
            raise
        if (meta.states or meta.lost) and meta.position is None:
            rocks.close()
            destroy(folder)
            return cls.of(folder, identity, known_max=known_max)
        return cls(rocks, meta, known_max=known_max)

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self._rocks.folder

    @property
    def identity(self) -> str:
        """Log, partition and layout, in one word."""
        return self._meta.identity

    @property
    def sessions(self) -> int:
        """How many states it holds."""
        return self._meta.states

    def get(self, session_id: str) -> SessionState | None:
        """The state of a session as it was last written; the caller may keep it."""
        data = self._rocks.get(_STATE + session_id.encode())
        return None if data is None else self._decoded(session_id, data)

    @property
    def lost_sessions(self) -> int:
        """How many sessions are lost."""
        return self._meta.lost

    def lost(self, session_id: str) -> LostSession | None:
        """What is missing of a session that is lost; None for any other."""
        if not self._meta.lost:
            return None
        data = self._rocks.get(_LOST + session_id.encode())
        return None if data is None else self._lost_of(data)

    def all_lost(self) -> Iterator[LostSession]:
        """Every session that is lost, in the order of the ids."""
        return (self._lost_of(data) for _, data in self._rows(_LOST))

    def session_ids(self) -> Iterator[str]:
        """The session ids of all states that it holds, in their order."""
        return (key.decode() for key, _ in self._rows(_STATE))

    def position(self) -> Position | None:
        """What its states cover; None for an empty table."""
        if self._meta.position is None:
            return None
        input_offset, event_offset, version, ids = self._meta.position
        return Position(input_offset, event_offset, Rules(version, frozenset(ids)))

    def dirty(self) -> dict[str, int]:
        """Sessions with events that no published snapshot covers, by first offset."""
        rows = self._rows(_DIRTY)
        found = [(int.from_bytes(value), key.decode()) for key, value in rows]
        return {session_id: offset for offset, session_id in sorted(found)}

    def write(self, flush: Flush) -> None:
        """Write a flush in one batch."""
        at, rules = flush.position, flush.position.rules
        ids = tuple(sorted(rules.schema_ids))
        position = (at.input_offset, at.event_offset, rules.version, ids)
        self._write(_dirt(flush), flush.states, position, lost=flush.lost)

    def write_early(self, flush: Flush) -> None:
        """Write a flush, all but its position: a restore does not know all it must yet."""
        self._write(_dirt(flush), flush.states, self._meta.position, lost=flush.lost)

    def load(self, states: Iterable[SessionState]) -> None:
        """Write states of snapshots; the table has no position until the first flush."""
        rest = iter(states)
        while some := list(islice(rest, LOAD_STATES)):
            self._write(Batch(), some, self._meta.position)

    def lose(self, lost: Iterable[LostSession]) -> None:
        """Write during a restore which sessions are lost; their states go."""
        rest = iter(lost)
        while some := list(islice(rest, LOAD_STATES)):
            self._write(Batch(), (), self._meta.position, lost=some)

    def _write(
        self,
        batch: Batch,
        states: Iterable[SessionState],
        position: tuple[int, int, int, tuple[int, ...]] | None,
        *,
        lost: Iterable[LostSession] = (),
    ) -> None:
        new: set[str] = set()
        for state in states:
            key = _STATE + state.session_id.encode()
            if not self._has(state.session_id, key):
                new.add(state.session_id)
            batch.put(key, encode_state(state))
        gone, more = self._put_lost(batch, lost)
        meta = _Meta(
            self._meta.identity,
            self._meta.states + len(new) - gone,
            position,
            self._meta.lost + more,
        )
        batch.put(META, msgspec.msgpack.encode(meta))
        self._rocks.write(batch)
        self._meta = meta
        self._remember(new)

    def _put_lost(self, batch: Batch, lost: Iterable[LostSession]) -> tuple[int, int]:
        """Their rows; how many states go, and how many sessions are lost by it."""
        gone = more = 0
        for one in lost:
            session_id = one.session_id.encode()
            gone += self._rocks.get(_STATE + session_id) is not None
            more += self._rocks.get(_LOST + session_id) is None
            batch.delete(_STATE + session_id)
            batch.delete(_DIRTY + session_id)
            batch.put(_LOST + session_id, encode_lost(one))
            self._known.discard(one.session_id)
        return gone, more

    def _has(self, session_id: str, key: bytes) -> bool:
        if session_id in self._known:
            return True
        if self._rocks.get(key) is None:
            return False
        self._remember({session_id})
        return True

    def _remember(self, session_ids: set[str]) -> None:
        if len(self._known) + len(session_ids) > self.known_max:
            self._known.clear()  # memory does not follow the number of sessions
        self._known |= session_ids

    def check(self) -> None:
        """Read it whole.

        Raises:
            TableCorruptError: a row that is no state, or fewer rows than were written.
        """
        count = 0
        for key, value in self._rows(_STATE):
            self._decoded(key.decode(), value)
            count += 1
        if count != self._meta.states:
            reason = f"it has {count} states, {self._meta.states} were written"
            raise TableCorruptError(str(self.folder), reason)
        lost = sum(1 for _ in self.all_lost())
        if lost != self._meta.lost:
            reason = f"it has {lost} lost sessions, {self._meta.lost} were written"
            raise TableCorruptError(str(self.folder), reason)

    def _rows(self, kind: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key, value in self._rocks.scan(kind, bytes((kind[0] + 1,))):
            yield key[1:], value

    def _decoded(self, session_id: str, data: bytes) -> SessionState:
        try:
            state = decode_state(data)
        except DecodeError as error:
            raise TableCorruptError(str(self.folder), error.reason) from error
        if state.session_id != session_id:
            reason = f"the row of {session_id!r} holds {state.session_id!r}"
            raise TableCorruptError(str(self.folder), reason)
        return state

    def _lost_of(self, data: bytes) -> LostSession:
        try:
            return decode_lost(data)
        except DecodeError as error:
            raise TableCorruptError(str(self.folder), error.reason) from error

    def close(self) -> None:
        """Let go of the folder. Nothing is written behind here."""
        self._rocks.close()


def _dirt(flush: Flush) -> Batch:
    """A batch with who is dirty now, and who no longer."""
    batch = Batch()
    for session_id in flush.clean:
        batch.delete(_DIRTY + session_id.encode())
    for session_id, offset in flush.dirty.items():
        batch.put(_DIRTY + session_id.encode(), offset.to_bytes(8))
    return batch


def open_table(
    folder: Path, *, log_id: str, partition: int, known_max: int = KNOWN_SESSIONS
) -> Table:
    """Open a table; one that cannot be used is set aside and begun again.

    `folder` is this table's own. What is set aside lies beside it, see
    `foldline.processors.rocks.set_aside`; for the others see `Table.open`.

    Raises:
        LogUnavailableError: another process holds its lock, or no space.
    """
    return open_or_set_aside(
        folder,
        lambda: Table.open(folder, log_id=log_id, partition=partition, known_max=known_max),
    )


def set_aside_table(table: Table, *, reason: str) -> Table:
    """Set an open table aside that turned out not to be usable, and begin an empty one."""
    table.close()
    aside = set_aside(table.folder, reason=reason)
    _logger.warning("table %s: %s; set aside as %s", table.folder, reason, aside)
    return Table.of(table.folder, table.identity, known_max=table.known_max)
