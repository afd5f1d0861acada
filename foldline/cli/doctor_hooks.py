"""What `foldline doctor` sees of hooks: what waits, what went wrong, who may read it."""

import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from foldline.cli.doctor_findings import BAD, OK, WARNING, Finding, private, size_of
from foldline.errors import SettingsError
from foldline.producers.hook_draining import HOLD_MAX_S
from foldline.producers.redaction_key import KEY_BYTES, key_path
from foldline.producers.spool import (
    LOG_NAME,
    REFUSED_SUFFIX,
    SPOOL_MAX_BYTES,
    is_record,
    spool_of,
)
from foldline.projections.views import iso_time

LATE_S = HOLD_MAX_S + 600
"""No record waits so long where a mirror runs, unless its transcript is there and not read
to its end: a mirror holds the others no longer than HOLD_MAX_S."""

NEARLY_FULL = 0.75
"""A spool that is full to this part is soon one that takes nothing more in."""

TAIL_BYTES = 64 * 1024
"""How much of the end of hook.log is read for its last line."""

REASON_CHARS = 300


@dataclass(slots=True)
class _Spool:
    """What lies in a spool: when each record was made, and what was set aside."""

    waiting: list[float] = field(default_factory=list[float])
    refused: int = 0
    total: int = 0


def hooks(url: str) -> Iterator[Finding]:
    """What hooks left for a log: how much, for how long, and what went wrong."""
    try:
        folder = spool_of(url)
    except SettingsError as error:
        yield Finding("hooks", OK, f"no hook can leave anything: {error}")
        return
    if not folder.exists():
        yield Finding("hooks", OK, f"no hook has left anything in {folder}")
        return
    held = _looked_at(folder)
    yield _waiting(held, folder)
    if held.total > SPOOL_MAX_BYTES * NEARLY_FULL:
        full = held.total > SPOOL_MAX_BYTES
        detail = f"{size_of(held.total)} of {size_of(SPOOL_MAX_BYTES)} in {folder} are used"
        advice = "run `foldline mirror`; when full, it takes nothing more in"
        yield Finding("hooks", BAD if full else WARNING, detail, advice)
    if held.refused:
        detail = f"{held.refused:,} hooks were set aside in {folder}: no log takes them"
        advice = f"look at {folder}/*{REFUSED_SUFFIX}, and delete them"
        yield Finding("hooks", WARNING, detail, advice)
    yield from _went_wrong(folder / LOG_NAME)
    yield from private("hooks", folder)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        advice = f"give this user the right to read and write {folder}"
        yield Finding("hooks", BAD, f"nothing can be left in {folder}", advice)


def key(url: str) -> Iterator[Finding]:
    """Whether the key of placeholders can be used, and whether it is this user's alone."""
    try:
        path = key_path(url)
    except SettingsError as error:
        advice = "set XDG_DATA_HOME where this user records: its key is kept there"
        yield Finding("redaction", WARNING, str(error), advice)
        return
    if path is None:
        return
    if not path.exists():
        detail = f"no key of placeholders yet: {path}; it is made when it is wanted"
        yield Finding("redaction", OK, detail)
        return
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size != KEY_BYTES:
        advice = f"bring back the copy of {path}, or move it away: a new one is made"
        detail = f"{path} does not hold {KEY_BYTES} bytes: nothing can be recorded"
        yield Finding("redaction", BAD, detail, advice)
    elif not os.access(path, os.R_OK):
        advice = f"give this user the right to read {path}"
        yield Finding("redaction", BAD, f"{path} cannot be read", advice)
    else:
        yield Finding("redaction", OK, f"the key of placeholders is {path}")
    yield from private("redaction", path)


def _looked_at(folder: Path) -> _Spool:
    held = _Spool()
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # recorded by now
                found = entry.stat(follow_symlinks=False)
                held.total += found.st_size
                if entry.name.endswith(REFUSED_SUFFIX):
                    held.refused += 1
                elif is_record(entry.name):
                    held.waiting.append(found.st_mtime)
    return held


def _waiting(held: _Spool, folder: Path) -> Finding:
    size, count = size_of(held.total), f"{len(held.waiting):,}"
    if not held.waiting:
        return Finding("hooks", OK, f"no hook waits in {folder}, {size}")
    age_s = max(0.0, time.time() - min(held.waiting))
    detail = f"{count} hooks wait in {folder}, {size}, for up to {age_s:,.0f} s"
    if age_s > LATE_S:
        advice = (
            "nothing takes them, or their transcript is not read to its end: run `foldline "
            "mirror` with this log, and see what it says of the transcript"
        )
        return Finding("hooks", WARNING, detail, advice)
    return Finding("hooks", OK, f"{detail}; `foldline mirror` records them")


def _went_wrong(log: Path) -> Iterator[Finding]:
    """The last line of a log of failures."""
    with suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = file.read(TAIL_BYTES).decode("utf-8", "replace").split("\n")
        said = next((line for line in reversed(lines) if line.strip()), "")
        if said:
            detail = f"a hook failed{_in_words(said)}"
            yield Finding("hooks", WARNING, detail, f"when it is mended, delete {log}")


def _in_words(line: str) -> str:
    """When and why, of a line of hook.log; one that is none is given as it is."""
    try:
        told: Any = json.loads(line)
        fields = cast("dict[str, Any]", told)
        return f" at {iso_time(int(fields['at_us']))}: {fields['reason'][:REASON_CHARS]}"
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return f": {line[:REASON_CHARS]}"
