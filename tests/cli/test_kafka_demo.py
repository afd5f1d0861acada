"""The demo, the importer and the looking commands on a log on Kafka: as anywhere else."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.fixtures import MakeLog, OwnCluster
from tests.cluster.logs import FreshLog, running_worker
from tests.cluster.processes import wait_until
from tests.cluster.served import served_log
from tests.cluster.shared import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.crash]

FOLDLINE = Path(sys.executable).with_name("foldline")
TRANSCRIPTS = Path(__file__).resolve().parents[1] / "fixtures" / "claude_code"
LIMIT_S = 300

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def served(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Generator[FreshLog]:
    """One log for these tests, and its worker."""
    with served_log(broker, tmp_path_factory.mktemp("kafka-demo")) as log:
        yield log


def start_demo(log: FreshLog, folder: Path) -> "subprocess.Popen[str]":
    """`foldline demo --json` with FOLDLINE_URL."""
    return subprocess.Popen(
        [str(FOLDLINE), "demo", "--json", "--keep", str(folder)],
        env=os.environ | log.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ending_of(demo: "subprocess.Popen[str]") -> dict[str, Any]:
    """Its last line; it says that everything is as it should be."""
    out, err = demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def as_on_one_machine(found: dict[str, Any], log: FreshLog) -> None:
    """The same JSON, but for what is another in every run."""
    assert found.pop("wake_ms") > 0
    assert found.pop("session_id").startswith("demo-")
    assert found.pop("events") > 0
    assert found == {
        "status": "COMPLETED",
        "killed": True,
        "epoch": 2,
        "side_effects": 1,
        "resolved": 1,
        "log": log.url,
    }


def test_the_demo_gives_the_same_and_every_command_shows_it(
    served: FreshLog, tmp_path: Path, run: Run
) -> None:
    """The agent is killed in the side effect, and it happens once."""
    found = ending_of(start_demo(served, tmp_path))
    session_id, events = found["session_id"], found["events"]
    as_on_one_machine(found, served)
    url = ("--log", served.cluster.url)
    listed = run("sessions", "--json", *url)
    assert session_id in {line["session_id"] for line in listed.lines()}
    assert len(run("events", session_id, "--json", *url).lines()) == events
    shown = run("show", session_id, "--json", *url)
    assert json.loads(shown.out)["status"] == "COMPLETED"
    state = run("state", session_id[:9], "--json", *url)
    assert json.loads(state.out)["seq"] == events
    verified = json.loads(run("verify", session_id, "--json", *url).out)
    assert (verified["ok"], verified["events"]) == (True, events)
    looked = run("doctor", "--json", *url).lines()
    assert next(f for f in looked[:-1] if f["about"] == "kafka")["status"] == "OK", looked


def test_an_import_again_adds_nothing(served: FreshLog, tmp_path: Path, run: Run) -> None:
    """The same report as on one machine; then all of it is there already."""
    here = f"sqlite:///{tmp_path}/sessions.db"
    tour = str(TRANSCRIPTS / "tour.jsonl")

    def report(url: str) -> dict[str, Any]:
        done = run("import", tour, "--json", "--log", url)
        assert done.code == 0, done.err
        return json.loads(done.out)

    first, there = report(served.cluster.url), report(here)
    assert first == there
    assert first["events"] > 0
    assert report(served.cluster.url)["events"] == 0


@pytest.mark.slow
def test_harness_worker_and_broker_die_at_once_and_the_demo_ends_the_same(
    broker: Broker, own_cluster: OwnCluster, make_fresh_log: MakeLog, tmp_path: Path
) -> None:
    """In the moment of the side effect nothing is left but what is on disk."""
    brokers = own_cluster()
    log = make_fresh_log(on=Broker(brokers.bootstrap, broker.registry_url, "own"))
    keep = tmp_path / "demo"
    mails = keep / "sent-mails.jsonl"
    with running_worker(log) as worker:
        demo = start_demo(log, keep)
        wait_until(
            lambda: mails.exists() and mails.stat().st_size,
            timeout_s=LIMIT_S,
            what=lambda: "the mail",
        )
        brokers.kill()
        worker.kill()
    brokers.start()
    with running_worker(log, name="w2"):
        as_on_one_machine(ending_of(demo), log)
