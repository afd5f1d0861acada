"""A session of `tests.charging` that processes work on, are killed, frozen, woken."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from foldline.errors import LiveOwnerError
from foldline.processors.open_log import open_log
from foldline.producers.client import connect
from foldline.producers.tools import Effect
from foldline.schemas.events import ToolExecutionFailed
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState
from foldline.settings import Settings
from tests import charging

ROOT = Path(__file__).resolve().parents[1]

START_BY_MS = 300
LIMIT_S = 120


@dataclass(slots=True)
class Run:
    """One session that processes work on, one after the other."""

    url: str
    folder: Path
    effect: Effect
    session_id: str = "charging"
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """What its processes need besides."""

    @property
    def ledger(self) -> Path:
        """Its effects."""
        return self.folder / "ledger"

    def start(self, command: str, **settings: str) -> subprocess.Popen[str]:
        """Start a process of the harness."""
        own = {k: v for k, v in os.environ.items() if not k.startswith("FOLDLINE_")}
        given = {f"FOLDLINE_{name}": value for name, value in settings.items()}
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.charging",
                command,
                self.url,
                self.session_id,
                str(self.ledger),
                self.effect,
            ],
            cwd=ROOT,
            env=own
            | {"FOLDLINE_START_BY_MS": str(START_BY_MS)}
            | dict(self.environment)
            | given,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, command: str, **settings: str) -> tuple[int, list[str]]:
        """Run a process to its end: exit code, and what it said."""
        process = self.start(command, **settings)
        said, _ = process.communicate(timeout=LIMIT_S)
        return process.returncode, said.splitlines()

    def events(self) -> list[Recorded]:
        """All that is recorded."""
        log = open_log(self.url)
        events = list(log.events(self.session_id))
        log.close()
        return events

    def state(self) -> SessionState:
        """What has become of it."""
        log = open_log(self.url)
        state = log.state(self.session_id)
        log.close()
        assert state is not None
        return state

    def check(self, *said: str) -> None:
        """What was acknowledged is there once; the effect happened at most once."""
        events = self.events()
        ids = Counter(recorded.envelope.event_id for recorded in events)
        assert set(ids.values()) == {1}
        acknowledged = {line.split()[1] for line in said if line.startswith("acked ")}
        assert acknowledged <= set(ids)
        assert [recorded.seq for recorded in events] == list(range(1, len(events) + 1))
        effects = charging.ledger_of(self.ledger)
        assert len(set(effects)) <= 1
        if self.effect != "IDEMPOTENT":
            assert len(effects) <= 1
        assert events[-1].type == "SessionCompleted"


async def finish(run: Run) -> None:
    """Take the session over in this process, and go on to its end."""
    settings = Settings(start_by_ms=START_BY_MS)
    async with connect(run.url, settings=settings) as client:
        tools = charging.toolbox(run.ledger, run.effect)
        await charging.finish(client, run.session_id, tools)


@contextmanager
def frozen(run: Run, **settings: str) -> Generator[subprocess.Popen[str]]:
    """A harness that has frozen itself; it wakes by SIGCONT, and is gone in the end."""
    process = run.start("run", **settings)
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        yield process
    finally:
        process.kill()
        process.wait()


def wake(process: subprocess.Popen[str]) -> list[str]:
    """Let it go on to its end, and give what it said."""
    process.send_signal(signal.SIGCONT)
    said, _ = process.communicate(timeout=LIMIT_S)
    return said.splitlines()


async def take_from_the_silent(run: Run) -> None:
    """Take over as soon as the lease has run out, and finish."""
    while True:
        try:
            await finish(run)
        except LiveOwnerError as alive:
            await asyncio.sleep(alive.expires_in_ms / 1000)
        else:
            return


def check_no_effect_past_its_start_by(run: Run) -> None:
    """Freeze a harness between the verdict of a start and its effect, past start_by."""
    with frozen(run, STOP_AT="CP_TOOL_AFTER_START:1") as process:
        time.sleep(START_BY_MS / 1000)
        said = wake(process)
    assert "result Failed StartTooLateError" in said
    assert charging.ledger_of(run.ledger) == []
    (failed,) = [
        recorded.event
        for recorded in run.events()
        if isinstance(recorded.event, ToolExecutionFailed)
    ]
    assert (failed.executed, failed.layer) == ("NO", "HARNESS")
    run.check(*said)
