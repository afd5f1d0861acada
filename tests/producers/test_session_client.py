"""Creating, opening, taking: one owner at a time, and who may become it."""

import asyncio
import time

import pytest

from foldline.errors import (
    AppendRefusedError,
    FencedError,
    LiveOwnerError,
    MirroredSessionError,
    SessionExistsError,
    SessionNotFoundError,
)
from foldline.producers.client import connect
from foldline.producers.tools import Tool, Toolbox, ToolContext
from foldline.schemas.envelope import Actor, Envelope
from foldline.schemas.events import (
    CompactionCompleted,
    ContextCleared,
    SessionCreated,
    UserMessage,
)
from foldline.settings import Settings
from tests.harness import client, count, memory, types_in

BRIEF = Settings(lease_ttl_ms=600, lease_renew_ms=50)
"""Leases that run out while a test waits."""


def nothing(arguments: dict[str, object], context: ToolContext) -> str:
    """Do nothing."""
    return f"nothing of {arguments} in {context.attempt}"


async def test_a_new_session_has_its_owner_its_tools_and_its_goal() -> None:
    """In one batch: nobody sees half of it."""
    log = memory()
    async with client(log) as own:
        toolbox = Toolbox(Tool(nothing, effect="READ_ONLY"))
        owned = await own.create(
            agent="coder",
            goal="fix it",
            instructions="be brief",
            tools=toolbox,
            labels={"b": "2", "a": "1"},
        )
        state = await owned.state()
        assert (state.agent, state.epoch, state.owner) == ("coder", 1, own.writer)
        assert await types_in(owned) == [
            "SessionCreated",
            "InstructionsSet",
            "ToolsDeclared",
            "GoalSet",
        ]
        assert len(log.batches) == 1
        created, *_ = [recorded.event async for recorded in owned.events()]
        assert isinstance(created, SessionCreated)
        assert [(label.key, label.value) for label in created.labels] == [
            ("a", "1"),
            ("b", "2"),
        ]


async def test_a_session_id_is_given_once() -> None:
    """The second creation is told, and changes nothing."""
    log = memory()
    async with client(log) as own, client(log) as other:
        owned = await own.create(agent="a", session_id="s")
        with pytest.raises(SessionExistsError):
            await other.create(agent="b", session_id="s", goal="mine")
        assert await types_in(owned) == ["SessionCreated"]
        state = await owned.state()
        assert (state.agent, state.owner) == ("a", own.writer)


async def test_what_is_not_there_is_not_opened() -> None:
    """An error that says how to find what is."""
    async with client(memory()) as own:
        with pytest.raises(SessionNotFoundError, match="foldline sessions"):
            await own.open("nowhere")
        with pytest.raises(SessionNotFoundError):
            await own.take("nowhere")


async def test_a_live_owner_is_not_taken_from_unless_it_is_stolen_from() -> None:
    """The lease tells; stealing fences."""
    log = memory()
    async with client(log) as first, client(log) as second:
        owned = await first.create(agent="a", session_id="s")
        with pytest.raises(LiveOwnerError) as live:
            await second.take("s")
        assert live.value.owner == first.writer
        assert live.value.retryable
        stolen = await second.take("s", steal=True)
        assert stolen.epoch == 2
        with pytest.raises(FencedError) as fenced:
            await owned.checkpoint()
        with pytest.raises(FencedError) as again:
            await owned.suspend()
        assert again.value is fenced.value
        await stolen.end_cancelled("over")


async def test_an_owner_that_closed_its_client_gives_its_lease_up() -> None:
    """Nobody has to wait for it to run out."""
    log = memory()
    async with client(log) as first:
        await first.create(agent="a", session_id="s")
    async with client(log) as second:
        owned = await second.take("s")
        assert (owned.epoch, (await owned.state()).owner) == (2, second.writer)


async def test_an_owner_that_no_longer_renews_is_taken_for_dead() -> None:
    """Its lease runs out by the log's clock."""
    log = memory()
    frozen = client(
        log, Settings().model_copy(update={"lease_ttl_ms": 50, "lease_renew_ms": 60_000})
    )
    async with frozen, client(log) as second:
        await frozen.create(agent="a", session_id="s")
        while True:
            try:
                owned = await second.take("s")
            except LiveOwnerError:
                await asyncio.sleep(0.01)
            else:
                break
        assert owned.epoch == 2


async def test_an_owner_renews_for_as_long_as_it_lives() -> None:
    """Also while its event loop is kept busy by somebody."""
    log = memory()
    async with client(log, BRIEF) as first, client(log) as second:
        await first.create(agent="a", session_id="s")
        for _ in range(5):
            time.sleep(BRIEF.lease_ttl_ms / 1000)  # noqa: ASYNC251 - a busy loop
            with pytest.raises(LiveOwnerError):
                await second.take("s")


async def test_of_many_that_take_at_once_one_becomes_the_owner() -> None:
    """The others meet its claim, and are told that an owner is alive."""
    log = memory()
    async with client(log) as first:
        await first.create(agent="a", session_id="s")
    takers = [client(log) for _ in range(5)]
    for taker in takers:
        await taker.__aenter__()
    results = await asyncio.gather(
        *(taker.take("s") for taker in takers), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, LiveOwnerError)]
    assert len(refused) == len(takers) - 1
    async with client(log) as reader:
        assert (await (await reader.open("s")).state()).epoch == 2
    for taker in takers:
        await taker.close()


async def test_what_was_planned_for_one_owners_end_is_not_done_about_anothers() -> None:
    """Somebody came in between, and is gone as well."""
    log = memory()
    async with client(log) as own:
        await own.create(agent="a", session_id="s")
    async with client(log) as between:
        assert (await between.take("s", after_epoch=1)).epoch == 2
    async with client(log) as late:
        with pytest.raises(LiveOwnerError):
            await late.take("s", after_epoch=1)
        assert (await late.take("s", after_epoch=2)).epoch == 3


async def test_a_claim_that_somebody_came_before_is_planned_again() -> None:
    """Row 40: a start of the dead owner was still on its way; its call is seen."""
    log = memory()
    async with client(log) as first:
        owned = await first.create(agent="a", session_id="s")
        async with client(log) as second:
            seen = await second.open("s")
            late = asyncio.gather(*(seen.message(str(n)) for n in range(30)))
            taken = asyncio.gather(*(second.take("s", steal=True) for _ in range(3)))
            await asyncio.gather(late, taken)
        events = [recorded async for recorded in owned.events()]
        claims = [r for r in events if r.type == "SessionResumed"]
        assert [claim.envelope.epoch for claim in claims] == [2, 3, 4]
        assert len(events) == 1 + 30 + 3


async def test_an_ended_session_is_reopened_and_not_taken() -> None:
    """CLOSED says so; reopening makes a new epoch and an idle session."""
    log = memory()
    async with client(log) as first:
        owned = await first.create(agent="a", session_id="s")
        await owned.end_cancelled("over")
    async with client(log) as second:
        with pytest.raises(AppendRefusedError) as closed:
            await second.take("s")
        assert closed.value.verdict.kind == "CLOSED"
        owned = await second.reopen("s", reason="one more thing")
        state = await owned.state()
        assert (state.status, state.epoch) == ("IDLE", 2)


async def test_a_mirror_has_no_owner_and_takes_each_fact_once() -> None:
    """The same source is the same session; odd facts are facts."""
    log = memory()
    async with client(log) as own:
        mirror = await own.mirror(system="other", stream="thread-1")
        again = await own.mirror(system="other", stream="thread-1")
        assert again.session_id == mirror.session_id
        with pytest.raises(MirroredSessionError):
            await own.take(mirror.session_id)
        fact = (_envelope(1), UserMessage(message_id="m", blocks=()))
        kinds = [v.kind for _ in range(2) for v in await mirror.record([fact])]
        assert kinds == ["ACCEPTED", "DUPLICATE"]
        assert _envelope(1).event_id in await mirror.event_ids()
        await own.create(agent="a", session_id="owned")
        with pytest.raises(SessionExistsError):
            await own.mirror(system="other", stream="x", session_id="owned")


def _envelope(number: int) -> Envelope:
    return Envelope(
        event_id=f"00000000-0000-8000-8000-{number:012x}",
        session_id="?",
        writer="?",
        actor=Actor(kind="PERSON", id="p"),
    )


async def test_sessions_are_listed_and_a_client_is_entered_first() -> None:
    """The most recent first."""
    unused = connect("memory:")
    with pytest.raises(RuntimeError, match="async with"):
        await unused.sessions()
    await unused.close()
    async with client(memory()) as own:
        await own.create(agent="a", session_id="one")
        owned = await own.create(agent="a", session_id="two")
        await owned.end_cancelled("over")
        assert {summary.session_id for summary in await own.sessions()} == {"one", "two"}
        ended = await own.sessions(status="CANCELLED")
        assert [summary.session_id for summary in ended] == ["two"]


async def test_a_url_that_means_nothing_is_said_at_the_door() -> None:
    """Before anything is written."""
    with pytest.raises(Exception, match="a log is"):
        async with connect("postgres://somewhere"):
            pass


async def test_events_of_others_reach_who_follows() -> None:
    """From any seq on, those to come included."""
    log = memory()
    async with client(log) as own, client(log) as other:
        owned = await own.create(agent="a", session_id="s")
        view = await other.open("s")
        seen: list[str] = []

        async def follow() -> None:
            async for recorded in view.follow(after_seq=1):
                seen.append(recorded.type)
                if recorded.type == "SessionCancelled":
                    return

        following = asyncio.create_task(follow())
        await owned.message("hello")
        await owned.end_cancelled("over")
        await asyncio.wait_for(following, 30)
        assert seen == ["UserMessage", "SessionCancelled"]
        assert await count(owned, "SessionCancelled") == 1


async def test_an_owner_that_slept_compacts_nothing_that_came_after_it() -> None:
    """Case B09: another resumed and worked on; its history stays."""
    log = memory()
    async with client(log) as idle, client(log) as other:
        asleep = await idle.create(agent="a", session_id="s")
        await asleep.message("one")
        seq = (await asleep.state()).seq
        taken = await other.take("s", steal=True)
        await taken.message("two")
        compaction = CompactionCompleted(
            compaction_id="c", from_seq=1, to_seq=seq, base_seq=seq, strategy="s"
        )
        with pytest.raises(FencedError):
            await asleep.append(compaction)
        assert (await taken.state()).compaction is None


async def test_a_late_flush_of_an_old_owner_makes_no_session_unreadable() -> None:
    """Cases B07, B08: each seq has one writer; the other is told, and reads again."""
    log = memory()
    async with client(log) as old, client(log) as new:
        before = await old.create(agent="a", session_id="s")
        after = await new.take("s", steal=True)
        results = await asyncio.gather(
            *(after.append(ContextCleared()) for _ in range(20)),
            *(before.append(ContextCleared()) for _ in range(20)),
            return_exceptions=True,
        )
        assert [type(result) for result in results[20:]] == [FencedError] * 20
        seqs = [recorded.seq async for recorded in after.events()]
        assert seqs == list(range(1, 23))
