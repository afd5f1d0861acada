"""`foldline stats`: a table, one object, rows, a page."""

import csv
import io
from pathlib import Path

import pytest

from foldline.processors.log import Log
from foldline.schemas.events import (
    ModelCallFailed,
    ModelCallStarted,
    SessionCreated,
    SessionFailed,
    TurnStarted,
)
from tests.cli.conftest import HOSTILE, Run, Writer

SECRET = "ghp_" + "aB3" * 12


@pytest.fixture(autouse=True)
def _failed(log: Log) -> None:
    """A session that failed, with names that somebody made up."""
    writer = Writer(log, "failed-1")
    writer.append(SessionCreated(agent=f"=cmd|{HOSTILE}"))
    writer.append(TurnStarted(trigger="USER"), turn_id="t1")
    writer.append(ModelCallStarted(model_call_id="m1", provider="p", model="large"))
    writer.append(ModelCallFailed(model_call_id="m1", error_type=f"<b>{SECRET}</b>"))
    writer.append(SessionFailed(error_type="ModelAway"))


def test_the_table_says_why_they_ended_and_what_failed(run: Run) -> None:
    done = run("stats")
    assert done.code == 0
    assert "4 sessions, 50% of those that ended went well" in done.out
    assert "it was completed" in done.out
    assert "Harness: ModelAway" in done.out


def test_the_object_has_all_of_it(run: Run) -> None:
    view = run("stats", "--json").json()
    assert view["verdicts"] == {"GOOD": 1, "BAD": 1, "OPEN": 2}
    assert view["layers"]["MODEL"] == {"count": 1, "sessions": 1, "sessions_good": 0}
    assert view["spent"]["cached_tokens"] == 1000


def test_there_is_a_row_for_each_session(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run("stats", "--csv").out)))
    assert [row["session_id"] for row in rows] == [
        "done-1",
        "failed-1",
        "mirror-1",
        "open-1",
    ]
    assert [row["ending"] for row in rows[:2]] == ["COMPLETED", "FAILED"]
    assert rows[1]["reason"] == "ModelAway"
    assert rows[1]["agent"].startswith("'=cmd|")


def test_the_page_is_written_and_holds_no_secret_and_no_markup_of_others(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "stats.html"
    assert run("stats", "--html", str(path)).code == 0
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "<b>ghp" not in page
    assert SECRET not in page
    assert "\x1b" not in page


def test_neither_secrets_nor_control_characters_are_printed(run: Run) -> None:
    for options in ([], ["--json"], ["--csv"]):
        done = run("stats", *options)
        assert SECRET not in done.out
        assert "\x1b" not in done.out


@pytest.mark.parametrize(
    ("options", "sessions"),
    [
        (["--agent", "hel*"], 1),
        (["--mode", "mirrored"], 1),
        (["--since", "1h"], 3),
        (["--tenant", "acme"], 0),
        (["--since", "2999-01-01"], 0),
    ],
)
def test_only_some_of_them_where_that_is_asked_for(
    run: Run, options: list[str], sessions: int
) -> None:
    assert run("stats", "--json", *options).json()["sessions"] == sessions


@pytest.mark.parametrize(
    "options", [["--csv", "--json"], ["--mode", "mine"], ["--since", "soon"]]
)
def test_what_means_nothing_is_a_usage_error(run: Run, options: list[str]) -> None:
    assert run("stats", *options).code == 2


def test_no_session_is_no_table(run: Run) -> None:
    assert run("stats", "--agent", "nobody").out.splitlines() == [
        "0 sessions, - of those that ended went well, 0 model calls, 0 tool calls, 0 tokens"
    ]
