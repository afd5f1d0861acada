"""Processes of the tests: started, looked at, ended by their ids."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

TIED = Path(__file__).with_name("tied.py")

LOOK_EVERY_S = 0.05
END_TIMEOUT_S = 30
LINES_SHOWN = 30

PORTS = (15_000, 32_000)
_GIVEN: set[int] = set()

Found = TypeVar("Found")


class Process:
    """One process; what it says goes to a file."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.log = log
        self._from = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            self.popen = subprocess.Popen(
                [sys.executable, str(TIED), str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=None if environment is None else {**os.environ, **environment},
                cwd=folder,
                start_new_session=True,  # Ctrl-C is for the test run, which ends it
            )

    @property
    def pid(self) -> int:
        """The process id, which stays the command's own."""
        return self.popen.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.popen.poll() is None

    def said(self) -> str:
        """What it has written since it was started."""
        with self.log.open("rb") as file:
            file.seek(self._from)
            return file.read().decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL, as when the power fails; done when it is gone."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """SIGTERM: ask it to end; gives the exit code."""
        self._end(signal.SIGTERM)
        return self.popen.returncode

    def stop(self) -> None:
        """SIGSTOP: freeze it."""
        self.popen.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """SIGCONT: let it go on."""
        self.popen.send_signal(signal.SIGCONT)

    def wait(self, timeout_s: float = END_TIMEOUT_S) -> int:
        """Wait until it ends by itself; gives the exit code, negative for a signal."""
        return self.popen.wait(timeout_s)

    def wait_for(self, text: str, *, timeout_s: float) -> str:
        """Wait until it has written a text; gives everything that it wrote."""

        def found() -> str | None:
            said = self.said()
            if text not in said and not self.running:
                code = self.popen.returncode
                raise AssertionError(f"ended with {code} before {text!r}: {_end_of(said)}")
            return said if text in said else None

        return wait_until(found, timeout_s=timeout_s, what=lambda: self._unsaid(text))

    def _unsaid(self, text: str) -> str:
        return f"{text!r} in what it says: {_end_of(self.said())}"

    def _end(self, how: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.popen.send_signal(how)
            if how != signal.SIGKILL:
                self.popen.send_signal(signal.SIGCONT)  # a frozen one hears nothing
        try:
            self.popen.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait(END_TIMEOUT_S)


def _end_of(text: str) -> str:
    return "\n".join(text.splitlines()[-LINES_SHOWN:])


def wait_until(
    look: Callable[[], Found | None], *, timeout_s: float, what: Callable[[], str]
) -> Found:
    """Look until there is something; fails with what was waited for."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(LOOK_EVERY_S)
    raise AssertionError(f"waited {timeout_s} s in vain for {what()}")


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on now, each given only once.

    Below the range from which the system takes ports for outgoing connections: one of
    those may be taken before the program that is to listen there has started.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(*PORTS)
        if port not in _GIVEN and _bindable(port):
            _GIVEN.add(port)
            found.append(port)
    return found


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def listening(port: int) -> bool:
    """Whether somebody takes connections on a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def ask(port: int, path: str) -> tuple[int, str]:
    """Status and text of what a port of this machine answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
