"""Killed at every point and resumed by another process: nothing lost, nothing twice."""

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from foldline.producers.tools import Effect
from foldline.schemas.events import (
    ToolExecutionCompleted,
    ToolOutcomeUnknown,
)
from tests import charging
from tests.charging_run import (
    Run,
    check_no_effect_past_its_start_by,
    finish,
    frozen,
    take_from_the_silent,
    wake,
)

NewRun = Callable[[Effect], Run]

EFFECTS: tuple[Effect, ...] = ("IDEMPOTENT", "RECONCILABLE", "UNSAFE")
TOOL_POINTS = (
    "CP_TOOL_BEFORE_START",
    "CP_TOOL_AFTER_START",
    "CP_TOOL_AFTER_EFFECT",
    "CP_TOOL_AFTER_OUTCOME",
)
APPENDS = 8
"""How many transactions the first owner makes: creation, turn, model, answer, ..."""

pytestmark = pytest.mark.crash


@pytest.fixture
def new_run(tmp_path: Path) -> NewRun:
    """A session that is yet to come, in a log of its own."""
    return partial(Run, f"sqlite:///{tmp_path}/sessions.db", tmp_path)


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("point", TOOL_POINTS)
async def test_a_harness_killed_around_an_effect_is_finished_by_another(
    new_run: NewRun, effect: Effect, point: str
) -> None:
    """The side effect happens at most once, and exactly once where one can know."""
    run = new_run(effect)
    code, said = run.run("run", CRASH_AT=f"{point}:1")
    assert code == -signal.SIGKILL
    await finish(run)
    run.check(*said)
    happened = len(charging.ledger_of(run.ledger))
    unknown = [r for r in run.events() if isinstance(r.event, ToolOutcomeUnknown)]
    unsure = effect == "UNSAFE" and point in ("CP_TOOL_AFTER_START", "CP_TOOL_AFTER_EFFECT")
    assert len(unknown) == unsure
    if not unsure:
        assert happened == (2 if (effect, point) == _REPEATED else 1)


_REPEATED = ("IDEMPOTENT", "CP_TOOL_AFTER_EFFECT")
"""Where an effect is repeated, under the same operation_id: it may be."""


@pytest.mark.parametrize("number", range(1, APPENDS + 1))
@pytest.mark.parametrize("point", ["CP_APPEND_BEFORE_SEND", "CP_APPEND_AFTER_VERDICT"])
async def test_a_harness_killed_around_an_append_loses_nothing_acknowledged(
    new_run: NewRun, point: str, number: int
) -> None:
    """Row 1: not acknowledged is there once or not at all."""
    run = new_run("RECONCILABLE")
    code, said = run.run("run", CRASH_AT=f"{point}:{number}")
    assert code == -signal.SIGKILL
    if run.events() and run.events()[-1].type == "SessionCompleted":
        assert number == APPENDS
    else:
        await finish(run)
    run.check(*said)
    assert len(charging.ledger_of(run.ledger)) == 1


@pytest.mark.parametrize(
    ("first", "point"),
    [
        ("CP_TOOL_AFTER_EFFECT", "CP_RECOVER_BEFORE_RECONCILE"),
        ("CP_TOOL_AFTER_EFFECT", "CP_RECOVER_AFTER_RESOLVED"),
        ("CP_TOOL_AFTER_START", "CP_RECOVER_AFTER_RECONCILE"),
        ("CP_TOOL_AFTER_START", "CP_RECOVER_AFTER_RESOLVED"),
        ("CP_TOOL_AFTER_START", "CP_TOOL_AFTER_EFFECT"),
    ],
)
async def test_a_recovery_that_is_killed_is_recovered_from(
    new_run: NewRun, first: str, point: str
) -> None:
    """Begun again by the next process, it does what is left."""
    run = new_run("RECONCILABLE")
    _, said = run.run("run", CRASH_AT=f"{first}:1")
    code, more = run.run("finish", CRASH_AT=f"{point}:1")
    assert code == -signal.SIGKILL
    await finish(run)
    run.check(*said, *more)
    assert len(charging.ledger_of(run.ledger)) == 1


# --- frozen, not killed --------------------------------------------------------------


def test_an_effect_does_not_begin_after_a_freeze_past_its_start_by(
    new_run: NewRun,
) -> None:
    """Row 41: between the verdict of its start and the effect."""
    check_no_effect_past_its_start_by(new_run("UNSAFE"))


async def test_a_zombie_decides_nothing_and_its_outcome_is_still_a_fact(
    new_run: NewRun,
) -> None:
    """Row 5: it had run the tool when it froze; another owner has gone on since."""
    run = new_run("UNSAFE")
    brief = {"LEASE_TTL_MS": "500", "LEASE_RENEW_MS": "100"}
    with frozen(run, STOP_AT="CP_TOOL_AFTER_EFFECT:1", **brief) as process:
        await take_from_the_silent(run)
        before = run.events()
        assert before[-1].type == "SessionCompleted"
        said = wake(process)
    assert said[-1] == "fenced"
    events = run.events()
    (late,) = events[len(before) :]
    assert isinstance(late.event, ToolExecutionCompleted)
    assert late.envelope.epoch == 1
    assert len(charging.ledger_of(run.ledger)) == 1
    state = run.state()
    assert (state.epoch, state.anomalies) == (2, {"late": 1})
    assert not state.calls


async def test_a_zombie_that_had_not_started_its_tool_runs_nothing(
    new_run: NewRun,
) -> None:
    """Its start is refused, so its effect does not begin; the other's did."""
    run = new_run("UNSAFE")
    brief = {"LEASE_TTL_MS": "500", "LEASE_RENEW_MS": "100"}
    with frozen(run, STOP_AT="CP_TOOL_BEFORE_START:1", **brief) as process:
        await take_from_the_silent(run)
        before = run.events()
        said = wake(process)
    assert "fenced" in said
    assert run.events() == before
    assert len(charging.ledger_of(run.ledger)) == 1
