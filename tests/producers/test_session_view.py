"""What anybody may say to a session, without owning it."""

import asyncio

import pytest

from foldline.errors import AppendRefusedError, SessionNotFoundError
from foldline.schemas.events import InputProvided, UserFeedback
from tests.harness import client, memory, types_in


async def test_steering_with_a_key_is_recorded_once_however_often_it_is_sent() -> None:
    """Its id follows from session and key; it is on the log when it is acknowledged."""
    log = memory()
    async with client(log) as own, client(log) as other:
        owned = await own.create(agent="a", session_id="s")
        ids = {
            await view.steer("use nix", idempotency_key="k")
            for view in (owned, await other.open("s"), await own.open("s"))
        }
        assert len(ids) == 1
        state = await owned.state()
        assert list(state.steering) == list(ids)
        assert await owned.steer("and now", idempotency_key="other") not in ids


async def test_the_same_key_in_another_session_is_another_steering() -> None:
    """Keys are a session's own."""
    async with client(memory()) as own:
        first = await own.create(agent="a")
        second = await own.create(agent="a")
        one = await first.steer("x", idempotency_key="k")
        assert one != await second.steer("x", idempotency_key="k")


async def test_people_judge_label_and_set_goals_also_beside_a_live_owner() -> None:
    """Nothing of it needs the epoch."""
    log = memory()
    async with client(log) as own, client(log) as other:
        owned = await own.create(agent="a", session_id="s")
        view = await other.open("s")
        message_id = await view.message("hello")
        await view.feedback(message_id, "good", score=1.0)
        await view.set_goal("ship it")
        await view.label(team="x")
        await view.cancel("enough", target="TURN")
        assert await types_in(owned) == [
            "SessionCreated",
            "UserMessage",
            "UserFeedback",
            "GoalSet",
            "LabelsSet",
            "CancellationRequested",
        ]


async def test_feedback_reaches_a_session_that_has_ended_and_steering_does_not() -> None:
    """CLOSED, unless it is of a type that is still taken."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        await owned.end_cancelled("over")
        await owned.feedback("everything", score=0.5)
        with pytest.raises(AppendRefusedError) as closed:
            await owned.steer("more")
        assert closed.value.verdict.kind == "CLOSED"
        judged = [recorded.event async for recorded in owned.events()][-1]
        assert isinstance(judged, UserFeedback)


async def test_a_state_is_read_at_any_seq_that_there_was() -> None:
    """And an error where there was none."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        await owned.message("one")
        await owned.suspend("night")
        assert (await owned.state(2)).status == "CREATED"
        assert (await owned.state()).status == "SUSPENDED"
        with pytest.raises(SessionNotFoundError):
            await owned.state(99)


async def test_events_are_read_in_parts_and_come_whole() -> None:
    """More of them than one read brings."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        await asyncio.gather(*(owned.message(str(number)) for number in range(600)))
        seqs = [recorded.seq async for recorded in owned.events()]
        assert seqs == list(range(1, 602))
        assert [r.seq async for r in owned.events(590, upto_seq=593)] == [591, 592, 593]


async def test_bytes_are_kept_and_named_by_their_hash() -> None:
    """An image, a file."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        blob = await owned.store(b"\x89PNG", media_type="image/png")
        assert await owned.blob(blob) == b"\x89PNG"


async def test_a_question_that_nobody_asked_is_not_answered() -> None:
    """The verdict says which rule."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        async with owned.turn("go") as turn:
            with pytest.raises(AppendRefusedError) as refused:
                await owned.answer("nobody asked", "yes")
            assert refused.value.verdict.rule == "no_pending_request"
            with pytest.raises(AppendRefusedError):
                await owned.append(InputProvided(request_id="r", blocks=()))
            assert not turn.cancelled
