"""The course of one seed: processes that are forked, killed, frozen and woken.

This process has no thread, no event loop and no log of its own; so a life that it forks
costs milliseconds, with everything imported. It does, in this order:

1. People begin to talk.
2. Harnesses and recoveries are forked, each with a fate drawn from the seed: dead at a
   named point, dead at a random moment, frozen at a point or a moment, or none.
3. Whoever lives is killed; whoever is frozen wakes, long after its lease ran out.
4. A last process, beside the woken, brings all sessions to an end, or to a question.
5. Of the woken, harnesses come to their end, and recoveries are killed: what one of them
   had in its hands then, another last process brings to an end.
"""

import asyncio
import gc
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import storm_lives as lives
from storm_script import Script

from foldline import faults

Life = Callable[[], Coroutine[Any, Any, None]]

DISTURBED_MAX = 4
"""How many more lives there are than sessions, at the most."""

PACE_ON_KAFKA = 12
"""How many times longer a life is there, where connecting alone takes a while."""

PEACE_LIMIT_S = 120
WOKEN_LIMIT_S = 20
LOOK_EVERY_S = 0.02

AROUND_EFFECTS = 0.4
AROUND_SETTLING = 0.2
"""How many of the named points are around an effect, and around the settling of one."""

MORE_S = 0.3
"""How long the last lives have, before whoever is not frozen is killed."""

PASSED_MAX = 3
"""How often a named point is passed before it counts, at the most."""

LOCKED = ("CP_APPEND_BEFORE_COMMIT", "CP_APPEND_AFTER_COMMIT")
"""Frozen in the first, a process holds a file's lock: nobody appends until it wakes."""

_ELSEWHERE = ("CP_WORKER", "CP_RESTORE", "CP_IMPORT", "CP_SUBAGENT")
_ON_KAFKA = "CP_KAFKA"
_EFFECTS = "CP_TOOL"
_SETTLING = "CP_RECOVER"


class StormError(Exception):
    """A seed that came to no good end."""


@dataclass(slots=True)
class Course:
    """One seed while it goes on."""

    url: str
    script: Script
    kills: int = 0
    freezes: int = 0
    living: dict[int, str] = field(default_factory=dict[int, str])
    frozen: set[int] = field(default_factory=set[int])
    failed: list[str] = field(default_factory=list[str])
    chance: random.Random = field(init=False)
    pace: int = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"storm {self.script.seed}")
        self.pace = PACE_ON_KAFKA if self._on_kafka else 1

    @property
    def _on_kafka(self) -> bool:
        return self.url.startswith("kafka")

    def run(self) -> None:
        """All of it.

        Raises:
            StormError: a process failed, or peace came to no end.
        """
        people = self._start("people", lambda: lives.people(self.url, self.script))
        try:
            self._disturb()
            self._end_whoever_lives(but=people)
            self._peace()
        finally:
            self._kill_all()
        if self.failed:
            raise StormError("; ".join(self.failed))

    # --- what is disturbed -----------------------------------------------------------

    def _disturb(self) -> None:
        chance = self.chance
        begun = [self._harness(name) for name in self.script.sessions]
        chance.shuffle(begun)
        more = chance.randint(2, DISTURBED_MAX)
        later = [
            self._harness(chance.choice(self.script.sessions))
            if chance.random() < 0.4
            else ("recovery", lambda: lives.recovery(self.url, self.script))
            for _ in range(more)
        ]
        for name, life in begun + later:
            self._live(name, life)

    def _harness(self, session_id: str) -> tuple[str, Life]:
        return "harness", lambda: lives.harness(self.url, self.script, session_id)

    def _live(self, name: str, life: Life) -> None:
        """One life and its fate; the next begins a little later, beside it or after it."""
        fate = self.chance.random()
        moment_s = self.pace * (0.02 + 0.35 * self.chance.random())
        point = self._point()
        if fate < 0.45:
            self._start(name, life, {"FOLDLINE_CRASH_AT": point})
        elif fate < 0.6:
            self._start(name, life, {"FOLDLINE_STOP_AT": point.replace(*LOCKED)})
        else:
            pid = self._start(name, life)
            self._wait(moment_s)
            if fate < 0.75:
                self._signal(pid, signal.SIGKILL)
            elif fate < 0.9:
                self._signal(pid, signal.SIGSTOP)
        self._wait(self.pace * 0.25 * self.chance.random())

    def _point(self) -> str:
        """A crash point, more often than not where effects are, and which passing of it."""
        apart = _ELSEWHERE if self._on_kafka else (*_ELSEWHERE, _ON_KAFKA)
        names = sorted(n for n in faults.CRASH_POINTS if not n.startswith(apart))
        where = self.chance.random()
        if where < AROUND_EFFECTS:
            names = [name for name in names if name.startswith(_EFFECTS)]
        elif where < AROUND_EFFECTS + AROUND_SETTLING:
            names = [name for name in names if name.startswith(_SETTLING)]
        return f"{self.chance.choice(names)}:{self.chance.randint(1, PASSED_MAX)}"

    # --- peace -----------------------------------------------------------------------

    def _end_whoever_lives(self, *, but: int) -> None:
        self._wait(self.pace * MORE_S)
        for pid in set(self.living) - self.frozen - {but}:
            self._signal(pid, signal.SIGKILL)
        if self.frozen:
            self._wait(lives.LEASE_TTL_MS / 1000 * self.chance.random() * 2)

    def _peace(self) -> None:
        woken = set(self.frozen)
        for pid in woken:
            self._signal(pid, signal.SIGCONT)
        self._make_peace()
        if not self.failed and woken & self.living.keys():
            self._end_the_woken(woken)
            self._make_peace()

    def _make_peace(self) -> None:
        pid = self._start("peace", lambda: lives.peace(self.url, self.script))
        if not self._until(lambda: pid not in self.living, PEACE_LIMIT_S):
            raise StormError("nobody came to an end")

    def _end_the_woken(self, woken: set[int]) -> None:
        """A recovery goes on for ever; it may have just taken a session."""
        harnesses = {p for p in woken if self.living.get(p) == "harness"}
        self._until(lambda: not harnesses & self.living.keys(), WOKEN_LIMIT_S)
        for pid in woken:
            self._signal(pid, signal.SIGKILL)
        self._until(lambda: not woken & self.living.keys(), WOKEN_LIMIT_S)

    # --- processes -------------------------------------------------------------------

    def _start(self, name: str, life: Life, fate: Mapping[str, str] | None = None) -> int:
        pid = os.fork()
        if not pid:
            _be(life, fate or {}, self.script)
        self.living[pid] = name
        return pid

    def _signal(self, pid: int, number: int) -> None:
        if pid in self.living:
            os.kill(pid, number)

    def _wait(self, seconds: float) -> None:
        self._until(lambda: False, seconds)

    def _until(self, done: Callable[[], bool], limit_s: float) -> bool:
        until_s = time.monotonic() + limit_s
        while True:
            self._look()
            if done():
                return True
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(LOOK_EVERY_S, left_s))

    def _look(self) -> None:
        """Who has died, or stands still."""
        for pid, name in list(self.living.items()):
            found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if not found:
                continue
            if os.WIFSTOPPED(status):
                self.frozen.add(pid)
                self.freezes += 1
            elif os.WIFCONTINUED(status):
                self.frozen.discard(pid)
            else:
                self._gone(pid, name, status)

    def _gone(self, pid: int, name: str, status: int) -> None:
        del self.living[pid]
        self.frozen.discard(pid)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            self.kills += 1
        elif status:
            ended = os.waitstatus_to_exitcode(status)
            self.failed.append(f"{name} {pid} ended with {ended}")

    def _kill_all(self) -> None:
        """Whoever is left. These are no kills of the storm: it is over."""
        for pid in self.living:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.living.clear()


def _be(life: Life, fate: Mapping[str, str], script: Script) -> NoReturn:
    """Live it, in the forked process, and end with it."""
    code = 1
    try:
        gc.disable()  # too short a life for it to be worth while
        errors = os.open(
            script.folder / "lives.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644
        )
        os.dup2(errors, 2)
        faults.arm(fate)
        asyncio.run(life())
        code = 0
    except BaseException:  # noqa: BLE001 - it is this process's end, and is told
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
