"""What every log must do so that sessions can be forked: a part of `LogContract`.

No event is copied; readers join a fork with its ancestors; the parent stays as it was.
Its tests are coroutines: they need pytest-asyncio, in mode auto.
"""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest

from foldline.errors import (
    ForkPointError,
    LineageError,
    SessionExistsError,
    SessionIdError,
    SessionNotFoundError,
)
from foldline.processors.lineage import joined_events, lineage_of
from foldline.processors.log import Log
from foldline.producers.client import Client, connect
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.session import OwnedSession
from foldline.producers.tools import Tool, Toolbox, ToolContext
from foldline.projections.context import Context
from foldline.projections.reading import context_of
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    BudgetSet,
    CompactionCompleted,
    ConstraintLifted,
    ConstraintSet,
    HistoryRewound,
    Inherited,
    KnownEvent,
    PlanItem,
    PlanUpdated,
    SessionCreated,
    ToolExecutionStarted,
    Usage,
)
from foldline.schemas.recorded import Recorded
from foldline.testing.log_story import LogStory, new_id

LARGE = "a long instruction " * 8_000
"""More than an event holds inline."""

UNNAMEABLE = ("", " s", "a\nb", "\x1b[2J", "\x7f", "a\u202eb", "\ud800", "x" * 513)
"""What no new session can be called: empty, unseen or too long."""


def _note(arguments: dict[str, Any], ctx: ToolContext) -> str:  # noqa: ARG001 - a tool's
    return "noted"


def _tools() -> Toolbox:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return Toolbox(Tool(_note, name="note", input_schema=schema))


def _in_force(event: KnownEvent) -> Inherited:
    assert isinstance(event, SessionCreated)
    assert event.inherited is not None
    return event.inherited


async def _events(session: OwnedSession) -> list[Recorded]:
    return [recorded async for recorded in session.events()]


def _bodies(found: Sequence[Recorded]) -> list[bytes]:
    return [recorded.body for recorded in found]


async def _parent(client: Client, turns: int = 2) -> OwnedSession:
    """A session with something of each in force, and turns with a model call in each."""
    parent = await client.create(
        agent="coder", goal="ship it", instructions="be brief", tools=_tools()
    )
    await parent.append(BudgetSet(limits_json='{"usd": 2}'))
    plan = PlanItem(item_id="1", status="PENDING", blocks=(text_block("look"),))
    await parent.append(PlanUpdated(items=(plan,)))
    words = (text_block("no network"),)
    await parent.append(ConstraintSet(constraint_id="net", blocks=words))
    for number in range(turns):
        await _turn(parent, f"question {number}")
    return parent


async def _turn(owned: OwnedSession, said: str, *, tokens: int = 10) -> None:
    async with owned.turn(said) as turn:
        context = await turn.context()
        async with turn.model_call(context, model="m", provider="p") as call:
            usage = Usage(input_tokens=tokens, output_tokens=1)
            answer = (text_block(f"answer to {said}"),)
            await call.complete(ModelResponse(parts=answer, usage=usage))


class ForkContract:
    """Part of `LogContract`, which gives the fixture `log`."""

    async def test_a_fork_copies_no_event_and_its_parent_stays_as_it_was(
        self, log: Log
    ) -> None:
        async with connect(log) as client:
            parent = await _parent(client)
            before = await _events(parent)
            state = await parent.state()
            fork = await parent.fork(9)
            assert (await parent.state()).seq == len(before) == state.seq
            assert _bodies(await _events(parent)) == _bodies(before)
            assert await parent.state() == state
        own = list(log.events(fork.session_id))
        assert [(recorded.seq, recorded.type) for recorded in own] == [
            (10, "SessionCreated")
        ]
        assert own[0].envelope.prev_hash == hashlib.sha256(before[8].body).digest()

    async def test_what_a_fork_does_goes_to_the_fork(self, log: Log) -> None:
        """However often: the parent's length says it."""
        async with connect(log) as client:
            parent = await _parent(client)
            length = (await parent.state()).seq
            fork = await parent.fork(length)
            for said in ("one", "two"):
                await _turn(fork, said)
            assert len(list(log.events(parent.session_id))) == length
            own = list(log.events(fork.session_id))
            assert {recorded.envelope.session_id for recorded in own} == {fork.session_id}
            assert [recorded.seq for recorded in own] == list(
                range(length + 1, length + 1 + len(own))
            )
            await _turn(parent, "and the parent goes on")
            assert (await fork.state()).seq == length + len(own)

    async def test_what_is_in_force_at_the_fork_point_goes_on(self, log: Log) -> None:
        """As it was there: not as it was set or lifted later."""
        async with connect(log) as client:
            parent = await _parent(client)
            at_seq = (await parent.state()).seq
            await parent.set_goal("another goal")
            await parent.append(ConstraintLifted(constraint_id="net"))
            fork = await parent.fork(at_seq)
            (created,) = log.events(fork.session_id)
            state = await fork.state()
            inherited = _in_force(created.event)  # type: ignore[arg-type]
            assert inherited.goal[0].body == "ship it"
            assert inherited.budget_json == '{"usd": 2}'
            assert inherited.plan[0].item_id == "1"
            assert [tool.name for tool in inherited.tools] == ["note"]
            assert inherited.instructions[0].blocks[0].body == "be brief"
            assert inherited.constraints[0].blocks[0].body == "no network"
            for ref in (state.goal, state.plan, state.budget, state.tools):
                assert ref is not None
                assert ref.seq == at_seq + 1
            assert set(state.constraints) == {"net"}
            assert set(state.instructions) == {"system"}
            assert (state.agent, state.turn, state.calls) == ("coder", None, {})

    async def test_a_fork_of_a_fork_reads_as_one_history(self, log: Log) -> None:
        async with connect(log) as client:
            root = await _parent(client)
            child = await root.fork(12)
            await _turn(child, "in the child")
            middle = (await child.state()).seq - 2
            leaf = await child.fork(middle)
            await _turn(leaf, "in the leaf")
            history = await _events(leaf)
            assert [r.seq for r in history] == list(range(1, len(history) + 1))
            assert [r.envelope.session_id for r in history] == [
                *[root.session_id] * 12,
                *[child.session_id] * (middle - 12),
                *[leaf.session_id] * (len(history) - middle),
            ]
            for at_seq in (1, 12, 13, middle, middle + 1, len(history)):
                state = await leaf.state(at_seq)
                holder = history[at_seq - 1].envelope.session_id
                assert (state.session_id, state.seq) == (holder, at_seq)
            part = [r.seq async for r in leaf.events(10, upto_seq=middle + 1)]
            assert part == list(range(11, middle + 2))

    async def test_a_fork_before_the_fork_point_names_the_ancestor_that_has_it(
        self, log: Log
    ) -> None:
        async with connect(log) as client:
            root = await _parent(client)
            child = await root.fork(12)
            leaf = await child.fork(14 - 1)
            other = await leaf.fork(5)
            state = await other.state()
            assert (state.parent_session_id, state.fork_seq) == (root.session_id, 5)
            assert len(await _events(other)) == 6

    async def test_a_fork_point_is_a_seq_of_the_session_or_it_is_refused(
        self, log: Log
    ) -> None:
        """Never a place in some longer list; and a refusal makes nothing."""
        async with connect(log) as client:
            parent = await _parent(client)
            length = (await parent.state()).seq
            fork = await parent.fork(length)
            wanted = new_id()
            for session, end in ((parent, length), (fork, length + 1)):
                for at_seq in (0, -1, end + 1, end + 112, 2**31 + 1, 2**63, 2**70):
                    with pytest.raises(ForkPointError, match=f"1 to {end}"):
                        await session.fork(at_seq, fork_id=wanted)
            with pytest.raises(SessionNotFoundError):
                await client.fork(new_id(), 1, fork_id=wanted)
            assert log.state(wanted) is None
            assert (await parent.state()).seq == length

    async def test_a_forks_usage_is_that_of_its_own_events(self, log: Log) -> None:
        """What its ancestors used is charged once, to them."""
        async with connect(log) as client:
            parent = await _parent(client, turns=0)
            for tokens in (10, 20, 30):
                await _turn(parent, "spend", tokens=tokens)
            fork = await parent.fork((await parent.state()).seq)
            assert (await fork.state()).usage.input_tokens == 0
            await _turn(fork, "spend", tokens=7)
            assert (await fork.state()).usage.input_tokens == 7
            assert (await parent.state()).usage.input_tokens == 60

    async def test_a_call_that_was_open_stays_the_parents(self, log: Log) -> None:
        """It is shown as such, and the fork has nothing to run, settle or freeze."""
        async with connect(log) as client:
            parent = await _parent(client)
            turn = await parent.turn("note it").__aenter__()
            async with turn.model_call(await turn.context(), model="m") as call:
                request = ToolRequest(tool="note", arguments='{"text": "x"}')
                (asked,) = await call.complete(ModelResponse.of("", request))
            started = ToolExecutionStarted(
                call_id=asked.call_id, attempt=1, effect="UNSAFE", operation_id="o"
            )
            await turn.append(started)
            fork = await parent.fork((await parent.state()).seq)
            turn.leave()
            assert await fork.unfinished_calls() == []
            assert (await fork.recover(_tools())).to_run == []
            async with fork.turn("go on") as own:
                context = await own.context()
            results = [part for m in context.messages for part in m.parts]
            (left,) = [part for part in results if part.kind == "result"]
            assert parent.session_id in left.parts[0].text
            assert "not run here" in left.parts[0].text
            assert context.stand_ins == ()
            assert "ToolResultProjected" not in {
                recorded.type for recorded in log.events(fork.session_id)
            }

    async def test_a_forks_context_is_its_parents_there_and_more(self, log: Log) -> None:
        async with connect(log) as client:
            parent = await _parent(client)
            at_seq = (await parent.state()).seq
            shown = context_of(log, parent.session_id)
            fork = await parent.fork(at_seq)
            await _turn(parent, "this is not the fork's")
            begun = context_of(log, fork.session_id)
            assert shown is not None
            assert begun is not None
            assert begun.messages == shown.messages
            assert [tool.name for tool in begun.tools] == ["note"]
            async with fork.turn("now") as turn:
                context = await turn.context()
            assert context.messages[:-1] == shown.messages
            _check_rebuilt(log, fork, context)

    async def test_what_was_compacted_before_or_after_a_fork_point_is_so_for_the_fork(
        self, log: Log
    ) -> None:
        async with connect(log) as client:
            parent = await _parent(client)
            await _compact(parent, 1, "so far: all")
            fork = await parent.fork((await parent.state()).seq)
            async with fork.turn("behind it") as turn:
                context = await turn.context()
            assert context.base_seq > 1
            texts = [part.text for m in context.messages for part in m.parts]
            assert "so far: all" in texts
            assert "question 0" not in texts
            await _compact(fork, 1, "and the fork's")
            async with fork.turn("again") as turn:
                later = await turn.context()
            assert later.base_seq > (await fork.state()).fork_seq
            assert "no network" in later.messages[0].parts[-1].text
            _check_rebuilt(log, fork, later)

    async def test_a_fork_may_rewind_into_its_parents_history(self, log: Log) -> None:
        async with connect(log) as client:
            parent = await _parent(client, turns=1)
            early = (await parent.state()).seq
            await _turn(parent, "question 1")
            await _compact(parent, 1, "so far: all")
            fork = await parent.fork((await parent.state()).seq)
            await fork.append(HistoryRewound(to_seq=early))
            async with fork.turn("from there") as turn:
                context = await turn.context()
            texts = [part.text for m in context.messages for part in m.parts]
            assert "question 0" in texts
            assert "question 1" not in texts
            assert "so far: all" not in texts

    async def test_large_instructions_go_on_as_the_blob_that_they_are(
        self, log: Log
    ) -> None:
        async with connect(log) as client:
            parent = await client.create(agent="coder", instructions=LARGE, goal="go")
            fork = await parent.fork((await parent.state()).seq)
            (own,) = log.events(fork.session_id)
            assert len(own.body) < 10_000
            async with fork.turn("now") as turn:
                context = await turn.context()
            assert LARGE in context.messages[0].parts[0].text

    async def test_a_session_that_mirrors_is_forked_into_one_that_is_owned(
        self, log: Log
    ) -> None:
        async with connect(log) as client:
            await client.mirror(system="other", stream="s", session_id=(name := new_id()))
            mirrored = await client.open(name)
            await mirrored.message("from outside")
            fork = await mirrored.fork(2)
            await _turn(fork, "go on")
            assert (await fork.state()).mode == "OWNED"
            history = await _events(fork)
            assert [r.type for r in history[:3]] == [
                "SessionCreated",
                "UserMessage",
                "SessionCreated",
            ]

    async def test_a_fork_takes_no_id_that_is_taken(self, log: Log) -> None:
        async with connect(log) as client:
            parent = await _parent(client)
            with pytest.raises(SessionExistsError):
                await parent.fork(5, fork_id=parent.session_id)

    async def test_no_new_session_has_a_name_that_nobody_can_see(self, log: Log) -> None:
        """However it comes into being; nothing is made, and nothing else is lost."""
        async with connect(log) as client:
            parent = await _parent(client)
            for name in UNNAMEABLE:
                makers: tuple[Callable[[], Awaitable[object]], ...] = (
                    partial(client.create, agent="a", session_id=name),
                    partial(client.fork, parent.session_id, 1, fork_id=name),
                    partial(parent.fork, 1, fork_id=name),
                    partial(client.mirror, system="x", stream="s", session_id=name),
                )
                for make in makers:
                    with pytest.raises(SessionIdError):
                        await make()
            named = await client.create(agent="a", session_id=f"ä ö/{new_id()}")
            assert await client.open(named.session_id)

    async def test_a_parent_that_is_missing_or_too_short_is_named(self, log: Log) -> None:
        """The fork's own events stay readable; its history is not made up."""
        story = LogStory(log).given(SessionCreated(agent="a"))
        for parent_id in (new_id(), story.session_id):
            orphan = _forked_by_hand(log, parent_id, 7, b"\1" * 32)
            assert len(list(log.events(orphan))) == 1
            with pytest.raises(LineageError, match=parent_id):
                lineage_of(log, orphan)
            with pytest.raises(LineageError, match=parent_id):
                context_of(log, orphan)
            async with connect(log) as client:
                view = await client.open(orphan)
                with pytest.raises(LineageError, match=parent_id):
                    await view.state(3)
                assert (await view.state()).seq == 8

    async def test_another_parent_than_the_one_that_was_forked_is_found_out(
        self, log: Log
    ) -> None:
        story = LogStory(log).given(SessionCreated(agent="a"))
        child = _forked_by_hand(log, story.session_id, 1, b"\1" * 32)
        with pytest.raises(LineageError, match="not the one that was forked"):
            list(joined_events(log, lineage_of(log, child)))


def _check_rebuilt(log: Log, session: OwnedSession, context: Context) -> None:
    """Whoever rebuilds the context shows the same bytes."""
    again = context_of(log, session.session_id)
    assert again is not None
    assert again.base_seq == context.base_seq
    assert again.sha256() == context.sha256()


async def _compact(owned: OwnedSession, from_seq: int, said: str) -> None:
    seq = (await owned.state()).seq
    await owned.append(
        CompactionCompleted(
            compaction_id=new_id(),
            from_seq=from_seq,
            to_seq=seq,
            base_seq=seq,
            strategy="summary",
            blocks=(text_block(said),),
        )
    )


def _forked_by_hand(log: Log, parent_id: str, fork_seq: int, prev_hash: bytes) -> str:
    """A fork whose parent nobody has looked at: as admission takes it."""
    story = LogStory(log)
    created = SessionCreated(
        agent="a", relation="FORK", parent_session_id=parent_id, fork_seq=fork_seq
    )
    append = story.append(created)
    envelope = append.envelope.model_copy(update={"prev_hash": prev_hash})
    story.send([append._replace(envelope=envelope)])
    assert story.verdicts[0].kind == "ACCEPTED", story.verdicts
    return story.session_id
