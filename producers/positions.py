"""How far each followed file is recorded, kept so that a restart need not read it again.

A position says: up to here everything of this file is in the log. It is written after the
log's acknowledgement, so it may be old and is never early. Without one, or where file or
log do not bear it out, the file is read from its beginning: that costs time and changes
nothing, because facts have their ids from the file.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from foldline.faults import crash_point
from foldline.places import make_private
from foldline.processors.log import Log

PRINT_BYTES = 4_096
"""How much of a file's begin, and of what stands before a place in it, tells whether it is
still the same up to there."""

SESSIONS_LISTED_MAX = 100_000
"""How many sessions of the log positions are compared with; of others files are read."""

FINGERPRINT_OF_NOTHING = hashlib.sha256().hexdigest()
"""What `fingerprint_of` gives for no bytes at all."""

FORMAT = 1
"""Positions of another format are not looked at."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a file is recorded: `size` bytes of it, which have this fingerprint.

    `device` and `inode` find the file where it was renamed. `heads` are its sessions and
    the seqs at which they stood at least.
    """

    device: int
    inode: int
    size: int
    fingerprint: str
    heads: tuple[tuple[str, int], ...]


def fingerprint_of(file: BinaryIO, size: int) -> str:
    """A hash of the begin of a file and of what stands before `size`, in hex."""
    file.seek(0)
    digest = hashlib.sha256(file.read(min(PRINT_BYTES, size)))
    file.seek(max(0, size - PRINT_BYTES))
    digest.update(file.read(min(PRINT_BYTES, size)))
    return digest.hexdigest()


def positions_path(state_dir: Path, url: str) -> Path:
    """Where the positions of one log's mirrors lie."""
    name = hashlib.sha256(url.encode()).hexdigest()[:16]
    return state_dir / "mirror" / f"{name}.json"


def read_positions(path: Path) -> dict[str, Position]:
    """The positions by the paths of their files; none where they cannot be read."""
    try:
        said = json.loads(path.read_bytes())
        return {name: _position(fields) for name, fields in said[str(FORMAT)].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _position(fields: dict[str, Any]) -> Position:
    heads = tuple((str(name), int(seq)) for name, seq in fields.pop("heads"))
    return Position(**fields, heads=heads)


def write_positions(path: Path, positions: Mapping[str, Position]) -> None:
    """Keep the positions: all of them, or those of before.

    1. Write them beside, and sync.
    2. Give them their name.

    Raises:
        OSError: they cannot be written.
    """
    make_private(path.parent)
    beside = path.with_name(f".{path.name}-{os.getpid()}")
    views = {name: asdict(position) for name, position in positions.items()}
    with beside.open("w", encoding="utf-8", errors="surrogateescape") as file:
        json.dump({str(FORMAT): views}, file)
        file.flush()
        os.fsync(file.fileno())
    crash_point("CP_MIRROR_BEFORE_POSITIONS")
    beside.replace(path)
    crash_point("CP_MIRROR_AFTER_POSITIONS")


def borne_out(log: Log, positions: Mapping[str, Position]) -> dict[str, Position]:
    """The positions whose sessions stand in the log where they say, or further.

    Raises:
        LogUnavailableError: the log gave no answer.
    """
    if not positions:
        return {}
    heads = {row.session_id: row.seq for row in log.sessions(limit=SESSIONS_LISTED_MAX)}
    return {
        name: position
        for name, position in positions.items()
        if all(heads.get(session_id, 0) >= seq for session_id, seq in position.heads)
    }


def still_holds(position: Position, path: Path) -> bool:
    """Whether a file is, up to its position, what it was.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return fingerprint_of(file, position.size) == position.fingerprint


def moved_to(position: Position, folder: Path) -> Path | None:
    """The place in its folder of a file that was renamed.

    None if it is not there, or nobody can tell: the folder may be gone, too.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.inode() == position.inode and entry.is_file():
                path = folder / entry.name
                return path if path.stat().st_dev == position.device else None
    return None
