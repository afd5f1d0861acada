"""How a command that runs until it is told to stop hears of it."""

import signal
from collections.abc import Callable
from types import FrameType


def stop_on_signals(stop: Callable[[], object]) -> None:
    """The first SIGTERM or Ctrl-C ends the work in order, the second at once."""

    def stopped(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stopped)
