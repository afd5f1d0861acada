"""A session that cannot be read: every view of many names it, and shows the others."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from foldline.processors.sqlite_file import position
from tests.cli.conftest import Run
from tests.otlp_receiver import Receiver, receiving

DAMAGED = "open-1"

RULES = """
[[rule]]
name = "turns"
kind = "budget"
turns = 0
"""


@pytest.fixture(autouse=True)
def _damage(
    log: object,  # it is written before the damage
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fourth event of one of three sessions is no event any more."""
    del log
    monkeypatch.setenv("FOLDLINE_STATE_DIR", str(tmp_path / "state"))
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection, connection:
        query = "SELECT key FROM sessions WHERE session_id = ?"
        (key,) = connection.execute(query, (DAMAGED,)).fetchone()
        update = "UPDATE events SET body = x'00' WHERE position = ?"
        assert connection.execute(update, (position(key, 4),)).rowcount == 1


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def test_statistics_leave_it_out(run: Run) -> None:
    done = run("stats", "--json")
    assert (done.code, done.json()["sessions"]) == (0, 2)
    assert f"{DAMAGED} is left out" in done.err


def test_a_backtest_leaves_it_out(run: Run) -> None:
    done = run("policies", "backtest", "budget", "--set", "turns=0", "--json")
    assert (done.code, done.lines()[-1]["sessions"]) == (0, 2)
    assert f"{DAMAGED} is left out" in done.err


def test_policies_at_work_judge_the_others(run: Run, tmp_path: Path) -> None:
    rules = tmp_path / "policies.toml"
    rules.write_text(RULES, encoding="utf-8")
    done = run("policies", "run", "--rules", str(rules), "--once", "--mirrored", "--json")
    assert DAMAGED not in {one["session_id"] for one in done.lines()}
    assert f"{DAMAGED}: it is not judged" in done.err


def test_the_spans_of_the_others_are_sent(run: Run, receiver: Receiver) -> None:
    done = run("trace", "--all", "--otlp", receiver.url, "--json")
    assert done.json()["lost"] == [DAMAGED]
    assert f"{DAMAGED} is left out" in done.err


def test_the_fleets_windows_have_what_can_be_read(run: Run) -> None:
    done = run("fleet", "show", "--json")
    assert (done.code, done.json()["sessions"]) == (0, 3)
    assert f"{DAMAGED} is counted only up to what cannot be read" in done.err


def test_metrics_count_what_can_be_read_and_tell_the_gap(run: Run) -> None:
    done = run("metrics", "--json")
    assert (done.code, done.json()["gaps"]) == (0, 1)


def test_a_session_whose_spans_are_refused_is_said_and_the_answer_is_no(
    run: Run, receiver: Receiver
) -> None:
    receiver.statuses = [400]
    done = run("trace", "--all", "--otlp", receiver.url, "--json")
    assert (done.code, len(done.json()["refused"])) == (1, 1)
    assert "status 400" in done.err
