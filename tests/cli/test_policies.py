"""`foldline policies`: rules at work, over history, and what means nothing."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from foldline.cli.moments import moment_us
from foldline.processors.open_log import open_log
from foldline.testing import LogStory
from foldline.testing.samples import created, started
from tests import happenings as h
from tests.cli.conftest import Run
from tests.cluster.served import served_log
from tests.cluster.shared import ROOT, Broker
from tests.serving import people_of, serving_memory

COMMAND = "import sys; from foldline.cli import main; sys.exit(main())"

RULES = """
policy = "house"
[[rule]]
name = "no-mail"
kind = "forbidden-tool"
tools = ["mail"]
action = "cancel"
target = "call"
severity = "critical"
[[rule]]
name = "spend"
kind = "budget"
tokens = 1_000
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FOLDLINE_STATE_DIR", str(tmp_path / "state"))
    path = tmp_path / "policies.toml"
    path.write_text(RULES, encoding="utf-8")
    return str(path)


def test_a_file_of_rules_is_listed_with_what_each_does(run: Run, rules: str) -> None:
    listed = run("policies", "list", rules, "--json").lines()
    assert [(one["name"], one["kind"], one["action"]) for one in listed] == [
        ("no-mail", "ForbiddenTool", "CANCEL"),
        ("spend", "Budget", "NONE"),
    ]
    assert "CRITICAL CANCEL CALL" in run("policies", "list", rules).out


@pytest.mark.usefixtures("log")
def test_one_look_records_what_the_rules_want_and_the_next_nothing(
    run: Run, rules: str
) -> None:
    done = run("policies", "run", "--rules", rules, "--once", "--json")
    assert done.code == 1
    assert [
        (one["session_id"], one["event_type"], one["result"]) for one in done.lines()
    ] == [
        ("open-1", "PolicyViolation", "RECORDED"),
        ("open-1", "PolicyViolation", "RECORDED"),
        ("open-1", "CancellationRequested", "RECORDED"),
    ]
    again = run("policies", "run", "--rules", rules, "--once")
    assert (again.code, again.out) == (0, "")
    shown = run("events", "open-1").out
    assert "CRITICAL house rule no-mail at seq 11 action CANCEL: tool mail" in shown


def test_it_makes_no_log_where_none_is(run: Run, rules: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    done = run("policies", "run", "--rules", rules, "--once")
    assert (done.code, done.out) == (3, "")
    assert "no log here yet" in done.err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.usefixtures("log")
def test_a_backtest_says_where_what_and_what_came_after(run: Run, rules: str) -> None:
    arguments = ("policies", "backtest", "spend", "--rules", rules)
    hit, whole = run(*arguments, "--json").lines()
    assert (hit["session_id"], hit["seq"], hit["action"]) == ("open-1", 7, "NONE")
    assert hit["said"] == "1,234 tokens used, of 1,000"
    assert hit["rest"]["tool_calls"] == 3
    assert (whole["sessions"], whole["hit"]) == (3, 1)
    told = run(*arguments).out
    assert "spend: 1 of 3 sessions, 1 findings" in told
    assert "it stops nothing" in told


@pytest.mark.usefixtures("log")
def test_a_backtest_records_nothing(run: Run, rules: str) -> None:
    before = run("sessions", "--json").out
    run("policies", "backtest", "no-mail", "--rules", rules)
    assert run("sessions", "--json").out == before


@pytest.mark.usefixtures("log")
def test_a_rule_needs_no_file(run: Run) -> None:
    backtest = ("policies", "backtest")
    forbidden = (
        "forbidden-tool",
        "--set",
        'tools=["mail", "dep*"]',
        "--set",
        "action=cancel",
    )
    assert run(*backtest, *forbidden, "--json").lines()[-1]["findings"] == 2
    assert run(*backtest, "loop", "--json").lines()[-1]["hit"] == 0
    mine = ("tests.cli.test_policies:every_mail", "--set", "tool=mail")
    (hit, _) = run(*backtest, *mine, "--session", "open", "--json").lines()
    assert (hit["seq"], hit["said"]) == (11, "mail again")


def every_mail(tool: str) -> Any:
    """A maker of rules, as users write one."""
    from foldline.projections.oversight import violation

    def judge(_seen: Any, recorded: Any) -> Any:
        mails = getattr(recorded.event, "tool", "") == tool
        return [violation(f"{tool} again")] if mails else []

    return judge


@pytest.mark.usefixtures("log")
def test_since_leaves_out_what_was_before(run: Run, rules: str) -> None:
    arguments = ("policies", "backtest", "spend", "--rules", rules, "--json", "--since")
    assert run(*arguments, "1h").lines()[-1]["hit"] == 1
    (whole,) = run(*arguments, "2999-01-01").lines()
    assert (whole["sessions"], whole["hit"]) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("backtest", "nothing"), "budget, forbidden-tool"),
        (("backtest", "budget"), "a budget has a limit"),
        (("backtest", "budget", "--set", "tokens"), "KEY=VALUE"),
        (("backtest", "budget", "--set", "tokens=many"), "a whole number"),
        (("backtest", "loop", "--since", "soon"), "how long ago"),
        (("backtest", "no_such_module:x"), "is not loaded"),
        (("backtest", "x", "--rules", "{rules}"), "no-mail, spend"),
        (("backtest", "spend", "--rules", "{rules}", "--set", "a=1"), "without a file"),
        (("run", "--rules", "{rules}", "--every-ms", "1"), "50 or more"),
        (("run", "--rules", "nowhere.toml"), "nowhere.toml"),
    ],
)
def test_what_means_nothing_is_a_usage_error(
    run: Run, rules: str, arguments: tuple[str, ...], says: str
) -> None:
    done = run("policies", *(argument.format(rules=rules) for argument in arguments))
    assert (done.code, done.out) == (2, "")
    assert says in done.err


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1970-01-02", 86_400_000_000),
        ("1970-01-01T01:00+01:00", 0),
        ("1970-01-01T00:00:01", 1_000_000),
    ],
)
def test_a_moment_is_utc_unless_it_says_otherwise(text: str, us: int) -> None:
    assert moment_us("--since", text) == us


@pytest.mark.usefixtures("log")
def test_a_backtest_leaves_out_where_its_rule_fails_and_says_where(run: Run) -> None:
    """As at work: it is out for that session, and judges the others."""
    done = run("policies", "backtest", "tests.cli.test_policies:breaks", "--json")
    assert done.code == 1
    assert "open-1 is left out" in done.err
    assert "failed at seq 1 of" in done.err
    assert done.lines()[-1]["sessions"] == 2


def test_rules_are_held_to_over_http_as_on_the_log_itself(
    run: Run, rules: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the token's actor; a token that may only read ends the runner."""
    with serving_memory(people_of(tmp_path)) as served:
        log = served.node.log
        story = LogStory(log, session_id="s")
        story.given(created(), started(), h.request(tool="mail"))
        arguments = ("policies", "run", "--rules", rules, "--once", "--json")
        monkeypatch.setenv("FOLDLINE_TOKEN", "fl_looker")
        refused = run(*arguments, "--log", served.url)
        assert refused.json()["error"]["kind"] == "AccessRefusedError"
        monkeypatch.setenv("FOLDLINE_TOKEN", "fl_ann")
        done = run(*arguments, "--log", served.url)
        assert [one["result"] for one in done.lines()] == ["RECORDED", "RECORDED"]
        assert run(*arguments, "--log", served.url).code == 0
        violated, stopped = list(log.events("s"))[-2:]
    assert {one.envelope.actor.id for one in (violated, stopped)} == {"ann@example"}
    assert story.state.calls[h.CALL].cancel_seq == stopped.seq


def breaks(_seen: Any, recorded: Any) -> Any:
    """A rule that fails on one session."""
    if recorded.envelope.session_id == "open-1":
        raise KeyError("nothing")
    return []


@pytest.mark.kafka
def test_on_kafka_too_a_rule_is_heeded_until_the_runner_is_stopped(
    broker: Broker, tmp_path: Path, rules: str
) -> None:
    """In a session that a worker admits."""
    with served_log(broker, tmp_path) as served:
        log = open_log(served.cluster.url, settings=served.settings)
        story = LogStory(log, session_id="s").given(created(), started())
        story.given(h.request(tool="mail"), h.model_starts())
        story.given(h.model_completes(usage={"input_tokens": 5_000}))
        environment = os.environ | served.environment | {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", COMMAND, "policies", "run", "--json"]
        command += ["--rules", rules, "--every-ms", "100"]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True
        ) as running:
            assert running.stdout is not None
            said = [json.loads(running.stdout.readline()) for _ in range(3)]
            running.send_signal(signal.SIGTERM)
            assert running.wait(30) == 0
        counts = story.state.counts
        log.close()
    assert {one["result"] for one in said} == {"RECORDED"}
    assert (counts["PolicyViolation"], counts["CancellationRequested"]) == (2, 1)
