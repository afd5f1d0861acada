"""The file of a log of JSON lines: making it, telling it, its lock, its marker, its end.

Who writes holds the file's lock (`flock`). The marker in the first line says up to where
the file is synced: who reads never sees what may still be lost, and waits for nobody.
"""

import contextlib
import fcntl
import json
import logging
import os
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from foldline.errors import (
    LogFormatError,
    LogUnavailableError,
    NewerFormatError,
    UncertainAppendError,
)
from foldline.faults import crash_point
from foldline.places import OWN_FILE, OWN_FOLDER, make_private, sync_folder
from foldline.processors.admission import RULES_VERSION
from foldline.processors.clock import Clock
from foldline.processors.file_lock import forget_when_forked, is_at, lock_within, unlock
from foldline.processors.gate import Gate
from foldline.processors.jsonl_line import (
    FORMAT_VERSION,
    MARKER_AT,
    MARKER_BYTES,
    Marker,
    decode_marker,
    encode_marker,
    header_line,
)
from foldline.processors.jsonl_tail import read_lines, tail_of
from foldline.schemas.state import FOLD_VERSION

HEADER_MAX_BYTES = 4_096
"""The longest first line."""

MARKER_TRIES = 20
MARKER_WAIT_S = 0.005
"""A marker that is read while it is written may look torn: look again."""

_logger = logging.getLogger("foldline.log")


class JsonlFile:
    """One open log file. Its methods say who must hold its lock."""

    def __init__(
        self, path: Path, *, url: str, clock: Clock, busy_timeout_ms: int, max_bytes: int
    ) -> None:
        self._path = path
        self._url = url
        self._busy_timeout_ms = busy_timeout_ms
        self._max_bytes = max_bytes
        self._process_id = os.getpid()
        self._gate = Gate(lambda: LogUnavailableError(url, "the log is closed"))
        try:
            if not path.exists():
                _make(path, clock=clock)
            elif path.is_dir():
                raise LogFormatError(url, "it is a folder")
            self._descriptor = os.open(path, os.O_RDWR)
        except OSError as error:
            raise LogUnavailableError(url, str(error)) from error
        try:
            self.first = _check_header(self._descriptor, url=url)
        except BaseException:
            os.close(self._descriptor)
            raise
        forget_when_forked(self)

    @property
    def torn_folder(self) -> Path:
        """Where torn ends are set aside."""
        return self._path.with_name(f"{self._path.name}.torn")

    @contextmanager
    def usable(self) -> Generator[int]:
        """The open file, which is not closed meanwhile; raises where it was, or forked."""
        if os.getpid() != self._process_id:
            reason = "it was opened before this process was forked: open it again"
            raise LogUnavailableError(self._url, reason)
        with self._gate.inside():
            yield self._descriptor

    @contextmanager
    def locked(self, *, timeout_ms: int | None = None) -> Generator[None]:
        """Be the one writer among all processes; threads take turns before.

        Raises:
            LogUnavailableError: others held the lock all the time, or the file at the
                path is another one now.
        """
        wait_ms = self._busy_timeout_ms if timeout_ms is None else timeout_ms
        with self.usable() as descriptor:
            if not lock_within(descriptor, wait_ms):
                reason = f"the file was locked by another process for {wait_ms} ms"
                raise LogUnavailableError(self._url, reason)
            try:
                if not is_at(descriptor, self._path):
                    reason = "another file is in its place: open the log again"
                    raise LogUnavailableError(self._url, reason)
                yield
            finally:
                unlock(descriptor)

    def marker(self) -> Marker:
        """How far the file may be read.

        Raises:
            LogFormatError: the marker is damaged; who holds the lock can settle it.
        """
        with self.usable() as descriptor:
            for _ in range(MARKER_TRIES):
                marker = _read_marker(descriptor)
                if marker is not None:
                    return marker
                time.sleep(MARKER_WAIT_S)
        raise LogFormatError(self._url, "the marker in its first line is damaged")

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file; fewer where it is shorter."""
        with self.usable() as descriptor:
            return os.pread(descriptor, size, offset)

    # --- with the lock ------------------------------------------------------------------

    def settle(self) -> Marker:
        """Bring file and marker to agree, whatever the last writer came to. With the lock.

        1. They agree: nothing is to be done.
        2. Behind the marker is what a killed writer left: whole batches are kept.
        3. The file ends before the marker: what was acknowledged is gone. Everything is
           read again, from the first line on.
        4. What is no whole batch is set aside in a file of its own, and cut off. A last
           line that lacks nothing but its end gets it: nothing is ever glued to it.
        5. Sync, and only then move the marker: now it may be read.

        Raises:
            LogUnavailableError: the disk does not take it; nothing was recorded.
        """
        with self.usable() as descriptor:
            marker = _read_marker(descriptor)
            size = os.fstat(descriptor).st_size
            if marker is not None and marker.durable == size:
                return marker
            try:
                return self._settled(descriptor, marker or Marker(0, 0), size)
            except OSError as error:
                raise LogUnavailableError(self._url, str(error)) from error

    def _settled(self, descriptor: int, marker: Marker, size: int) -> Marker:
        start = marker.durable if self.first <= marker.durable <= size else self.first
        lines = read_lines(descriptor, start, size)
        keep, lacks_end = tail_of(lines, start, marker.durable)
        if lacks_end:
            _write(descriptor, b"\n", keep - 1)
        lost = keep < marker.durable
        if lost or keep < size:
            self._set_aside(descriptor, keep, size, marker.durable)
            os.ftruncate(descriptor, keep)
        sync_file(descriptor)
        settled = Marker(keep, marker.cuts + lost)
        _write(descriptor, encode_marker(settled), MARKER_AT)
        return settled

    def _set_aside(self, descriptor: int, keep: int, size: int, durable: int) -> None:
        """Keep the bytes that are cut off, and say of which kind they are by a name."""
        lost = keep < durable
        name = f"lost-{keep}-{durable}" if lost else f"torn-{keep}-{size}"
        self.torn_folder.mkdir(mode=OWN_FOLDER, exist_ok=True)
        path = self.torn_folder / f"{name}-{uuid.uuid4().hex[:8]}"
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWN_FILE)
        with os.fdopen(made, "wb") as file:
            file.write(os.pread(descriptor, max(size - keep, 0), keep))
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.torn_folder)
        sync_folder(self.torn_folder.parent)
        _logger.warning(
            "%s: %d %s bytes at offset %d were set aside in %s",
            self._url,
            max(size - keep, 0),
            "damaged" if lost else "torn",
            keep,
            path,
        )

    def append(self, data: bytes, marker: Marker) -> None:
        """Write the lines of one batch behind the marker. With the lock, settled.

        1. Write, in two pieces, so that a test can die between them.
        2. Sync.
        3. Move the marker: from here on others see the batch.

        Raises:
            LogUnavailableError: the file is cut back, and nothing is recorded.
            UncertainAppendError: it could not be cut back, or the marker not be moved.
        """
        end = marker.durable + len(data)
        if end > self._max_bytes:
            reason = f"the log is full: {end} bytes, jsonl_max_bytes is {self._max_bytes}"
            raise LogUnavailableError(self._url, reason)
        half = len(data) // 2
        with self.usable() as descriptor:
            try:
                _write(descriptor, data[:half], marker.durable)
                crash_point("CP_JSONL_HALF_WRITTEN")
                _write(descriptor, data[half:], marker.durable + half)
                crash_point("CP_JSONL_BEFORE_SYNC")
                sync_file(descriptor)
            except OSError as error:
                self._cut_back(descriptor, marker.durable, error)
                raise LogUnavailableError(self._url, str(error)) from error
            crash_point("CP_JSONL_BEFORE_MARKER")
            try:
                _write(descriptor, encode_marker(Marker(end, marker.cuts)), MARKER_AT)
            except OSError as error:
                raise UncertainAppendError(self._url, str(error)) from error

    def _cut_back(self, descriptor: int, size: int, cause: OSError) -> None:
        try:
            os.ftruncate(descriptor, size)
        except OSError as error:
            raise UncertainAppendError(self._url, f"{cause}; then {error}") from error

    # --- the end ------------------------------------------------------------------------

    def close(self) -> None:
        """Close the file once nobody uses it."""
        if os.getpid() == self._process_id and self._gate.close():
            os.close(self._descriptor)

    def forget(self) -> None:
        """In a forked child: close, so that no lock of a dead parent lives on here."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


def sync_file(descriptor: int) -> None:
    """Make a file durable: to the disk itself where the system knows the difference."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full)


def _write(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written


def _read_marker(descriptor: int) -> Marker | None:
    return decode_marker(os.pread(descriptor, MARKER_BYTES, MARKER_AT))


def _make(path: Path, *, clock: Clock) -> None:
    """Make the file under another name and link it: of two processes one makes it."""
    make_private(path.parent)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
    header = header_line(
        {
            "rules_version": RULES_VERSION,
            "fold_version": FOLD_VERSION,
            "log_id": uuid.uuid4().hex,
            "created_at": clock(),
        }
    )
    try:
        made = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWN_FILE)
        with os.fdopen(made, "wb") as file:
            file.write(header)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def _check_header(descriptor: int, *, url: str) -> int:
    """Tell the log by its first line; gives where the next one begins."""
    line, end, _ = os.pread(descriptor, HEADER_MAX_BYTES, 0).partition(b"\n")
    if not line:
        raise LogFormatError(url, "the file is empty" if not end else "no header")
    try:
        header = cast("dict[str, Any]", json.loads(line))
        known = end and header["foldline"] == "jsonl" and "marker" in header
        versions = (int(header["format"]), int(header["rules_version"]))
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise LogFormatError(url, "its first line is not the header of a log") from error
    if not known:
        raise LogFormatError(url, "its first line is not the header of a log")
    if versions[0] > FORMAT_VERSION:
        raise NewerFormatError(url, versions[0], FORMAT_VERSION)
    if versions[1] > RULES_VERSION:
        raise NewerFormatError(f"{url} (rules)", versions[1], RULES_VERSION)
    return len(line) + 1
