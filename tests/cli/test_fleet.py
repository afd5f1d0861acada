"""`foldline fleet show`: the fleet of one machine, counted now, without a broker."""

import json
from pathlib import Path
from typing import Any

import pytest

from foldline.cli import main
from foldline.cli.failures import EXIT_CODES
from foldline.processors.open_log import open_log
from foldline.schemas.events import ToolCallRequested, TurnEnded, TurnStarted
from foldline.testing import LogStory
from foldline.testing.samples import created

USAGE = 2


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A log with a session that goes round, and one that does not."""
    url = f"sqlite:///{tmp_path}/sessions.db"
    log = open_log(url)
    for name, hashes in (("round", "aaa"), ("ahead", "abc")):
        story = LogStory(log, session_id=name)
        story.given(created(), TurnStarted(trigger="USER"))
        for number, args_hash in enumerate(hashes):
            story.given(
                ToolCallRequested(
                    call_id=f"m:{number}",
                    tool="ls",
                    args_hash=args_hash,
                    message_id="m",
                    position=0,
                    arguments=(),
                )
            )
        story.given(TurnEnded(outcome="ABORTED"))
    log.close()
    return url


def shown(url: str, capsys: pytest.CaptureFixture[str], *more: str) -> Any:
    assert main(["--log", url, "--json", "fleet", "show", *more]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_fleet_of_a_local_log_is_shown_with_its_loops(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    view = shown(url, capsys)
    assert (view["sessions"], view["events"]) == (2, 12)
    [agent, tool] = view["windows"]
    assert (agent["by"], agent["calls"], agent["error_rate"]) == ("agent", 2, 1.0)
    assert (tool["name"], tool["loops"]) == ("ls", 1)
    [loop] = view["loops"]
    assert (loop["session_id"], loop["kind"]) == ("round", "SAME_CALL")


def test_windows_and_times_are_as_asked(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hopping = shown(url, capsys, "--window", "300", "--step", "60")["windows"]
    assert sum(one["loops"] for one in hopping if one["by"] == "tool") == 5
    assert shown(url, capsys, "--since", "2099-01-01")["windows"] == []


def test_people_see_a_table_and_each_loop(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--log", url, "fleet", "show"]) == 0
    out = capsys.readouterr().out
    assert "12 events of 2 sessions" in out
    assert "2 (100%)" in out
    assert "SAME_CALL ls 3 times: session round, seq 3 to 5" in out


@pytest.mark.parametrize(
    "options", [("--window", "61"), ("--window", "60", "--step", "120"), ("--since", "x")]
)
def test_what_cannot_be_shown_is_a_usage_error(
    url: str, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    assert USAGE in EXIT_CODES
    assert main(["--log", url, "fleet", "show", *options]) == USAGE
    assert options[-2] in capsys.readouterr().err


def test_a_fleet_worker_wants_a_log_on_kafka(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--log", url, "fleet", "worker"]) == USAGE
    assert "fleet show" in capsys.readouterr().err
