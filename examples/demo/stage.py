"""What happens to the agent: it is started, killed, and started again elsewhere.

1. A repository with a bug, a post office, an empty log: all in one folder.
2. Process 1 works. As soon as the mail is in the post office's ledger, it is killed
   with all its tools, as when a container goes away. (Or it kills itself at a named
   crash point, see `foldline.faults`.) The post office's answer never arrives.
3. Process 2 has never heard of process 1. It takes the session over and ends it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from post_office import Ledger
from workspace import make_repository

from foldline.errors import FoldlineError
from foldline.logs import SessionState, open_log

HERE = Path(__file__).parent

ANSWER_AFTER_S = 15.0
"""How long the post office takes to answer the first mail: the kill comes before."""

START_BY_MS = "2000"
"""Whoever takes over waits that long before it says that a tool has not begun. The
usual time would do too; this one is for impatient people."""

POLL_S = 0.005

LOG_LIMIT_S = 120.0
"""How long a log may be away (its brokers are started again, say)."""

LOG_PAUSE_S = 1.0

SCRIPT_LIMIT_S = 120.0
MODEL_LIMIT_S = 900.0
"""How long one process of the agent may take, without and with a real model."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Where the demo takes place. `crash_at` is POINT:n, empty for a kill from outside."""

    folder: Path
    url: str
    session_id: str
    crash_at: str
    model: tuple[str, str] | None
    """URL and name of a real model; None for the script."""

    @property
    def repository(self) -> Path:
        """What the agent works on."""
        return self.folder / "repository"

    @property
    def ledger(self) -> Ledger:
        """What the post office has sent."""
        return Ledger(self.folder / "sent-mails.jsonl")

    def state(self) -> SessionState | None:
        """What the log knows now; one that is away for a moment is waited for."""
        end_s = time.monotonic() + LOG_LIMIT_S
        while True:
            try:
                return self._state()
            except FoldlineError as error:
                if not error.retryable or time.monotonic() > end_s:
                    raise
            time.sleep(LOG_PAUSE_S)

    def _state(self) -> SessionState | None:
        log = open_log(self.url)
        try:
            return log.state(self.session_id)
        finally:
            log.close()


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process of the agent ended; `said` is what it printed last, as JSON."""

    pid: int
    exit_code: int
    ended_at: int
    """Microseconds since 1970."""
    said: dict[str, Any]

    @property
    def killed(self) -> bool:
        """Whether it died by SIGKILL."""
        return self.exit_code == -signal.SIGKILL


@dataclass(frozen=True, slots=True)
class Played:
    """Both processes, and what the log knew in between."""

    scene: Scene
    has_git: bool
    first: Ending
    between: SessionState | None
    second: Ending | None
    """None where the first process was not killed: there is nothing to take over."""


def play(scene: Scene) -> Played:
    """Run the demo in its folder, which is made if it is not there."""
    has_git = make_repository(scene.repository)
    with _post_office(scene) as address:
        first = _agent(scene, address, crash=True)
        between = scene.state()
        second = _agent(scene, address, crash=False) if first.killed else None
    return Played(scene, has_git, first, between, second)


@contextmanager
def _post_office(scene: Scene) -> Generator[str]:
    """The post office, in a process of its own; gives its address."""
    delay_s = 0.0 if scene.crash_at else ANSWER_AFTER_S
    office = subprocess.Popen(  # noqa: S603 - our own program
        [
            sys.executable,
            str(HERE / "post_office.py"),
            str(scene.folder / "sent-mails.jsonl"),
            f"--answer-after-s={delay_s}",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        port = int(cast("IO[str]", office.stdout).readline())
        yield f"127.0.0.1:{port}"
    finally:
        office.kill()
        office.communicate()


def _agent(scene: Scene, post_office: str, *, crash: bool) -> Ending:
    """One process of the agent, from its start to its end."""
    environment = {"FOLDLINE_START_BY_MS": START_BY_MS} | os.environ
    environment.pop("FOLDLINE_CRASH_AT", None)
    if crash and scene.crash_at:
        environment["FOLDLINE_CRASH_AT"] = scene.crash_at
    process = subprocess.Popen(  # noqa: S603 - our own program
        _command(scene, post_office),
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own: its tools die with it
    )
    try:
        if crash and not scene.crash_at:
            _kill_when_mail_is_sent(scene, process)
        said, _ = process.communicate(timeout=_limit_s(scene))
    finally:
        _kill(process)
    last = (said.splitlines() or ["{}"])[-1]
    return Ending(process.pid, process.returncode, time.time_ns() // 1000, json.loads(last))


def _command(scene: Scene, post_office: str) -> list[str]:
    command = [
        sys.executable,
        str(HERE / "agent.py"),
        f"--log={scene.url}",
        f"--session-id={scene.session_id}",
        f"--repository={scene.repository}",
        f"--post-office={post_office}",
    ]
    if scene.model is not None:
        url, name = scene.model
        command += [f"--model-url={url}", f"--model={name}"]
    return command


def _limit_s(scene: Scene) -> float:
    return SCRIPT_LIMIT_S if scene.model is None else MODEL_LIMIT_S


def _kill_when_mail_is_sent(scene: Scene, process: "subprocess.Popen[str]") -> None:
    end_s = time.monotonic() + _limit_s(scene)
    while process.poll() is None and time.monotonic() < end_s:
        if scene.ledger.sent():
            _kill(process)
            return
        time.sleep(POLL_S)


def _kill(process: "subprocess.Popen[str]") -> None:
    """SIGKILL to the process and every tool that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
