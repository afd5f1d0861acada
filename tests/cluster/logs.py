"""A new log for a test on the run's broker, and workers on it as processes."""

import os
import sys
import uuid
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from foldline import kafka, kafka_admin, kafka_meta
from foldline.errors import SchemaError
from foldline.processors.admission import RULES_VERSION
from foldline.schemas.registration import register
from foldline.schemas.registry_client import RegistryClient, registry_of
from foldline.schemas.topic_records import TOPIC_RECORDS, RulesInForce
from foldline.settings import Settings
from foldline.topics import TopicNames
from tests.cluster.processes import Process
from tests.cluster.shared import ROOT, Broker

SUBJECTS = "foldline-tests."
"""What subjects begin with: logs of tests share their schemas."""

WORKER_TIMEOUT_S = 60

WORKER_READY = "is ready"
"""What `foldline worker` says once it owns partitions and has restored them."""


@dataclass(frozen=True, slots=True)
class FreshLog:
    """A log that one test made: empty, its rules in force."""

    url: str
    prefix: str
    partitions: int
    settings: Settings
    environment: Mapping[str, str]
    """What a process needs to use it."""
    folder: Path
    """For whatever a test's processes write."""
    registry: RegistryClient

    @property
    def cluster(self) -> kafka.Cluster:
        """Its brokers and prefix."""
        return kafka.cluster_of(self.settings)

    @property
    def names(self) -> TopicNames:
        """Its topics."""
        return TopicNames(self.prefix)


def make_log(
    broker: Broker,
    folder: Path,
    *,
    partitions: int = 2,
    replication: int = 1,
    **more: Any,
) -> FreshLog:
    """Make topics, identity and rules for a new log.

    Args:
        broker: where.
        folder: of this test alone.
        partitions: how many; fixed for ever.
        replication: how many brokers keep each.
        more: other settings, for the test's own process and those that it starts.
    """
    prefix = f"t{uuid.uuid4().hex[:12]}."
    variables = {
        "url": f"kafka://{broker.bootstrap}",
        "registry_url": broker.registry_url,
        "subject_prefix": SUBJECTS,
        "topic_prefix": prefix,
        "topic_partitions": partitions,
        "topic_replication": replication,
        "state_dir": folder / "state",
        "blobs": str(folder / "blobs"),
        **more,
    }
    environment = {f"FOLDLINE_{name.upper()}": str(v) for name, v in variables.items()}
    settings = Settings.model_validate(variables)
    registry, ids = registered(broker.registry_url)
    cluster = kafka.cluster_of(settings)
    kafka_admin.create_topics(cluster, settings, partitions=partitions)
    kafka_meta.found_log(cluster, settings, registry=registry, partitions=partitions)
    rules = RulesInForce(rules_version=RULES_VERSION, schema_ids=ids, partitions=partitions)
    kafka_meta.put_in_force(cluster, settings, rules, registry=registry)
    return FreshLog(
        url=settings.url,
        prefix=prefix,
        partitions=partitions,
        settings=settings,
        environment=environment,
        folder=folder,
        registry=registry,
    )


def drop_log(log: FreshLog) -> None:
    """Delete its topics, without waiting: a broker keeps what nobody deletes."""
    client: Any = kafka.admin(log.cluster, log.settings)
    topics = client.list_topics(timeout=10).topics
    ours = [name for name in topics if name.startswith(log.prefix)]
    if ours:
        for future in client.delete_topics(ours).values():
            future.result(10)


@cache
def registered(registry_url: str) -> tuple[RegistryClient, tuple[int, ...]]:
    """Every schema, registered once per registry; the ids of the events."""
    settings = Settings(registry_url=registry_url, subject_prefix=SUBJECTS)
    registry = registry_of(settings)
    _OPEN.append(registry)
    registry.wait_ready(settings.registry_wait_ms)
    try:
        for record in TOPIC_RECORDS:
            registry.id_of(record.__name__)
        return registry, registry.event_ids()
    except SchemaError:
        register(registry)
        return registry, registry.event_ids()


_OPEN: list[RegistryClient] = []


def close_registries() -> None:
    """Close what `registered` keeps for the run."""
    while _OPEN:
        _OPEN.pop().close()
    registered.cache_clear()


@dataclass(slots=True)
class Worker:
    """A `foldline worker`, as a process."""

    process: Process
    name: str
    state_dir: Path

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def stop(self) -> None:
        """SIGSTOP."""
        self.process.stop()

    def wake(self) -> None:
        """SIGCONT."""
        self.process.wake()

    def terminate(self) -> int:
        """SIGTERM: it commits, writes its table, leaves; gives the exit code."""
        return self.process.terminate()

    def said(self) -> str:
        """What it wrote, both streams."""
        return self.process.said()

    def wait_ready(self, timeout_s: float = WORKER_TIMEOUT_S) -> None:
        """Wait until it owns its partitions and has restored them."""
        self.process.wait_for(WORKER_READY, timeout_s=timeout_s)

    def wait_dead(self, timeout_s: float = WORKER_TIMEOUT_S) -> int:
        """Wait until it ends by itself (a crash point); gives the exit code."""
        return self.process.wait(timeout_s)


def start_worker(
    log: FreshLog,
    *,
    name: str = "w1",
    crash_at: str = "",
    stop_at: str = "",
    module: str = "",
    environment: Mapping[str, str] | None = None,
) -> Worker:
    """Start a worker; it is not ready yet.

    Args:
        log: its log.
        name: its slot, and the name of its state folder: the same name is the same place.
        crash_at: `CP_NAME:n`, where it kills itself.
        stop_at: `CP_NAME:n`, where it freezes itself.
        module: the `foldline` of another time, as a module of the tests.
        environment: more of it.
    """
    state_dir = log.folder / name
    variables = {
        **log.environment,
        "FOLDLINE_WORKER_SLOT": name,
        "FOLDLINE_STATE_DIR": str(state_dir),
        "FOLDLINE_CRASH_AT": crash_at,
        "FOLDLINE_STOP_AT": stop_at,
        "PYTHONPATH": str(ROOT),
        **(environment or {}),
    }
    command = ["-m", module] if module else ["-c", _COMMAND]
    process = Process(
        [sys.executable, *command, "worker"],
        log=log.folder / f"{name}.log",
        environment={**os.environ, **variables},
        folder=log.folder,
    )
    return Worker(process, name, state_dir)


_COMMAND = "import sys; from foldline.cli import main; sys.exit(main())"


@contextmanager
def running_worker(
    log: FreshLog,
    *,
    name: str = "w1",
    crash_at: str = "",
    stop_at: str = "",
    module: str = "",
    environment: Mapping[str, str] | None = None,
) -> Generator[Worker]:
    """A worker that is ready, and gone at the end."""
    worker = start_worker(
        log,
        name=name,
        crash_at=crash_at,
        stop_at=stop_at,
        module=module,
        environment=environment,
    )
    with ExitStack() as stack:
        stack.callback(worker.kill)
        worker.wait_ready()
        yield worker
