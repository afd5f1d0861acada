"""What is remembered of a long source, in memory that does not grow with it.

An importer remembers every record of its file: which of them are copies, which one a
parent's id means. Of a transcript of 1 GB that is several hundred MB. Here so many entries
stay in memory; beyond that the oldest go to a temporary SQLite file, which has no name and
is gone with the process.
"""

import sqlite3
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from itertools import islice
from typing import Any, Generic, TypeVar, cast

import msgspec

from foldline.errors import LogUnavailableError
from foldline.schemas.record import Record

KEPT = 20_000
"""How many entries of a map stay in memory."""

CACHE_KB = 4_096
"""How much of the temporary file is kept in memory."""

TEMPORARY = ""
"""The name that SQLite makes a temporary file for, once its cache is full."""

Value = TypeVar("Value")
Key = str | bytes


class Overflow:
    """The temporary file of one source; none is made before something goes there.

    `kept` is how many entries of each map stay in memory.
    """

    def __init__(self, kept: int | None = None) -> None:
        self.kept = KEPT if kept is None else kept
        self._connection: sqlite3.Connection | None = None
        self._maps = 0

    def number(self) -> int:
        """The number of one more map."""
        self._maps += 1
        return self._maps

    def put(self, number: int, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep rows of a map.

        Raises:
            LogUnavailableError: the temporary file cannot be written.
        """
        with _as_outage():
            if self._connection is None:
                self._connection = _opened()
            self._connection.executemany(
                "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)",
                ((number, key, value) for key, value in rows),
            )

    def get(self, number: int, key: bytes) -> bytes | None:
        """A row of a map.

        Raises:
            LogUnavailableError: the temporary file cannot be read.
        """
        if self._connection is None:
            return None
        with _as_outage():
            row = self._connection.execute(
                "SELECT value FROM rows WHERE map = ? AND key = ?", (number, key)
            ).fetchone()
        return None if row is None else row[0]


class Remembered(Generic[Value]):
    """A map whose oldest entries are on disk. A value that was changed is set again."""

    def __init__(self, kind: type[Value], overflow: Overflow) -> None:
        """Remember nothing yet.

        Args:
            kind: of the values: what msgspec and pydantic can encode.
            overflow: where the oldest go.
        """
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_plain)
        self._decoder = msgspec.msgpack.Decoder(kind, dec_hook=_modelled)
        self._overflow = overflow
        self._number = overflow.number()
        self._kept = overflow.kept
        self._newest: dict[bytes, Value] = {}

    def get(self, key: Key) -> Value | None:
        """The value of a key; None for one that was never set."""
        known = _bytes_of(key)
        if known in self._newest:
            return self._newest[known]
        stored = self._overflow.get(self._number, known)
        return None if stored is None else self._decoder.decode(stored)

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None

    def __setitem__(self, key: Key, value: Value) -> None:
        known = _bytes_of(key)
        self._newest.pop(known, None)
        self._newest[known] = value
        if len(self._newest) > self._kept:
            self._spill()

    def _spill(self) -> None:
        """The older half goes, in the order of its keys: neighbours share pages."""
        oldest = list(islice(self._newest, self._kept // 2 + 1))
        self._overflow.put(
            self._number,
            ((key, self._encoder.encode(self._newest[key])) for key in sorted(oldest)),
        )
        for key in oldest:
            del self._newest[key]


@contextmanager
def _as_outage() -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise LogUnavailableError("a temporary file", str(error)) from error


def _opened() -> sqlite3.Connection:
    connection = sqlite3.connect(TEMPORARY, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA cache_size = -{CACHE_KB}")
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(
        "CREATE TABLE rows (map INTEGER, key BLOB, value BLOB, PRIMARY KEY (map, key))"
        " WITHOUT ROWID"
    )
    return connection


def _bytes_of(key: Key) -> bytes:
    return key if isinstance(key, bytes) else key.encode("utf-8", "surrogatepass")


def _plain(value: object) -> Any:
    if isinstance(value, Record):
        return value.model_dump()
    raise NotImplementedError(type(value))


def _modelled(kind: type, value: Any) -> Any:
    return cast("type[Record]", kind).model_validate(value)
