"""A file that is there whole or not at all, whatever becomes of the process."""

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

    place, own = destination(path, option=option), path_of(log_url)
    if own is not None and place.exists() and place.samefile(own):
        raise UsageError(option, f"a file; {path} is the log")


def destination(path: Path, *, option: str = OUTPUT) -> Path:
    """The file that is to be written: the one that a symbolic link names, not the link.

    What is no file is never replaced by one.

    Raises:
        UsageError: it is a folder, a device, a pipe or stdout, or in no folder.
        OSError: nobody can tell what it is.
    """
    whole = path.resolve()
    try:
        found = path.stat()
    except FileNotFoundError:
        if not whole.parent.is_dir():
            folder = path.parent if not path.is_symlink() else whole.parent
            wanted = f"a file in a folder that is there: {folder}"
            raise UsageError(option, wanted) from None
        return whole
    if stat.S_ISDIR(found.st_mode):
        raise UsageError(option, f"a file; {path} is a folder")
    if not stat.S_ISREG(found.st_mode) or _is_stdout(found):
        wanted = f"a file of its own, not {path}"
        if option == OUTPUT:
            wanted = f"a file; for {path}, leave out {OUTPUT}: that is stdout"
        raise UsageError(option, wanted)
    return whole


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
