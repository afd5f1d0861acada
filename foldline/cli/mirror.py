"""`foldline mirror`: transcripts of other harnesses, followed as they grow."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foldline.cli.context import Context, must_be_there, redactor_of
from foldline.cli.failures import INTERRUPTED, NO, OK, UsageError
from foldline.cli.signals import stop_on_signals

if TYPE_CHECKING:
    from foldline.cli.output import Output
    from foldline.processors.log import Log
    from foldline.producers.followed import Said, Totals
    from foldline.producers.mirroring import Mirroring

INTERVAL_MAX_MS = 3_600_000

NAMED_SESSIONS = 3


def mirror(
    *path: Path,
    once: bool = False,
    no_hooks: bool = False,
    interval_ms: int | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Follow transcripts of Claude Code and Codex as they grow, until SIGTERM or Ctrl-C.

    What comes into the log is what `foldline import` of the finished files gives, and an
    import after it adds nothing. Files may be cut, replaced, renamed or torn, and this may
    be killed: nothing is recorded twice, nothing that was recorded is removed. A log that
    is away is waited for. What `foldline hook` left is recorded too, and the transcripts
    that it names are followed: without PATH, only those. With --json an object per line:
    `kind` (ready, recorded, alarm, failed, hooks, waiting, back, done). Exit code 1 if a
    file shrank or was rewritten: both are kept, and somebody should look. With --once also
    1 if a file could not be followed or a hook not be recorded, and 130 if it was stopped
    before its end.

    Args:
        path: Files, or folders in which every *.jsonl is followed, new ones too.
        once: End when everything that is there by now is recorded.
        no_hooks: Leave what hooks told where it is.
        interval_ms: How often files are looked at, in milliseconds (500).
        context: Where to read and write.
    """
    from foldline.producers.mirroring import POLL_INTERVAL_MS  # late: --help does without

    if not path and no_hooks:
        raise UsageError("mirror", "a file or a folder, for example ~/.claude/projects")
    must_be_there(path)
    interval_ms = POLL_INTERVAL_MS if interval_ms is None else interval_ms
    if not 1 <= interval_ms <= INTERVAL_MAX_MS:
        raise UsageError("--interval-ms", f"1 to {INTERVAL_MAX_MS}")
    running = _Running(context, path, hooks=not no_hooks)
    stop_on_signals(running.stop)
    totals = running.once() if once else running.until_stopped(interval_ms)
    _show_done(context.out, totals)
    if running.cut_short:
        return INTERRUPTED
    return NO if totals.alarms or (once and totals.failed) else OK


class _Running:
    """The mirror of one command, and what it says while its log is away.

    Log and mirror are made once, as soon as the log answers. Where it is away after that,
    the same mirror goes on when it is back: what was under way begins anew.
    """

    def __init__(self, context: Context, paths: tuple[Path, ...], *, hooks: bool) -> None:
        self._context = context
        self._out = context.out
        self._paths = paths
        self._hooks = hooks
        self._stopping = threading.Event()
        self._away = 0
        self._ready = False
        self.cut_short = False
        """Whether `once` was stopped before all was recorded."""

    def stop(self) -> None:
        """Come to an end behind what is under way."""
        self._stopping.set()

    def once(self) -> "Totals":
        """Record everything that is there by now."""
        with ExitStack() as opened:
            mirroring = self._begun(opened)
            while mirroring.round():
                if self._stopping.is_set():
                    self.cut_short = True
                    break
                self._show_progress(mirroring)
        return mirroring.totals

    def until_stopped(self, interval_ms: int) -> "Totals":
        """Follow until it is told to stop, over every absence of the log.

        1. Open the log, and go round: at once while there is more, else after a pause.
        2. Where it gives no answer, say so, wait, and go round again.
        3. At the end write the positions.
        """
        from foldline.errors import FoldlineError  # late: see above

        mirroring = None
        with ExitStack() as opened:
            while not self._stopping.is_set():
                try:
                    if mirroring is None:
                        mirroring = self._begun(opened)
                    more = mirroring.round()
                    self._say_running(mirroring)
                except FoldlineError as error:
                    if not error.retryable:
                        raise
                    self._wait_for_log(error)
                    continue
                self._show_progress(mirroring)
                if not more:
                    self._stopping.wait(interval_ms / 1000)
        return mirroring.totals if mirroring is not None else _nothing()

    def _begun(self, opened: ExitStack) -> "Mirroring":
        """A log that is open, and its mirror; both are closed with the stack."""
        with ExitStack() as tried:
            mirroring = self._mirroring(tried.enter_context(self._context.writing()))
            tried.callback(mirroring.close)
            opened.push(tried.pop_all())
        return mirroring

    def _mirroring(self, log: "Log") -> "Mirroring":
        from foldline.producers.mirroring import Mirroring  # late: see above
        from foldline.producers.spool import spool_of

        settings = self._context.settings()
        return Mirroring(
            log,
            self._paths,
            settings=settings,
            redactor=redactor_of(log, settings),
            say=_say_to(self._out),
            stopped=self._stopping.is_set,
            spool=spool_of(settings.url) if self._hooks else None,
        )

    def _say_running(self, mirroring: "Mirroring") -> None:
        """Say that it runs: behind the first round, and when the log is back."""
        if self._ready and not self._away:
            return
        kind = "back" if self._away else "ready"
        self._ready, self._away = True, 0
        self._out.end_progress()
        if self._out.json:
            self._out.record({"kind": kind} | asdict(mirroring.totals))
        else:
            self._out.remark(
                "the log is back" if kind == "back" else _line_of(mirroring.totals)
            )
        self._out.flush()

    def _wait_for_log(self, error: Exception) -> None:
        from foldline.producers.mirroring import RETRY_MS  # late: see above

        wait_ms = RETRY_MS[min(self._away, len(RETRY_MS) - 1)]
        if self._away == 0:
            self._out.end_progress()
            if self._out.json:
                self._out.record({"kind": "waiting", "detail": str(error)})
                self._out.flush()
            self._out.remark(f"waiting for the log: {error}")
        self._away += 1
        self._stopping.wait(wait_ms / 1000)

    def _show_progress(self, mirroring: "Mirroring") -> None:
        if (show := self._out.progress()) is not None:
            show(_line_of(mirroring.totals))


def _nothing() -> "Totals":
    from foldline.producers.followed import Totals  # late: see above

    return Totals()


def _say_to(out: "Output") -> "Callable[[Said], None]":
    """What writes each happening at once: a mirror is watched."""

    def say(said: "Said") -> None:
        out.end_progress()
        if out.json:
            out.record(asdict(said))
        else:
            _show(out, said)
        out.flush()

    return say


def _show(out: "Output", said: "Said") -> None:
    from foldline.cli.clean import clean_line  # late: --json does without

    path = clean_line(said.path)
    match said.kind:
        case "recorded":
            more = len(said.session_ids) - NAMED_SESSIONS
            names = ", ".join(said.session_ids[:NAMED_SESSIONS])
            names += f" and {more} more" if more > 0 else ""
            out.line((f"{said.events:>7,} events ", "bold"), (path, ""))
            out.line(("        session ", "dim"), (clean_line(names), ""))
        case "hooks":
            out.line((f"{said.events:>7,} hooks", "bold"))
        case "alarm":
            out.line(("  ALARM ", "red"), (f"{path}: {clean_line(said.detail)}", ""))
        case _:
            out.remark(f"cannot follow {path}: {clean_line(said.detail)}")


def _line_of(totals: "Totals") -> str:
    return (
        f"following {totals.files:,} files, {totals.events:,} events recorded, "
        f"{totals.hooks:,} hooks, {totals.hooks_waiting:,} wait"
    )


def _show_done(out: "Output", totals: "Totals") -> None:
    out.end_progress()
    if out.json:
        out.record({"kind": "done"} | asdict(totals))
        return
    out.line((f"{totals.files:,} files", "bold"), (_rest_of(totals), ""))


def _rest_of(totals: "Totals") -> str:
    counts = (
        (totals.hooks, "hooks"),
        (totals.hooks_waiting, "hooks wait for their transcript"),
        (totals.held, "files do not say yet what they are"),
        (totals.failed - totals.hooks_refused, "files cannot be followed"),
        (totals.hooks_refused, "hooks cannot be recorded"),
        (totals.alarms, "alarms"),
    )
    said = "".join(f", {count:,} {name}" for count, name in counts if count)
    return f", {totals.events:,} events recorded{said}"
