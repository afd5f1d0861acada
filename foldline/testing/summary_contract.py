"""How a compaction goes on, and how it fails: a part of `ContextContract`."""

import asyncio

import pytest

from foldline.errors import UncertainAppendError
from foldline.processors.log import Log
from foldline.producers.client import connect
from foldline.projections.policy import ContextPolicy
from foldline.projections.shaping import EXTRACTIVE, RENEWAL, STEPS_MAX
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    HistoryRewound,
    KnownEvent,
    MessageRetracted,
    UserMessage,
)
from foldline.testing.context_kit import (
    COMPACTS,
    Endless,
    Meanwhile,
    Scripted,
    check,
    events_of,
    step,
    text_of,
)


class NoExtracts(Scripted):
    """Nothing stands in for it."""

    strategy = EXTRACTIVE


class SummaryContract:
    """Part of `ContextContract`, which gives the fixture `log`."""

    @pytest.mark.parametrize(
        ("said", "reason"),
        [
            (ValueError("no model here"), "ValueError: no model here"),
            ("", "the summary is empty"),
            ("far too long " * 2_000, "stands for"),
        ],
    )
    async def test_a_summariser_that_fails_is_recorded_and_extracts_are_taken(
        self, log: Log, said: str | Exception, reason: str
    ) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            owned.summarise_by(Scripted(said))
            async with owned.turn("look around") as turn:
                for name in "abc":
                    await step(turn, ("read", f'{{"path": "src/{name}.py"}}'))
                context = await step(turn, words="done")
            failed = (await events_of(owned, CompactionFailed))[0]
            assert reason in failed.reason
            begun = await events_of(owned, CompactionStarted)
            assert begun[1].reason == "budget: scripted/1 failed"
            (completed, *_) = await events_of(owned, CompactionCompleted)
            assert completed.strategy == EXTRACTIVE
            assert completed.token_after < completed.token_before
            assert "Summary of events" in text_of(context)

    async def test_a_compaction_that_failed_is_not_tried_again_by_whoever_wakes_up(
        self, log: Log
    ) -> None:
        """Until the context has grown: the log says that it failed, and on how much."""
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            owned.summarise_by(NoExtracts(ValueError("broken")))
            async with owned.turn("look around") as turn:
                for name in "abc":
                    await step(turn, ("read", f'{{"path": "src/{name}.py"}}'))
                await turn.context()
                turn.leave()
            begun = len(await events_of(owned, CompactionStarted))
            assert begun
        for _ in range(3):
            async with connect(log) as client:
                owned = await client.take(owned.session_id, policy=COMPACTS)
                turn = await owned.resume_turn()
                await turn.context()
                turn.leave()
                assert len(await events_of(owned, CompactionStarted)) == begun
        async with connect(log) as client:
            owned = await client.take(owned.session_id, policy=COMPACTS)
            turn = await owned.resume_turn()
            for name in "defg":
                await step(turn, ("read", f'{{"path": "src/{name}.py"}}'))
            assert await events_of(owned, CompactionCompleted)

    async def test_facts_stand_behind_whatever_a_summariser_says(self, log: Log) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            scripted = Scripted("all went well")
            async with owned.turn("go") as turn:
                await step(turn, ("fail", "{}"))
                await step(turn, ("read", '{"path": "src/a.py"}'))
                await step(turn, words="done")
                assert await turn.compact(summariser=scripted)
                context = await turn.context()
            assert "1 times" in scripted.asked[0].facts
            shown = text_of(context)
            assert "all went well" in shown
            assert "no such target" in shown

    @pytest.mark.parametrize("taken_back", ["rewound", "retracted"])
    async def test_a_history_that_changes_meanwhile_is_planned_anew(
        self, log: Log, taken_back: str
    ) -> None:
        """What somebody takes back while a summary is made is not in it."""
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            async with owned.turn("go") as turn:
                await step(turn, ("read", '{"path": "src/0.py"}'))
                await step(turn, ("read", '{"path": "src/a.py"}'))
                seq = (await owned.state()).seq
                message_id = await owned.message("FORGET THIS")
                await step(turn, ("read", '{"path": "src/b.py"}'))
                await step(turn, ("read", '{"path": "src/c.py"}'))
                event: KnownEvent = HistoryRewound(to_seq=seq)
                if taken_back == "retracted":
                    event = MessageRetracted(message_ids=(message_id,))
                summariser = Meanwhile(owned, event)
                assert await turn.compact(summariser=summariser)
                assert await events_of(owned, CompactionCompleted)
                context = await turn.context()
            check(context)
            assert "FORGET THIS" not in text_of(context)
            (failed, *_) = await events_of(owned, CompactionFailed)
            assert "changed" in failed.reason
            assert (await owned.state()).open_compaction is None

    async def test_a_history_that_never_stops_changing_is_not_compacted_for_ever(
        self, log: Log
    ) -> None:
        """Whoever asked is told that nothing was, and the context stays as it was."""
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            async with owned.turn("go") as turn:
                await step(turn, ("read", '{"path": "src/a.py"}'))
                await step(turn, words="x")
                gone = MessageRetracted(message_ids=("nothing",))
                assert not await turn.compact(summariser=Meanwhile(owned, gone, times=99))
            failed = await events_of(owned, CompactionFailed)
            assert len(failed) == STEPS_MAX
            assert (await owned.state()).compaction is None

    async def test_a_second_compaction_goes_up_to_where_it_is_asked_for(
        self, log: Log
    ) -> None:
        """Also before the event of the first, which stands for less."""
        async with connect(log) as client:
            owned = await client.create(agent="a", policy="full")
            async with owned.turn("look around") as turn:
                for number in range(12):
                    await step(turn, ("read", f'{{"path": "src/{number}.py"}}'))
                for to_seq in (30, 60):
                    assert await turn.compact(to_seq=to_seq)
                    found = (await owned.state()).compaction
                    assert found is not None
                    assert to_seq - 6 < found.to_seq <= to_seq
                    context = await turn.context()
                    check(context)
                    assert text_of(context).count("[Summary of events") == 1

    async def test_an_uncertain_end_is_closed_by_the_next_context(self, log: Log) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            async with owned.turn("go") as turn:
                await step(turn, ("read", '{"path": "src/a.py"}'))
                await step(turn, words="x")
                with pytest.raises(UncertainAppendError):
                    await turn.compact(
                        summariser=Scripted(UncertainAppendError(log.url, "lost"))
                    )
                assert (await owned.state()).open_compaction is not None
                assert await turn.compact()
            (failed,) = await events_of(owned, CompactionFailed)
            assert failed.reason == "left open"

    async def test_a_compaction_that_is_cancelled_is_closed(self, log: Log) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            async with owned.turn("go") as turn:
                await step(turn, ("read", '{"path": "src/a.py"}'))
                await step(turn, words="x")
                waiting = asyncio.create_task(turn.compact(summariser=Endless()))
                async for found in owned.follow():
                    if found.type == "CompactionStarted":
                        break
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                check(await turn.context())
            (failed,) = await events_of(owned, CompactionFailed)
            assert failed.reason == "cancelled"
            assert (await owned.state()).open_compaction is None

    @pytest.mark.parametrize("policy", ["full", COMPACTS])
    @pytest.mark.parametrize("taken_back", ["retracted", "replaced"])
    async def test_words_taken_back_after_a_compaction_are_in_no_summary_that_is_shown(
        self, log: Log, policy: ContextPolicy | str, taken_back: str
    ) -> None:
        """The next context has one made anew, whatever the policy."""
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=policy)
            async with owned.turn("go") as turn:
                message_id = await owned.message("FORGET THIS")
                for name in "abc":
                    await step(turn, ("read", f'{{"path": "src/{name}.py"}}'))
                await turn.compact(policy=COMPACTS)
                assert await events_of(owned, CompactionCompleted)
                assert "FORGET THIS" in text_of(await turn.context())
                event: KnownEvent = MessageRetracted(message_ids=(message_id,))
                if taken_back == "replaced":
                    words = (text_block("INSTEAD"),)
                    event = UserMessage(message_id="n", blocks=words, replaces=message_id)
                await owned.append(event)
                count = len(await events_of(owned, CompactionCompleted))
                context = await turn.context()
                check(context)
                assert "FORGET THIS" not in text_of(context)
                assert "src/a.py" in text_of(context)
                begun = await events_of(owned, CompactionStarted)
                assert begun[-1].reason == RENEWAL
                await turn.context()
                done = await events_of(owned, CompactionCompleted)
                assert len(done) == count + 1
