"""`foldline serve` and `foldline tokens`, as a process that an operator runs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from foldline.cli import main
from foldline.cli.serve import is_loopback
from foldline.processors.http_log import HttpLog
from foldline.processors.open_log import open_log
from foldline.projections.tokens import changing, load
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.samples import created, said, started
from tests.cluster.processes import free_ports, wait_until

WAIT_S = 60
MAIN = "import sys; from foldline.cli import main; sys.exit(main())"


@dataclass
class Running:
    process: subprocess.Popen[str]
    url: str

    def log(self, secret: str = "") -> HttpLog:
        return HttpLog(self.url, settings=Settings(token=secret))  # type: ignore[arg-type]


@contextmanager
def running(*options: str, **environment: str) -> Generator[Running]:
    """The command in a process of its own; killed at the end, if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "--json", "serve", "--port", "0", *options],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate(timeout=WAIT_S)
        yield Running(process, json.loads(line)["url"])
    finally:
        process.kill()
        process.communicate(timeout=WAIT_S)


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/sessions.db"
    log = open_log(url)
    LogStory(log, session_id="s").given(created(), started())
    log.close()
    return url


def test_a_log_is_served_to_clients_until_it_is_told_to_stop(url: str) -> None:
    with running(FOLDLINE_URL=url) as service:
        client = service.log()
        story = LogStory(client, session_id="s").given(said("through the service"))
        assert story.seq == 3
        client.close()
        with httpx2.stream(
            "GET", f"{service.url}/foldline/v1/sessions/s/events/stream", timeout=WAIT_S
        ) as stream:
            lines = stream.iter_lines()
            while "id: 3" not in next(lines):
                pass
            service.process.send_signal(signal.SIGTERM)
            for _ in lines:  # it ends by itself, and in order
                pass
        assert service.process.wait(WAIT_S) == 0
    log = open_log(url)
    assert [r.seq for r in log.events("s")] == [1, 2, 3]
    log.close()


def test_a_copy_is_asked_of_a_read_node_with_a_replica(
    run: Callable[..., Any], url: str
) -> None:
    nobody = run("--log", url, "checkpoint", "/copy")
    assert (nobody.code, "FOLDLINE_READ_URL" in nobody.err) == (2, True)
    with running(FOLDLINE_URL=url) as service:
        without = run("--log", service.url, "checkpoint", "/copy")
    assert (without.code, "has no replica" in without.err) == (4, True)


def test_what_was_acknowledged_is_there_after_it_was_killed(url: str) -> None:
    with running(FOLDLINE_URL=url) as service:
        client = service.log()
        LogStory(client, session_id="s").given(said("remember"))
        service.process.kill()
        client.close()
    log = open_log(url)
    assert log.state("s").seq == 3  # type: ignore[union-attr]
    log.close()


def test_with_tokens_a_process_serves_who_has_one(
    url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FOLDLINE_TOKENS_FILE", str(tmp_path / "tokens.json"))
    assert main(["tokens", "add", "me", "--scope", "read", "--kind", "PERSON"]) == 0
    secret = capsys.readouterr().out.strip()
    with running(FOLDLINE_URL=url) as it:  # the file's name is in the environment
        sessions = f"{it.url}/foldline/v1/sessions"
        headers = {"authorization": f"Bearer {secret}"}
        assert httpx2.get(sessions).status_code == 401
        assert httpx2.get(sessions, headers=headers).status_code == 200


def test_a_node_with_tokens_is_scraped_without_one_at_its_health_port(
    url: str, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    tokens = tmp_path / "tokens.json"
    tokens.write_text('{"tokens": []}')
    variables = {"FOLDLINE_URL": url, "FOLDLINE_TOKENS_FILE": str(tokens)}
    with running("--health", f"127.0.0.1:{port}", **variables) as it:

        def ask(path: str) -> httpx2.Response:
            return httpx2.get(f"http://127.0.0.1:{port}{path}")

        assert httpx2.get(f"{it.url}/metrics").status_code == 401
        assert ask("/healthz").status_code == 200
        wait_until(
            lambda: ask("/readyz").is_success, timeout_s=WAIT_S, what=lambda: "not ready"
        )
        text = ask("/metrics").text
        assert 'route="/metrics",status="401"} 1.0' in text
        assert "foldline_ready 1" in text


def test_tokens_are_added_listed_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tokens.json"
    monkeypatch.setenv("FOLDLINE_TOKENS_FILE", str(path))
    options = ["--tenant", "acme", "--scope", "read", "--scope", "append", "--days", "7"]
    assert main(["--json", "tokens", "add", "ci", *options]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["token"].startswith("fl_")
    assert (made["tenant"], made["scopes"]) == ("acme", ["append", "read"])
    assert made["token"] not in path.read_text()
    assert main(["tokens", "list"]) == 0
    listed = capsys.readouterr().out
    assert "ci" in listed
    assert "acme" in listed
    assert main(["tokens", "add", "ci", "--scope", "read"]) == 2
    assert main(["tokens", "remove", "ci"]) == 0
    assert main(["tokens", "remove", "ci"]) == 2
    assert json.loads(path.read_text()) == {"tokens": []}


def test_a_token_is_added_behind_whoever_changes_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tokens.json"
    monkeypatch.setenv("FOLDLINE_TOKENS_FILE", str(path))
    assert main(["tokens", "add", "first", "--scope", "read"]) == 0
    with ThreadPoolExecutor(1) as pool:
        with changing(path) as held:
            adding = pool.submit(main, ["tokens", "add", "second", "--scope", "read"])
            with suppress(TimeoutError):
                adding.result(0.5)  # it has had time to read the file
            held.append(held[0].model_copy(update={"token_id": "third"}))
        assert adding.result(WAIT_S) == 0
    assert [token.token_id for token in load(path)] == ["first", "third", "second"]


@pytest.mark.parametrize(
    "options",
    [
        ["x y", "--scope", "read"],
        ["x", "--scope", "root"],
        ["x", "--scope", "read", "--tenant", "../up"],
        ["x", "--scope", "read", "--kind", "AGENT"],
    ],
)
def test_a_token_that_means_nothing_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setenv("FOLDLINE_TOKENS_FILE", str(tmp_path / "tokens.json"))
    assert main(["tokens", "add", *options]) == 2
    assert not (tmp_path / "tokens.json").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "--insecure"),  # noqa: S104 - that it is refused
        (["--host", "::"], "--insecure"),
        (["--partitions", "0-3"], "Kafka"),
        (["--port", "99999"], "port"),
    ],
)
def test_what_cannot_be_served_is_refused_at_once(
    url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    said: str,
) -> None:
    monkeypatch.delenv("FOLDLINE_TOKENS_FILE", raising=False)
    assert main(["--log", url, "serve", *options]) == 2
    assert said in capsys.readouterr().err


def test_a_log_that_is_not_there_is_not_made_by_serving_it(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    assert main(["--log", f"sqlite:///{path}", "serve", "--port", "0"]) == 3
    assert not path.exists()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104 - a name to judge
        ("::", False),
        ("10.0.0.1", False),
        ("example.org", False),
        ("localhost.example.org", False),
    ],
)
def test_only_this_machines_own_addresses_are_loopback(host: str, loopback: bool) -> None:  # noqa: FBT001 - a table
    assert is_loopback(host) is loopback
