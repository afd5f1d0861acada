"""What really happened, found out afterwards and from outside of the agent."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from stage import Played
from tools import ENVIRONMENT, PROGRAM
from workspace import git

from foldline.events import Recorded, ToolOutcomeResolved
from foldline.logs import Report, SessionState, open_log, verify


@dataclass(frozen=True, slots=True)
class Findings:
    """The facts. `commit` is empty where this machine has no git."""

    state: SessionState | None
    recorded: list[Recorded]
    verified: Report
    mails: int
    tests: str
    commit: str

    @property
    def resolved(self) -> int:
        """How many unknown outcomes were found out."""
        return sum(isinstance(r.event, ToolOutcomeResolved) for r in self.recorded)


def find_out(played: Played) -> Findings:
    """Ask the log, the ledger, the tests and git."""
    scene = played.scene
    log = open_log(scene.url)
    try:
        state = log.state(scene.session_id)
        recorded = list(log.events(scene.session_id))
        verified = verify(log, [scene.session_id] if state else [])
    finally:
        log.close()
    commit = git(scene.repository, "log", "-1", "--format=%h %s") if played.has_git else ""
    return Findings(
        state, recorded, verified, len(scene.ledger.sent()), _test(played), commit
    )


def problems(played: Played, found: Findings) -> Iterator[str]:
    """Everything that is not as it should be; nothing if the demo is right."""
    if not played.first.killed:
        point = played.scene.crash_at or "the mail"
        yield f"process 1 was not killed: it never came to {point}"
    elif played.second is None or played.second.exit_code != 0:
        yield "process 2 failed"
    if found.state is None or found.state.status != "COMPLETED":
        yield f"the session is {found.state.status if found.state else 'not there'}"
    elif found.state.epoch != _epoch_wanted(played):
        yield f"epoch {found.state.epoch} instead of {_epoch_wanted(played)}"
    if found.mails != 1:
        yield f"{found.mails} mails were sent instead of 1"
    if not played.scene.crash_at and found.resolved != 1:
        yield f"{found.resolved} outcomes were resolved instead of 1"
    if not found.verified.ok:
        yield f"the log does not verify: {found.verified.problems[0]}"
    if not found.tests.startswith("PASSED"):
        yield f"the tests of the repository: {found.tests}"
    if played.has_git and git(played.scene.repository, "status", "--porcelain"):
        yield "the repository has changes that are not committed"


def _epoch_wanted(played: Played) -> int:
    """One more than process 1 left, unless there was nothing left to take over."""
    between = played.between
    if between is None:
        return 1
    return between.epoch + (not between.ended)


def _test(played: Played) -> str:
    """The verdict of the repository's tests."""
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-IB", str(PROGRAM), "run_tests"],
        input="{}",
        cwd=played.scene.repository,
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()[-1]
