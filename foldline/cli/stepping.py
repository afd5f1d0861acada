"""`foldline replay --step`: a debugger's walk through what each event changed.

A listing where nobody is at a terminal; there, one event at a time.
"""

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from foldline.cli.clean import clean_line
from foldline.cli.failures import NO, OK
from foldline.processors.fold import copy_of
from foldline.projections.changes import Change, changes
from foldline.projections.refold import Point, Refold, stored_session
from foldline.schemas.snapshots import state_hash

if TYPE_CHECKING:
    from foldline.cli.output import Output
    from foldline.processors.stored import AuditableLog

PROMPT = "(n)ext, (b)ack, (g)o SEQ, (q)uit > "
HELP = "n or Enter: the next event; b: the one before; g SEQ: that one; q: the end"

SAID_ALREADY = frozenset({"seq", "recorded_at"})
"""What changes with every event; its own line says it."""

Ask = Callable[[str], str]
"""Asks for a line; raises EOFError where there is none."""


class Step:
    """One event: what it changed, and the hash of the state after it."""

    def __init__(self, point: Point, changed: list[Change], digest: str) -> None:
        self.seq = point.seq
        self.type = point.recorded.type if point.recorded else ""
        self.problems = point.problems
        self.changes = changed
        self.state_hash = digest

    def show(self, out: "Output") -> None:
        """Print it: a line for the event, and one per field."""
        if out.json:
            out.record(self._view())
            return
        digest = f"  {self.state_hash[:16]}"
        out.line((f"#{self.seq} ", "bold"), (self.type or "?", "cyan"), (digest, "dim"))
        for problem in self.problems:
            out.line(("    " + clean_line(problem), "red"))
        for change in self.changes:
            if change.path in SAID_ALREADY:
                continue
            out.line(
                (f"    {clean_line(change.path)}: ", ""),
                (_shown(change.before), "red"),
                (" -> ", "dim"),
                (_shown(change.after), "green"),
            )

    def _view(self) -> dict[str, Any]:
        return {
            "seq": self.seq,
            "type": self.type or None,
            "state_hash": self.state_hash or None,
            "problems": list(self.problems),
            "changes": [
                {"path": change.path, "before": change.before, "after": change.after}
                for change in self.changes
            ],
        }


def _shown(value: object) -> str:
    return "none" if value in (None, "") else clean_line(str(value))


def walk(out: "Output", log: "AuditableLog", session_id: str) -> int:
    """Walk through a session, as a listing or with whoever is at the terminal."""
    found = steps(Refold(log, stored_session(log, session_id)))
    if not out.json and sys.stdin.isatty() and sys.stdout.isatty():
        return Walk(out, found, input).run()
    bad = False
    for step in found:
        step.show(out)
        bad = bad or bool(step.problems)
    return NO if bad else OK


def steps(refold: Refold) -> Iterator[Step]:
    """What each event of a session changed."""
    before = copy_of(refold.state)
    for point in refold.points():
        after = copy_of(refold.state)
        digest = state_hash(after).hex() if point.recorded else ""
        yield Step(point, changes(before, after), digest)
        before = after


class Walk:
    """A walk back and forth; what was seen is kept, so that going back costs nothing."""

    def __init__(self, out: "Output", found: Iterator[Step], ask: Ask) -> None:
        self._out = out
        self._ask = ask
        self._found = found
        self._seen: list[Step] = []
        self._at = -1

    def run(self) -> int:
        """Show events as they are asked for, until the end is."""
        self._go_on()
        while True:
            try:
                word, _, rest = self._ask(PROMPT).strip().partition(" ")
            except EOFError:
                break
            if word in ("q", "quit"):
                break
            self._do(word or "n", rest)
        bad = any(step.problems for step in self._seen)
        return NO if bad else OK

    def _do(self, word: str, rest: str) -> None:
        match word:
            case "n" | "next":
                self._go_on()
            case "b" | "back" if self._at > 0:
                self._show(self._at - 1)
            case "b" | "back":
                self._out.line(("this is the first event", "dim"))
            case "g" | "go" if rest.strip().isdecimal():
                self._go_to(int(rest))
            case _:
                self._out.line((HELP, "dim"))
        self._out.flush()

    def _go_on(self) -> None:
        if self._at + 1 < len(self._seen) or self._read():
            self._show(self._at + 1)
        else:
            self._out.line(("this is the last event", "dim"))
        self._out.flush()

    def _go_to(self, seq: int) -> None:
        while (not self._seen or self._seen[-1].seq < seq) and self._read():
            pass
        for at, step in enumerate(self._seen):
            if step.seq == seq:
                self._show(at)
                return
        self._out.line((f"no event at seq {seq}", "dim"))

    def _read(self) -> bool:
        step = next(self._found, None)
        if step is not None:
            self._seen.append(step)
        return step is not None

    def _show(self, at: int) -> None:
        self._at = at
        self._seen[at].show(self._out)
