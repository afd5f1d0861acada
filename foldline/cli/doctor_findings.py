"""What `foldline doctor` found: one line each, with what to do about it."""

import errno
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from foldline.errors import FoldlineError, LogUnavailableError

OK = "OK"
WARNING = "WARNING"
BAD = "BAD"

_OTHERS = stat.S_IRWXG | stat.S_IRWXO

_NO_RIGHT = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NO_RIGHT_SQLITE = frozenset(
    {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
)
_PRIMARY_CODE = 0xFF

RIGHTS = (
    "give this user the right to write the log, what lies beside it and its folder; one on "
    "a disk that takes no writes has to be copied to another, with all that is beside it"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `advice` is empty where nothing is to be done."""

    about: str
    status: str
    detail: str
    advice: str = ""


Check = Callable[[], Iterable[Finding]]


def found_by(about: str, check: Check) -> Iterator[Finding]:
    """What a check finds; one that fails is a finding itself, so that the others go on."""
    try:
        yield from check()
    except FoldlineError as error:
        yield Finding(about, BAD, str(error), _advice_of(error))
    except OSError as error:
        lacking = error.errno in _NO_RIGHT
        advice = f"give this user the right to use {error.filename}" if lacking else ""
        yield Finding(about, BAD, f"{type(error).__name__}: {error}", advice)


def _lacks_a_right(cause: BaseException | None) -> bool:
    """Whether room or patience would not help: this user may not do it."""
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorcode", 0) & _PRIMARY_CODE
        return code in _NO_RIGHT_SQLITE
    return isinstance(cause, OSError) and cause.errno in _NO_RIGHT


def _advice_of(error: FoldlineError) -> str:
    """What the error's own documentation tells the operator to do, or its cause."""
    if isinstance(error, LogUnavailableError) and _lacks_a_right(error.__cause__):
        return RIGHTS
    _, marker, advice = (type(error).__doc__ or "").partition("Operator action:")
    return " ".join(advice.split()) if marker else ""


def private(about: str, path: Path) -> Iterator[Finding]:
    """What agents said is for the user whose log it is."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        detail = f"{path} is open to other users (mode {mode:03o})"
        advice = f"if they are not meant to be let in: chmod go= {path}"
        yield Finding(about, WARNING, detail, advice)


def size_of(count: int) -> str:
    """Bytes in words."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:  # noqa: PLR2004 - the step between units
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
