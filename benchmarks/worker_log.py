"""A log on Kafka for a benchmark: its topics, its environment, its processes.

The broker is `FOLDLINE_TEST_BOOTSTRAP` with the registry `FOLDLINE_TEST_REGISTRY`, or
both are started here from the jars that the tests use, and ended with the benchmark.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from broker import Broker
from measure import say

from foldline.settings import Settings
from foldline.topics import TopicNames

ROOT = Path(__file__).resolve().parent.parent
FOLDLINE = str(Path(sys.executable).with_name("foldline"))
TIED = [sys.executable, str(ROOT / "tests/cluster/tied.py"), str(os.getpid())]
"""Before a command: it ends with this process, however that ends."""

READY_S = 120.0
STOP_S = 30.0
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the broker and the registry are."""

    broker: Broker
    registry: str


@contextmanager
def cluster(folder: Path) -> Generator[Cluster]:
    """The broker and the registry that are given, or ones of our own."""
    bootstrap = os.environ.get("FOLDLINE_TEST_BOOTSTRAP")
    if bootstrap:
        yield Cluster(Broker(bootstrap), os.environ["FOLDLINE_TEST_REGISTRY"])
        return
    sys.path.insert(0, str(ROOT))
    from tests.cluster.jar_cluster import JarCluster, JarRegistry  # late: needs Java

    say("starting a broker and a registry")
    registry = JarRegistry(folder)
    try:
        brokers = JarCluster(folder)
        try:
            registry.wait_ready()
            yield Cluster(Broker(brokers.bootstrap), registry.url)
        finally:
            brokers.close()
    finally:
        registry.close()


@dataclass(frozen=True, slots=True)
class BenchLog:
    """One log on it: topics with a prefix of their own, states in a folder of its own."""

    cluster: Cluster
    prefix: str
    partitions: int
    folder: Path
    more: dict[str, str] = field(default_factory=dict[str, str])
    """Settings beside those that say where the log is."""

    @property
    def url(self) -> str:
        """The log's URL."""
        return f"kafka://{self.cluster.broker.bootstrap}"

    @property
    def names(self) -> TopicNames:
        """Its topics."""
        return TopicNames(self.prefix)

    @property
    def environment(self) -> dict[str, str]:
        """What its processes are started with."""
        return {
            "FOLDLINE_URL": self.url,
            "FOLDLINE_REGISTRY_URL": self.cluster.registry,
            "FOLDLINE_TOPIC_PREFIX": self.prefix,
            "FOLDLINE_TOPIC_PARTITIONS": str(self.partitions),
            "FOLDLINE_TOPIC_REPLICATION": "1",
            "FOLDLINE_STATE_DIR": str(self.folder),
            "FOLDLINE_BLOBS": str(self.folder / "blobs"),
            **self.more,
        }

    @property
    def settings(self) -> Settings:
        """The same as settings of this process."""
        names = {f"FOLDLINE_{name.upper()}": name for name in Settings.model_fields}
        given = {names[k]: v for k, v in self.environment.items()}
        return Settings.model_validate(given)

    def create(self) -> None:
        """Make its topics, register its schemas, put its rules in force."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for command in (
            ("schemas", "register"),
            ("topics", "create"),
            ("topics", "upgrade"),
        ):
            self.run(*command)

    def run(self, *command: str) -> None:
        """Run one command of foldline to its end."""
        done = subprocess.run(
            [FOLDLINE, *command],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

    @contextmanager
    def running(self, *command: str) -> Generator["Running"]:
        """A process of foldline, until the block ends."""
        log = self.folder / f"{command[0]}-{time.time_ns()}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*TIED, FOLDLINE, *command],
                env={**os.environ, **self.environment},
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        running = Running(process, log, time.monotonic())
        try:
            yield running
        finally:
            running.stop()

    @contextmanager
    def worker(self) -> Generator["Running"]:
        """One worker, ready: its partitions are restored."""
        with self.running("worker", "--json") as running:
            running.read_ready()
            yield running


@dataclass(slots=True)
class Running:
    """A process of foldline that says on its first line that it is ready."""

    process: "subprocess.Popen[str]"
    log: Path
    began_s: float
    ready_s: float = 0.0
    """Monotonic time when it said so."""

    def read_ready(self) -> None:
        """Wait until it says so."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended: {self.said()}"
        self.ready_s = time.monotonic()
        assert json.loads(line).get("ready"), f"it is not ready: {line}{self.said()}"

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def said(self) -> str:
        """The end of what it said on stderr."""
        return self.log.read_text(errors="replace")[-3_000:]

    def memory_mb(self) -> tuple[float, float]:
        """Resident memory now and at its highest, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        lines = dict(line.split(":", 1) for line in status.splitlines())
        now, highest = (int(lines[k].split()[0]) / 1024 for k in ("VmRSS", "VmHWM"))
        return round(now, 1), round(highest, 1)

    def stop(self) -> None:
        """Let it end."""
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()


@contextmanager
def fresh_log(
    place: Cluster, folder: Path, name: str, *, partitions: int, **more: str
) -> Generator[BenchLog]:
    """A new log; its topics are deleted when the block ends."""
    prefix = f"bench{os.getpid()}-{time.time_ns() // 10**6}.{name}."
    log = BenchLog(place, prefix, partitions, folder / name, more)
    try:
        log.create()
        yield log
    finally:
        place.broker.delete(prefix)
