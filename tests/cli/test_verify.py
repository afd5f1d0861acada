"""verify says yes to what was recorded, and no, with session and seq, to the rest."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foldline.processors.log import Log

Run = Callable[..., Any]


@pytest.fixture
def file(log: Log, tmp_path: Path) -> Path:
    """The log's file, all of it in one place."""
    log.close()
    return tmp_path / "sessions.db"


def damage(file: Path, session_id: str, seq: int) -> None:
    """Flip one bit in the last byte of a stored event."""
    database = sqlite3.connect(file)
    with database:
        position, body = database.execute(
            "SELECT position, events.body FROM events "
            "JOIN sessions ON key = position >> 32 "
            "WHERE session_id = ? AND position & 4294967295 = ?",
            (session_id, seq),
        ).fetchone()
        flipped = body[:-1] + bytes([body[-1] ^ 1])
        database.execute(
            "UPDATE events SET body = ? WHERE position = ?", (flipped, position)
        )
    database.close()


@pytest.mark.usefixtures("log")
def test_what_was_recorded_is_verified(run: Run) -> None:
    done = run("verify", "--json")
    assert done.code == 0
    view = done.json()
    assert (view["ok"], view["sessions"], view["events"]) == (True, 3, 22)
    assert view["problems"] == []


@pytest.mark.usefixtures("log")
def test_one_session_is_verified_by_the_beginning_of_its_id(run: Run) -> None:
    view = run("verify", "open", "--json").json()
    assert (view["sessions"], view["events"]) == (1, 16)
    assert run("verify", "nobody").code == 3


def test_one_flipped_bit_is_found_with_session_and_seq(run: Run, file: Path) -> None:
    damage(file, "open-1", 5)
    done = run("verify", "--json")
    assert done.code == 1
    view = done.json()
    assert view["ok"] is False
    assert {"open-1"} == {problem["session_id"] for problem in view["problems"]}
    assert min(problem["seq"] for problem in view["problems"]) in (5, 6)


def test_a_problem_is_told_to_people_with_session_and_seq(run: Run, file: Path) -> None:
    damage(file, "open-1", 5)
    done = run("verify", "open-1")
    assert done.code == 1
    assert "open-1, seq " in done.out
    assert "not ok" in done.out
