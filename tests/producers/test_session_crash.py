"""Killed at every point and resumed by another process: nothing lost, nothing twice."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from foldline.errors import LiveOwnerError
from foldline.processors.open_log import open_log
from foldline.producers.client import connect
from foldline.producers.tools import Effect
from foldline.schemas.events import (
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolOutcomeUnknown,
)
from foldline.schemas.recorded import Recorded
from foldline.settings import Settings
from tests import charging

ROOT = Path(__file__).resolve().parents[2]
EFFECTS: tuple[Effect, ...] = ("IDEMPOTENT", "RECONCILABLE", "UNSAFE")
TOOL_POINTS = (
    "CP_TOOL_BEFORE_START",
    "CP_TOOL_AFTER_START",
    "CP_TOOL_AFTER_EFFECT",
    "CP_TOOL_AFTER_OUTCOME",
)
APPENDS = 8
"""How many transactions the first owner makes: creation, turn, model, answer, ..."""

START_BY_MS = 300
LIMIT_S = 120

pytestmark = pytest.mark.crash


@dataclass(slots=True)
class Run:
    """One session that processes work on, one after the other."""

    folder: Path
    effect: Effect

    @property
    def url(self) -> str:
        """Its log."""
        return f"sqlite:///{self.folder}/sessions.db"

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
                str(self.ledger),
                self.effect,
            ],
            cwd=ROOT,
            env=own | {"FOLDLINE_START_BY_MS": str(START_BY_MS)} | given,
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
        events = list(log.events(charging.SESSION))
        log.close()
        return events

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
        await charging.finish(client, charging.toolbox(run.ledger, run.effect))


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("point", TOOL_POINTS)
async def test_a_harness_killed_around_an_effect_is_finished_by_another(
    tmp_path: Path, effect: Effect, point: str
) -> None:
    """The side effect happens at most once, and exactly once where one can know."""
    run = Run(tmp_path, effect)
    code, said = run.run("run", CRASH_AT=f"{point}:1")
    assert code == -signal.SIGKILL
    await finish(run)
    run.check(*said)
    happened = len(charging.ledger_of(run.ledger))
    unknown = [r for r in run.events() if isinstance(r.event, ToolOutcomeUnknown)]
    unsure = effect == "UNSAFE" and point in ("CP_TOOL_AFTER_START", "CP_TOOL_AFTER_EFFECT")
    assert len(unknown) == unsure
    if not unsure:
        assert happened == (2 if (effect, point) == _REPEATED else 1)


_REPEATED = ("IDEMPOTENT", "CP_TOOL_AFTER_EFFECT")
"""Where an effect is repeated, under the same operation_id: it may be."""


@pytest.mark.parametrize("number", range(1, APPENDS + 1))
@pytest.mark.parametrize("point", ["CP_APPEND_BEFORE_SEND", "CP_APPEND_AFTER_VERDICT"])
async def test_a_harness_killed_around_an_append_loses_nothing_acknowledged(
    tmp_path: Path, point: str, number: int
) -> None:
    """Row 1: not acknowledged is there once or not at all."""
    run = Run(tmp_path, "RECONCILABLE")
    code, said = run.run("run", CRASH_AT=f"{point}:{number}")
    assert code == -signal.SIGKILL
    if run.events() and run.events()[-1].type == "SessionCompleted":
        assert number == APPENDS
    else:
        await finish(run)
    run.check(*said)
    assert len(charging.ledger_of(run.ledger)) == 1


@pytest.mark.parametrize(
    ("first", "point"),
    [
        ("CP_TOOL_AFTER_EFFECT", "CP_RECOVER_BEFORE_RECONCILE"),
        ("CP_TOOL_AFTER_EFFECT", "CP_RECOVER_AFTER_RESOLVED"),
        ("CP_TOOL_AFTER_START", "CP_RECOVER_AFTER_RECONCILE"),
        ("CP_TOOL_AFTER_START", "CP_RECOVER_AFTER_RESOLVED"),
        ("CP_TOOL_AFTER_START", "CP_TOOL_AFTER_EFFECT"),
    ],
)
async def test_a_recovery_that_is_killed_is_recovered_from(
    tmp_path: Path, first: str, point: str
) -> None:
    """Begun again by the next process, it does what is left."""
    run = Run(tmp_path, "RECONCILABLE")
    _, said = run.run("run", CRASH_AT=f"{first}:1")
    code, more = run.run("finish", CRASH_AT=f"{point}:1")
    assert code == -signal.SIGKILL
    await finish(run)
    run.check(*said, *more)
    assert len(charging.ledger_of(run.ledger)) == 1


# --- frozen, not killed --------------------------------------------------------------


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


def test_an_effect_does_not_begin_after_a_freeze_past_its_start_by(
    tmp_path: Path,
) -> None:
    """Row 41: between the verdict of its start and the effect."""
    run = Run(tmp_path, "UNSAFE")
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


async def _take_from_the_frozen(run: Run) -> None:
    """Take over as soon as the lease has run out, and finish."""
    while True:
        try:
            await finish(run)
        except LiveOwnerError as alive:
            await asyncio.sleep(alive.expires_in_ms / 1000)
        else:
            return


async def test_a_zombie_decides_nothing_and_its_outcome_is_still_a_fact(
    tmp_path: Path,
) -> None:
    """Row 5: it had run the tool when it froze; another owner has gone on since."""
    run = Run(tmp_path, "UNSAFE")
    brief = {"LEASE_TTL_MS": "500", "LEASE_RENEW_MS": "100"}
    with frozen(run, STOP_AT="CP_TOOL_AFTER_EFFECT:1", **brief) as process:
        await _take_from_the_frozen(run)
        before = run.events()
        assert before[-1].type == "SessionCompleted"
        said = wake(process)
    assert said[-1] == "fenced"
    events = run.events()
    (late,) = events[len(before) :]
    assert isinstance(late.event, ToolExecutionCompleted)
    assert late.envelope.epoch == 1
    assert len(charging.ledger_of(run.ledger)) == 1
    log = open_log(run.url)
    state = log.state(charging.SESSION)
    log.close()
    assert state is not None
    assert (state.epoch, state.anomalies) == (2, {"late": 1})
    assert not state.calls


async def test_a_zombie_that_had_not_started_its_tool_runs_nothing(
    tmp_path: Path,
) -> None:
    """Its start is refused, so its effect does not begin; the other's did."""
    run = Run(tmp_path, "UNSAFE")
    brief = {"LEASE_TTL_MS": "500", "LEASE_RENEW_MS": "100"}
    with frozen(run, STOP_AT="CP_TOOL_BEFORE_START:1", **brief) as process:
        await _take_from_the_frozen(run)
        before = run.events()
        said = wake(process)
    assert "fenced" in said
    assert run.events() == before
    assert len(charging.ledger_of(run.ledger)) == 1
