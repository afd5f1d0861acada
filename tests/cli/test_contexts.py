"""`foldline context`: what the model is shown, why, what changed, and what was sent."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foldline.processors.log import Log
from foldline.producers.client import connect
from foldline.producers.model import ModelResponse
from foldline.schemas.blocks import text_block
from foldline.schemas.events import CompactionCompleted, Usage
from tests.cli.conftest import HOSTILE
from tests.cli.test_command import on_terminal

pytestmark = pytest.mark.usefixtures("log")

Run = Callable[..., Any]


async def talks(log: Log, *words: str) -> tuple[str, list[str]]:
    """A session with one turn and one model call for each; the calls' ids."""
    calls: list[str] = []
    async with connect(log) as client:
        owned = await client.create(agent="a", session_id="talk", instructions="be brief")
        for said in words:
            async with owned.turn(said) as turn:
                context = await turn.context()
                how: dict[str, Any] = {"format": "anthropic", "model": "m"}
                how |= {"parameters": {"max_tokens": 9}}
                async with turn.model_call(context, **how) as call:
                    usage = Usage(input_tokens=100 + len(calls))
                    answer = ModelResponse(parts=(text_block("ok"),), usage=usage)
                    await call.complete(answer)
                calls.append(call.model_call_id)
        await compact(owned, len(calls))
    return "talk", calls


async def compact(owned: Any, calls: int) -> None:
    seq = (await owned.state()).seq
    async with owned.turn("and") as turn:
        compaction = CompactionCompleted(
            compaction_id="c",
            from_seq=1,
            to_seq=seq,
            base_seq=seq,
            strategy="s",
            blocks=(text_block(f"asked {calls} times"),),
        )
        await turn.append(compaction)


@pytest.fixture
def talk(log: Log) -> tuple[str, list[str]]:
    return asyncio.run(talks(log, "first", "second " + HOSTILE, "third"))


def test_a_context_is_shown_message_by_message(
    run: Run, talk: tuple[str, list[str]]
) -> None:
    done = run("context", talk[0], "--at-seq", "11")
    lines = done.out.splitlines()
    assert done.code == 0
    assert lines[0].startswith("4 messages, 0 tools, from seq 1 to 11")
    assert "tokens (o200k_base): system" in lines[1]
    assert "as m counts: 2.00 of each" in lines[2]
    rows = [line.split()[1:3] for line in lines[3:]]
    assert rows == [["system", "in"], ["user", "in"], ["assistant", "in"], ["user", "in"]]
    assert "\x1b" not in done.out


def test_an_explanation_names_events_and_what_was_left_out(
    run: Run, talk: tuple[str, list[str]]
) -> None:
    done = run("context", talk[0], "--explain")
    assert "summary" in done.out
    assert "asked 3 times" in done.out
    compacted = next(line for line in done.out.splitlines() if "compacted by" in line)
    assert ", seq 1 to " in compacted
    assert "seq 2 InstructionsSet" in done.out


def test_for_machines_a_context_has_its_explanation(
    run: Run, talk: tuple[str, list[str]]
) -> None:
    view = run("context", talk[0], "--json").json()
    assert (view["session_id"], view["format"], view["model"]) == ("talk", "", "m")
    explanation = view["explanation"]
    assert [m["why"] for m in explanation["messages"]] == ["in force", "summary", "in full"]
    assert explanation["tokens"]["total"] == sum(
        message["tokens"] for message in explanation["messages"]
    )


@pytest.mark.parametrize(
    ("name", "key"),
    [("anthropic", "messages"), ("openai-chat", "messages"), ("openai-responses", "input")],
)
def test_a_request_is_printed_as_json_that_no_terminal_obeys(
    run: Run, talk: tuple[str, list[str]], name: str, key: str
) -> None:
    done = run("context", talk[0], "--format", name, "--at-seq", "11")
    request = json.loads(done.out)
    assert request["model"] == "m"
    assert "second" in json.dumps(request[key])
    assert done.out.isascii()
    assert "\x1b" not in done.out


def test_a_request_is_written_byte_for_byte(
    run: Run, talk: tuple[str, list[str]], tmp_path: Path
) -> None:
    target = tmp_path / "request.json"
    how = ("--format", "openai-chat", "--output", str(target))
    view = run("context", talk[0], *how, "--json").json()
    assert hashlib.sha256(target.read_bytes()).hexdigest() == view["sha256"]
    assert json.loads(target.read_bytes()) == view["request"]
    assert run("context", talk[0], *how[:3], str(tmp_path)).code == 2


def test_the_request_of_each_call_is_rebuilt_and_is_what_was_sent(
    run: Run, talk: tuple[str, list[str]], tmp_path: Path
) -> None:
    target = tmp_path / "request.json"
    for call in talk[1]:
        done = run("context", talk[0], "--request", call, "--output", str(target))
        assert (done.code, done.out) == (0, "")
        assert "as it was sent" in done.err
        view = run("context", talk[0], "--request", call, "--json").json()
        assert (view["ok"], view["problems"]) == (True, [])
        sha256 = hashlib.sha256(target.read_bytes()).hexdigest()
        assert sha256 == view["sha256"] == view["recorded_sha256"]
        assert view["reference"]["renderer"] == "anthropic"
        assert view["request"]["max_tokens"] == 9
    assert json.loads(run("context", talk[0], "--request", talk[1][0]).out)["model"] == "m"


def test_a_call_whose_request_was_not_recorded_says_so(run: Run) -> None:
    done = run("context", "open-1", "--request", "m1")
    assert (done.code, done.out) == (1, "")
    assert "no request was recorded" in done.err
    assert run("context", "open-1", "--request", "m2").code == 2


def test_what_is_new_since_the_call_before_is_shown(
    run: Run, talk: tuple[str, list[str]]
) -> None:
    done = run("context", talk[0], "--diff")
    assert "it only grew" in done.out
    assert [line[0] for line in done.out.splitlines()[2:]] == ["+", "+"]
    view = run("context", talk[0], "--diff", "--json").json()
    assert [m["text"] for m in view["new"]] == ["ok", "third"]
    assert (view["dropped"], view["same_messages"]) == ([], 4)


def test_a_compaction_shows_as_a_change(run: Run, talk: tuple[str, list[str]]) -> None:
    done = run("context", talk[0], "--from-seq", "5")
    assert "it changed" in done.out
    view = run("context", talk[0], "--from-seq", "5", "--json").json()
    assert [m["text"] for m in view["new"]] == ["asked 3 times", "and"]
    assert [m["text"] for m in view["dropped"]] == ["first"]


def test_a_policy_shows_what_it_would_have_made(
    run: Run, talk: tuple[str, list[str]]
) -> None:
    for how in (("--policy", "full"), ("--policy", "lean"), ("--budget", "100000")):
        view = run("context", talk[0], *how, "--json").json()
        assert view["explanation"]["tokens"]["summary"] > 0


def test_an_explanation_has_the_tokens_of_each_section_beside_its_budget(
    run: Run, talk: tuple[str, list[str]]
) -> None:
    """Those of its policy: the one that is tried, or that of the session's last calls."""
    done = run("context", talk[0], "--explain")
    assert "budgets of policy lean" in done.out
    assert "of 40,000" in done.out
    assert "no budget of its own" in done.out
    done = run("context", talk[0], "--budget", "3", "--explain")
    (line,) = [line for line in done.out.splitlines() if "of 3" in line]
    assert line.split()[0] == "messages"
    assert "above it" in line
    view = run("context", talk[0], "--budget", "3", "--json").json()["explanation"]
    assert (view["policy"], view["budgets"]) == ("lean@3", {"messages": 3})
    assert view["tokens"]["messages"] > 3


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--format", "xml"),
        ("--policy", "thin"),
        ("--budget", "0"),
        ("--at-seq", "99999"),
        ("--at-seq", "0"),
        ("--from-seq", "99999"),
    ],
)
def test_what_there_is_not_is_a_usage_error(
    run: Run, talk: tuple[str, list[str]], option: str, value: str
) -> None:
    done = run("context", talk[0], option, value)
    assert (done.code, done.out) == (2, "")


@pytest.mark.parametrize(
    "options",
    [
        ("--diff",),
        ("--explain",),
        ("--from-seq", "5"),
        ("--at-seq", "5"),
        ("--budget", "9"),
        ("--format", "anthropic"),
    ],
)
def test_a_request_that_was_sent_is_not_had_in_another_way(
    run: Run, talk: tuple[str, list[str]], options: tuple[str, ...]
) -> None:
    done = run("context", talk[0], "--request", talk[1][0], *options)
    assert (done.code, done.out) == (2, "")
    assert "--request" in done.err


def test_an_empty_name_of_a_model_call_is_none(run: Run) -> None:
    done = run("context", "open-1", "--request", "")
    assert (done.code, done.out) == (2, "")
    assert "no such model call" in done.err


@pytest.mark.parametrize(
    "options",
    [
        ("--diff", "--from-seq", "5"),
        ("--diff", "--explain"),
        ("--from-seq", "5", "--output", "x"),
    ],
)
def test_a_difference_is_of_one_kind_and_shown_in_one_way(
    run: Run, talk: tuple[str, list[str]], options: tuple[str, ...]
) -> None:
    done = run("context", talk[0], *options)
    assert (done.code, done.out) == (2, "")


@pytest.mark.parametrize("option", ["--at-seq", "--from-seq"])
@pytest.mark.parametrize("seq", ["0", "999999"])
def test_a_seq_that_there_is_not_is_blamed_on_its_own_option(
    run: Run, talk: tuple[str, list[str]], option: str, seq: str
) -> None:
    done = run("context", talk[0], option, seq)
    assert done.code == 2
    assert f"{option}: talk has no event there" in done.err


def test_a_terminal_is_told_that_it_works(url: str, log: Log) -> None:
    assert log.state("open-1") is not None
    for how in ((), ("--from-seq", "5")):
        shown = on_terminal("context", "open-1", *how, FOLDLINE_URL=url)
        assert "counting its tokens" in shown


def test_a_difference_takes_two_calls(run: Run) -> None:
    done = run("context", "open-1", "--diff", "--at-seq", "1")
    assert done.code == 2
    assert "--from-seq" in done.err
