"""A harness that comes to no end has left its record, and says to which fork it went."""

import asyncio
from typing import Any

import pytest

from foldline.producers.replay_inputs import Inputs
from foldline.producers.replaying import continue_live, replay
from foldline.producers.session import OwnedSession
from foldline.projections.replay import HARNESS
from tests.harness import client, memory
from tests.replaying import Agent


async def test_a_harness_that_takes_no_step_any_more_has_left_the_record() -> None:
    log = memory()

    async def stays(session: OwnedSession, inputs: Inputs) -> None:
        await inputs.set_up(session)
        async with session.turn("Tell Ada."):
            await asyncio.Event().wait()

    async with client(log) as opened:
        recorded = await Agent().record(opened, "Tell Ada.")
        report = await replay(log, recorded.session_id, stays, idle_s=0.2)
    assert report.divergence is not None
    assert report.divergence.cause == HARNESS
    assert "no step for 0.2 s" in report.divergence.detail


async def test_the_fork_is_told_before_the_harness_goes_on_with_it() -> None:
    """Whatever becomes of the harness, its fork can be found."""
    log, agent, told = memory(), Agent(), list[str]()

    async def breaks(session: OwnedSession, inputs: Any) -> None:
        if inputs.live:
            assert told == [session.session_id]
            raise ZeroDivisionError
        await agent.run(session, inputs)

    async with client(log) as opened:
        recorded = await agent.record(opened, "Tell Ada.")
        with pytest.raises(ZeroDivisionError):
            await continue_live(
                opened, recorded.session_id, breaks, from_seq=9, told=told.append
            )
    assert len(told) == 1
