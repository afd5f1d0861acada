"""Reports of others about forks, as sequences."""

import pytest

from foldline.errors import ForkPointError
from foldline.processors.memory_log import MemoryLog
from foldline.producers.identity import wall_clock
from foldline.producers.model import ModelResponse
from foldline.producers.session import OwnedSession
from foldline.projections.trees import tree_of
from foldline.schemas.blocks import text_block
from foldline.schemas.events import Usage
from foldline.testing.log_story import new_id
from tests.harness import QUICK, client


def a_log() -> MemoryLog:
    return MemoryLog(settings=QUICK, clock=wall_clock)


async def talk(owned: OwnedSession, tokens: int = 1) -> None:
    async with (
        owned.turn("go on") as turn,
        turn.model_call(await turn.context(), model="m") as call,
    ):
        usage = Usage(input_tokens=tokens)
        await call.complete(ModelResponse(parts=(text_block("yes"),), usage=usage))


@pytest.mark.parametrize("stored", [1, 3, 7])
@pytest.mark.parametrize("beyond", [1, 9, 112])
async def test_a_place_in_a_list_that_merges_two_sources_is_no_fork_point(
    stored: int, beyond: int
) -> None:
    """B28: 143 shown, 31 stored, forked at place 40: the slice took all of them.

    The list that a fork shows is longer than what it stores, and every seq of it has
    one meaning: what is beyond the history is refused, and nothing is made.
    """
    log = a_log()
    async with client(log) as own:
        parent = await own.create(agent="a")
        for _ in range(5):
            await parent.message("said")
        child = await parent.fork(6)
        for _ in range(stored - 1):
            await child.message("said")
        shown = [recorded async for recorded in child.events()]
        assert len(shown) == 6 + stored
        name = new_id()
        with pytest.raises(ForkPointError):
            await child.fork(len(shown) + beyond, fork_id=name)
        assert log.state(name) is None
        for recorded in shown:
            fork = await child.fork(recorded.seq)
            state = await fork.state()
            assert state.fork_seq == recorded.seq
            assert state.parent_session_id == recorded.envelope.session_id
            history = [r async for r in fork.events(upto_seq=recorded.seq)]
            assert history == shown[: recorded.seq]


@pytest.mark.parametrize("forks", [1, 3])
@pytest.mark.parametrize("nested", [False, True])
async def test_what_a_tree_used_is_counted_once(forks: int, nested: bool) -> None:  # noqa: FBT001 - what differs
    """B29: a child's totals began with its parent's, so a tree cost five to seven times.

    t1 to t8 in the parent, then t9 in each fork: a fork is charged with its own.
    """
    log = a_log()
    async with client(log) as own:
        parent = await own.create(agent="a")
        for number in range(1, 9):
            await talk(parent, number)
        last = parent
        for _ in range(forks):
            source = last if nested else parent
            last = await source.fork((await source.state()).seq)
            await talk(last, 100)
            assert (await last.state()).usage.input_tokens == 100
        tree = tree_of(log, parent.session_id)
        assert [node.usage.input_tokens for node in tree.nodes] == [36, *[100] * forks]
        assert tree.usage.input_tokens == 36 + 100 * forks
        assert [node.depth for node in tree.nodes] == [
            0,
            *(number + 1 if nested else 1 for number in range(forks)),
        ]


@pytest.mark.parametrize("at_seq", [1, 2, 4])
@pytest.mark.parametrize("reopened", [False, True])
async def test_new_turns_go_to_the_fork_also_after_it_was_taken_again(
    at_seq: int,
    reopened: bool,  # noqa: FBT001 - what differs
) -> None:
    """B30: a new file was made, and the new turns went on into the old one."""
    log = a_log()
    async with client(log) as own:
        parent = await own.create(agent="a", goal="go")
        await talk(parent)
        before = [recorded.body async for recorded in parent.events()]
        fork = await parent.fork(at_seq)
        if reopened:
            await fork.close()
            fork = await own.take(fork.session_id)
        await talk(fork)
        await talk(fork)
        assert [recorded.body for recorded in log.events(parent.session_id)] == before
        mine = list(log.events(fork.session_id))
        assert {recorded.envelope.session_id for recorded in mine} == {fork.session_id}
        assert [recorded.type for recorded in mine].count("TurnStarted") == 2
        assert [r.seq for r in mine] == list(range(at_seq + 1, at_seq + 1 + len(mine)))
