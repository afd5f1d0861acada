"""`foldline doctor`: what is wrong with this installation and its log, and what to do."""

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foldline.cli.clean import clean_line
from foldline.cli.context import Context, must_exist
from foldline.cli.failures import NO, OK
from foldline.errors import FoldlineError

if TYPE_CHECKING:
    from pathlib import Path

    from foldline.cli.doctor_findings import Finding
    from foldline.cli.output import Output
    from foldline.processors.log import Log
    from foldline.settings import Settings

_STYLES = {"OK": "green", "WARNING": "yellow", "BAD": "red"}


def doctor(*, context: Annotated[Context, Parameter(parse=False)]) -> int:
    """Say what is wrong here, and what to do: versions, settings, log, permissions, room.

    Touches nothing and makes nothing. Exit code 1 if something is bad; warnings alone
    are none. With --json one finding per line, the last line sums up.

    Args:
        context: Where to read and write.
    """
    counts = {"OK": 0, "WARNING": 0, "BAD": 0}
    for finding in _findings(context):
        counts[finding.status] += 1
        _show(context.out, finding)
    if context.out.json:
        by_name = {name.lower(): count for name, count in counts.items()}
        context.out.record({"healthy": not counts["BAD"]} | by_name)
    else:
        answer = ("not healthy", "red") if counts["BAD"] else ("healthy", "green")
        rest = f", {counts['BAD']} bad, {counts['WARNING']} warnings, {counts['OK']} ok"
        context.out.line(answer, (rest, ""))
    return NO if counts["BAD"] else OK


def _findings(context: Context) -> "Iterator[Finding]":
    """Everything, from the nearest to the farthest: what fails early explains the rest."""
    # late: --help does without
    from foldline.cli.doctor_findings import BAD, Finding, found_by
    from foldline.cli.doctor_hooks import hooks, key
    from foldline.cli.doctor_machine import environment, redaction, versions

    yield from found_by("versions", versions)
    yield from found_by("settings", partial(environment, os.environ))
    try:
        settings = context.settings()
    except FoldlineError as error:
        yield Finding("settings", BAD, str(error), "set it as it says, or unset it")
        return
    yield from found_by("redaction", partial(redaction, settings))
    yield from found_by("redaction", partial(key, settings.url))
    yield from found_by("hooks", partial(hooks, settings.url))
    yield from found_by("log", partial(_log, settings))


def _log(settings: "Settings") -> "Iterator[Finding]":
    # late: --help does without
    from foldline.cli.doctor_findings import OK as FINE
    from foldline.cli.doctor_findings import Finding, found_by
    from foldline.cli.doctor_log import (
        kafka_answers,
        log_answers,
        nobody_there,
        storage_is_whole,
    )
    from foldline.cli.doctor_machine import file, folder, room
    from foldline.cli.failures import NoLogError
    from foldline.processors.open_log import KAFKA, open_log, path_of

    path = path_of(settings.url)
    try:
        must_exist(settings.url)
    except NoLogError as error:
        advice = "`foldline demo`, or `foldline import PATH`"
        yield Finding("log", FINE, f"no log here yet: {error.looked_at}", advice)
        if path is not None:
            yield from found_by("room", partial(room, _first_there(path), 0))
        return
    if path is not None:
        yield from found_by("file", partial(file, path))
    yield from found_by("state", partial(folder, "state", settings.state_dir))
    if settings.url.startswith(KAFKA):
        yield from found_by("kafka", partial(kafka_answers, settings))
    with closing(open_log(settings.url, settings=settings)) as log:
        yield from found_by("blobs", partial(_blobs, log))
        yield from found_by("log", partial(log_answers, log))
        yield from found_by("log", partial(nobody_there, log))
        yield from found_by("log", partial(storage_is_whole, log))


def _blobs(log: "Log") -> "Iterator[Finding]":
    """The folder of a log's blobs; nothing where they are in a bucket, or a service's."""
    # late: --help does without
    from foldline.cli.doctor_machine import folder
    from foldline.processors.file_blobs import FileBlobs

    if isinstance(log.blobs, FileBlobs):
        yield from folder("blobs", log.blobs.folder)


def _first_there(path: "Path") -> "Path":
    """The nearest folder above a path that exists."""
    return next(folder for folder in path.absolute().parents if folder.exists())


def _show(out: "Output", finding: "Finding") -> None:
    if out.json:
        out.record(asdict(finding))
        return
    out.line(
        (f"{finding.status:<8}", _STYLES[finding.status]),
        (f"{finding.about:<10}", "bold"),
        (clean_line(finding.detail), ""),
    )
    if finding.advice:
        out.line((f"{'':<18}-> {clean_line(finding.advice)}", "cyan"))
