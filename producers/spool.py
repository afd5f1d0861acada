"""Where hooks leave what they were told, until a mirror has it in the log.

One file per record, for its owner's eyes only, redacted before it is written. It is there
whole or not at all: it is written beside, synced, and then given its name, which sorts by
time and is the record's id. Whoever drains takes a file away after the log's
acknowledgement, so a record may come twice, under one id. Loads nothing that is slow to
load.
"""

import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from foldline.faults import crash_point
from foldline.places import OWN_FILE, default_data_dir, make_private, own_url, sync_folder

SPOOL_MAX_BYTES = 256 * 1024 * 1024
"""A spool that holds more takes nothing more in: the newest is refused, and said so."""

LOG_MAX_BYTES = 1024 * 1024
"""The file of errors begins anew here; the one before is kept beside it."""

TIME_MAX_US = 253_402_300_799_000_000
"""The last second of the year 9999: no hook ran later."""

LOG_NAME = "hook.log"
SUFFIX = ".json"
REFUSED_SUFFIX = ".refused"

PART_MAX_S = 3_600
"""How long after its last byte a record that is not whole is taken for one that nobody
writes any more, in seconds."""


@dataclass(frozen=True, slots=True)
class Spooled:
    """What one hook was told. Times in microseconds since 1970.

    `content` is the redacted JSON of whatever the other fields do not hold.
    """

    at_us: int
    hook: str
    session_id: str
    tool_use_id: str = ""
    agent_id: str = ""
    transcript_path: str = ""
    content: str = "{}"


class SpoolFullError(Exception):
    """Raised when a spool takes nothing more in."""


def spool_of(url: str) -> Path:
    """The folder of the hooks of one log, by whichever URL it is named.

    Raises:
        SettingsError: a path in the home of nobody.
    """
    import hashlib  # late: hooks that fail need none

    name = hashlib.sha256(own_url(url).encode()).hexdigest()[:16]
    return default_data_dir() / "spool" / name


def make_spool(folder: Path) -> None:
    """Make the folder, for its owner only.

    Raises:
        OSError: it cannot be made.
    """
    make_private(folder)


def put(folder: Path, spooled: Spooled) -> str:
    """Keep a record; its id. It is on the disk when this returns.

    1. See that there is room.
    2. Write it beside, and sync. Where that fails, what was written goes away.
    3. Give it its name, and sync the folder.

    Raises:
        SpoolFullError: there is no room.
        OSError: it cannot be written.
    """
    if _held_bytes(folder) > SPOOL_MAX_BYTES:
        raise SpoolFullError
    record_id = f"{spooled.at_us:020}-{os.urandom(6).hex()}"
    beside = folder / f".{record_id}"
    data = json.dumps(asdict(spooled)).encode()
    try:
        _write_synced(beside, data)
        crash_point("CP_SPOOL_BEFORE_RENAME")
        beside.rename(record_path(folder, record_id))
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    sync_folder(folder)
    return record_id


def _held_bytes(folder: Path) -> int:
    held = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # another hook's, or the mirror's, by now
                held += entry.stat().st_size
    return held


def _write_synced(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(path, flags, OWN_FILE), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def record_path(folder: Path, record_id: str) -> Path:
    """Where a record of a spool stands."""
    return folder / f"{record_id}{SUFFIX}"


def is_record(name: str) -> bool:
    """Whether a file of a spool is a record, and not one that is still being written."""
    return name.endswith(SUFFIX) and not name.startswith(".")


def record_ids(folder: Path) -> Iterator[str]:
    """The ids of what waits, oldest first; none where there is no spool."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return
    for name in names:
        if is_record(name):
            yield name.removesuffix(SUFFIX)


def forget_parts(folder: Path) -> None:
    """Remove what a hook began to write and did not end, PART_MAX_S ago."""
    before_s = time.time() - PART_MAX_S
    for path in folder.glob(".*"):
        with suppress(OSError):
            if path.stat().st_mtime < before_s:
                path.unlink()


def read(folder: Path, record_id: str) -> Spooled | None:
    """A record; None if it is none that this version writes.

    Raises:
        FileNotFoundError: somebody took it away.
        OSError: it cannot be read.
    """
    path = record_path(folder, record_id)
    if not _can_end(path.stat().st_mode):
        return None
    data = path.read_bytes()
    try:
        fields: Any = json.loads(data)
        return (
            _checked(cast("dict[str, Any]", fields)) if isinstance(fields, dict) else None
        )
    except (ValueError, TypeError, RecursionError):
        return None


def _can_end(mode: int) -> bool:
    """Whether reading comes to an end: a pipe or a device may keep its reader for ever."""
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _checked(fields: dict[str, Any]) -> Spooled | None:
    """A record of these fields; no log holds lone surrogates: they become U+FFFD."""
    at_us = fields.pop("at_us", None)
    texts = all(isinstance(value, str) for value in fields.values())
    if not texts or type(at_us) is not int or not 0 <= at_us <= TIME_MAX_US:
        return None
    return Spooled(at_us=at_us, **{name: _whole(text) for name, text in fields.items()})


def _whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def take_away(folder: Path, record_id: str) -> None:
    """Forget a record that the log has."""
    with suppress(FileNotFoundError):
        record_path(folder, record_id).unlink()


def set_aside(folder: Path, record_id: str) -> Path:
    """Keep a record that no log takes, out of the way.

    Raises:
        FileNotFoundError: somebody took it away.
        OSError: it cannot be renamed.
    """
    refused = folder / f"{record_id}{REFUSED_SUFFIX}"
    record_path(folder, record_id).rename(refused)
    return refused


def say_failed(folder: Path, at_us: int, reason: str) -> None:
    """Write down that a hook failed, and why; never what it was told."""
    log = folder / LOG_NAME
    with suppress(FileNotFoundError):
        if log.stat().st_size > LOG_MAX_BYTES:
            log.replace(folder / f"{LOG_NAME}.1")
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    with os.fdopen(os.open(log, flags, OWN_FILE), "w", encoding="utf-8") as file:
        file.write(json.dumps({"at_us": at_us, "reason": reason}) + "\n")
