"""The three backends give the same broker, and nothing of a run stays behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from foldline.kafka_admin import BROKER_SETTINGS
from tests.cluster import backends, containers, jars
from tests.cluster.broker_settings import (
    KAFKA_VERSION,
    Node,
    as_environment,
    as_file,
    broker_settings,
    registry_environment,
)
from tests.cluster.processes import Process, free_ports, wait_until
from tests.cluster.shared import ROOT

WHERE = {
    "listeners",
    "advertised.listeners",
    "controller.quorum.voters",
    "log.dirs",
}
"""What differs between backends: where a broker listens, and where its data lies."""


def local(count: int = 1) -> list[Node]:
    return [
        Node(n, "127.0.0.1", 9000 + n, 9100 + n, f"/data-{n}") for n in range(1, count + 1)
    ]


def test_a_container_is_told_what_a_jar_is_told() -> None:
    """One function makes the settings of both; only places differ."""
    jar = broker_settings(local()[0], local())
    container = containers.container_environment(19_999)
    assert container.keys() == as_environment(jar).keys()
    differing = {
        name
        for name, value in jar.items()
        if as_environment({name: value}).items() - container.items()
    }
    assert differing == WHERE
    assert container["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://127.0.0.1:19999"
    assert container["KAFKA_LISTENERS"] == "PLAINTEXT://:19999,CONTROLLER://:9093"
    assert containers.container_registry_environment().keys() == (
        registry_environment(host="h", port=1, management_port=2).keys()
    )


def test_a_container_reaches_itself_where_it_tells_clients_that_it_is() -> None:
    """Its one listener is that between brokers, too: transactions end through it."""
    given = containers.container_environment(19_999)
    told = given["KAFKA_ADVERTISED_LISTENERS"].rpartition(":")[2]
    listeners = given["KAFKA_LISTENERS"].split(",")
    ports = dict(one.split("://:") for one in listeners)
    assert ports[given["KAFKA_INTER_BROKER_LISTENER_NAME"]] == told


def test_both_run_the_same_versions() -> None:
    assert f"apache/kafka:{KAFKA_VERSION}" == containers.KAFKA_IMAGE
    assert containers.REGISTRY_IMAGE.endswith(f":{jars.REGISTRY_VERSION}")
    assert jars.REGISTRY_ARTIFACT.split(":")[2] == jars.REGISTRY_VERSION


def test_a_broker_has_the_settings_that_a_take_over_needs() -> None:
    for nodes in (local(), local(3)):
        for node in nodes:
            settings = broker_settings(node, nodes)
            assert BROKER_SETTINGS.keys() <= settings.keys()
            slow = {n for n, w in BROKER_SETTINGS.items() if int(settings[n]) > int(w)}
            assert not slow


def test_three_brokers_keep_three_copies_and_need_two() -> None:
    settings = broker_settings(local(3)[0], local(3))
    assert settings["offsets.topic.replication.factor"] == "3"
    assert settings["transaction.state.log.min.isr"] == "2"
    assert settings["controller.quorum.voters"].count("@") == 3


def test_properties_become_variables_as_the_image_wants_them() -> None:
    assert as_environment({"a.b-c_d": "1"}) == {"KAFKA_A_B___C__D": "1"}
    assert as_file({"a": "1", "b": "2"}) == "a=1\nb=2\n"


@pytest.mark.parametrize(
    ("variables", "name", "reason"),
    [
        ({"FOLDLINE_TEST_KAFKA": "off"}, "none", "off"),
        ({"FOLDLINE_TEST_BOOTSTRAP": "h:1"}, "none", "FOLDLINE_TEST_REGISTRY is not"),
        (
            {"FOLDLINE_TEST_BOOTSTRAP": "h:1", "FOLDLINE_TEST_REGISTRY": "http://r"},
            "external",
            "",
        ),
        ({"PATH": "/nowhere", "JAVA_HOME": ""}, "none", "no Maven"),
    ],
)
def test_a_backend_is_chosen_by_what_there_is(
    variables: dict[str, str], name: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in (backends.BOOTSTRAP, backends.REGISTRY, backends.WANTED):
        monkeypatch.delenv(variable, raising=False)
    for variable, text in variables.items():
        monkeypatch.setenv(variable, text)
    chosen = backends.choose()
    assert chosen.name == name
    assert reason in chosen.reason


NEEDS_A_BROKER = """\
import pytest

@pytest.mark.kafka
def test_it(fresh_log):
    pass
"""


@pytest.mark.parametrize(
    ("wanted", "code", "said"),
    [("off", 0, "SKIPPED"), ("required", 1, "required, but")],
)
def test_without_a_broker_tests_are_skipped_with_the_reason_or_fail_where_required(
    wanted: str, code: int, said: str, tmp_path: Path
) -> None:
    """In the summary of a run, as a person sees it."""
    (tmp_path / "test_it.py").write_text(NEEDS_A_BROKER, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(
        (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8"), encoding="utf-8"
    )
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("FOLDLINE_TEST")},
        "FOLDLINE_TEST_KAFKA": wanted,
        "PATH": "/nowhere",
        "PYTHONPATH": str(ROOT),
    }
    environment.pop("JAVA_HOME", None)
    command = [sys.executable, "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "."],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout
    assert "no broker" in done.stdout or "no Maven" in done.stdout


PARENT = """\
import sys, time
from pathlib import Path
from tests.cluster.processes import Process
child = Process(["sleep", "600"], log=Path(sys.argv[1]))
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children so")
def test_what_a_test_started_ends_with_the_test_however_that_ends(tmp_path: Path) -> None:
    """Here by SIGKILL, which no code of its own survives."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    wait_until(lambda: command_of(child) == "sleep", timeout_s=30, what=lambda: "the child")
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: command_of(child) != "sleep", timeout_s=30, what=lambda: "its end")


def command_of(pid: int) -> str:
    """The name of a process; empty where there is none (or a dead one)."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if words[2] == "Z" else words[1].strip("()")


LISTENS = """\
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
print("up", flush=True)
time.sleep(600)
"""


def test_a_process_is_killed_frozen_woken_and_asked_to_end(tmp_path: Path) -> None:
    process = Process([sys.executable, "-c", LISTENS], log=tmp_path / "log")
    process.wait_for("up", timeout_s=30)
    process.stop()
    process.wake()
    assert process.terminate() == 3
    process = Process([sys.executable, "-c", LISTENS], log=tmp_path / "log")
    process.wait_for("up", timeout_s=30)  # its own words, not the ones before
    process.kill()
    assert process.wait() == -signal.SIGKILL
    with pytest.raises(AssertionError, match="ended with -9"):
        process.wait_for("more", timeout_s=30)


def test_a_port_is_given_to_one() -> None:
    assert len(set(free_ports(50))) == 50
