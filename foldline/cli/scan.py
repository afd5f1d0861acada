"""`foldline scan`: is there a secret in what is stored, as far as today's rules know?"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foldline.cli.context import Context, chosen, must_be_there
from foldline.cli.failures import NO, OK, UsageError

if TYPE_CHECKING:
    from foldline.cli.output import Output
    from foldline.producers.redaction import Redactor
    from foldline.producers.scanning import Finding, Scanner, ScanReport

FINDINGS_SHOWN = 50


def scan(
    *session: str,
    file: tuple[Path, ...] = (),
    only_files: bool = False,
    rules: Path | None = None,
    betterleaks: bool = False,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Look for secrets in what is stored, with today's rules. Exit code 1 if one is there.

    Every event is gone over as if it were recorded now, its ids and names too, and the
    blobs that it refers to. What is found is named by kind and place; what it is, is never
    printed, and nothing is changed: change the secret. What cannot be read is named, and is
    exit code 1 too; the rest is looked at all the same.

    Args:
        session: Only these; without any, all of the log.
        file: Also look at this file or folder: a spool, a log file. May be repeated.
        only_files: Look at no session.
        rules: A file of rules and known values (env FOLDLINE_REDACTION_RULES).
        betterleaks: Also ask betterleaks (the extra `redact-betterleaks`).
        context: Where to read and write.
    """
    from foldline.producers.scanning import Scanner  # late: --help does without

    if only_files and (session or not file):
        raise UsageError("--only-files", "with --file, and without sessions")
    must_be_there(file)
    scanner = Scanner(_redactor(context, rules, betterleaks=betterleaks))
    # First the files: what a mirror takes out of a spool meanwhile is in the log by then.
    for path in file:
        for inside in _files(path, scanner.not_read):
            scanner.file(inside)
    if not only_files:
        _scan_log(context, scanner, session)
    report = scanner.report
    context.out.end_progress()
    if context.out.json:
        context.out.record(view_of(report))
    else:
        _show(context.out, report)
    return NO if report.found or report.unread else OK


def _redactor(context: Context, rules: Path | None, *, betterleaks: bool) -> "Redactor":
    from foldline.producers.redaction_engines import Betterleaks  # late: see above
    from foldline.producers.redaction_file import redactor_with

    settings = context.settings()
    engines = (Betterleaks(),) if betterleaks else ()
    return redactor_with(rules or settings.redaction_rules, engines=engines)


def _scan_log(context: Context, scanner: "Scanner", wanted: tuple[str, ...]) -> None:
    show = context.out.progress()
    with context.reading() as log:
        names = chosen(log, wanted)
        for done, session_id in enumerate(names):
            if show is not None:
                show(f"{done:,} of {len(names):,} sessions, {scanner.report.found:,} found")
            scanner.session(log, session_id)


def _files(path: Path, not_read: Callable[[OSError, Path], None]) -> Iterator[Path]:
    """A file, or those below a folder; told of folders that cannot be read."""
    if not path.is_dir():
        yield path
        return
    walk = os.walk(path, onerror=lambda error: not_read(error, path))
    for folder, folders, names in walk:
        folders.sort()
        for inside in (Path(folder, name) for name in sorted(names)):
            try:
                wanted = inside.is_file()
            except OSError as error:
                not_read(error, inside)
                continue
            if wanted:
                yield inside


def view_of(report: "ScanReport") -> dict[str, Any]:
    """The report for machines."""
    from dataclasses import asdict  # late: few commands need it

    return {"ok": not report.found and not report.unread} | asdict(report)


def _show(out: "Output", report: "ScanReport") -> None:
    from foldline.cli.clean import clean_line  # late: --json does without

    for finding in report.findings[:FINDINGS_SHOWN]:
        out.line(
            (f"{finding.count:>5} {finding.rule:<20} ", "red"),
            (clean_line(_place(finding)), ""),
        )
    if (more := len(report.findings) - FINDINGS_SHOWN) > 0:
        out.line((f"... and {more:,} more places", "dim"))
    for what in report.unread:
        out.line((clean_line(f"not read: {what}"), "yellow"))
    out.line(
        (_verdict(report), "bold"),
        (f": {report.found:,} found in {report.sessions:,} sessions, ", ""),
        (f"{report.events:,} events, {report.blobs:,} blobs, {report.files:,} files", ""),
    )


def _verdict(report: "ScanReport") -> str:
    if report.found:
        return "not clean"
    return "not all could be read" if report.unread else "clean"


def _place(finding: "Finding") -> str:
    if finding.path:
        return finding.path
    where = f"{finding.session_id}, seq {finding.seq}, {finding.event_type}"
    if finding.sha256:
        return f"{where}, blob {finding.sha256}"
    return where if finding.where == "event" else f"{where}, {finding.where}"
