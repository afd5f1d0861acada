"""A session parked for a request: recovery leaves it alone until it is answered."""

from typing import Any

import pytest

from foldline.producers.client import connect
from foldline.producers.model import ToolRequest
from foldline.producers.policies import ApprovalLimits
from foldline.producers.recovering import RecoveryWorker
from foldline.producers.session import SessionView
from foldline.producers.tools import Tool, Toolbox, ToolContext, Waiting
from foldline.projections.resuming import ResumePolicy
from foldline.schemas.state import SUSPENDED
from tests.harness import QUICK, memory, model_says


def tell(arguments: dict[str, Any], context: ToolContext) -> str:
    """A tool that says what it was told."""
    return f"{arguments}{context.attempt}"


async def granted(view: SessionView, waiting: Waiting) -> None:
    """A person says yes."""
    await view.grant(waiting.request_id)


async def denied(view: SessionView, waiting: Waiting) -> None:
    """A person says no."""
    await view.deny(waiting.request_id, "no")


async def cancelled(view: SessionView, waiting: Waiting) -> None:
    """A person does not want the call any more."""
    await view.cancel("no more", target="CALL", target_id=waiting.call.call_id)


@pytest.mark.parametrize("answer", [granted, denied, cancelled])
async def test_recovery_takes_a_parked_session_up_once_its_request_is_answered(
    answer: Any,
) -> None:
    """The request is the question: nobody has to say besides that it is to go on."""
    log, tools = memory(), Toolbox(Tool(tell, approval="always"))
    async with connect(log, settings=QUICK) as client:
        owned = await client.create(agent="a", session_id="s")
        turn = owned.turn("go")
        await turn.__aenter__()
        calls = await model_says(turn, ToolRequest("tell", "{}", "p"))
        (waiting,) = await turn.run_tools(
            calls, tools, limits=ApprovalLimits(denials_max=0), approval_wait_ms=10
        )
        assert isinstance(waiting, Waiting)
        assert turn.parked
        worker = RecoveryWorker(client, toolbox=tools, pauses=ResumePolicy(pause_ms=0))
        assert (await worker.sweep()).actions == []
        assert (await owned.state()).status == SUSPENDED
        await answer(await client.open("s"), waiting)
        (action,) = (await worker.sweep()).actions
        assert action.action == "REOPENED"
        assert (await owned.state()).epoch == 2
        await worker.sweep()
        state = await owned.state()
        assert (state.status, state.requests) == ("RUNNING", {})
