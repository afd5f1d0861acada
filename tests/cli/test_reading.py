"""sessions, show, events and state: what a person and a machine are shown."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foldline.processors.log import Log
from foldline.schemas.state import STATUSES

Run = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("log")


def test_sessions_lists_the_last_active_one_first(run: Run) -> None:
    listed = [view["session_id"] for view in run("sessions", "--json").lines()]
    assert listed == ["mirror-1", "done-1", "open-1"]


def test_sessions_can_be_asked_for_one_status_in_any_case(run: Run) -> None:
    found = run("sessions", "--json", "--status", "completed").lines()
    assert [view["session_id"] for view in found] == ["done-1"]
    assert found[0]["status"] in STATUSES


def test_a_status_that_there_is_not_is_a_usage_error(run: Run) -> None:
    done = run("sessions", "--status", "HAPPY")
    assert done.code == 2
    assert "RUNNING" in done.err


def test_no_session_of_a_tenant_is_an_empty_answer_and_a_remark(run: Run) -> None:
    done = run("sessions", "--tenant", "nobody")
    assert (done.code, done.out) == (0, "")
    assert "no such session" in done.err


def test_sessions_for_people_says_status_and_agent(run: Run) -> None:
    assert "open-1" in (out := run("sessions").out)
    assert "RUNNING" in out
    assert "coder" in out


def test_show_says_what_is_certain_and_what_is_unknown(run: Run) -> None:
    out = run("show", "open-1").out
    assert "fix the flaky test" in out
    assert "attempt 1 was let begin at seq 14" in out
    assert "whether its effect happened: no end is recorded" in out
    assert "its effect has not begun, and waits for permission" in out
    assert "mail everybody?" in out
    assert "hurry" in out


def test_show_for_machines_has_the_same_and_the_state(run: Run) -> None:
    view = run("show", "open-1", "--json").json()
    deploy, mail = view["open_calls"]
    assert deploy["unknown"].startswith("whether its effect happened")
    assert mail["unknown"] is None
    assert view["goal"] == "fix the flaky test"
    assert [item["status"] for item in view["plan"]] == ["COMPLETED", "PENDING"]
    assert view["pending"][0]["text"] == "mail everybody?"
    assert view["turns"][-1]["asked"] == "please"
    assert view["lease"] is None
    assert view["state"]["seq"] == 16


def test_show_says_whether_the_owner_lives(run: Run, log: Log) -> None:
    log.leases.renew("open-1", epoch=1, writer="writer-1", ttl_ms=60_000)
    assert "alive" in run("show", "open-1").out
    assert run("show", "open-1", "--json").json()["lease"]["alive"] is True


def test_events_are_shown_one_a_line_with_call_and_status(run: Run) -> None:
    lines = run("events", "open-1").out.splitlines()
    assert len(lines) == 17  # the day, and sixteen events
    (result,) = [line for line in lines if "ToolExecutionCompleted" in line]
    assert "#9 exit 0 in 12 ms" in result
    assert any("(RUNNING) deploy" in line for line in lines)
    assert any("in 1,200 cached 1,000 out 34" in line for line in lines)


def test_what_a_tool_said_does_not_steer_the_terminal(run: Run) -> None:
    for command in ("events", "show", "state", "tail"):
        arguments = ["--timeout", "0", "--after-seq", "0"] if command == "tail" else []
        out = run(command, "open-1", *arguments).out
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert "\r" not in out


def test_json_is_ascii_and_keeps_what_was_said(run: Run) -> None:
    out = run("events", "open-1", "--json", "--type", "ToolExecutionCompleted").out
    assert out.isascii()
    assert json.loads(out)["event"]["output"][0]["body"].startswith("ok\x1b]0;owned")


def test_events_can_be_cut_by_seq_type_and_number(run: Run) -> None:
    def seqs(*arguments: str) -> list[int]:
        return [v["seq"] for v in run("events", "open-1", "--json", *arguments).lines()]

    assert seqs("--after-seq", "14") == [15, 16]
    assert seqs("--upto-seq", "2") == [1, 2]
    assert seqs("--limit", "3") == [1, 2, 3]
    assert seqs("--type", "GoalSet", "--type", "PlanUpdated") == [2, 3]


def test_structure_leaves_out_what_was_said(run: Run) -> None:
    arguments = ("--json", "--structure", "--type", "GoalSet")
    (view,) = run("events", "open-1", *arguments).lines()
    assert view["complete"] is False
    assert view["event"]["blocks"] == []


def test_a_type_by_a_slip_is_named_and_a_right_one_offered(run: Run) -> None:
    done = run("events", "open-1", "--type", "GoalSett")
    assert (done.code, done.out) == (0, "")
    assert "did you mean GoalSet" in done.err


def test_a_mirrored_event_is_shown_at_the_time_of_its_source(run: Run) -> None:
    out = run("events", "mirror-1").out
    assert "2023-11-14 UTC" in out
    assert "[side] hello" in out


def test_a_state_can_be_asked_for_as_it_was(run: Run) -> None:
    then = run("state", "open-1", "--at-seq", "9", "--json").json()
    assert (then["seq"], list(then["calls"])) == (9, ["m1:0"])
    assert run("state", "open-1", "--json").json()["seq"] == 16


@pytest.mark.parametrize("at_seq", ["0", "17", "-1"])
def test_a_state_at_a_seq_that_is_not_there_is_a_usage_error(run: Run, at_seq: str) -> None:
    done = run("state", "open-1", "--at-seq", at_seq)
    assert done.code == 2
    assert "no event at" in done.err


def test_the_beginning_of_an_id_is_enough_if_only_one_begins_so(run: Run) -> None:
    assert run("state", "open", "--json").json()["session_id"] == "open-1"


def test_an_id_that_begins_another_one_is_itself(
    run: Run, add_session: Callable[[str], None]
) -> None:
    add_session("open-12")
    assert run("state", "open-1", "--json").json()["session_id"] == "open-1"
    done = run("state", "open", "--json")
    assert done.code == 3
    assert sorted(done.json()["error"]["candidates"]) == ["open-1", "open-12"]


@pytest.mark.parametrize("command", ["show", "events", "state", "tail"])
def test_a_session_that_is_not_there_is_said_to_be_missing(run: Run, command: str) -> None:
    done = run(command, "nobody")
    assert done.code == 3
    assert "no session 'nobody'" in done.err
    assert "foldline sessions" in done.err
    assert len(done.err.splitlines()) == 1


def test_the_log_is_taken_from_before_or_after_the_arguments(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDLINE_URL", "sqlite:///nowhere.db")
    assert run("--log", url, "state", "open-1", "--json").code == 0
    assert run("state", "--json", "open-1", "--log", url).code == 0
    assert run("state", "open-1").code == 3


def test_reading_makes_no_log(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    for command in ("sessions", "show s", "events s", "state s", "tail s", "verify"):
        done = run(*command.split(), "--log", f"sqlite:///{folder / 'no.db'}")
        assert done.code == 3
        assert str(folder / "no.db") in done.err
        assert "foldline import" in done.err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("events", "open-1", "--after-seq", "9" * 30),
        ("events", "open-1", "--after-seq", "15", "--limit", "9" * 30),
        ("events", "open-1", "--after-seq", "15", "--upto-seq", "9" * 30),
        ("sessions", "--limit", "9" * 30),
        ("tail", "done-1", "--after-seq", "9" * 30),
    ],
)
def test_a_number_beyond_every_seq_is_only_large(
    run: Run, arguments: tuple[str, ...]
) -> None:
    assert run(*arguments, "--json").code == 0


@pytest.mark.parametrize("timeout", ["nan", "inf", "-1", "1e400"])
def test_a_timeout_that_is_no_time_is_a_usage_error(run: Run, timeout: str) -> None:
    done = run("tail", "open-1", "--timeout", timeout)
    assert (done.code, done.out) == (2, "")
    assert "--timeout" in done.err


def test_a_width_that_is_no_number_is_not_heeded(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "wide")
    assert run("sessions").code == 0
