"""fork, diff and tree on the command line; show and events say where a fork comes from."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foldline.processors.log import Log
from foldline.schemas.events import SessionCreated
from tests.cli.conftest import Writer

Run = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("log")


def forked(run: Run, name: str, parent: str = "open-1", at_seq: int = 8) -> None:
    done = run("fork", parent, "--at-seq", str(at_seq), "--session-id", name)
    assert done.code == 0, done
    assert name in done.out


def tell(log: Log, session_id: str, *texts: str) -> None:
    writer = Writer(log, session_id)
    for text in texts:
        writer.append_message(text)


def test_a_fork_is_made_and_says_where(run: Run) -> None:
    done = run("fork", "open", "--at-seq", "8", "--label", "try=2", "--json")
    answer = done.json()
    assert done.code == 0
    assert (answer["kind"], answer["seq"]) == ("ACCEPTED", 9)
    assert (answer["parent_session_id"], answer["fork_seq"]) == ("open-1", 8)
    state = run("state", answer["session_id"], "--json").json()
    assert (state["goal"]["seq"], state["plan"]["seq"], state["owner"]) == (9, 9, "")
    assert run("verify").code == 0


@pytest.mark.parametrize("at_seq", ["0", "-1", "99", "9223372036854775808"])
def test_a_seq_that_is_not_there_is_refused(run: Run, at_seq: str) -> None:
    done = run("fork", "open-1", f"--at-seq={at_seq}", "--session-id", "nothing")
    assert done.code == 2
    assert "its history has seqs 1 to" in done.err
    assert run("show", "nothing").code == 3


def test_an_id_that_is_taken_is_no_fork(run: Run) -> None:
    done = run("fork", "open-1", "--at-seq", "3", "--session-id", "done-1")
    assert done.code == 1
    assert "done-1" in done.out


def test_a_label_without_a_value_is_refused(run: Run) -> None:
    assert run("fork", "open-1", "--at-seq", "3", "--label", "x").code == 2


def test_show_and_events_say_where_a_fork_comes_from(run: Run) -> None:
    forked(run, "child")
    forked(run, "leaf", "child", 9)
    assert "fork of open-1 at seq 8" in run("show", "child").out
    shown = run("show", "leaf").out
    assert "fork of child at seq 9" in shown
    assert "open-1 (seq 1 to 8)" in shown
    assert [a["last_seq"] for a in run("show", "leaf", "--json").json()["ancestors"]] == [
        8,
        9,
    ]
    listed = run("events", "leaf")
    assert "seq 1 to 9 are those of child" in listed.err
    whole = run("events", "leaf", "--joined", "--json")
    assert [event["seq"] for event in whole.lines()] == list(range(1, 11))
    assert whole.err == ""
    part = run("events", "leaf", "--joined", "--structure", "--upto-seq", "3", "--json")
    assert [event["complete"] for event in part.lines()] == [False] * 3


def test_show_names_the_parent_that_is_missing(run: Run, log: Log) -> None:
    Writer(log, "orphan").append_fork_of("gone", 4)
    shown = run("show", "orphan")
    assert shown.code == 0
    assert "goes on from 'gone'" in shown.out
    done = run("events", "orphan", "--joined")
    assert done.code == 4
    assert "'gone'" in done.err
    assert run("verify", "orphan").code == 1


def test_two_forks_are_compared_from_where_they_part(run: Run, log: Log) -> None:
    forked(run, "one")
    forked(run, "two")
    tell(log, "one", "the same", "left", "more")
    tell(log, "two", "the same", "right")
    done = run("diff", "one", "two", "--json")
    answer = done.json()
    assert done.code == 1
    assert answer["shared_upto_seq"] == 8
    assert answer["first_difference"]["a"]["seq"] == 11
    assert answer["first_difference"]["differs"] == ["blocks"]
    assert [pair["b"] and pair["b"]["seq"] for pair in answer["side_by_side"]] == [11, None]
    shown = run("diff", "one", "two", "--limit", "1").out
    assert "first difference: seq 11 and seq 11: blocks" in shown
    assert "left" in shown
    assert "right" in shown
    assert "more" not in shown


def test_a_fork_that_did_the_same_is_no_difference(run: Run, log: Log) -> None:
    forked(run, "one")
    forked(run, "two")
    tell(log, "one", "a", "b")
    tell(log, "two", "a", "b")
    assert run("diff", "one", "two").code == 0
    assert run("diff", "open-1", "open-1").code == 0
    assert run("diff", "one", "two", "--limit", "0").code == 2


def test_a_parent_and_its_fork_are_compared_behind_the_fork_point(run: Run) -> None:
    forked(run, "one")
    answer = run("diff", "open-1", "one", "--json").json()
    assert answer["shared_upto_seq"] == 8
    assert answer["first_difference"]["a"]["seq"] == 9
    assert answer["first_difference"]["b"] is None


def test_a_tree_has_each_session_once_and_each_token_once(run: Run) -> None:
    forked(run, "child", at_seq=9)
    forked(run, "leaf", "child", 10)
    forked(run, "second", at_seq=3)
    answer = run("tree", "open-1", "--json").json()
    names = [(node["session_id"], node["depth"]) for node in answer["nodes"]]
    assert names == [("open-1", 0), ("child", 1), ("leaf", 2), ("second", 1)]
    assert [node["usage"]["input_tokens"] for node in answer["nodes"]] == [1200, 0, 0, 0]
    assert answer["usage"]["input_tokens"] == 1200
    shown = run("tree", "child").out
    assert "fork of open-1 at seq 9" in shown
    assert "2 sessions" in shown


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[2J", "a\u202eb", " a", "x" * 513])
def test_a_fork_has_no_name_that_nobody_can_see_or_type(run: Run, name: str) -> None:
    done = run("fork", "open-1", "--at-seq", "3", f"--session-id={name}")
    assert done.code == 2
    assert "no new session can be called" in done.err
    assert "\x1b" not in done.err
    assert len(run("sessions", "--json").lines()) == 3


def remove(file: Path, session_id: str, seq: int) -> None:
    """Take one event out of the file, as no foldline ever does."""
    database = sqlite3.connect(file)
    with database:
        taken = database.execute(
            "DELETE FROM events WHERE position = "
            "(SELECT (key << 32) + ? FROM sessions WHERE session_id = ?)",
            (seq, session_id),
        )
        assert taken.rowcount == 1
    database.close()


@pytest.mark.parametrize("seq", [1, 300, 599])
def test_a_hole_in_what_is_compared_is_said_and_no_answer_is_given(
    run: Run, log: Log, tmp_path: Path, seq: int
) -> None:
    """Also where the state is good, as a snapshot was kept behind the hole."""
    for name in ("one", "two"):
        Writer(log, name).append(SessionCreated(agent="a"))
        tell(log, name, *(f"{number}" for number in range(599)))
    assert run("diff", "one", "two").code == 0
    log.close()
    remove(tmp_path / "sessions.db", "two", seq)
    done = run("diff", "one", "two")
    assert done.code == 4
    assert "session 'two', seq " in done.err
    assert "no difference" not in done.out
    assert run("diff", "two", "one", "--json").json()["error"]["exit_code"] == 4
    assert run("verify", "two").code == 1
