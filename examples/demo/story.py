"""The demo, told to a person: what was certain, what was unknown, who was asked."""

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from checks import Findings
from rich.console import Console
from stage import Ending, Played

from foldline.cli.clean import clean_line
from foldline.events import (
    Recorded,
    SessionCompleted,
    SessionCreated,
    SessionResumed,
    ToolCallRequested,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionStarted,
    ToolOutcomeResolved,
    text_of,
)
from foldline.logs import EXECUTING, Call, SessionState
from foldline.tools import parse_arguments

DETAIL_CHARS = 60


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was recorded. `at` is log time in microseconds since 1970."""

    at: int
    seq: int
    what: str
    detail: str


class Story:
    """Tells what was played and found."""

    def __init__(self, played: Played, found: Findings) -> None:
        self._played = played
        self._found = found
        self._console = Console(highlight=False, emoji=False, soft_wrap=True)
        self._lines = list(_lines(found.recorded))
        self._began_at = self._lines[0].at if self._lines else played.first.ended_at

    def tell(self, wrong: list[str]) -> None:
        """Print it all."""
        first, second = self._played.first, self._played.second
        died_after = self._played.between.seq if self._played.between else 0
        self._heading("An agent repairs a package and mails a customer, exactly once.")
        self._heading(f"\nProcess 1 (pid {first.pid})")
        self._show(line for line in self._lines if line.seq <= died_after)
        if second is not None:
            self._death(first)
            self._between()
            self._heading(f"\nProcess 2 (pid {second.pid}){_awake(second)}")
            self._show(line for line in self._lines if line.seq > died_after)
        self._conclusion(wrong)
        self._way_on()

    def _show(self, lines: Iterable[Line]) -> None:
        for line in lines:
            detail = clean_line(line.detail, max_chars=DETAIL_CHARS)
            head = f"{self._second(line.at)}  #{line.seq:<3}"
            self._say(f"{head}  {clean_line(line.what):<12} {detail}")

    def _death(self, process: Ending) -> None:
        why = self._played.scene.crash_at or "the mail is out, the answer on its way"
        when = self._second(process.ended_at)
        self._say(f"{when}        {'SIGKILL':<12} {why}", style="bold red")

    def _between(self) -> None:
        """What anybody can know of process 1 now."""
        self._heading("\nWhat the log knows of process 1, which is gone")
        state = self._played.between
        if state is None:
            self._say("nothing: it died before there was a session")
            return
        here = self._played.scene.url.startswith(("sqlite:", "jsonl:"))
        kept = "fsynced" if here else "committed"
        self._say(f"certain: {state.seq} events, {kept}, and all that they say")
        for call in _open(state):
            self._say(f"unknown: {call.tool} began (#{call.started_seq}); did it happen?")
            self._say(f"         it is {call.effect}: {_ANSWERS[call.effect]}")
        if not _open(state):
            self._say("unknown: nothing, no tool was running")

    def _conclusion(self, wrong: list[str]) -> None:
        found = self._found
        self._heading("\nChecked afterwards, from outside")
        plural = "" if found.mails == 1 else "s"
        self._say(f"the post office has sent {found.mails} mail{plural}")
        self._say(f"the repository's tests: {found.tests}")
        self._say(f"its last commit: {found.commit or 'none, this machine has no git'}")
        checked = f"{found.verified.events} events: hash chain, states, snapshots"
        self._say(f"{'verified' if found.verified.ok else 'NOT VERIFIED'} {checked}")
        for problem in wrong:
            self._say(f"WRONG: {problem}", style="bold red")

    def _way_on(self) -> None:
        scene = self._played.scene
        command = _foldline()
        self._heading("\nLook around")
        self._say(f"export FOLDLINE_URL={scene.url}")
        for rest in (f"show {scene.session_id}", f"events {scene.session_id}", "verify"):
            self._say(f"{command} {rest}")

    def _heading(self, text: str) -> None:
        self._console.print(text, style="bold", markup=False)

    def _say(self, text: str, *, style: str = "") -> None:
        self._console.print(f"  {text}".rstrip(), style=style, markup=False)

    def _second(self, at: int) -> str:
        return f"{(at - self._began_at) / 1_000_000:6.2f} s"


_ANSWERS = {
    "READ_ONLY": "run it again",
    "IDEMPOTENT": "run it again, under the same operation_id",
    "RECONCILABLE": "ask, by operation_id, and never guess",
    "UNSAFE": "a person decides",
}
"""What recovery does about an unknown outcome, by the tool's effect."""


def _open(state: SessionState) -> list[Call]:
    return [call for call in state.calls.values() if call.status in EXECUTING]


def _lines(recorded: list[Recorded]) -> Iterator[Line]:
    """What a person wants to see of the events: a line per call, begin and end of all."""
    asked: dict[str, ToolCallRequested] = {}
    ended = {
        event.call_id
        for event in (one.event for one in recorded)
        if isinstance(event, ToolExecutionCompleted | ToolExecutionFailed)
    }
    for one in recorded:
        at, seq, event = one.envelope.recorded_at, one.seq, one.event
        match event:
            case SessionCreated():
                yield Line(at, seq, "created", f"epoch {one.envelope.epoch}")
            case ToolCallRequested():
                asked[event.call_id] = event
            case ToolExecutionStarted() if event.call_id not in ended:
                detail = f"operation {event.operation_id} begins"
                yield Line(at, seq, asked[event.call_id].tool, detail)
            case ToolExecutionCompleted():
                request = asked[event.call_id]
                detail = _path(request) or _last_line(text_of(event.output))
                yield Line(at, seq, request.tool, detail)
            case ToolExecutionFailed():
                yield Line(at, seq, asked[event.call_id].tool, text_of(event.blocks))
            case SessionResumed():
                yield Line(at, seq, "takes over", f"epoch {one.envelope.epoch}")
            case ToolOutcomeResolved():
                detail = f"{event.outcome}: {text_of(event.evidence)}"
                yield Line(at, seq, "tool asked", detail)
            case SessionCompleted():
                yield Line(at, seq, "completed", "")
            case _:
                pass


def _path(request: ToolCallRequested) -> str:
    arguments, _ = parse_arguments(text_of(request.arguments))
    return str((arguments or {}).get("path", ""))


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2]


def _awake(process: Ending) -> str:
    wake_ms = process.said.get("wake_ms")
    return "" if wake_ms is None else f", {wake_ms} ms from take to context"


def _foldline() -> str:
    """The command as this shell finds it."""
    command = Path(sys.executable).with_name("foldline")
    if str(command.parent) in os.environ.get("PATH", "").split(os.pathsep):
        return "foldline"
    here = Path.cwd()
    inside = command.is_relative_to(here)
    return str(command.relative_to(here) if inside else command)
