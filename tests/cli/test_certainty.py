"""What is said to be certain is, and what is not is said to be unknown."""

import pytest

from foldline.cli.certainty import REPEAT, certain_of, unknown_of
from foldline.processors.log import Lease
from foldline.processors.rules import EFFECTS
from foldline.schemas.state import MIRRORED, NOT_BEGUN, Call, SessionState


def call(status: str, *, effect: str = "UNSAFE", started_seq: int = 7) -> Call:
    return Call(
        call_id="c",
        tool="t",
        args_hash="h",
        provider_call_id="",
        turn_id="t1",
        requested_seq=5,
        status=status,
        attempt=1,
        effect=effect,
        started_seq=started_seq,
        epoch=2,
        writer="w",
    )


def state(mode: str = "OWNED") -> SessionState:
    return SessionState("s", mode=mode, epoch=2, owner="w")


def lease(*, alive: bool = True, writer: str = "w", epoch: int = 2) -> Lease:
    return Lease("s", epoch, writer, alive, 100)


def test_every_effect_says_what_repeating_it_means() -> None:
    assert set(REPEAT) == set(EFFECTS)


def test_a_running_call_of_a_live_owner_is_awaited() -> None:
    assert "its owner is alive" in unknown_of(state(), call("RUNNING"), lease())


@pytest.mark.parametrize(
    "gone", [None, lease(alive=False), lease(writer="other"), lease(epoch=3)]
)
def test_a_running_call_whose_owner_is_gone_may_have_happened(
    gone: Lease | None,
) -> None:
    unknown = unknown_of(state(), call("RUNNING"), gone)
    assert unknown.startswith("whether its effect happened")
    assert "not repeated blindly" in unknown


@pytest.mark.parametrize("status", sorted(NOT_BEGUN - {"NOT_EXECUTED"}))
def test_what_has_not_begun_is_certain(status: str) -> None:
    waiting = call(status, started_seq=0)
    assert certain_of(state(), waiting).startswith("its effect has not begun")
    assert unknown_of(state(), waiting, None) == ""


def test_what_was_found_not_to_have_happened_is_certain() -> None:
    assert "not to have happened" in certain_of(state(), call("NOT_EXECUTED"))
    assert unknown_of(state(), call("NOT_EXECUTED"), None) == ""


@pytest.mark.parametrize("status", ["TIMED_OUT", "CANCELLING"])
def test_a_stop_that_nobody_confirmed_is_no_stop(status: str) -> None:
    assert unknown_of(state(), call(status), lease()).startswith("whether it still runs")


def test_a_mirrored_call_without_a_start_may_have_begun_all_the_same() -> None:
    mirrored = state(MIRRORED)
    open_call = call("REQUESTED", started_seq=0)
    assert "has not begun" not in certain_of(mirrored, open_call)
    assert unknown_of(mirrored, open_call, None).startswith("whether it began")
