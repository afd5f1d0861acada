"""Workers of a Kafka log, killed at random while a storm goes on.

A process of its own keeps them: it starts two, kills one at a random moment or at a named
point of its batch, and starts it again, until the storm is over.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from foldline.faults import CRASH_POINTS

SLOTS = ("storm-a", "storm-b")
READY = "is ready"
READY_LIMIT_S = 60
BETWEEN_S = (2.0, 6.0)
POINTED = 0.5
"""How many of the kills are at a named point, not at any moment."""

LOOK_EVERY_S = 0.05
_COMMAND = "import sys; from foldline.cli import main; sys.exit(main())"
_POINTS = sorted(name for name in CRASH_POINTS if name.startswith("CP_WORKER"))


@dataclass(slots=True)
class _Keeper:
    """Keeps the workers of one log."""

    url: str
    folder: Path
    chance: random.Random = field(default_factory=random.Random)
    kills: int = 0
    workers: dict[str, "subprocess.Popen[bytes]"] = field(
        default_factory=dict[str, "subprocess.Popen[bytes]"]
    )

    def keep(self) -> None:
        """Start them, and disturb them until this process is told to end."""
        try:
            for slot in SLOTS:
                self._start(slot, "")
            for slot in SLOTS:
                self._wait_ready(slot)
            (self.folder / "workers-ready").touch()
            while True:
                self._disturb(self.chance.choice(SLOTS))
        finally:
            for worker in self.workers.values():
                worker.kill()
                worker.wait()
            (self.folder / "workers-killed").write_text(str(self.kills), encoding="utf-8")

    def _disturb(self, slot: str) -> None:
        until_s = time.monotonic() + self.chance.uniform(*BETWEEN_S)
        while time.monotonic() < until_s:
            time.sleep(LOOK_EVERY_S)
            self._raise_the_dead()
        if self.chance.random() > POINTED:
            self.workers[slot].kill()
            self.workers[slot].wait()

    def _raise_the_dead(self) -> None:
        for slot, worker in self.workers.items():
            if worker.poll() is not None:
                self.kills += worker.returncode == -signal.SIGKILL
                point = f"{self.chance.choice(_POINTS)}:{self.chance.randint(5, 60)}"
                self._start(slot, point if self.chance.random() < POINTED else "")

    def _said(self, slot: str) -> Path:
        return self.folder / f"{slot}.log"

    def _start(self, slot: str, crash_at: str) -> None:
        own = {
            "FOLDLINE_URL": self.url,
            "FOLDLINE_WORKER_SLOT": slot,
            "FOLDLINE_STATE_DIR": str(self.folder / slot),
            "FOLDLINE_CRASH_AT": crash_at,
        }
        with self._said(slot).open("ab") as said:
            self.workers[slot] = subprocess.Popen(
                [sys.executable, "-c", _COMMAND, "worker"],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                env={**os.environ, **own},
            )

    def _wait_ready(self, slot: str) -> None:
        until_s = time.monotonic() + READY_LIMIT_S
        while READY not in self._said(slot).read_text(encoding="utf-8"):
            assert time.monotonic() < until_s, self._said(slot)
            time.sleep(LOOK_EVERY_S)


@contextmanager
def workers_killed(url: str, folder: Path) -> Generator[list[int]]:
    """Workers while this is entered; the list holds how many were killed, afterwards."""
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            _Keeper(url, folder).keep()
        finally:
            os._exit(0)
    killed: list[int] = []
    try:
        _await_ready(pid, folder)
        yield killed
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        killed.append(int((folder / "workers-killed").read_text(encoding="utf-8")))


def _await_ready(pid: int, folder: Path) -> None:
    while not (folder / "workers-ready").exists():
        found, _ = os.waitpid(pid, os.WNOHANG)
        assert not found, f"the workers did not begin: see {folder}"
        time.sleep(LOOK_EVERY_S)
