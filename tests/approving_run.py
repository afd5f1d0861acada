"""Processes of `tests.approving` that are killed, and a person who answers meanwhile."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from foldline.processors.open_log import open_log
from foldline.producers.client import connect
from foldline.schemas.events import (
    PermissionGranted,
    PermissionRequested,
    ToolExecutionStarted,
)
from foldline.schemas.recorded import Recorded
from tests.charging_run import ROOT

LIMIT_S = 120
BRIEF = {"FOLDLINE_LEASE_TTL_MS": "700", "FOLDLINE_LEASE_RENEW_MS": "150"}


@dataclass(slots=True)
class Run:
    """One session that processes work on, one after the other."""

    url: str
    folder: Path
    session_id: str = "approving"
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def ledger(self) -> Path:
        """Its effects."""
        return self.folder / "ledger"

    def start(self, crash_at: str = "") -> subprocess.Popen[str]:
        """Start a process of the harness, which may kill itself at a point."""
        own = {k: v for k, v in os.environ.items() if not k.startswith("FOLDLINE_")}
        given = {"FOLDLINE_CRASH_AT": crash_at} if crash_at else {}
        command = [
            sys.executable,
            "-m",
            "tests.approving",
            self.url,
            self.session_id,
            str(self.ledger),
        ]
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=own | BRIEF | dict(self.environment) | given,
            stdout=subprocess.PIPE,
            text=True,
        )

    def killed(self, crash_at: str) -> None:
        """Run until the point at which the process kills itself."""
        process = self.start(crash_at)
        process.communicate(timeout=LIMIT_S)
        assert process.returncode == -signal.SIGKILL

    async def granting(self, process: "subprocess.Popen[str]") -> int:
        """Grant every request as it comes, until the process has ended."""
        async with connect(self.url) as person:
            view = await person.open(self.session_id)
            async for recorded in view.follow():
                waits = (await view.state()).requests
                if isinstance(recorded.event, PermissionRequested):
                    request_id = recorded.event.request_id
                    if request_id in waits:
                        await view.grant(request_id)
                if recorded.type == "SessionCompleted":
                    break
        process.communicate(timeout=LIMIT_S)
        return process.returncode

    def events(self) -> list[Recorded]:
        """All that is recorded."""
        log = open_log(self.url)
        events = list(log.events(self.session_id))
        log.close()
        return events


async def check_killed_and_granted(run: Run, *crashes: str) -> None:
    """Each process is killed at its point; the last one comes to its end.

    What waits is offered again under the same id, and each call runs once, after its
    grant. Grants are remembered: none is asked for twice.
    """
    for crash in crashes:
        if "AFTER_REQUEST" in crash:
            run.killed(crash)
            continue
        process = run.start(crash)
        async with connect(run.url) as person:
            view = await person.open(run.session_id)
            for request_id in (await view.state()).requests:
                await view.grant(request_id)
        process.communicate(timeout=LIMIT_S)
        assert process.returncode == -signal.SIGKILL
    assert await run.granting(run.start()) == 0
    events = run.events()
    asked = [r for r in events if isinstance(r.event, PermissionRequested)]
    granted = [r for r in events if isinstance(r.event, PermissionGranted)]
    begun = [r for r in events if isinstance(r.event, ToolExecutionStarted)]
    assert (len(asked), len(granted), len(begun)) == (2, 2, 2)
    assert [g.seq < b.seq for g, b in zip(granted, begun, strict=True)] == [True, True]
    assert run.ledger.read_text().split() == ["a", "b"]
    assert events[-1].type == "SessionCompleted"
