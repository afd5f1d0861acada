"""`foldline replay`: hashes, states, steps, harnesses, and a whole log."""

import asyncio
import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foldline.processors.open_log import open_log
from foldline.producers.client import connect
from tests.replaying import Agent

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., Any]

HARNESS = """\
import asyncio
import threading

from tests.replaying import Agent

same = Agent().run
changed = Agent(send_schema={"type": "string"}).run
nothing = None


def no_harness(session, inputs):
    pass


async def leaves_a_task(session, inputs):
    async def stays():
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass

    session.stays = asyncio.create_task(stays())
    await same(session, inputs)


async def leaves_a_thread(session, inputs):
    threading.Thread(target=threading.Event().wait).start()
    await same(session, inputs)


async def leaves_a_call(session, inputs):
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    await same(session, inputs)


async def breaks_live(session, inputs):
    await same(session, inputs)
    if inputs.live:
        raise ZeroDivisionError
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A log with a session of two turns, and a harness beside it."""
    url = f"sqlite:///{tmp_path}/sessions.db"
    (tmp_path / "harness_to_replay.py").write_text(HARNESS)

    async def record() -> None:
        async with connect(url) as client:
            owned = await Agent().record(client, "Tell Ada.", "Again.")
            await owned.checkpoint()
            await owned.complete()

    asyncio.run(record())
    return url


@pytest.fixture
def session_id(url: str) -> str:
    log = open_log(url)
    (summary,) = log.sessions()
    log.close()
    return summary.session_id


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is run beside the harness, which each test imports anew."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("harness_to_replay", None)


def lines(done: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_replay_prints_the_hash_after_each_event_and_compares(
    run: Run, url: str, session_id: str
) -> None:
    done = run("replay", session_id[:20], "--log", url, "--json")
    assert done.code == 0, done.err
    *points, last = lines(done)
    assert [point["seq"] for point in points] == list(range(1, len(points) + 1))
    assert last == {
        "session_id": session_id,
        "ok": True,
        "events": len(points),
        "compared": 4,
        "skipped": 0,
        "problem_count": 0,
    }
    state = json.loads(run("state", session_id, "--log", url, "--json").out)
    assert points[-1]["state_hash"] == state["state_hash"]
    said = run("replay", session_id, "--log", url).out
    assert "checkpoint ok" in said
    assert "head ok" in said


def test_a_state_at_a_seq_is_the_one_that_state_shows(
    run: Run, url: str, session_id: str
) -> None:
    for how in ((), ("--json",)):
        ways = [
            run(command, session_id, "--at-seq", "9", "--log", url, *how).out
            for command in ("replay", "state")
        ]
        assert ways[0] == ways[1] != ""
    assert run("replay", session_id, "--at-seq", "999", "--log", url).code == 2


def test_a_step_tells_which_fields_an_event_changed(
    run: Run, url: str, session_id: str
) -> None:
    done = run("replay", session_id, "--step", "--log", url, "--json")
    assert done.code == 0
    turn = next(step for step in lines(done) if step["type"] == "TurnStarted")
    status = next(c for c in turn["changes"] if c["path"] == "status")
    assert (status["before"], status["after"]) == ("CREATED", "RUNNING")
    said = run("replay", session_id, "--step", "--log", url).out
    assert "status: CREATED -> RUNNING" in said


def test_at_a_terminal_the_walk_goes_on_back_and_anywhere(
    url: str, session_id: str
) -> None:
    """What a person types and sees, on a real terminal."""
    ours, theirs = pty.openpty()
    command = [str(Path(sys.executable).with_name("foldline")), "replay", session_id]
    process = subprocess.Popen(
        [*command, "--step", "--log", url],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.STDOUT,
        env=os.environ | {"NO_COLOR": "1"},
    )
    os.close(theirs)
    os.write(ours, b"n\nb\nb\ng 4\ng 999\nwhat\nq\n")
    seen = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other side is gone
            break
        if not part:
            break
        seen += part
    os.close(ours)
    assert process.wait(60) == 0
    text = seen.decode()
    places = [text.index(f"#{seq} ") for seq in (1, 2, 4)]
    assert places == sorted(places)
    assert "this is the first event" in text
    assert "no event at seq 999" in text
    assert "n or Enter" in text


@pytest.mark.usefixtures("here")
def test_a_harness_is_replayed_and_the_cause_of_a_difference_named(
    run: Run, url: str, session_id: str
) -> None:
    how = ("--log", url, "--execute")
    done = run("replay", session_id, *how, "harness_to_replay:same", "--json")
    assert done.code == 0, done.err
    (report,) = lines(done)
    assert report["ok"]
    assert (report["model_calls"], report["tool_calls"]) == (6, 4)
    done = run("replay", session_id, *how, "harness_to_replay:changed", "--json")
    assert done.code == 1
    (report,) = lines(done)
    assert report["divergence"]["cause"] == "tool schema"
    said = run("replay", session_id, *how, "harness_to_replay:changed")
    assert "tool schema: input_schema of send" in said.out
    assert "none run" in said.out


@pytest.mark.usefixtures("here")
def test_a_replay_goes_on_live_in_a_fork_of_the_log(
    run: Run, url: str, session_id: str
) -> None:
    how = ("--log", url, "--execute", "harness_to_replay:same", "--from-seq", "9")
    done = run("replay", session_id, *how, "--json")
    assert (done.code, lines(done)[0]["live_session_id"]) == (0, "")
    done = run("replay", session_id, *how, "--live", "--json")
    assert done.code == 0, done.err
    fork_id = lines(done)[0]["live_session_id"]
    state = json.loads(run("state", fork_id, "--log", url, "--json").out)
    assert (state["status"], state["fork_seq"]) == ("COMPLETED", 9)


@pytest.mark.usefixtures("here")
def test_an_error_of_the_harness_is_said_to_be_its_own(
    run: Run, url: str, session_id: str
) -> None:
    how = ("--log", url, "--execute")
    done = run("replay", session_id, *how, "harness_to_replay:no_harness", "--json")
    assert done.code == 1
    assert lines(done)[0]["divergence"]["cause"] == "harness"
    live = ("harness_to_replay:breaks_live", "--from-seq", "9", "--live")
    done = run("replay", session_id, *how, *live)
    assert done.code == 2
    assert "the harness raised ZeroDivisionError" in done.err
    (fork_id,) = re.findall("going on live in session (.+)", done.err)
    state = json.loads(run("state", fork_id, "--log", url, "--json").out)
    assert (state["parent_session_id"], state["fork_seq"]) == (session_id, 9)


@pytest.mark.parametrize("left", ["task", "thread", "call"])
def test_what_a_harness_leaves_running_ends_with_its_replay(
    foldline: Run, url: str, session_id: str, tmp_path: Path, left: str
) -> None:
    """A task that ignores being cancelled, or a thread, would keep the process for ever."""
    named = f"harness_to_replay:leaves_a_{left}"
    path = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    how = ("--log", url, "--json", "--execute", named)
    done = foldline("replay", session_id, *how, env=path)
    assert done.code == 0, done.err
    assert json.loads(done.out)["model_calls"] == 6
    assert "left something running" in done.err


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "arguments",
    [
        ("--execute", "no_such_module_here:run"),
        ("--execute", "harness_to_replay:nobody"),
        ("--execute", "harness_to_replay"),
        ("--execute", "harness_to_replay:nothing"),
        ("--execute", "harness_to_replay:same", "--live"),
        ("--execute", "harness_to_replay:same", "--from-seq", "999"),
        ("--execute", "harness_to_replay:same", "--step"),
        ("--from-seq", "3"),
        ("--all",),
        ("--verify", "--all"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(
    run: Run, url: str, session_id: str, arguments: tuple[str, ...]
) -> None:
    done = run("replay", session_id, "--log", url, *arguments)
    assert done.code == 2, (done.out, done.err)


def test_nobody_and_an_empty_command_line_are_refused(run: Run, url: str) -> None:
    assert run("replay", "nobody's", "--log", url).code == 3
    assert run("replay", "--log", url).code == 2
    assert run("replay", "--verify", "--log", url).code == 2


def test_a_whole_log_is_verified_and_a_damaged_session_named(
    run: Run, url: str, session_id: str, tmp_path: Path
) -> None:
    done = run("replay", "--verify", "--all", "--log", url, "--json")
    assert done.code == 0
    assert lines(done)[0]["sessions"] == 1
    with sqlite3.connect(tmp_path / "sessions.db") as database:
        database.execute("DELETE FROM events WHERE position & 0xFFFFFFFF = 7")
    database.close()
    for arguments in (("--verify", "--all"), ("--verify", session_id), (session_id,)):
        done = run("replay", *arguments, "--log", url)
        assert done.code == 1
        assert "missing" in done.out
    assert session_id in run("replay", "--verify", "--all", "--log", url).out


@pytest.mark.usefixtures("here")
def test_an_imported_session_folds_and_is_no_record_for_a_harness(
    run: Run, tmp_path: Path
) -> None:
    """A mirrored session has no requests to compare with; its states it has."""
    url = f"sqlite:///{tmp_path}/mirrored.db"
    transcripts = ROOT / "tests" / "fixtures" / "claude_code"
    assert run("import", str(transcripts), "--log", url).code in (0, 1)
    assert run("replay", "--verify", "--all", "--log", url).code == 0
    log = open_log(url)
    session_id = log.sessions()[0].session_id
    log.close()
    assert run("replay", session_id, "--log", url).code == 0
    how = ("--log", url, "--execute", "harness_to_replay:same")
    (tmp_path / "harness_to_replay.py").write_text(HARNESS)
    done = run("replay", session_id, *how)
    assert done.code == 2
    assert "mirrors another harness" in done.err
