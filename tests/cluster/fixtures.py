"""The fixtures of tests that need a broker; `tests/conftest.py` makes them known.

Mark such a test `@pytest.mark.kafka` and take `fresh_log`. Without a broker it is
skipped, with the reason in the summary; `FOLDLINE_TEST_KAFKA=required` makes that an
error.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import jars
from tests.cluster.backends import without_jars
from tests.cluster.jar_cluster import SHORT_LIVED, JarCluster, JarRegistry
from tests.cluster.logs import FreshLog, close_registries, drop_log, make_log
from tests.cluster.shared import Broker, shared_broker, without_broker

MakeLog = Callable[..., FreshLog]
OwnCluster = Callable[..., JarCluster]


@pytest.fixture(scope="session")
def broker() -> Generator[Broker]:
    """The broker and the registry that every test of the run shares."""
    yield shared_broker()
    close_registries()


@pytest.fixture
def make_fresh_log(broker: Broker, tmp_path: Path) -> Generator[MakeLog]:
    """Makes new logs on the run's broker: `make_fresh_log(inflight_max=9)`."""
    made: list[FreshLog] = []

    def make(*, on: Broker = broker, **more: Any) -> FreshLog:
        folder = tmp_path / f"log-{len(made)}"
        folder.mkdir()
        log = make_log(on, folder, **more)
        if on is broker:
            made.append(log)
        return log

    yield make
    for log in made:
        drop_log(log)


@pytest.fixture
def fresh_log(make_fresh_log: MakeLog) -> FreshLog:
    """A new log of two partitions on the run's broker."""
    return make_fresh_log(partitions=2)


@pytest.fixture
def own_cluster(tmp_path: Path) -> Generator[OwnCluster]:
    """Starts brokers of the test's own: `own_cluster(brokers=3)`. Use it sparingly."""
    _require_jars()
    with ExitStack() as stack:

        def start(*, brokers: int = 1, advertised: Sequence[str] = ()) -> JarCluster:
            folder = tmp_path / "own-cluster"
            folder.mkdir()
            cluster = JarCluster(
                folder, brokers=brokers, options=SHORT_LIVED, advertised=advertised
            )
            stack.callback(cluster.close)
            return cluster

        yield start


@pytest.fixture
def own_registry(tmp_path: Path) -> Generator[JarRegistry]:
    """A registry of the test's own, which it may end."""
    _require_jars()
    folder = tmp_path / "own-registry"
    folder.mkdir()
    registry = JarRegistry(folder)
    try:
        registry.wait_ready()
        yield registry
    finally:
        registry.close()


def _require_jars() -> None:
    missing = without_jars()
    if missing:
        without_broker(f"own brokers are Java programs: {missing}")
    try:
        jars.kafka_jars()
    except jars.MissingError as error:
        without_broker(str(error))
