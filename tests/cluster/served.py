"""A log with a worker that a module's tests share, and the environment to open it."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.logs import FreshLog, drop_log, make_log, running_worker
from tests.cluster.shared import Broker


@contextmanager
def served_log(
    broker: Broker, folder: Path, *, partitions: int = 2, **more: Any
) -> Generator[FreshLog]:
    """A new log whose worker runs; `open_log(log.cluster.url)` opens it meanwhile.

    Args:
        broker: where.
        folder: for what its processes write.
        partitions: how many it has.
        more: other settings, as for `make_log`.
    """
    log = make_log(broker, folder, partitions=partitions, **more)
    try:
        with in_environment(log), running_worker(log):
            yield log
    finally:
        drop_log(log)


@contextmanager
def in_environment(log: FreshLog) -> Generator[None]:
    """This process's settings are those of the log."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in log.environment.items():
            patch.setenv(name, value)
        yield
