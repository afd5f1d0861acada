"""A cluster of one or three brokers, and a registry, as Java programs of this machine."""

import subprocess
import urllib.error
import urllib.request
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from shutil import copytree

from tests.cluster import jars
from tests.cluster.broker_settings import (
    Node,
    as_file,
    broker_settings,
    registry_environment,
)
from tests.cluster.processes import Process, free_ports, listening, wait_until

HOST = "127.0.0.1"

BROKER_OPTIONS = ("-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=4")
SHORT_LIVED = (*BROKER_OPTIONS[:-1], "-XX:TieredStopAtLevel=1")
"""Of a broker that lives for one test: it starts with two thirds of the work.

A registry has little to do but to start: it needs no better code either."""

REGISTRY_OPTIONS = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

START_TIMEOUT_S = 180
FORMAT_TIMEOUT_S = 60


class JarCluster:
    """Brokers that can be killed, frozen and started again, by their number from 0.

    The data of each stays, as do its ports.
    """

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 1,
        options: Sequence[str] = BROKER_OPTIONS,
        advertised: Sequence[str] = (),
    ) -> None:
        self._folder = folder
        self._options = options
        ports = free_ports(2 * brokers)
        self._nodes = [
            Node(
                i + 1,
                HOST,
                ports[2 * i],
                ports[2 * i + 1],
                str(folder / f"data-{i + 1}"),
                advertised[i] if advertised else "",
            )
            for i in range(brokers)
        ]
        self._jars = jars.kafka_jars()
        self._java = str(jars.java(jars.BROKER_JAVA))
        self._format()
        self._processes = [self._start(node) for node in self._nodes]
        for index in range(brokers):
            self._wait_ready(index)

    @property
    def bootstrap(self) -> str:
        """Every broker, for clients."""
        return ",".join(n.advertised or f"{n.host}:{n.port}" for n in self._nodes)

    def port(self, index: int = 0) -> int:
        """Where one listens itself, whatever clients are told."""
        return self._nodes[index].port

    def kill(self, index: int = 0) -> None:
        """SIGKILL one."""
        self._processes[index].kill()

    def stop(self, index: int = 0) -> None:
        """SIGSTOP one."""
        self._processes[index].stop()

    def wake(self, index: int = 0) -> None:
        """SIGCONT one."""
        self._processes[index].wake()

    def shut_down(self, index: int = 0) -> None:
        """SIGTERM one, which hands its partitions over; done when it has ended."""
        self._processes[index].terminate()

    def start(self, index: int = 0) -> None:
        """Start one again on its data; done when it takes connections."""
        self._processes[index] = self._start(self._nodes[index])
        self._wait_ready(index)

    def close(self) -> None:
        """End every broker."""
        for process in self._processes:
            process.kill()

    def _format(self) -> None:
        """One by Kafka's own tool, a JVM; the others are copies with ids of their own."""
        for node in self._nodes:
            text = as_file(broker_settings(node, self._nodes))
            self._properties(node).write_text(text, encoding="utf-8")
        first, *others = self._nodes
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={_new_id()}"]
        config = f"--config={self._properties(first)}"
        done = subprocess.run(
            [self._java, "-cp", f"{self._jars}/*", *tool, config],
            capture_output=True,
            timeout=FORMAT_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        for node in others:
            copytree(first.data, node.data)
            meta = Path(node.data) / "meta.properties"
            lines = meta.read_text(encoding="utf-8").splitlines()
            said = dict(line.split("=", 1) for line in lines if "=" in line)
            said |= {"node.id": str(node.node_id), "directory.id": _new_id()}
            meta.write_text(as_file(said), encoding="utf-8")

    def _properties(self, node: Node) -> Path:
        return self._folder / f"server-{node.node_id}.properties"

    def _start(self, node: Node) -> Process:
        command = [self._java, *self._options, "-cp", f"{self._jars}/*", "kafka.Kafka"]
        return Process(
            [*command, str(self._properties(node))],
            log=self._folder / f"broker-{node.node_id}.log",
            folder=self._folder,
        )

    def _wait_ready(self, index: int) -> None:
        process, port = self._processes[index], self._nodes[index].port

        def ready() -> bool:
            assert process.running, process.said()[-3_000:]
            return "Kafka Server started" in process.said() or listening(port)

        wait_until(ready, timeout_s=START_TIMEOUT_S, what=lambda: f"a broker on {port}")


def _new_id() -> str:
    """An id as Kafka writes them."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class JarRegistry:
    """A schema registry that keeps everything in memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, self._management_port = free_ports(2)
        self._home = jars.registry_home()
        self._java = str(jars.java(jars.REGISTRY_JAVA))
        self.url = f"http://{HOST}:{self._port}/apis/ccompat/v7"
        self._process = self._run()

    def wait_ready(self) -> None:
        """Wait until it answers."""
        look = urllib.request.Request(f"{self.url}/subjects")  # noqa: S310 - our own

        def ready() -> bool:
            assert self._process.running, self._process.said()[-3_000:]
            try:
                with urllib.request.urlopen(look, timeout=5) as answer:  # noqa: S310
                    return answer.status == 200
            except (urllib.error.URLError, OSError):
                return False

        wait_until(ready, timeout_s=START_TIMEOUT_S, what=lambda: f"a registry, {self.url}")

    def stop(self) -> None:
        """SIGSTOP: it takes connections, and answers nothing."""
        self._process.stop()

    def wake(self) -> None:
        """SIGCONT."""
        self._process.wake()

    def close(self) -> None:
        """End it; what it held is gone."""
        self._process.kill()

    def _run(self) -> Process:
        (program,) = self._home.rglob("quarkus-run.jar")
        return Process(
            [self._java, *REGISTRY_OPTIONS, "-jar", str(program)],
            log=self._folder / "registry.log",
            environment=registry_environment(
                host=HOST, port=self._port, management_port=self._management_port
            ),
            folder=program.parent,
        )
