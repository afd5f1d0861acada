"""What docker-compose.yml starts, started without containers on a real broker.

The same commands with the same environment, in the same order; only what a container
network and its volumes give is put in other words: hosts, ports, folders. And topics and
subjects have names of the test's own, for it shares its broker.
"""

import os
import shlex
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

import foldline
from foldline.errors import UncertainAppendError
from foldline.settings import Settings
from tests.cluster.fixtures import OwnCluster
from tests.cluster.logs import SUBJECTS
from tests.cluster.processes import Process, free_ports, wait_until
from tests.cluster.shared import ROOT, Broker
from tests.deploy import compose
from tests.deploy.compose import (
    HOME,
    Service,
    asked,
    mounts_below_home,
    prometheus_jobs,
)
from tests.otlp_receiver import receiving

READY_TIMEOUT_S = 90
SCOPES = ("read", "append", "own")
LISTENING = ("4318", "8083", "9463", "9464", "9465", "9466", "9467")
"""Ports of the collector, a read node's health, recovery, metrics, the fleet, traces and
policies."""

CONSUMERS = ("recovery", "metrics", "fleet", "traces", "policies")

OWN = ("FOLDLINE_", "XDG_")
"""What variables of this process begin with that would say where things lie."""

PORTS = ("FOLDLINE_HEALTH_PORT", "FOLDLINE_HTTP_PORT")

COMPLETED = 'foldline_sessions{status="COMPLETED"} 1.0'

COMMAND = [
    sys.executable,
    "-c",
    "import sys; from foldline.cli import main; sys.exit(main())",
]


class Stand:
    """What a container network would be: names and folders in words of this machine."""

    def __init__(self, broker: Broker, folder: Path, services: dict[str, Service]) -> None:
        self.services = services
        worker_port, read_port, *ports = free_ports(2 + len(LISTENING))
        registry = urlsplit(broker.registry_url).netloc
        self.folder = folder
        self._roots = {name: self._root(name) for name in compose.ours(services)}
        (folder / "no-folder").touch()
        self.read_url = f"http://127.0.0.1:{read_port}"
        self._words = {
            "kafka:9092,kafka-2:9092,kafka-3:9092": broker.bootstrap,
            "kafka:9092": broker.bootstrap,
            "registry:8080": registry,
            "/etc/foldline": str(ROOT / "deploy"),
            "127.0.0.1:8081": f"127.0.0.1:{worker_port}",
            "127.0.0.1:8080": f"127.0.0.1:{read_port}",
        }
        self.ports = dict(zip(LISTENING, ports, strict=True))
        for there, here in self.ports.items():
            self._words |= {
                f"127.0.0.1:{there}": f"127.0.0.1:{here}",
                f"0.0.0.0:{there}": f"127.0.0.1:{here}",
                f"collector:{there}": f"127.0.0.1:{here}",
            }
        self._ports = {"8081": str(worker_port), "8080": str(read_port)} | {
            there: str(here) for there, here in self.ports.items()
        }
        self._names = {
            "FOLDLINE_TOPIC_PREFIX": f"d{uuid.uuid4().hex[:12]}.",
            "FOLDLINE_SUBJECT_PREFIX": SUBJECTS,
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder / "no-folder" / "home"),
        }

    def _root(self, name: str) -> Path:
        """A service's /var/lib/foldline: nothing but what is mounted in it."""
        root = self.folder / "roots" / name
        root.mkdir(parents=True)
        for mounted, volume in mounts_below_home(self.services[name]).items():
            kept = self.folder / "volumes" / volume
            kept.mkdir(parents=True, exist_ok=True)
            (root / mounted).symlink_to(kept)
        return root

    def environment(self, name: str) -> dict[str, str]:
        """A service's environment; nothing of this process's own, and no home to write."""
        told = self.services[name]["environment"]
        given = {variable: self.said(name, text) for variable, text in told.items()}
        ports = {name: given[name] for name in PORTS if name in given}
        given |= {name: self._ports[port] for name, port in ports.items()}
        outer = {n: v for n, v in os.environ.items() if not n.startswith(OWN)}
        return outer | given | self._names

    def said(self, name: str, text: str) -> str:
        """A text of a service, as it is on this machine."""
        text = text.replace(HOME, str(self._roots[name]))
        for there, here in self._words.items():
            text = text.replace(there, here)
        return text

    def port(self, there: str) -> str:
        """Where a port of the network is on this machine."""
        return self._ports[there]

    def start(self, name: str) -> Process:
        """Start a service that runs on."""
        (words,) = compose.foldline_commands(self.services[name])
        said = [self.said(name, word) for word in words]
        return Process(
            ["env", "-i", *_assigned(self.environment(name)), *COMMAND, *said],
            log=self.folder / f"{name}.log",
            folder=self._roots[name],
        )

    def run_to_its_end(self, name: str) -> None:
        """Run a service's own script, with a `foldline` in its way."""
        service = self.services[name]
        command = [*service["entrypoint"], *service["command"]]
        self._run([word.replace("$$", "$") for word in command], name)

    def foldline(self, name: str, *words: str) -> str:
        """What `docker compose exec NAME foldline ...` would print."""
        return self._run(["foldline", *words], name)

    def _run(self, command: Sequence[str], name: str) -> str:
        environment = self.environment(name)
        environment["PATH"] = f"{self._programs()}:{environment['PATH']}"
        done = subprocess.run(
            command,
            env=environment,
            cwd=self._roots[name],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def _programs(self) -> Path:
        programs = self.folder / "bin"
        if not programs.exists():
            programs.mkdir()
            script = f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n'
            (programs / "foldline").write_text(script, encoding="utf-8")
            (programs / "foldline").chmod(0o755)
        return programs

    def is_healthy(self, name: str) -> bool:
        """What the service's health check says."""
        kind, *command = self.services[name]["healthcheck"]["test"]
        assert (kind, command[0]) == ("CMD", "python")
        spoken = [sys.executable, *(self.said(name, word) for word in command[1:])]
        return subprocess.run(spoken, capture_output=True, check=False).returncode == 0

    def wait_healthy(self, name: str, process: Process) -> None:
        """Wait as `docker compose up --wait` would."""

        def healthy() -> bool:
            assert process.running, process.said()[-3_000:]
            return self.is_healthy(name)

        wait_until(healthy, timeout_s=READY_TIMEOUT_S, what=lambda: process.said()[-3_000:])

    def check_writes(self) -> None:
        """Whatever was written in a service's folder lies below one of its mounts.

        The rest of a container cannot be written. And everybody found one key.
        """
        for name, root in self._roots.items():
            mounted = mounts_below_home(self.services[name])
            assert {path.name for path in root.iterdir()} == mounted.keys(), name
        assert len(list((self.folder / "volumes").rglob("*.redaction-key"))) == 1


def _assigned(environment: dict[str, str]) -> Sequence[str]:
    return [f"{name}={value}" for name, value in environment.items()]


@pytest.fixture
def stand(broker: Broker, tmp_path: Path) -> Stand:
    return Stand(broker, tmp_path, compose.services())


@pytest.mark.kafka
@pytest.mark.slow
async def test_init_worker_and_read_node_start_as_they_are_written(stand: Stand) -> None:
    """In the order of depends_on; a session goes through; SIGTERM ends each in order."""
    with ExitStack() as stack:
        stand.run_to_its_end("init")
        stand.run_to_its_end("init")  # again: it changes only what is missing
        worker, read = _up(stand, stack)
        await _tell_a_session(stand, "h1")
        _check_consumers(stand, stack)
        assert (read.terminate(), worker.terminate()) == (0, 0)
    stand.check_writes()


def _check_consumers(stand: Stand, stack: ExitStack) -> None:
    """What reads `events` finds the session, and ends when it is told to."""
    collector = stack.enter_context(receiving(port=int(stand.ports["4318"])))
    consumers = {name: stand.start(name) for name in CONSUMERS}
    for name, process in consumers.items():
        stack.callback(process.kill)
        stand.wait_healthy(name, process)
    address = f"http://127.0.0.1:{stand.ports['9464']}/metrics"
    wait_until(
        lambda: COMPLETED in _text_at(address), timeout_s=30, what=lambda: _text_at(address)
    )
    wait_until(lambda: collector.spans, timeout_s=30, what=consumers["traces"].said)
    _check_what_prometheus_asks(stand)
    assert {process.terminate() for process in consumers.values()} == {0}


def _check_what_prometheus_asks(stand: Stand) -> None:
    """Every one of its jobs gets an answer, without a token."""
    for job in prometheus_jobs().values():
        name, port = asked(job)
        text = _text_at(f"http://127.0.0.1:{stand.port(str(port))}/metrics")
        assert "foldline_ready" in text, name


def _text_at(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - our own
        return answer.read().decode()


@pytest.mark.kafka
@pytest.mark.slow
async def test_with_three_brokers_one_may_die(
    own_cluster: OwnCluster, broker: Broker, tmp_path: Path
) -> None:
    """What the override says of topics is so: every append needs two brokers only."""
    cluster = own_cluster(brokers=3)
    three = Broker(cluster.bootstrap, broker.registry_url, broker.backend)
    stand = Stand(three, tmp_path, compose.services_of_three())
    with ExitStack() as stack:
        stand.run_to_its_end("init")
        worker, _ = _up(stand, stack)
        await _tell_a_session(stand, "before")
        cluster.kill(1)
        try:
            await _tell_a_session(stand, "after")
        except UncertainAppendError as error:
            raise AssertionError(worker.said()[-3_000:]) from error


def _up(stand: Stand, stack: ExitStack) -> tuple[Process, Process]:
    """Worker and read node, as soon as they are healthy; gone with the stack."""
    worker = stand.start("worker")
    stack.callback(worker.kill)
    read = stand.start("read")
    stack.callback(read.kill)
    stand.wait_healthy("worker", worker)
    stand.wait_healthy("read", read)
    return worker, read


async def _tell_a_session(stand: Stand, name: str) -> None:
    """A whole session through the read service, with a new token."""
    scopes = [word for scope in SCOPES for word in ("--scope", scope)]
    token = stand.foldline("read", "tokens", "add", name, "--kind", "HARNESS", *scopes)
    settings = Settings(
        token=SecretStr(token.strip()), verdict_timeout_ms=60_000, resend_max=2
    )
    async with foldline.connect(stand.read_url, settings=settings) as client:
        session = await client.create(agent="deployed")
        async with session.turn("hello"):
            pass
        await session.complete()
        view = await client.open(session.session_id)
        assert (await view.state()).status == "COMPLETED"
