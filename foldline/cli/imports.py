"""`foldline import`: transcripts of other harnesses, as mirrored sessions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foldline.cli.context import Context, must_be_there, redactor_of
from foldline.cli.failures import NO, NOT_FOUND, OK, UsageError
from foldline.errors import ImportSourceError

if TYPE_CHECKING:
    from foldline.cli.output import Output
    from foldline.producers.importing import ImportReport

PATTERNS = ("*.jsonl", "*.json")
"""What is looked for in a folder, and in the folders below it."""

FORMATS: tuple[str, ...] = ("claude-code", "codex", "openai-agents")
"""What `--format` takes; here, so that --help does without the importers."""

SUMMED: tuple[str, ...] = (
    "records",
    "rejected_total",
    "events",
    "tool_calls",
    "tool_results",
    "open_tool_calls",
    "orphan_results",
    "duplicate_results",
    "compactions",
    "mapped",
    "copies",
    "flagged",
    "missing_parents",
)
"""The counts of one file that also make sense of many."""

SESSIONS_NAMED = 3
REJECTED_SHOWN = 5


@dataclass(slots=True)
class Imported:
    """What became of the files.

    `missed` were named but are no transcripts; `skipped` were only found in a folder,
    and are none either.
    """

    reports: list["ImportReport"] = field(default_factory=list["ImportReport"])
    missed: list[ImportSourceError] = field(default_factory=list[ImportSourceError])
    skipped: list[ImportSourceError] = field(default_factory=list[ImportSourceError])

    @property
    def alarmed(self) -> bool:
        """Whether a file shrank or was rewritten since it was last imported."""
        return any(report.alarms for report in self.reports)


def import_(
    *path: Path,
    format_: Annotated[str | None, Parameter(name="--format")] = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Import transcripts of other harnesses as sessions. Again adds only what is new.

    Formats: claude-code (transcripts), codex (rollouts), openai-agents (run states and
    item lists). A file's format is told by its content. What cannot be mapped is kept as
    it is; what cannot be read is listed as rejected. Exit code 1 if a file shrank or was
    rewritten since its last import: both are kept, and somebody should look. With --json
    one object: the report of the file, or for several files and folders totals and
    `files`.

    Args:
        path: Files, or folders that are searched for *.jsonl and *.json.
        format_: The format of the files, where their content does not tell.
        context: Where to read and write.
    """
    if not path:
        raise UsageError("import", "a file or a folder, for example ~/.claude/projects")
    must_be_there(path)
    if format_ is not None and format_ not in FORMATS:
        raise UsageError("--format", f"one of {', '.join(FORMATS)}")
    imported = _import_all(context, path, format_)
    single = len(path) == 1 and not path[0].is_dir()
    if single and imported.missed:
        raise imported.missed[0]
    if context.out.json:
        view = imported.reports[0].as_json() if single else view_of(imported)
        context.out.record(view)
    elif not single:
        _show_totals(context.out, imported)
    if imported.missed:
        return NOT_FOUND
    return NO if imported.alarmed else OK


def _import_all(context: Context, paths: tuple[Path, ...], format_: str | None) -> Imported:
    from foldline.producers.importers import import_file  # late: --help does without

    imported = Imported()
    settings = context.settings()
    with context.writing() as log:
        redactor = redactor_of(log, settings)
        for path, named in _files(paths):
            try:
                report = import_file(
                    log,
                    path,
                    format_=format_,
                    settings=settings,
                    redactor=redactor,
                    on_progress=_progress(context.out, path),
                )
            except ImportSourceError as error:
                (imported.missed if named else imported.skipped).append(error)
            else:
                imported.reports.append(report)
                if not context.out.json:
                    _show_report(context.out, report)
    return imported


def _files(paths: tuple[Path, ...]) -> Iterator[tuple[Path, bool]]:
    """The files to import in a fixed order, each once, and whether it was named."""
    seen: set[Path] = set()
    for path in paths:
        named = not path.is_dir()
        for file in [path] if named else _found_in(path):
            if (real := file.resolve()) not in seen:
                seen.add(real)
                yield file, named


def _found_in(folder: Path) -> list[Path]:
    found = {file for pattern in PATTERNS for file in folder.rglob(pattern)}
    return sorted(file for file in found if file.is_file())


def view_of(imported: Imported) -> dict[str, Any]:
    """Several files for machines: totals, the report of each, and what was left out."""
    totals = {
        name: sum(getattr(report, name) for report in imported.reports) for name in SUMMED
    }
    sessions = {s.session_id for report in imported.reports for s in report.sessions}
    return totals | {
        "sessions": len(sessions),
        "alarms": sum(len(report.alarms) for report in imported.reports),
        "files": [report.as_json() for report in imported.reports],
        "missed": [_left_out(error) for error in imported.missed],
        "skipped": [_left_out(error) for error in imported.skipped],
    }


def _left_out(error: ImportSourceError) -> dict[str, str]:
    return {"path": error.path, "reason": error.reason}


def _progress(
    out: "Output", path: Path
) -> "Callable[[int, int, ImportReport], None] | None":
    show = out.progress()
    if show is None:
        return None

    def on_progress(done: int, total: int, report: "ImportReport") -> None:
        percent = 100 * done // max(total, 1)
        show(f"{path.name}: {percent} %, {report.events:,} events added")

    return on_progress


def _show_report(out: "Output", report: "ImportReport") -> None:
    """Print what became of one file: a line, and one more for each thing to look at."""
    from foldline.cli.clean import clean_line

    out.end_progress()
    out.line((clean_line(report.path), "bold"))
    out.line((f"  {_counts(report)}", ""))
    names = [session.session_id for session in report.sessions]
    more = f" and {len(names) - SESSIONS_NAMED} more" if names[SESSIONS_NAMED:] else ""
    shown = ", ".join(names[:SESSIONS_NAMED])
    out.line(("  session ", "dim"), (clean_line(shown + more), ""))
    for rejected in report.rejected[:REJECTED_SHOWN]:
        where = f"  rejected at byte {rejected.offset}: "
        out.line((where, "yellow"), (clean_line(rejected.reason), ""))
    for alarm in report.alarms:
        out.line(
            (f"  {clean_line(alarm.kind)} ", "red"),
            (clean_line(f"{alarm.session_id}: {alarm.detail}"), ""),
        )


def _counts(report: "ImportReport") -> str:
    parts = [
        f"{report.records:,} records",
        f"{report.events:,} events added",
        f"{report.tool_calls:,} tool calls",
    ]
    for count, name in (
        (report.open_tool_calls, "without a result"),
        (report.rejected_total, "rejected"),
        (sum(report.foreign.values()), "kept as they are"),
        (sum(report.redactions.values()), "secrets redacted"),
    ):
        if count:
            parts.append(f"{count:,} {name}")
    return ", ".join(parts)


def _show_totals(out: "Output", imported: Imported) -> None:
    for error in (*imported.missed, *imported.skipped):
        out.remark(f"skipped {error}")
    view = view_of(imported)
    out.line(
        (f"{len(imported.reports):,} files", "bold"),
        (f", {view['sessions']:,} sessions, {view['events']:,} events added", ""),
        (f", {view['alarms']:,} alarms" if view["alarms"] else "", "red"),
    )
