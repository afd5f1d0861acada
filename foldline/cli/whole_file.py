"""A file that is there whole or not at all, whatever becomes of the process."""

import errno
import os
import secrets
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from foldline.cli.failures import UsageError
from foldline.faults import crash_point
from foldline.places import OWN_FILE, sync_folder

BESIDE = ".foldline-export-"
"""How the name of a file begins that is not whole yet."""

BESIDE_LOG = (
    *("-wal", "-shm", "-journal", ".torn"),
    *(".blobs", ".owners", ".leases"),
)
"""How the names of what lies beside a log's file go on behind its own."""

OUTPUT = "--output"


def check_place(path: Path, *, log_url: str, option: str = OUTPUT) -> None:
    """Refuse what cannot be written, before any work is done for it, and the log's own.

    Args:
        path: what was given.
        log_url: the log that is read.
        option: what it was given as, for the message.

    Raises:
        UsageError: that.
    """
    from foldline.processors.open_log import path_of  # late: --help does without
    from foldline.producers.redaction_key import key_path

    place, own, key = destination(path, option=option), path_of(log_url), key_path(log_url)
    parts = [part for part in (own, key) if part is not None]
    if own is not None:
        parts += [own.with_name(own.name + end) for end in BESIDE_LOG]
    for part in parts:
        whole = part.resolve()
        if whole == place or whole in place.parents or _same(place, whole):
            what = "the log" if part == own else "a part of the log"
            raise UsageError(option, f"a file; {path} is {what}")


def _same(place: Path, other: Path) -> bool:
    return place.exists() and other.exists() and place.samefile(other)


def destination(path: Path, *, option: str = OUTPUT) -> Path:
    """The file that is to be written: the one that a symbolic link names, not the link.

    What is no file is never replaced by one.

    Raises:
        UsageError: it is a folder, a device, a pipe or stdout, or in no folder.
        OSError: nobody can tell what it is.
    """
    try:
        whole = path.resolve()
    except RuntimeError as error:  # what Python calls a circle up to 3.12
        raise _circle(path, option) from error
    try:
        found = path.stat()
    except FileNotFoundError:
        if not whole.parent.is_dir():
            folder = path.parent if not path.is_symlink() else whole.parent
            wanted = f"a file in a folder that is there: {folder}"
            raise UsageError(option, wanted) from None
        return whole
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _circle(path, option) from error
        raise
    if stat.S_ISDIR(found.st_mode):
        raise UsageError(option, f"a file; {path} is a folder")
    if not stat.S_ISREG(found.st_mode) or _is_stdout(found):
        wanted = f"a file of its own, not {path}"
        if option == OUTPUT:
            wanted = f"a file; for {path}, leave out {OUTPUT}: that is stdout"
        raise UsageError(option, wanted)
    return whole


def _circle(path: Path, option: str) -> UsageError:
    return UsageError(option, f"a file; {path} is a circle of links")


def _is_stdout(found: os.stat_result) -> bool:
    """Whether it is what stdout goes to: a file of its name would not be what is read."""
    try:
        return os.path.samestat(found, os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError, AttributeError):  # there is none
        return False


@contextmanager
def whole_file(path: Path, *, option: str = OUTPUT) -> Generator[BinaryIO]:
    """A file to write into, which gets its name when all is written.

    1. Write beside, readable for nobody else, under a name that is nobody's.
    2. Sync, and give it its name; sync the folder.
    3. Where writing fails, what was written goes away.

    Raises:
        UsageError: as `destination`.
        OSError: it cannot be written.
    """
    whole = destination(path, option=option)
    beside = whole.with_name(BESIDE + secrets.token_hex(8))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        with os.fdopen(os.open(beside, flags, OWN_FILE), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        crash_point("CP_EXPORT_BEFORE_NAME")
        beside.replace(whole)
    except BaseException:
        with suppress(FileNotFoundError):
            beside.unlink()
        raise
    sync_folder(whole.parent)
