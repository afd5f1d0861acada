"""The one broker and the one registry that all workers of a test run share."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.cluster.backends import BOOTSTRAP, REGISTRY, STATE, choose, required
from tests.cluster.processes import wait_until

START_TIMEOUT_S = 600
"""The first run fetches some 200 MB."""

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Broker:
    """Where the run's broker and registry are."""

    bootstrap: str
    registry_url: str
    backend: str


@cache
def shared_broker() -> Broker:
    """Find them, or start them; skips the test (or fails it, where required)."""
    backend = choose()
    if backend.name == "none":
        without_broker(backend.reason)
    if backend.name == "external":
        return Broker(os.environ[BOOTSTRAP], os.environ[REGISTRY], backend.name)
    state = _started(backend.name)
    return Broker(state["bootstrap"], state["registry"], backend.name)


def without_broker(reason: str) -> None:
    """Skip, with the reason in the summary; an error where a broker is required."""
    if required():
        pytest.fail(f"FOLDLINE_TEST_KAFKA=required, but {reason}", pytrace=False)
    pytest.skip(f"no broker: {reason}")


def _started(backend: str) -> dict[str, str]:
    """What the keeper of this run says; the first who asks starts it."""
    run, owner = _run()
    folder = Path(tempfile.gettempdir()) / f"foldline-kafka-{os.getuid()}-{run}"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder.mkdir(mode=0o700, exist_ok=True)
        if not (folder / STATE).exists():
            _start(folder, owner, backend)
        return json.loads((folder / STATE).read_text(encoding="utf-8"))


def _run() -> tuple[str, int]:
    """The name of this test run, and the process that ends with it."""
    name = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    return (name, os.getppid()) if name else (str(os.getpid()), os.getpid())


def _start(folder: Path, owner: int, backend: str) -> None:
    log = folder / "keeper.log"
    command = [sys.executable, "-m", "tests.cluster.keeper", str(folder), str(owner)]
    with log.open("ab") as out:
        keeper = subprocess.Popen(
            [*command, backend],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            start_new_session=True,
        )
    _KEEPERS.append(keeper)

    def ready() -> bool:
        if keeper.poll() is not None:
            reason = said(log)
            shutil.rmtree(folder, ignore_errors=True)
            pytest.fail(f"the keeper ended: {reason}", pytrace=False)
        return (folder / STATE).exists()

    wait_until(ready, timeout_s=START_TIMEOUT_S, what=lambda: f"a broker: {said(log)}")


def said(log: Path) -> str:
    """The end of a log that may be gone."""
    return log.read_text(errors="replace")[-3_000:] if log.exists() else "(nothing)"


_KEEPERS: list[subprocess.Popen[bytes]] = []
"""Kept, so that nothing warns of a process that is still running at the end."""
