"""The storm: owners killed and frozen at random, people who talk in between.

Whatever comes together, in the end: the session is completed or asks a person, what must
not happen twice did not, everything acknowledged is in the log, and the log is sound.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from foldline.errors import AppendRefusedError, SessionNotFoundError
from foldline.faults import CRASH_POINTS
from foldline.processors.open_log import open_log
from foldline.processors.verify import verify
from foldline.producers.client import Client, connect
from foldline.producers.owned import Session
from foldline.projections.building import build
from foldline.projections.context import Sources
from foldline.schemas.events import (
    SteeringApplied,
    ToolExecutionCompleted,
    ToolExecutionStarted,
    ToolOutcomeResolved,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import ENDED
from tests import storming

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(15)
DISTURBED = 4
"""How many owners are killed or frozen before one is left in peace."""

OWNERS_MAX = 40
LONG = 80
"""How many events there are before somebody has enough of the turn."""

POINTS = sorted(name for name in CRASH_POINTS if not name.startswith("CP_IMPORT"))

LOCKED = ("CP_APPEND_BEFORE_COMMIT", "CP_APPEND_AFTER_COMMIT")
"""Frozen in the first, a process holds the file's lock: nobody appends until it wakes."""

pytestmark = [pytest.mark.crash, pytest.mark.slow]


@dataclass(slots=True)
class Storm:
    """One session and all that happens to it."""

    folder: Path
    seed: int
    acknowledged: set[str] = field(default_factory=set[str])
    processes: list[subprocess.Popen[str]] = field(
        default_factory=list["subprocess.Popen[str]"]
    )
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"storm {self.seed}")

    @property
    def url(self) -> str:
        """Its log."""
        return f"sqlite:///{self.folder}/s.db"

    @property
    def ledger(self) -> Path:
        """Its effects."""
        return self.folder / "ledger"

    def start(self, **settings: str) -> subprocess.Popen[str]:
        """Another owner."""
        given = {f"FOLDLINE_{name}": value for name, value in settings.items()}
        brief = {
            "FOLDLINE_START_BY_MS": "250",
            "FOLDLINE_LEASE_TTL_MS": "400",
            "FOLDLINE_LEASE_RENEW_MS": "80",
        }
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.storming",
                self.url,
                str(self.ledger),
                str(self.seed),
            ],
            cwd=ROOT,
            env=os.environ | brief | given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    async def disturb(self) -> None:
        """An owner that comes to a bad end, or is frozen and wakes beside its heir."""
        point = f"{self.chance.choice(POINTS)}:{self.chance.randint(1, 5)}"
        match self.chance.randrange(4):
            case 0:
                process = self.start(CRASH_AT=point)
                await self.wait(process, 3)
                process.kill()
            case 1:
                process = self.start(STOP_AT=point.replace(*LOCKED))
                await self.wait(process, 1.5)
            case 2:
                process = self.start()
                await self.wait(process, 0.8 + 1.5 * self.chance.random())
                process.kill()
            case _:
                process = self.start()
                await self.wait(process, 0.8 + 1.5 * self.chance.random())
                process.send_signal(signal.SIGSTOP)

    async def wait(self, process: subprocess.Popen[str], longest_s: float) -> None:
        """Wait for a process for so long."""
        for _ in range(round(longest_s / 0.05)):
            if process.poll() is not None:
                return
            await asyncio.sleep(0.05)

    def wake(self) -> None:
        """Whoever was frozen goes on."""
        for process in self.processes:
            process.send_signal(signal.SIGCONT)

    async def people(self, client: Client) -> None:
        """Somebody who steers, grants, denies and settles, until it is over."""
        chance = random.Random(f"people {self.seed}")
        while True:
            await asyncio.sleep(chance.random() * 0.15)
            try:
                view = await client.open(storming.SESSION)
                await self.say(view, chance)
            except (SessionNotFoundError, AppendRefusedError):
                continue  # not there yet; or somebody came first, which the verdict says

    async def say(self, view: Session, chance: random.Random) -> None:
        """One thing that a person does."""
        state = await view.state()
        for request in state.requests.values():
            if request.kind == "INPUT":
                continue
            answer = view.grant if chance.random() < 0.6 else view.deny
            self.acknowledged.add((await answer(request.request_id)).event_id)
        match chance.randrange(12):
            case 0:
                self.acknowledged.add(await view.steer("use nix"))
            case 1:
                self.acknowledged.add(await view.message("hello"))
            case 2 if state.calls:
                call_id = chance.choice(list(state.calls))
                verdict = await view.cancel("stop", target="CALL", target_id=call_id)
                self.acknowledged.add(verdict.event_id)
            case 3 if self.seed % 5 == 0 and state.seq > LONG:
                verdict = await view.cancel("enough", target="TURN")
                self.acknowledged.add(verdict.event_id)
            case _:
                pass

    async def run(self) -> None:
        """The whole storm, and then owners in peace until nothing is left to do."""
        async with connect(self.url) as client:
            talking = asyncio.create_task(self.people(client))
            try:
                for _ in range(DISTURBED):
                    await self.disturb()
                    if self.chance.random() < 0.4:
                        self.wake()
                await self.finish(client)
            finally:
                talking.cancel()
                await asyncio.wait({talking})
        self.wake()
        for process in self.processes:
            _, problem = process.communicate(timeout=60)
            assert process.returncode in (0, -signal.SIGKILL), problem

    async def finish(self, client: Client) -> None:
        """Owners in peace: one is enough, unless a person has still to answer it."""
        for _ in range(OWNERS_MAX):
            process = self.start()
            await self.wait(process, 0.5)
            self.wake()  # beside its heir
            said, problem = await asyncio.to_thread(process.communicate, timeout=60)
            assert process.returncode == 0, problem
            state = await (await client.open(storming.SESSION)).state()
            asked = {request.kind for request in state.requests.values()}
            if state.status in ENDED or asked == {"INPUT"}:
                return
            assert "parked" in said or "fenced" in said, (said, state)
        pytest.fail("nobody came to an end")


def check(storm: Storm) -> None:
    """What holds however it came about."""
    log = open_log(storm.url)
    try:
        events = list(log.events(storming.SESSION))
        state = log.state(storming.SESSION)
        report = verify(log)
    finally:
        log.close()
    assert state is not None
    assert report.ok, report
    ids = [recorded.envelope.event_id for recorded in events]
    assert len(set(ids)) == len(ids)
    assert storm.acknowledged <= set(ids)
    assert state.status in ENDED or state.requests
    storming.check(build(Sources(events)))
    applied = Counter(
        recorded.event.steering_event_id
        for recorded in events
        if isinstance(recorded.event, SteeringApplied)
    )
    assert set(applied.values()) <= {1}
    _check_effects(storm, events)


def _check_effects(storm: Storm, events: list[Recorded]) -> None:
    """Nothing twice but what may be; nothing is called done that is not."""
    lines = [line.split() for line in storming.told(storm.ledger).splitlines()]
    times = Counter((tool, operation_id) for tool, _, operation_id, _ in lines)
    twice = {tool for (tool, _), count in times.items() if count > 1}
    assert twice <= {"look", "write"}, times
    started = {
        recorded.event.call_id: recorded.event.operation_id
        for recorded in events
        if isinstance(recorded.event, ToolExecutionStarted)
    }
    ended = {
        recorded.event.call_id
        for recorded in events
        if isinstance(recorded.event, ToolExecutionCompleted)
        or (
            isinstance(recorded.event, ToolOutcomeResolved)
            and recorded.event.outcome == "COMPLETED"
        )
    }
    assert {started[call_id] for call_id in ended} <= {done for _, done in times}


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_comes_together_nothing_is_lost_and_nothing_is_done_twice(
    tmp_path: Path, seed: int
) -> None:
    """Seeded; the processes' own timing is not."""
    storm = Storm(tmp_path, seed)
    try:
        await storm.run()
    finally:
        for process in storm.processes:
            process.kill()
            process.wait()
    check(storm)
