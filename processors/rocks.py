"""The edge to RocksDB: the only module that knows rocksdict.

Raw bytes in and out, bounded memory, and errors that say what is the matter. Why there
is no other way in:

- rocksdict's own `keys()` and `items()` end at a damaged block as if it were the last:
  `scan` asks the iterator for its status before it says that there is no more.
- A live iterator keeps the database and its lock after `close()`: `scan` reads a page,
  lets its iterator go, and only then hands the page out.
- Every failure is a bare Exception: it is told by its text, here.

A write that failed for want of space changed nothing. RocksDB refuses more of them
until it has seen, some seconds later, that there is space again: nothing else is needed.
"""

import logging
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DbClosedError,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
    WriteBufferManager,
)

from foldline.errors import LogUnavailableError, TableCorruptError
from foldline.places import make_private
from foldline.processors.gate import Gate

BLOCK_CACHE_BYTES = 64 * 1024 * 1024
"""Blocks of files that are kept in memory, of all databases of the process together."""

WRITE_BUFFERS_BYTES = 64 * 1024 * 1024
"""What all databases of the process together buffer before it goes to files."""

WRITE_BUFFER_BYTES = 16 * 1024 * 1024
"""What one database buffers at once, twice over while one buffer is written out."""

MAX_OPEN_FILES = 128
"""How many files one database keeps open."""

WAL_BYTES = 64 * 1024 * 1024
"""The largest write-ahead log of one database: what an open has to read again."""

PAGE_ROWS = 512
PAGE_BYTES = 1024 * 1024
"""How much one page of a scan holds."""

ASIDE_KEPT = 3
"""How many folders that were set aside are kept, the newest."""

_ASIDE = ".aside-"

_LOCKED = ("lock hold by", "While lock file")
_CORRUPT = (
    "Corruption",
    "checksum mismatch",
    "No such file or directory",
    "does not exist (create_if_missing is false)",
    "Invalid argument",
    "Not implemented",
)

Opened = TypeVar("Opened")
Meta = TypeVar("Meta", bound="MetaRow")

_logger = logging.getLogger("foldline.table")


class Batch:
    """Writes that happen together or not at all."""

    def __init__(self) -> None:
        self.raw = WriteBatch(raw_mode=True)

    def put(self, key: bytes, value: bytes) -> None:
        """Write a row."""
        self.raw.put(key, value)

    def delete(self, key: bytes) -> None:
        """Take a row away."""
        self.raw.delete(key)

    @property
    def size_bytes(self) -> int:
        """How large it is by now."""
        return self.raw.size_in_bytes()


class Rocks:
    """One open database. Every method may be called from any thread.

    Raises (each): TableCorruptError for damage, LogUnavailableError for anything that
    may be better later (another process's lock, no space, closed meanwhile).
    """

    def __init__(self, folder: Path, *, make: bool = True) -> None:
        self.folder = folder
        self._scans = Gate(lambda: LogUnavailableError(str(folder), "it is closed"))
        try:
            if make:
                make_private(folder)
            self._db = Rdict(str(folder), _options(make=make), None, _ACCESS)
        except OSError as error:
            raise LogUnavailableError(str(folder), str(error)) from error
        except Exception as error:
            raise self._translated(error) from error

    def get(self, key: bytes) -> bytes | None:
        """The row of a key."""
        try:
            return cast("bytes | None", self._db.get(key))
        except Exception as error:
            raise self._translated(error) from error

    def write(self, batch: Batch) -> None:
        """Write a batch. Not synced: it may be lost, whole, with the machine's power."""
        try:
            self._db.write(batch.raw)
        except Exception as error:
            raise self._translated(error) from error

    def scan(
        self,
        start: bytes,
        end: bytes,
        *,
        reverse: bool = False,
        page_rows: int = PAGE_ROWS,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows with start <= key < end, in the order of their keys, or from the end.

        Read in pages: what is written in between may or may not be seen. Who needs a
        few rows only says so by `page_rows`.
        """
        while page := self._page(start, end, reverse, page_rows):
            yield from page
            last = page[-1][0]
            start, end = (start, last) if reverse else (last + b"\x00", end)

    def _page(
        self,
        start: bytes,
        end: bytes,
        reverse: bool,  # noqa: FBT001 - the arguments of `scan`
        page_rows: int,
    ) -> list[tuple[bytes, bytes]]:
        try:
            with self._scans.inside():
                return self._read_page(start, end, reverse, page_rows)
        except (LogUnavailableError, TableCorruptError):
            raise
        except Exception as error:
            raise self._translated(error) from error

    def _read_page(
        self,
        start: bytes,
        end: bytes,
        reverse: bool,  # noqa: FBT001
        page_rows: int,
    ) -> list[tuple[bytes, bytes]]:
        # rocksdict's own bounds take keys for typed ones, in raw mode too.
        rows = cast("Any", self._db.iter())
        page: list[tuple[bytes, bytes]] = []
        room = PAGE_BYTES
        (rows.seek_for_prev if reverse else rows.seek)(end if reverse else start)
        step = rows.prev if reverse else rows.next
        while len(page) < page_rows and room > 0 and rows.valid():
            key = rows.key()
            if key < start or (key >= end and not reverse):
                break
            if key < end:
                value = rows.value()
                page.append((key, value))
                room -= len(key) + len(value)
            step()
        rows.status()
        return page

    def checkpoint(self, folder: Path) -> None:
        """Write a whole, consistent copy to a folder that is not there yet."""
        try:
            make_private(folder.parent)
            Checkpoint(self._db).create_checkpoint(str(folder))
            for extra in self.folder.glob("rocksdict-config*"):
                shutil.copy2(extra, folder / extra.name)
        except OSError as error:
            raise LogUnavailableError(str(folder), str(error)) from error
        except Exception as error:
            raise self._translated(error) from error

    def close(self) -> None:
        """Let go of the folder, once the pages under way are read."""
        if not self._scans.close():
            return
        try:
            self._db.close()
        except Exception as error:
            failure = self._translated(error)
            if not isinstance(failure, LogUnavailableError):
                raise failure from error
            # No space to write buffers out: they are in the write-ahead log, too.

    def _translated(self, error: Exception) -> LogUnavailableError | TableCorruptError:
        return as_table_error(self.folder, error)


def as_table_error(
    folder: Path, error: Exception
) -> LogUnavailableError | TableCorruptError:
    """What a bare exception of rocksdict means."""
    text = str(error)
    if isinstance(error, DbClosedError):
        return LogUnavailableError(str(folder), "it is closed")
    if any(sign in text for sign in _LOCKED):
        return LogUnavailableError(str(folder), "another process holds its lock")
    if any(sign in text for sign in _CORRUPT):
        return TableCorruptError(str(folder), text)
    return LogUnavailableError(str(folder), text)


def set_aside(folder: Path, *, reason: str) -> Path:
    """Move a database that nobody has open out of the way, for a person to look at.

    Args:
        folder: where it lies.
        reason: a word for its new name, `<folder>.aside-<reason>-<n>`.
    """
    word = re.sub(r"[^a-z0-9]+", "-", reason.lower()).strip("-")[:40]
    number = max((_number(path) for path in asides(folder)), default=0) + 1
    aside = folder.with_name(f"{folder.name}{_ASIDE}{word or 'unusable'}-{number}")
    try:
        folder.rename(aside)
    except OSError as error:
        raise LogUnavailableError(str(folder), str(error)) from error
    for path in asides(folder)[:-ASIDE_KEPT]:
        shutil.rmtree(path, ignore_errors=True)
    return aside


def asides(folder: Path) -> list[Path]:
    """What was set aside of a folder, the oldest first."""
    found = folder.parent.glob(f"{folder.name}{_ASIDE}*")
    return sorted((path for path in found if path.is_dir()), key=_number)


def open_or_set_aside(folder: Path, opened: Callable[[], Opened]) -> Opened:
    """What opens a database; one that is damaged or foreign is set aside first.

    Raises:
        LogUnavailableError: another process holds its lock, or no space.
    """
    try:
        return opened()
    except TableCorruptError as error:
        aside = set_aside(folder, reason=error.reason)
        _logger.warning("%s; set aside as %s", error, aside)
        return opened()


class MetaRow(msgspec.Struct, array_like=True):
    """The row that says of what a database is: log, partition, layout of its rows."""

    identity: str


META = b"m"
"""The key of the meta row."""


def read_meta(rocks: Rocks, kind: type[Meta], identity: str) -> Meta:
    """The meta row, written first where the database is new.

    Raises:
        TableCorruptError: the database is of something else, or has lost the row.
    """
    folder = str(rocks.folder)
    data = rocks.get(META)
    if data is None:
        if next(rocks.scan(b"", b"\xff"), None) is not None:
            raise TableCorruptError(folder, "its meta row is missing")
        meta = kind(identity)
        batch = Batch()
        batch.put(META, msgspec.msgpack.encode(meta))
        rocks.write(batch)
        return meta
    try:
        meta = msgspec.msgpack.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise TableCorruptError(folder, f"meta row: {error}") from error
    if meta.identity != identity:
        reason = f"foreign: it is of {meta.identity}, {identity} is wanted"
        raise TableCorruptError(folder, reason)
    return meta


def destroy(folder: Path) -> None:
    """Delete a database that nobody has open."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _number(path: Path) -> int:
    digits = path.name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


_ACCESS = AccessType.read_write()


@cache
def _shared() -> tuple[Cache, WriteBufferManager]:
    """One cache and one bound of buffers for every database of the process."""
    return Cache(BLOCK_CACHE_BYTES), WriteBufferManager(WRITE_BUFFERS_BYTES, False)  # noqa: FBT003 - positional only


def _options(*, make: bool) -> Options:
    cache, buffers = _shared()
    options = Options(raw_mode=True)
    options.create_if_missing(make)
    options.set_write_buffer_manager(buffers)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_total_wal_size(WAL_BYTES)
    options.set_max_open_files(MAX_OPEN_FILES)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(PAGE_BYTES)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_compression_type(DBCompressionType.lz4())
    blocks = BlockBasedOptions()
    blocks.set_block_cache(cache)
    blocks.set_block_size(16 * 1024)
    blocks.set_bloom_filter(10, False)  # noqa: FBT003 - whole filters, not per block
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options.set_block_based_table_factory(blocks)
    return options
