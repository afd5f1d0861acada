"""What every log must do so that agents can be steered: a part of `LogContract`.

Steering is pending until a context shows it or until it is said to have expired; it is
delivered once, whoever owns the session by then; it races the session's end fairly.
"""

import asyncio
from dataclasses import fields

import pytest

from foldline.errors import AppendRefusedError, PendingSteeringError
from foldline.processors.log import Log
from foldline.producers.client import Client, connect
from foldline.producers.session import OwnedSession, SessionView
from foldline.producers.tools import Toolbox
from foldline.projections.context import Context
from foldline.schemas.choices import SteeringMode
from foldline.schemas.events import SteeringExpired
from foldline.schemas.state import SessionState
from foldline.testing.resting import CHANGED_BY_REST, THINGS

RACES = 6
"""How often steering and the session's end are let loose on each other."""


def shown(context: Context, text: str) -> int:
    """How many parts of a context say exactly this."""
    parts = [part for message in context.messages for part in message.parts]
    return sum(part.text == text for part in parts)


async def expired(owned: OwnedSession) -> list[str]:
    """Why steering was said to have expired."""
    events = [recorded.event async for recorded in owned.events()]
    return [event.reason for event in events if isinstance(event, SteeringExpired)]


def lasting(state: SessionState) -> dict[str, object]:
    """What a rest of the session must not change."""
    names = [item.name for item in fields(state) if item.name not in CHANGED_BY_REST]
    return {name: getattr(state, name) for name in names}


class SteeringContract:
    """Part of `LogContract`, which gives the fixture `log`."""

    async def test_steering_that_interrupts_is_in_the_next_context(self, log: Log) -> None:
        async with connect(log) as client, connect(log) as person:
            owned = await client.create(agent="a")
            async with owned.turn("go") as turn:
                view = await person.open(owned.session_id)
                await view.steer("use nix")
                assert shown(await turn.context(), "use nix") == 1
                assert shown(await turn.context(), "use nix") == 1
            assert not (await owned.state()).steering
            assert await owned.steered_turn() is None

    async def test_steering_for_the_next_turn_begins_none_itself(self, log: Log) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a")
            async with owned.turn("go") as turn:
                await owned.steer("later", mode="NEXT_TURN")
                assert shown(await turn.context(), "later") == 0
            assert await owned.steered_turn() is None
            async with owned.turn("go on") as turn:
                assert shown(await turn.context(), "later") == 1

    async def test_steering_on_idle_begins_a_turn_of_its_own(self, log: Log) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a")
            async with owned.turn("go") as turn:
                await owned.steer("when you have time", mode="ON_IDLE")
                assert shown(await turn.context(), "when you have time") == 0
                assert await owned.steered_turn() is None
            turn = await owned.steered_turn()
            assert turn is not None
            async with turn:
                assert shown(await turn.context(), "when you have time") == 1
            assert (await owned.state()).counts["TurnStarted"] == 2

    @pytest.mark.parametrize("mode", ["INTERRUPT", "ON_IDLE"])
    async def test_an_idle_agent_waits_to_be_steered(
        self, log: Log, mode: SteeringMode
    ) -> None:
        async with connect(log) as client, connect(log) as person:
            owned = await client.create(agent="a")
            waiting = asyncio.create_task(owned.steered_turn(wait_s=60))
            await (await person.open(owned.session_id)).steer("wake up", mode=mode)
            turn = await waiting
            assert turn is not None
            async with turn:
                assert shown(await turn.context(), "wake up") == 1

    async def test_the_same_key_is_one_steering_also_after_it_was_applied(
        self, log: Log
    ) -> None:
        async with connect(log) as client, connect(log) as person:
            owned = await client.create(agent="a")
            view = await person.open(owned.session_id)
            first = await view.steer("use nix", idempotency_key="k")
            async with owned.turn("go") as turn:
                await turn.context()
                assert await view.steer("use nix", idempotency_key="k") == first
                assert shown(await turn.context(), "use nix") == 1
            counts = (await owned.state()).counts
            assert (counts["SteeringReceived"], counts["SteeringApplied"]) == (1, 1)

    @pytest.mark.parametrize("applied", [False, True])
    async def test_steering_survives_its_owner_and_is_delivered_once(
        self, log: Log, *, applied: bool
    ) -> None:
        """Case B37, on either side of the moment in which it is taken in."""
        async with connect(log) as client:
            owned = await client.create(agent="a")
            async with owned.turn("go") as turn:
                await owned.steer("use nix")
                if applied:
                    await turn.context()
                turn.leave()
        async with connect(log) as other:
            owned = await other.take(owned.session_id)
            await owned.recover(Toolbox())
            async with await owned.resume_turn() as turn:
                for _ in range(2):
                    assert shown(await turn.context(), "use nix") == 1
            assert (await owned.state()).counts["SteeringApplied"] == 1

    async def test_a_session_that_was_steered_is_not_complete(self, log: Log) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a")
            steering = await owned.steer("one more thing")
            with pytest.raises(PendingSteeringError) as refused:
                await owned.complete()
            assert refused.value.pending == [steering]
            turn = await owned.steered_turn()
            assert turn is not None
            async with turn:
                assert shown(await turn.context(), "one more thing") == 1
            await owned.complete()
            with pytest.raises(AppendRefusedError) as late:
                await owned.steer("too late")
            assert late.value.verdict.kind == "CLOSED"

    @pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
    async def test_what_is_never_applied_is_said_to_have_expired(
        self, log: Log, end: str
    ) -> None:
        async with connect(log) as client:
            owned = await _idle(client)
            await owned.steer("one", mode="NEXT_TURN")
            await owned.steer("two", mode="ON_IDLE")
            match end:
                case "complete":
                    await owned.complete(expire_steering="out of budget")
                case "fail":
                    await owned.fail("Broken")
                case _:
                    await owned.end_cancelled("lunch")
            assert len(await expired(owned)) == 2
            assert not (await owned.state()).steering

    async def test_an_owner_may_say_that_steering_will_not_be_applied(
        self, log: Log
    ) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a")
            async with owned.turn("go") as turn:
                await owned.steer("use nix")
                await owned.expire_steering("the task is another one now")
                assert shown(await turn.context(), "use nix") == 0
            assert await expired(owned) == ["the task is another one now"]

    async def test_a_turn_that_is_cancelled_too_late_takes_no_later_one_along(
        self, log: Log
    ) -> None:
        async with connect(log) as client, connect(log) as person:
            owned = await _idle(client)
            view = await person.open(owned.session_id)
            await view.cancel("too slow", target="TURN")
            async with owned.turn("and now?") as turn:
                await turn.context()
                assert not turn.cancelled
                assert (await turn.run_tools([], Toolbox())) == []
                assert not turn.interrupted
                await view.cancel("too slow", target="TURN")
                await turn.context()
                assert turn.cancelled
            assert (await owned.state()).cancellation is None

    async def test_steering_that_races_the_end_is_taken_up_or_told_closed(
        self, log: Log
    ) -> None:
        """By the log's order: nothing is acknowledged and then in no transcript."""
        async with connect(log) as client, connect(log) as person:
            for number in range(RACES):
                owned = await _idle(client)
                view = await person.open(owned.session_id)
                ended, steered = await asyncio.gather(
                    _completes(owned), _steers(view, f"s{number}")
                )
                state = await owned.state()
                assert ended != steered
                assert (len(state.steering) == 1) == steered
                assert state.ended == ended

    @pytest.mark.parametrize("thing", sorted(THINGS))
    async def test_a_rest_changes_nothing_that_is_pending_or_in_force(
        self, log: Log, thing: str
    ) -> None:
        """Suspended, taken by another client: all is as it was."""
        async with connect(log) as client:
            owned = await client.create(agent="a")
            async with owned.turn("go") as turn:
                await THINGS[thing](owned, turn)
                turn.leave()
            before = await owned.state()
            await owned.suspend("until tomorrow")
            resting = await owned.state()
        async with connect(log) as other:
            taken = await other.take(owned.session_id)
            after = await taken.state()
        assert lasting(resting) == lasting(before)
        assert lasting(after) == lasting(before)
        assert (resting.status, after.status) == ("SUSPENDED", before.status)


async def _idle(client: Client) -> OwnedSession:
    owned = await client.create(agent="a")
    async with owned.turn("go"):
        pass
    return owned


async def _completes(owned: OwnedSession) -> bool:
    try:
        await owned.complete()
    except PendingSteeringError:
        return False
    return True


async def _steers(view: SessionView, said: str) -> bool:
    try:
        await view.steer(said)
    except AppendRefusedError as error:
        return error.verdict.kind != "CLOSED"
    return True
