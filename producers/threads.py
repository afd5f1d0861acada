"""Functions that block, each in a thread of its own that nothing waits for at exit."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

T = TypeVar("T")


def run_apart(function: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """Run a function in a new daemon thread; the future holds what it gives or raises.

    No pool: a tool must begin when it is told to, and one that never ends must not keep
    the process from ending.
    """
    done: Future[T] = Future()
    thread = threading.Thread(target=partial(_run, function, done), name=name, daemon=True)
    thread.start()
    return asyncio.wrap_future(done)


def _run(function: Callable[[], T], done: "Future[T]") -> None:
    try:
        value = function()
    except StopIteration as error:
        # No future of asyncio can hold one: whoever waits would wait for ever.
        raised = RuntimeError("it raised StopIteration")
        raised.__cause__ = error
        done.set_exception(raised)
    except BaseException as error:  # noqa: BLE001 - raised again by who waits
        done.set_exception(error)
    else:
        done.set_result(value)


def is_told_to_stop() -> bool:
    """Whether who runs here is being cancelled: not only something of a user's raised."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
