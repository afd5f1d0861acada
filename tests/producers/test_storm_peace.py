"""When a storm is over: not while a session only seems to wait, between two attempts."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from foldline.producers.client import Client
from foldline.producers.session import OwnedSession
from foldline.schemas.events import ToolExecutionStarted
from foldline.schemas.state import SUSPENDED, WAITING_APPROVAL
from tests.harness import model_says

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SEED = 127
"""One session, one answer, and in it one call of each of these."""

EFFECTS = {"unsafe": "UNSAFE", "asked": "RECONCILABLE"}


@pytest.fixture
def lives(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The lives of a storm's processes; scripts, so found by their folder."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return importlib.import_module("storm_lives")


@pytest.fixture
def script(lives: Any, tmp_path: Path) -> Any:
    """A seed of one session, of which one answer asks for two calls."""
    return lives.Script(SEED, "r", tmp_path)


async def _dies_with_both_calls_begun(client: Client, lives: Any, script: Any) -> None:
    """Neither has had its effect: so nobody can say how the unsafe one ended."""
    (name,) = script.sessions
    (requests,) = script.answers(name)
    owned = await client.create(agent="a", session_id=name, tools=lives.toolbox(script))
    turn = owned.turn("go")
    await turn.__aenter__()
    calls = await model_says(turn, *requests)
    effects = {call.call_id: EFFECTS[call.tool] for call in calls}
    for call_id, effect in effects.items():
        start = ToolExecutionStarted(
            call_id=call_id,
            effect=effect,
            operation_id=f"op-of-{effect}",
            start_by_ms=lives.START_BY_MS,
        )
        await owned.append(start)
    await owned.close()


async def _recovered(client: Client, lives: Any, script: Any) -> OwnedSession:
    """One asks a person; the other has certainly not happened, and has still to run."""
    owned = await client.take(script.sessions[0])
    report = await owned.recover(lives.toolbox(script))
    assert (report.asked, report.not_executed) == (1, 1)
    assert (await owned.state()).status == WAITING_APPROVAL
    return owned


async def test_a_storm_is_not_over_while_a_call_has_still_to_run(
    lives: Any, script: Any, tmp_path: Path
) -> None:
    """The question that nobody answers is not all that the session waits for."""
    url = f"sqlite:///{tmp_path}/log.db"
    async with lives.connected(url, script) as client:
        await _dies_with_both_calls_begun(client, lives, script)
        owned = await _recovered(client, lives, script)
        assert not await lives.at_rest(client, script)
        await owned.close()
        assert not await lives.at_rest(client, script)
    await lives.peace(url, script)
    async with lives.connected(url, script) as client:
        state = await (await client.open(script.sessions[0])).state()
        assert state.status in (SUSPENDED, WAITING_APPROVAL)
        assert [call.tool for call in state.calls.values()] == ["unsafe"]
        assert [effect.tool for effect in script.effects()] == ["asked"]


async def test_a_storm_is_not_over_while_somebody_has_a_session_in_hand(
    lives: Any, script: Any, tmp_path: Path
) -> None:
    """Whatever it looks like: its owner may begin something the next moment."""
    (name,) = script.sessions
    async with lives.connected(f"sqlite:///{tmp_path}/log.db", script) as client:
        await _dies_with_both_calls_begun(client, lives, script)
        await lives.work(client, script, name)
        assert await lives.at_rest(client, script)
        owned = await client.take(name)
        assert (await owned.state()).status == WAITING_APPROVAL
        assert not await lives.at_rest(client, script)
        await owned.close()
        assert await lives.at_rest(client, script)
