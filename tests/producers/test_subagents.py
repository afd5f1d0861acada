"""Parents and children killed at every point: one child, one effect, one end."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.producers.client import Client, connect
from foldline.producers.model import ToolRequest
from foldline.producers.recovering import RecoveryWorker
from foldline.producers.recovery_actions import STOP_PASSED_ON
from foldline.producers.session import OwnedSession
from foldline.producers.subagents import child_id
from foldline.producers.tools import Done, Toolbox
from foldline.projections.resuming import ResumePolicy
from foldline.projections.subagents import children_to_wait_for, stops_of
from foldline.schemas.events import (
    BackgroundEnded,
    CancellationRequested,
    KnownEvent,
    SessionCancelled,
    SubagentStarted,
)
from foldline.testing import make_append
from tests import charging, delegating
from tests.charging_run import LIMIT_S, ROOT
from tests.harness import QUICK, memory, model_says

POINTS = (
    "CP_SUBAGENT_AFTER_STARTED:1",
    "CP_SUBAGENT_AFTER_CREATED:1",
    "CP_TOOL_AFTER_START:1",
    "CP_TOOL_AFTER_EFFECT:1",
    "CP_SUBAGENT_BEFORE_ENDED:1",
)
SESSION = "lead-1"


def run(url: str, ledger: Path, **environment: str) -> int:
    """Run the harness; gives its exit code."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("FOLDLINE_")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.delegating", url, SESSION, str(ledger)],
        cwd=ROOT,
        env=own | {"FOLDLINE_START_BY_MS": "300"} | environment,
        stdout=subprocess.PIPE,
        timeout=LIMIT_S,
        check=False,
    )
    return done.returncode


def check(log: Log, ledger: Path) -> None:
    """One child worked on the call, once, and the call has its answer."""
    assert len(charging.ledger_of(ledger)) == 1
    events = list(log.events(SESSION))
    types = [recorded.type for recorded in events]
    once = ("SubagentStarted", "ToolExecutionStarted", "BackgroundEnded", "SubagentEnded")
    assert [types.count(name) for name in once] == [1, 1, 1, 1]
    (ended,) = [r.event for r in events if isinstance(r.event, BackgroundEnded)]
    assert ended.output[0].body == "charged by a subagent"
    assert types[-1] == "SessionCompleted"
    assert len(log.sessions()) == 2


@pytest.mark.crash
@pytest.mark.parametrize("second", ["", "CP_SUBAGENT_AFTER_CREATED:1"])
@pytest.mark.parametrize("point", POINTS)
def test_a_tree_that_is_killed_goes_on_with_the_same_child(
    tmp_path: Path, point: str, second: str
) -> None:
    """Killed once, or once more while it is taken up again."""
    url, ledger = f"sqlite:///{tmp_path}/sessions.db", tmp_path / "ledger"
    assert run(url, ledger, FOLDLINE_CRASH_AT=point) == -signal.SIGKILL
    while (code := run(url, ledger, FOLDLINE_CRASH_AT=second)) == -signal.SIGKILL:
        second = ""
    assert code == 0
    log = open_log(url)
    check(log, ledger)
    log.close()


async def test_recovery_goes_from_the_leaves_up(tmp_path: Path) -> None:
    """Both owners are gone: the child is settled and brought on, then its parent."""
    log, tools = memory(), charging.toolbox(tmp_path / "ledger", "RECONCILABLE")
    async with connect(log, settings=QUICK) as client:
        parent = await client.create(agent="lead", session_id=SESSION)
        turn = await parent.turn("go").__aenter__()
        (call,) = await delegating.model_says(
            turn, delegating.ToolRequest("task", "{}", "p")
        )
        child = await parent.subagent(call, agent="cashier")
        await child.turn("charge").__aenter__()
    resumed: list[str] = []

    async def resume(_client: Client, owned: OwnedSession) -> None:
        resumed.append(owned.session_id)
        if owned.session_id != SESSION:
            await delegating.work(owned, tools)
            return
        async with await owned.resume_turn():
            assert isinstance(await owned.subagent_result(call), Done)
        await owned.complete()

    async with connect(log, settings=QUICK) as client:
        pauses = ResumePolicy(pause_ms=0)
        worker = RecoveryWorker(client, toolbox=tools, resume=resume, pauses=pauses)
        while (await worker.sweep()).stalled:
            pass
    assert resumed == [child_id(SESSION, call.call_id), SESSION]
    check(log, tmp_path / "ledger")


async def test_a_parent_whose_child_lives_is_left_alone_by_recovery() -> None:
    """Nothing of it is claimed: its turn waits for the child."""
    log = memory()
    async with connect(log, settings=QUICK) as one, connect(log, settings=QUICK) as two:
        parent = await one.create(agent="lead", session_id=SESSION)
        turn = await parent.turn("go").__aenter__()
        (call,) = await delegating.model_says(
            turn, delegating.ToolRequest("task", "{}", "p")
        )
        child = await parent.subagent(call, agent="cashier")
        await parent.close()
        worker = RecoveryWorker(two, toolbox=Toolbox(), pauses=ResumePolicy(pause_ms=0))
        sweep = await worker.sweep()
        assert (sweep.waiting, sweep.actions) == (1, [])
        state = log.state(SESSION)
        assert state is not None
        assert (state.epoch, stops_of(state)) == (1, [])
        await child.close()


async def ring(opened: Client) -> list[OwnedSession]:
    """Three sessions in the middle of a turn, each naming the others as its children."""
    sessions = [await opened.create(agent=name) for name in "abc"]
    for session in sessions:
        turn = session.turn("go")
        await turn.__aenter__()
        others = [other.session_id for other in sessions if other is not session]
        calls = await model_says(turn, *[ToolRequest("work", "{}")] * len(others))
        for call, name in zip(calls, others, strict=True):
            await session.append(
                SubagentStarted(child_session_id=name, call_id=call.call_id)
            )
    return sessions


async def test_sessions_that_name_each_other_as_children_are_asked_to_stop_once() -> None:
    """Writers name children: a walk down from one that is its own ancestor has an end."""
    log = memory()
    async with connect(log) as opened:
        first, *others = await ring(opened)
        await first.end_cancelled("lunch")
    for session in others:
        state = log.state(session.session_id)
        assert state is not None
        assert state.counts["CancellationRequested"] == 1


async def test_sessions_that_name_each_other_as_children_are_recovered() -> None:
    """Each waiting for the others, nobody would ever be."""
    log = memory()
    async with connect(log) as opened:
        sessions = await ring(opened)
    for session in sessions:
        state = log.state(session.session_id)
        assert state is not None
        assert children_to_wait_for(log, state) == []


STOPS = (
    CancellationRequested(target="SESSION", reason="lunch"),
    CancellationRequested(target="TURN", reason="lunch"),
    SessionCancelled(reason="lunch"),
)


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/s.db"])
@pytest.mark.parametrize("stop", STOPS, ids=["session", "turn", "ended"])
@pytest.mark.parametrize("levels", [1, 2])
async def test_a_living_subagent_is_told_of_a_stop_by_recovery_and_only_once(
    tmp_path: Path, url: str, stop: KnownEvent, levels: int
) -> None:
    """Who asked, or ended the session, died before it told anybody; its owner is gone."""
    log = open_log(url.format(tmp_path))
    async with (
        connect(log, settings=QUICK) as above,
        connect(log, settings=QUICK) as below,
        connect(log, settings=QUICK) as looking,
    ):
        sessions = [await above.create(agent="lead", session_id=SESSION)]
        for level in range(levels):
            turn = await sessions[-1].turn("go").__aenter__()
            (call,) = await model_says(turn, ToolRequest("task", "{}", f"p{level}"))
            sessions.append(await sessions[-1].subagent(call, agent="scout"))
        for session in sessions:
            await session.close()
        leaf = sessions[-1].session_id
        owned = await below.take(leaf)
        turn = await owned.turn("work").__aenter__()
        epoch = 0 if isinstance(stop, CancellationRequested) else 1
        append_raw(log, SESSION, stop, epoch=epoch, writer=above.writer)
        worker = RecoveryWorker(
            looking, toolbox=Toolbox(), pauses=ResumePolicy(pause_ms=60_000)
        )
        sweeps = [await worker.sweep() for _ in range(2)]
        done = [[a.action for a in sweep.actions] for sweep in sweeps]
        assert [actions.count(STOP_PASSED_ON) for actions in done] == [1, 0], done
        for session in sessions[1:]:
            state = log.state(session.session_id)
            assert state is not None
            assert state.counts["CancellationRequested"] == 1
        await owned.close()
    log.close()


async def test_a_subagent_whose_session_goes_on_is_told_nothing() -> None:
    """A stop of another call, another turn's, or another tenant's session is not its."""
    log = memory()
    async with connect(log, settings=QUICK) as opened:
        parent = await opened.create(agent="lead", session_id=SESSION)
        turn = await parent.turn("go").__aenter__()
        one, other = await model_says(
            turn, ToolRequest("task", "{}", "p"), ToolRequest("task", "{}", "q")
        )
        child = await parent.subagent(one, agent="scout")
        await child.turn("work").__aenter__()
        stop = CancellationRequested(target="CALL", target_id=other.call_id)
        append_raw(log, SESSION, stop, epoch=0, writer="w")
        worker = RecoveryWorker(opened, toolbox=Toolbox())
        assert (await worker.sweep()).actions == []
        state = log.state(child.session_id)
        assert state is not None
        assert state.cancellation is None


def append_raw(log: Log, session_id: str, event: KnownEvent, **who: Any) -> None:
    """One append, by somebody who does nothing else."""
    state = log.state(session_id)
    assert state is not None
    (verdict,) = log.append([make_append(session_id, event, known_seq=state.seq, **who)])
    assert verdict.kind == "ACCEPTED", verdict


async def test_a_child_is_of_the_tenant_of_its_parent() -> None:
    log = memory()
    async with connect(log, settings=QUICK, tenant="acme") as client:
        await client.create(agent="lead", session_id=SESSION)
    async with connect(log, settings=QUICK) as client:
        parent = await client.take(SESSION)
        turn = await parent.turn("go").__aenter__()
        request = delegating.ToolRequest("task", "{}", "p")
        (call,) = await delegating.model_says(turn, request)
        state = await (await parent.subagent(call, agent="cashier")).state()
    assert (state.tenant, state.parent_session_id) == ("acme", SESSION)
