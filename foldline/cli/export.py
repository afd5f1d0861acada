"""`foldline export`: a session as JSON lines, as messages, or as its source had it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foldline.cli.context import Context, find_session
from foldline.cli.failures import OK, UsageError
from foldline.cli.signals import undone_by_signals
from foldline.errors import ExportLossError

if TYPE_CHECKING:
    from foldline.processors.log import Log
    from foldline.producers.source_export import Exported

LINES = "jsonl"
MESSAGES: tuple[str, ...] = ("anthropic", "openai-chat", "openai-responses")
SOURCES: tuple[str, ...] = ("source", "claude-code", "codex", "openai-agents")
FORMATS: tuple[str, ...] = (LINES, *MESSAGES, *SOURCES)
"""What `--format` takes; here, so that --help does without the exporters."""

COPY_BYTES = 1024 * 1024
"""How much of a file is copied at once."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which session, up to where, in which format, and where to."""

    session_id: str
    upto_seq: int
    format: str
    output: Path | None
    lossy: bool


def export(
    session: str,
    /,
    *,
    format: str = LINES,  # noqa: A002 - the option's name
    output: Path | None = None,
    lossy: bool = False,
    at_seq: int | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Write a session out: jsonl (every event), messages for an API, or its own source.

    jsonl: a header, then every event as `foldline events --json` has it, whatever it
    refers to inline; of a fork also its ancestors'. anthropic, openai-chat,
    openai-responses: the whole conversation as one request, as if it had never been
    compacted. source (or claude-code, codex, openai-agents): a mirrored session as its
    harness writes it, imported again and compared: exit code 1, and nothing written, if
    it does not come back whole.

    Args:
        session: Its id, or the beginning of one.
        format: One of those.
        output: Write this file, whole or not at all, readable for its owner only.
        lossy: Write a source that does not come back whole, and say what is lost.
        at_seq: The session as it was just after this seq; of a source, after the last
            record that is whole there.
        context: Where to read and write.
    """
    if format not in FORMATS:
        raise UsageError("--format", f"one of {', '.join(FORMATS)}")
    if lossy and format not in SOURCES:
        raise UsageError("--lossy", f"a --format that can lose: {', '.join(SOURCES)}")
    with undone_by_signals(), context.reading() as log:
        if output is not None:
            from foldline.cli.whole_file import check_place  # late: --help does without

            check_place(output, log_url=context.settings().url)
        session_id = find_session(log, session)
        state = log.state(session_id)
        head = state.seq if state else 0
        if at_seq is not None and not 1 <= at_seq <= head:
            raise UsageError(
                "--at-seq", f"a seq from 1 to {head}: {session_id} has no other"
            )
        wanted = _Wanted(session_id, at_seq or head, format, output, lossy)
        run = _Export(context, log, wanted)
        summary = run.source() if format in SOURCES else run.views()
    if output is not None:
        _say(context, wanted, summary)
    return OK


class _Export:
    """One run of the command."""

    def __init__(self, context: Context, log: "Log", wanted: _Wanted) -> None:
        self._out = context.out
        self._log = log
        self._wanted = wanted

    def views(self) -> dict[str, Any]:
        """Write events or a request, one JSON object on a line; the summary."""
        wanted = self._wanted
        written = 0
        if wanted.output is None:
            for view in self._views():
                self._out.record(view)
            return {}
        from foldline.cli.whole_file import whole_file  # late: --help does without

        with whole_file(wanted.output) as file:
            for view in self._views():
                written += file.write(json.dumps(view, allow_nan=False).encode() + b"\n")
        return {"bytes": written}

    def _views(self) -> Iterator[dict[str, Any]]:
        from foldline.processors.lineage import lineage_of  # late: --help does without
        from foldline.projections.session_lines import session_lines
        from foldline.projections.whole_history import whole_request

        wanted = self._wanted
        lineage = lineage_of(self._log, wanted.session_id)
        if wanted.format == LINES:
            yield from session_lines(self._log, lineage, upto_seq=wanted.upto_seq)
            return
        yield whole_request(
            self._log, lineage, upto_seq=wanted.upto_seq, format=wanted.format
        )

    def source(self) -> dict[str, Any]:
        """Write the source's own format, if that tells the session; the summary.

        Raises:
            ExportRefusedError: the session has no such source.
            ExportLossError: it does not come back whole.
        """
        from foldline.producers.source_export import (  # late: --help does without
            check_way_back,
            export_source,
            source_of,
        )

        wanted, log = self._wanted, self._log
        if wanted.output is None and self._out.on_terminal:
            raise UsageError(
                "--output", "a file, or a pipe: no terminal shows this as it is"
            )
        state = log.state(wanted.session_id)
        system = source_of(log, state) if state else ""
        check_way_back(wanted.session_id, system, wanted.format)
        with TemporaryDirectory(prefix="foldline-export-") as folder:
            path = Path(folder) / "session"
            exported = export_source(
                log, wanted.session_id, path, system=system, upto_seq=wanted.upto_seq
            )
            if not exported.lossless and not wanted.lossy:
                raise ExportLossError(
                    wanted.session_id, system, exported.lost, exported.examples
                )
            self._remark(exported)
            size = self._copy(path)
        return {"bytes": size} | _source_view(exported)

    def _copy(self, path: Path) -> int:
        from foldline.cli.whole_file import whole_file  # late: --help does without

        size = 0
        output = self._wanted.output
        with path.open("rb") as file:
            chunks = iter(lambda: file.read(COPY_BYTES), b"")
            if output is None:
                for chunk in chunks:
                    size += len(chunk)
                    self._out.verbatim(chunk)
            else:
                with whole_file(output) as written:
                    size = sum(written.write(chunk) for chunk in chunks)
        return size

    def _remark(self, exported: "Exported") -> None:
        if exported.upto_seq < self._wanted.upto_seq:
            self._out.remark(
                f"up to seq {exported.upto_seq}: seq {self._wanted.upto_seq} is in the "
                "middle of a record of its source"
            )
        for label, count in exported.lost.items():
            self._out.remark(f"lost: {count} {label}")
        if exported.outside:
            self._out.remark(
                f"{exported.outside} references to other sessions, which it does not hold"
            )
        if exported.redacted:
            self._out.remark(f"{exported.redacted} facts with placeholders for secrets")


def _source_view(exported: "Exported") -> dict[str, Any]:
    return {
        "upto_seq": exported.upto_seq,
        "source": exported.system,
        "records": exported.records,
        "lossless": exported.lossless,
        "lost": exported.lost,
        "examples": exported.examples,
        "outside": exported.outside,
        "redacted": exported.redacted,
    }


def _say(context: Context, wanted: _Wanted, summary: dict[str, Any]) -> None:
    """What was written, and where."""
    from foldline.cli.clean import clean_line  # late: --help does without

    view = {
        "session_id": wanted.session_id,
        "upto_seq": wanted.upto_seq,
        "format": wanted.format,
        "output": str(wanted.output),
    }
    view |= summary
    if context.out.json:
        context.out.record(view)
        return
    upto, size, where = view["upto_seq"], view["bytes"], clean_line(str(wanted.output))
    context.out.line(
        (f"{where}: ", "bold"),
        (f"{wanted.session_id} up to seq {upto}, {size:,} bytes", ""),
    )
