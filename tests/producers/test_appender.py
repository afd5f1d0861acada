"""The way of appends: resent with the same id, never lost by who waits, never twice."""

import asyncio
from collections.abc import Sequence

import pytest

from foldline.errors import (
    AppendRefusedError,
    ConflictError,
    FencedError,
    LogUnavailableError,
    UncertainAppendError,
)
from foldline.processors.memory_log import MemoryLog
from foldline.producers.identity import wall_clock
from foldline.schemas.events import ContextCleared, LabelsSet, TurnEnded, UserMessage
from foldline.schemas.recorded import Append
from foldline.schemas.state import WINDOW
from foldline.schemas.verdicts import Verdict
from tests.harness import QUICK, FaultyLog, client, count, memory, types_in


async def test_an_append_whose_answer_was_lost_is_recorded_once() -> None:
    """Row 4 of the faults: resent with the same event_id and known_seq."""
    log = memory()
    async with client(log) as own:
        owned = await own.create(agent="a")
        log.lose_after = 2
        await owned.message("hello")
        assert await count(owned, "UserMessage") == 1
        first, second, third = log.batches[-3:]
        assert first == second == third


async def test_an_append_that_was_not_taken_is_made_again_until_it_is() -> None:
    """A full disk, a locked file: no answer is no refusal."""
    log = memory()
    async with client(log) as own:
        owned = await own.create(agent="a")
        log.lose_before = QUICK.resend_max
        await owned.message("hello")
        assert await count(owned, "UserMessage") == 1


async def test_an_append_that_gets_no_answer_for_too_long_is_an_error() -> None:
    """And the same again, under the same id, is recorded once."""
    log = memory()
    async with client(log) as own:
        owned = await own.create(agent="a")
        log.lose_before = QUICK.resend_max + 1
        with pytest.raises(LogUnavailableError):
            await owned.message("hello", idempotency_key="k")
        assert await count(owned, "UserMessage") == 0
        await owned.message("hello", idempotency_key="k")
        await owned.message("hello", idempotency_key="k")
        assert await count(owned, "UserMessage") == 1


class FailingLog(FaultyLog):
    """A log that after a lost answer takes nothing more, for as long as one resends."""

    def append(self, appends: Sequence[Append]) -> list[Verdict]:
        """Append, and fail from the first lost answer on."""
        try:
            return super().append(appends)
        except UncertainAppendError:
            self.lose_before = QUICK.resend_max
            raise


async def test_what_one_sending_may_have_recorded_stays_uncertain() -> None:
    """The first was recorded without an answer; that the others were not is no answer."""
    log = FailingLog(MemoryLog(settings=QUICK, clock=wall_clock))
    async with client(log) as own:
        owned = await own.create(agent="a")
        log.lose_after = 1
        with pytest.raises(UncertainAppendError):
            await owned.message("hello")
        assert await count(owned, "UserMessage") == 1


async def test_who_has_not_looked_for_long_appends_anew_and_once() -> None:
    """More than W events by others: TOO_OLD, and the log itself is asked."""
    log = memory()
    async with client(log) as mine, client(log) as others:
        owned = await mine.create(agent="a", session_id="s")
        view = await others.open("s")
        for number in range(WINDOW + 5):
            await view.label(number=str(number))
        await owned.message("hello")
        assert await count(owned, "UserMessage") == 1


async def test_what_was_recorded_long_ago_is_found_and_not_recorded_again() -> None:
    """The answer was lost, and the window has gone on since: DUPLICATE by the log."""
    log = memory()
    async with client(log) as mine, client(log) as others:
        owned = await mine.create(agent="a", session_id="s")
        idle = await others.open("s")
        event_id = await owned.message("hello", idempotency_key="k")
        seq = (await owned.state()).seq
        for number in range(WINDOW + 5):
            await owned.label(number=str(number))
        again = UserMessage(message_id=event_id, blocks=())
        verdict = await idle.append(again, event_id=event_id)
        assert (verdict.kind, verdict.seq) == ("DUPLICATE", seq)
        assert await count(owned, "UserMessage") == 1


async def test_a_cancelled_caller_takes_nothing_back() -> None:
    """What was handed in is appended, whoever waits for it."""
    log = memory()
    async with client(log) as own:
        owned = await own.create(agent="a")
        log.lose_before = 1
        waiting = asyncio.create_task(owned.message("hello"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await owned.message("second")
        assert await types_in(owned) == ["SessionCreated", "UserMessage", "UserMessage"]


async def test_appends_that_queue_up_go_out_together_and_in_order() -> None:
    """One transaction for what has gathered, at most inflight_max at once."""
    log = memory()
    async with client(log) as own:
        owned = await own.create(agent="a")
        before = len(log.batches)
        await asyncio.gather(*(owned.message(str(n)) for n in range(100)))
        batches = log.batches[before:]
        assert len(batches) < 20
        assert max(len(batch) for batch in batches) <= QUICK.inflight_max
        texts = [
            recorded.event.blocks[0].body
            async for recorded in owned.events()
            if isinstance(recorded.event, UserMessage)
        ]
        assert texts == [str(n) for n in range(100)]


async def test_a_refusal_is_an_error_that_carries_the_verdict() -> None:
    """And of a kind that says what to do."""
    log = memory()
    async with client(log) as own, client(log) as other:
        owned = await own.create(agent="a", session_id="s")
        view = await other.open("s")
        with pytest.raises(AppendRefusedError) as illegal:
            await owned.append(TurnEnded(outcome="DONE"))
        assert (illegal.value.verdict.kind, illegal.value.verdict.rule) == (
            "ILLEGAL",
            "status",
        )
        with pytest.raises(ConflictError):
            await owned.append(ContextCleared(), expected_seq=17)
        with pytest.raises(FencedError):
            await view.append(ContextCleared())


async def test_a_group_that_cannot_be_written_does_not_take_others_with_it() -> None:
    """Its caller is told; whoever queued up beside it is not."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        broken = LabelsSet.trusted({"labels": 7})
        results = await asyncio.gather(
            owned.append(broken), owned.message("hello"), return_exceptions=True
        )
        assert isinstance(results[0], Exception)
        assert isinstance(results[1], str)
