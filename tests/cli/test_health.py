"""`--health`: commands that run on say over HTTP whether they are well, and if not, why."""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foldline.processors.log import Log
from tests.cli.conftest import Run
from tests.cluster.processes import Process, free_ports, wait_until

FOLDLINE = str(Path(sys.executable).with_name("foldline"))


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


def started(url: str, tmp_path: Path, port: int, *words: str) -> Iterator[Process]:
    """A command that runs on, with its health at a port of this machine."""
    process = Process(
        [FOLDLINE, *words, "--health", f"127.0.0.1:{port}", "--log", url],
        log=tmp_path / "said.log",
        environment={"FOLDLINE_STATE_DIR": str(tmp_path / "state")},
    )
    try:
        yield process
    finally:
        process.kill()


def readiness(port: int) -> tuple[int, dict[str, Any]]:
    """The status and the body of /readyz; 0 while nobody listens."""
    address = f"http://127.0.0.1:{port}/readyz"
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except OSError:
        return 0, {}


def test_recovery_is_ready_while_it_looks(
    log: Log, url: str, tmp_path: Path, port: int
) -> None:
    del log
    for process in started(url, tmp_path, port, "recovery", "run", "--every-ms", "50"):
        wait_until(lambda: readiness(port)[0] == 200, timeout_s=30, what=process.said)
        assert process.terminate() == 0


def test_policies_are_ready_while_they_look(
    log: Log, url: str, tmp_path: Path, port: int
) -> None:
    del log
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[rule]]\nname = "no-mail"\nkind = "forbidden-tool"\ntools = ["mail"]\n'
    )
    words = ("policies", "run", "--rules", str(rules), "--every-ms", "50")
    for process in started(url, tmp_path, port, *words):
        wait_until(lambda: readiness(port)[0] == 200, timeout_s=30, what=process.said)
        assert process.terminate() == 0


def test_traces_say_what_keeps_spans_from_being_sent(
    log: Log, url: str, tmp_path: Path, port: int
) -> None:
    del log
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    words = ("trace", "--all", "--follow", "--every-ms", "50", "--otlp", nobody)
    for process in started(url, tmp_path, port, *words):
        wait_until(
            lambda: nobody in str(readiness(port)[1].get("waits_for")),
            timeout_s=30,
            what=process.said,
        )
        assert readiness(port)[0] == 503


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("address", ["x", "127.0.0.1:99999", "no.such.host.invalid:1"])
def test_an_address_where_nothing_can_listen_is_refused(run: Run, address: str) -> None:
    done = run("recovery", "run", "--health", address)
    assert done.code == 2
    assert "--health" in done.err
