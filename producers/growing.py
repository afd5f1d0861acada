"""One transcript that is read as it grows, from its beginning to wherever it ends by now.

What it gives is what an import of the whole file gives, whatever the pieces were in which
it came:

1. Nothing is read until the file says what it is and of which session: both are asked of
   its first records, and never answered otherwise by later ones.
2. A record is taken when it is whole. What may still grow (a line without LF that is no
   whole record) is left for the next time, and read again from its own first byte.
3. What was put is recorded at the end of each read. Where the log gives no answer, the
   whole is given up and begun anew: what is recorded already is met and skipped.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from foldline.errors import ImportSourceError
from foldline.faults import crash_point
from foldline.processors.log import Log
from foldline.producers import claude_code, claude_code_mapping, codex
from foldline.producers.claude_code_records import Record as ClaudeCodeRecord
from foldline.producers.codex_records import Record as CodexRecord
from foldline.producers.detect import (
    CLAUDE_CODE,
    CODEX,
    LINES,
    LOOKED_AT_MAX,
    check_readable,
)
from foldline.producers.import_run import Maps, Origin, mirror_for
from foldline.producers.importing import ImportReport, Piece, pieces_from, read_pieces
from foldline.producers.mirror import Mirror
from foldline.producers.openai_agents_state import looks_like_one
from foldline.producers.positions import FINGERPRINT_OF_NOTHING, Position, fingerprint_of
from foldline.producers.redaction import Redactor
from foldline.settings import Settings

SESSION_OF: dict[str, Callable[[Piece], str]] = {
    CLAUDE_CODE: lambda piece: ClaudeCodeRecord(piece, piece.record or {}).session,
    CODEX: lambda piece: CodexRecord(piece, piece.record or {}).session,
}
"""The session that a record names, for each format that is followed."""

READ_BYTES = 32 * 1024 * 1024
"""How much of one file is read before others have their turn."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What the first records of a file say: its format, and whether that is all settled.

    `unknown`: it is of no format that is followed, and nothing that follows will change
    that.
    """

    format: str = ""
    settled: bool = False
    unknown: bool = False


def beginning_of(path: Path, *, record_max_bytes: int) -> Beginning:
    """What a file is, as far as it tells by now.

    Raises:
        ImportSourceError: it cannot be read, or is no file.
    """
    check_readable(path)
    if looks_like_one(path, record_max_bytes=record_max_bytes):
        return Beginning(unknown=True)
    found = ""
    named: set[str] = set()
    pieces = read_pieces(path, record_max_bytes=record_max_bytes)
    for count, piece in enumerate(pieces, start=1):
        if piece.record is not None:
            found = found or _format_of(piece)
            named.update(name for name, of in SESSION_OF.items() if of(piece))
        if found in named:
            return Beginning(found, settled=True)
        if count >= LOOKED_AT_MAX and found != CLAUDE_CODE:
            return Beginning(found, settled=bool(found), unknown=not found)
    return Beginning(found)


def _format_of(piece: Piece) -> str:
    fields = piece.record or {}
    return next((name for name, is_one in LINES.items() if is_one(fields)), "")


class Growing:
    """A file that is open, and all that its next records need to know of those before."""

    def __init__(
        self, log: Log, origin: Origin, *, settings: Settings, redactor: Redactor
    ) -> None:
        """Open it, and look at its beginning.

        Raises:
            ImportSourceError: the file cannot be read.
            LogUnavailableError: the log gave no answer.
        """
        self.origin = origin
        self.report = ImportReport(path=str(origin.path), system=origin.system)
        self.mirror = mirror_for(log, self.report, settings=settings, redactor=redactor)
        self.mapping = _mapping(log, origin, self.mirror, self.report, settings)
        self.offset = 0
        self._seen = 0
        self._caught_up = False
        self._record_max_bytes = settings.import_record_max_bytes
        self._fingerprint = FINGERPRINT_OF_NOTHING
        try:
            self._file: BinaryIO = origin.path.open("rb")
        except OSError as error:
            raise _unreadable(origin.path, error) from error

    @property
    def told(self) -> claude_code_mapping.Mapping | None:
        """What a transcript of Claude Code told so far, for its hooks."""
        mapping = self.mapping
        return mapping if isinstance(mapping, claude_code_mapping.Mapping) else None

    @property
    def size(self) -> int:
        """How many bytes the file has by now, under whatever name it is."""
        return os.fstat(self._file.fileno()).st_size

    @property
    def grown(self) -> bool:
        """Whether there are bytes that were not looked at."""
        return self.size != self._seen

    def is_at(self, path: Path) -> bool:
        """Whether the file of this name is still this one."""
        try:
            there = path.stat()
        except OSError:
            return False
        here = os.fstat(self._file.fileno())
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    @property
    def intact(self) -> bool:
        """Whether what was read of it is still there, as it was."""
        if self.size < self.offset:
            return False
        return fingerprint_of(self._file, self.offset) == self._fingerprint

    def read(self, *, stopped: Callable[[], bool]) -> bool:
        """Record what is new, up to READ_BYTES of it; whether there is more.

        Raises:
            ImportSourceError: the file cannot be read.
            LogUnavailableError: the log gave no answer. This is not used again.
        """
        size = self.size
        until = self.offset + READ_BYTES
        more = False
        try:
            for piece in self._pieces():
                self.mapping.take(piece)
                self.offset = piece.offset + piece.length
                crash_point("CP_MIRROR_AFTER_PIECE")
                if self.offset >= until or stopped():
                    more = self.offset < size
                    break
        except OSError as error:
            raise _unreadable(self.origin.path, error) from error
        self.mirror.flush()
        crash_point("CP_MIRROR_AFTER_READ")
        self._seen = self.offset if more else size
        self._fingerprint = fingerprint_of(self._file, self.offset)
        if not more and not self._caught_up:
            self._caught_up = True
            self.mirror.close(system=self.origin.system, stream=self.origin.stream)
        return more

    def position(self) -> Position:
        """How far it is recorded."""
        status = os.fstat(self._file.fileno())
        return Position(
            status.st_dev,
            status.st_ino,
            self._seen,
            fingerprint_of(self._file, self._seen),
            tuple(sorted(self.mirror.heads.items())),
        )

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _pieces(self) -> Iterator[Piece]:
        for piece in pieces_from(
            self._file, self.offset, record_max_bytes=self._record_max_bytes
        ):
            if piece.torn:
                return
            yield piece


def _mapping(
    log: Log, origin: Origin, mirror: Mirror, report: ImportReport, settings: Settings
) -> Maps:
    limit = settings.import_record_max_bytes
    if origin.system == CODEX:
        return codex.begin_of(log, origin, record_max_bytes=limit)(mirror, report)
    return claude_code.begin_of(origin, record_max_bytes=limit)(mirror, report)


def _unreadable(path: Path, error: OSError) -> ImportSourceError:
    return ImportSourceError(str(path), error.strerror or str(error))
