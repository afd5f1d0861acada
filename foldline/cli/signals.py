"""How a command hears that it is to stop, and ends in order."""

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Whoever sends one of these wants the process to end."""

SIGNALLED = 128
"""The exit code of what a signal ended, less the signal's number."""


def stop_on_signals(stop: Callable[[], object]) -> None:
    """The first SIGTERM or Ctrl-C ends the work in order, the second at once."""

    def stopped(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stopped)


@contextmanager
def undone_by_signals() -> Generator[None]:
    """SIGTERM and SIGHUP end this as Ctrl-C does: what was begun is undone on the way out.

    Whoever ignored one of them goes on ignoring it. The exit code is a shell's: 128 and
    the signal's number.
    """
    caught = [one for one in ENDING if signal.getsignal(one) == signal.SIG_DFL]

    def ended(number: int, _frame: FrameType | None) -> None:
        for one in caught:
            signal.signal(one, signal.SIG_IGN)  # a second one does not stop the undoing
        raise SystemExit(SIGNALLED + number)

    for one in caught:
        signal.signal(one, ended)
    try:
        yield
    finally:
        for one in caught:
            signal.signal(one, signal.SIG_DFL)
