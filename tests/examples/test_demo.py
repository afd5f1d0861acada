"""The demo, run as a user runs it: real processes, a real SIGKILL, a real ledger."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from foldline.cli import demo as command
from foldline.cli.failures import NoDemoError
from foldline.faults import CRASH_POINTS

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "demo"
FOLDLINE = Path(sys.executable).with_name("foldline")
POINTS = sorted(p for p in CRASH_POINTS if p.startswith(("CP_TOOL_", "CP_APPEND_")))
LIMIT_S = 180

REPAIRED = """\
def total_cents(items: list[tuple[int, int]]) -> int:
    return sum(price * quantity for price, quantity in items)
"""

# The script's tool calls, counted from 1.
RUN_TESTS, WRITE_FILE, COMMIT = 1, 3, 7
TRANSACTIONS = 2 + 4 * COMMIT + 4
"""How often one undisturbed process appends: session and turn; for each tool call the
model's start and answer, and the tool's; the last answer and the ends of both."""

pytestmark = pytest.mark.crash


def run(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run `foldline` with these arguments, and PATH where another one is wanted."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FOLDLINE_")}
    return subprocess.run(
        [str(FOLDLINE), *arguments],
        env=environment | ({} if path is None else {"PATH": path}),
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def summary(*arguments: str, keep: Path, path: str | None = None) -> dict[str, Any]:
    """The demo's last line; it says that everything is as it should be."""
    done = run("demo", "--json", "--keep", str(keep), *arguments, path=path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


ANSWERS: tuple[dict[str, str], ...] = (
    {"name": "write_file", "path": "invoice/total.py", "content": REPAIRED},
    {"name": "run_tests"},
    {"name": "send_mail", "to": "maria@example.com", "subject": "Low", "text": "Sorry."},
    {"name": "commit", "message": "Count every piece"},
)
"""What the model asks for, one tool after the other."""


@contextmanager
def model_server() -> Generator[tuple[str, list[dict[str, Any]]]]:
    """Serve chat completions; gives the URL, and every request that came."""
    asked: list[dict[str, Any]] = []

    class Completions(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            asked.append(json.loads(self.rfile.read(size)))
            body = json.dumps(_completion(asked[-1]["messages"])).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Keep the test's output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Completions) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", asked
        server.shutdown()


def _completion(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer that follows on as many results of tools."""
    done = sum(message["role"] == "tool" for message in messages)
    if done == len(ANSWERS):
        return {"choices": [{"message": {"role": "assistant", "content": "Done."}}]}
    arguments = dict(ANSWERS[done])
    function = {"name": arguments.pop("name"), "arguments": json.dumps(arguments)}
    call = {"id": f"call_{done}", "type": "function", "function": function}
    return {"choices": [{"message": {"role": "assistant", "tool_calls": [call]}}]}


def test_the_agent_is_killed_in_the_side_effect_and_it_happens_once(
    tmp_path: Path,
) -> None:
    """The line that the README promises, and nothing else in it."""
    found = summary(keep=tmp_path)
    wake_ms, events, session_id = (
        found.pop(name) for name in ("wake_ms", "events", "session_id")
    )
    assert found == {
        "status": "COMPLETED",
        "killed": True,
        "epoch": 2,
        "side_effects": 1,
        "resolved": 1,
        "log": f"sqlite:///{tmp_path / 'sessions.db'}",
    }
    assert wake_ms > 0
    verified = json.loads(run("verify", "--json", "--log", found["log"]).stdout)
    assert verified["ok"] is True
    assert (verified["sessions"], verified["events"]) == (1, events)
    assert run("show", session_id, "--log", found["log"]).returncode == 0


@pytest.fixture
def crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], dict[str, Any]]:
    """The demo with a crash point, started from this process: an import less."""

    def play(point: str) -> dict[str, Any]:
        arguments = ["demo", "--json", f"--keep={tmp_path}", f"--crash-at={point}"]
        monkeypatch.setattr(sys, "argv", arguments)
        for name in [name for name in os.environ if name.startswith("FOLDLINE_")]:
            monkeypatch.delenv(name)
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(DEMO), run_name="__main__")
        for path in DEMO.glob("[a-z]*.py"):
            sys.modules.pop(path.stem, None)
        said = capsys.readouterr()
        assert ended.value.code == 0, said.err
        return json.loads(said.out.splitlines()[-1])

    return play


@pytest.mark.parametrize("point", POINTS)
def test_it_ends_the_same_wherever_the_first_process_dies(
    point: str, crash: Callable[[str], dict[str, Any]]
) -> None:
    """Every named point of a tool run and of an append, in the middle of the work."""
    found = crash(point)
    assert (found["status"], found["killed"], found["epoch"]) == ("COMPLETED", True, 2)
    assert found["side_effects"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        f"{point}:{call}"
        for point in ("CP_TOOL_AFTER_START", "CP_TOOL_AFTER_EFFECT")
        for call in (RUN_TESTS, WRITE_FILE, COMMIT)
    ],
)
def test_a_call_of_another_effect_is_run_again(
    point: str, crash: Callable[[str], dict[str, Any]]
) -> None:
    """Nobody need be asked about what may be repeated."""
    found = crash(point)
    assert (found["status"], found["side_effects"]) == ("COMPLETED", 1)
    assert found["resolved"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "epoch"),
    [("CP_APPEND_BEFORE_SEND:1", 1), (f"CP_APPEND_AFTER_COMMIT:{TRANSACTIONS}", 1)],
)
def test_before_the_session_and_after_its_end_there_is_nobody_to_take_over_from(
    point: str, epoch: int, crash: Callable[[str], dict[str, Any]]
) -> None:
    """The first process dies before its first append, or right after its last one."""
    found = crash(point)
    assert (found["status"], found["epoch"]) == ("COMPLETED", epoch)
    assert found["side_effects"] == 1


def test_a_real_model_behind_a_url_is_asked_in_the_same_loop(tmp_path: Path) -> None:
    """An OpenAI-compatible server that answers by what it is sent, and nothing else."""
    with model_server() as (url, asked):
        found = summary(f"--model-url={url}", "--model=a-model", keep=tmp_path)
    assert (found["side_effects"], found["resolved"]) == (1, 1)
    assert {body["model"] for body in asked} == {"a-model"}
    tools = {tool["function"]["name"] for tool in asked[0]["tools"]}
    assert tools == {"read_file", "write_file", "run_tests", "commit", "send_mail"}
    shown = [message["content"] for message in asked[-1]["messages"]]
    assert "sent as mail 1" in shown, "what recovery found out is what the model is told"


def test_a_model_that_does_not_answer_is_one_clear_line(tmp_path: Path) -> None:
    """Nothing listens there."""
    done = run(
        "demo",
        *("--keep", str(tmp_path)),
        *("--model-url", "http://127.0.0.1:9/v1", "--model", "a-model"),
    )
    assert done.returncode == 1
    assert "agent: " in done.stderr
    assert "Traceback" not in done.stderr


def test_it_works_without_git_and_says_so(tmp_path: Path) -> None:
    """A machine with Python and make has no git, perhaps."""
    done = run("demo", "--keep", str(tmp_path), path=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "this machine has no git" in done.stdout


def test_the_story_names_what_was_unknown_and_where_to_look(tmp_path: Path) -> None:
    """A person learns what happened, and the commands printed work as they are."""
    done = run("demo", "--keep", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "SIGKILL" in done.stdout
    assert "unknown: send_mail" in done.stdout
    assert "asked" in done.stdout
    assert f"FOLDLINE_URL=sqlite:///{tmp_path / 'sessions.db'}" in done.stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_repair_is_committed_in_the_repository(tmp_path: Path) -> None:
    """What was decided after the crash knows what was found out about the mail."""
    summary(keep=tmp_path)
    repository = tmp_path / "repository"
    said = subprocess.run(
        ["git", "log", "--format=%s"], cwd=repository, check=True, capture_output=True
    )
    assert said.stdout.decode().splitlines() == [
        "Count every piece of an invoice",
        "An invoice package, with a bug",
    ]
    assert "sent as mail 1" in (repository / "CHANGELOG.md").read_text()


def test_a_log_of_the_users_own_takes_the_session_beside_its_others(
    tmp_path: Path,
) -> None:
    """With --log the demo's session can be looked at where all the others are."""
    url = f"sqlite:///{tmp_path / 'mine.db'}"
    first = summary("--log", url, keep=tmp_path / "first")
    second = summary("--log", url, keep=tmp_path / "second")
    assert first["log"] == second["log"] == url
    listed = run("sessions", "--json", "--log", url).stdout.splitlines()
    assert {json.loads(line)["session_id"] for line in listed} == {
        first["session_id"],
        second["session_id"],
    }


def test_a_second_demo_in_one_folder_is_refused(tmp_path: Path) -> None:
    """Two ledgers in one folder would count each other's mails."""
    (tmp_path / "repository").mkdir()
    done = run("demo", "--keep", str(tmp_path))
    assert done.returncode == 2
    assert "a demo was there before" in done.stderr


def test_a_log_that_dies_with_its_process_is_refused() -> None:
    """Two processes share nothing in memory."""
    done = run("demo", "--log", "memory:")
    assert done.returncode == 2
    assert "memory:" in done.stderr


def test_an_installation_without_its_source_says_where_the_demo_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel has no examples."""
    monkeypatch.setattr(command, "__file__", str(tmp_path / "foldline" / "cli" / "x.py"))
    with pytest.raises(NoDemoError, match="make demo"):
        command.demo_folder()
