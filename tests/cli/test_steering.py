"""A person steers and stops agents by the command, and is told the verdict."""

import getpass
from collections.abc import Callable
from typing import Any

import pytest

from foldline.processors.log import Log

Run = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("log")


def last_event(run: Run) -> Any:
    return run("events", "open-1", "--json").lines()[-1]


def test_steering_is_recorded_as_said_by_the_user_of_this_system(run: Run) -> None:
    done = run("steer", "open", "use nix")
    assert (done.code, done.out.split()[0]) == (0, "ACCEPTED")
    event = last_event(run)
    assert event["actor"] == {"kind": "PERSON", "id": getpass.getuser()}
    assert event["event"]["mode"] == "INTERRUPT"
    assert event["event"]["blocks"][0]["body"] == "use nix"


@pytest.mark.parametrize("mode", ["NEXT_TURN", "on-idle"])
def test_the_mode_says_when_the_agent_is_told(run: Run, log: Log, mode: str) -> None:
    assert run("steer", "open-1", "later", "--mode", mode).code == 0
    state = log.state("open-1")
    assert state is not None
    steering = max(state.steering.values(), key=lambda steering: steering.seq)
    assert steering.mode == mode.upper().replace("-", "_")


def test_the_same_key_again_is_the_same_steering(run: Run) -> None:
    first = run("steer", "open-1", "use nix", "--key", "k", "--json").json()
    again = run("steer", "open-1", "use nix", "--key", "k", "--json").json()
    assert (first["kind"], again["kind"]) == ("ACCEPTED", "DUPLICATE")
    assert first["seq"] == again["seq"]


def test_a_mode_that_means_nothing_is_refused(run: Run) -> None:
    done = run("steer", "open-1", "use nix", "--mode", "SOON")
    assert done.code == 2
    assert "NEXT_TURN" in done.err


@pytest.mark.parametrize(
    ("options", "target", "target_id"),
    [
        ((), "SESSION", None),
        (("--turn",), "TURN", None),
        (("--call", "m1:2"), "CALL", "m1:2"),
    ],
)
def test_a_session_a_turn_or_a_call_is_asked_to_stop(
    run: Run, options: tuple[str, ...], target: str, target_id: str | None
) -> None:
    done = run("cancel", "open-1", *options, "--reason", "lunch")
    assert done.code == 0, done
    event = last_event(run)["event"]
    assert (event["target"], event["target_id"]) == (target, target_id)
    assert event["reason"] == "lunch"


def test_only_one_thing_is_asked_to_stop_at_a_time(run: Run) -> None:
    assert run("cancel", "open-1", "--turn", "--call", "m1:2").code == 2


@pytest.mark.parametrize("call", ["m1:0", "nosuch", ""])
def test_a_call_that_is_not_open_is_not_asked_to_stop(run: Run, call: str) -> None:
    before = last_event(run)
    done = run("cancel", "open-1", "--call", call)
    assert (done.code, done.out) == (2, "")
    assert "an open call" in done.err
    assert last_event(run) == before


@pytest.mark.parametrize("arguments", [("steer", "{}", "stop that"), ("cancel", "{}")])
def test_of_a_mirrored_session_it_is_said_that_nobody_heeds_it(
    run: Run, arguments: tuple[str, ...]
) -> None:
    done = run(*(argument.format("mirror-1") for argument in arguments))
    assert done.code == 0
    assert "claude-code runs mirror-1" in done.err
    assert run(*(argument.format("open-1") for argument in arguments)).err == ""
