"""The frame of every importer of JSON lines: pieces of a file, and what became of them.

A line ends at LF. The objects on it are decoded one after another (two may stand on one
line), and the first thing that is no whole JSON object ends the line: its bytes are
counted, hashed and reported, and reading goes on behind the next LF. A last line without
LF that does not decode may still grow: it is the torn tail.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from foldline.errors import ImportSourceError

CHUNK_BYTES = 1024 * 1024
"""How much of an overlong line is read at once."""

DIGITS_MAX = 300
"""Longer numbers are kept as the text that they are."""

UNKNOWN_CALL = "unknown:"
"""Begins the id of a call that only its result tells of; then comes the source's id."""

LISTED_MAX = 10_000
"""How many rejected pieces a report lists; beyond that they are only counted."""

_BOM = "\ufeff"
_SPACE = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file: a record, or what could not be one (`reason` says why).

    `offset` and `length` are in bytes, `sha256` is of these bytes. `raw` is their text,
    with surrogates for bytes that are no UTF-8; of an overlong line it is only the begin.
    `torn` says that no LF follows.
    """

    offset: int
    length: int
    sha256: bytes
    raw: str
    record: dict[str, Any] | None = None
    reason: str = ""
    torn: bool = False


@dataclass(frozen=True, slots=True)
class Rejected:
    """A piece that is no record: where it is, and why. `recorded`: kept in the log."""

    offset: int
    length: int
    sha256: str
    reason: str
    recorded: bool


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something an operator should look at; nothing was removed.

    `kind` is SHRUNK (the file no longer holds what was imported from it), REWRITTEN (it
    also holds something else instead) or OWNED (a session of this id is not a mirror).
    """

    kind: str
    session_id: str
    detail: str
    missing_events: int = 0
    first_seq: int = 0
    last_seq: int = 0


@dataclass(slots=True)
class ImportedSession:
    """A session that the file told of; `head` is its last seq, `events` those added."""

    session_id: str
    head: int
    events: int


@dataclass(slots=True)
class ImportReport:
    """What became of a file. Counts are of the whole file; `events` of this import.

    Every record is exactly one of mapped, a copy, foreign, or noise:
    `records == mapped + copies + foreign + noise`. `tool_calls` to `compactions` are
    counted on the records alone, whatever the log holds. `flagged` records repeat an id
    with other content; `missing_parents` name a parent that is not there. `redactions`
    counts, by rule, what was redacted in the added events.
    """

    path: str
    system: str
    records: int = 0
    rejected: list[Rejected] = field(default_factory=list[Rejected])
    rejected_total: int = 0
    events: int = 0
    tool_calls: int = 0
    tool_results: int = 0
    open_tool_calls: int = 0
    orphan_results: int = 0
    duplicate_results: int = 0
    compactions: int = 0
    mapped: int = 0
    copies: int = 0
    flagged: int = 0
    missing_parents: int = 0
    foreign: Counter[str] = field(default_factory=Counter[str])
    noise: Counter[str] = field(default_factory=Counter[str])
    redactions: Counter[str] = field(default_factory=Counter[str])
    sessions: list[ImportedSession] = field(default_factory=list[ImportedSession])
    torn_tail: Rejected | None = None
    alarms: list[Alarm] = field(default_factory=list[Alarm])

    def reject(self, piece: Piece) -> None:
        """Account for a piece that is no record; a torn tail is not recorded."""
        rejected = Rejected(
            piece.offset,
            piece.length,
            piece.sha256.hex(),
            piece.reason,
            recorded=not piece.torn,
        )
        self.rejected_total += 1
        if len(self.rejected) < LISTED_MAX:
            self.rejected.append(rejected)
        if piece.torn:
            self.torn_tail = rejected

    def as_json(self) -> dict[str, Any]:
        """The report as one JSON object."""
        counters = ("foreign", "noise", "redactions")  # asdict mistakes a Counter's items
        return asdict(self) | {name: dict(getattr(self, name)) for name in counters}


def read_pieces(path: Path, *, record_max_bytes: int) -> Iterator[Piece]:
    """Every record and every reject of a file, in order, one line in memory at a time.

    Raises:
        ImportSourceError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            yield from pieces_from(file, 0, record_max_bytes=record_max_bytes)
    except OSError as error:
        raise ImportSourceError(str(path), error.strerror or str(error)) from error


def pieces_from(file: BinaryIO, offset: int, *, record_max_bytes: int) -> Iterator[Piece]:
    """The same of an open file, from where a piece or a line of it ended."""
    file.seek(offset)
    while line := file.readline(record_max_bytes + 1):
        if len(line) > record_max_bytes and not line.endswith(b"\n"):
            piece = _overlong(file, line, offset, record_max_bytes)
            offset += piece.length
            yield piece
            continue
        yield from _pieces_of(line, offset)
        offset += len(line)


def _overlong(file: BinaryIO, begin: bytes, offset: int, limit: int) -> Piece:
    """A line beyond the limit: hashed as it goes by, not kept."""
    digest = hashlib.sha256(begin)
    length = len(begin)
    ended = False
    while not ended and (chunk := file.readline(CHUNK_BYTES)):
        digest.update(chunk)
        length += len(chunk)
        ended = chunk.endswith(b"\n")
    return Piece(
        offset,
        length,
        digest.digest(),
        begin[:CHUNK_BYTES].decode("utf-8", "surrogateescape"),
        reason=f"a line of {length} bytes, import_record_max_bytes is {limit}",
        torn=not ended,
    )


def _pieces_of(line: bytes, offset: int) -> Iterator[Piece]:
    if not line.strip():
        return
    text = line.decode("utf-8", "surrogateescape")
    at = 1 if offset == 0 and text.startswith(_BOM) else 0
    end = len(text.rstrip(_SPACE))
    behind = 0
    while (at := _skip(text, at)) < end:
        record, stop, reason = _decoded(text, at)
        if record is None:
            stop = end
        offset += len(text[behind:at].encode("utf-8", "surrogateescape"))
        raw = text[at:stop]
        data = raw.encode("utf-8", "surrogateescape")
        torn = record is None and not line.endswith(b"\n")
        yield Piece(
            offset,
            len(data),
            hashlib.sha256(data).digest(),
            raw,
            record,
            reason,
            torn=torn,
        )
        offset += len(data)
        at = behind = stop


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _decoded(text: str, at: int) -> tuple[dict[str, Any] | None, int, str]:
    """The object that begins here and where it ends, or the reason why there is none."""
    try:
        value, stop = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        why = "NUL bytes" if text[at] == "\0" else error.msg
        return None, at, f"no whole JSON object: {why} at character {error.pos - at}"
    except RecursionError:
        return None, at, "no readable JSON object: nested too deep"
    if not isinstance(value, dict):
        return None, at, f"a JSON {type(value).__name__}, not an object"
    return cast("dict[str, Any]", value), stop, ""


def _whole(digits: str) -> int | str:
    return int(digits) if len(digits) <= DIGITS_MAX else digits


def _real(digits: str) -> float | str:
    value = float(digits)
    return value if math.isfinite(value) else digits


_DECODER = json.JSONDecoder(parse_int=_whole, parse_float=_real, parse_constant=str)
