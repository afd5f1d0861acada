"""What a context is read from: only what it needs, and always the same."""

from foldline.producers.model import ToolRequest
from foldline.producers.session import OwnedSession
from foldline.producers.tools import Tool, Toolbox, ToolContext
from foldline.projections.building import build
from foldline.projections.context import Context, Sources
from foldline.projections.render import to_openai_messages
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    CompactionCompleted,
    ConstraintSet,
    ContextCleared,
    SteeringReceived,
)
from foldline.settings import Settings
from tests.harness import client, memory, model_says


async def whole(owned: OwnedSession) -> Context:
    """The context from the first event on."""
    return build(Sources([recorded async for recorded in owned.events()]))


async def test_after_a_clearing_only_its_tail_is_read_and_all_in_force_is_shown() -> None:
    """However long the session was: what is in force comes by its refs."""
    log = memory()
    async with client(log) as own:
        owned = await own.create(agent="a", instructions="be brief", goal="old goal")
        for number in range(20):
            await owned.message(f"old {number}")
        await owned.set_goal("new goal")
        words = (text_block("no network"),)
        await owned.append(ConstraintSet(constraint_id="k", blocks=words))
        await owned.append(ContextCleared())
        async with owned.turn("now") as turn:
            context = await turn.context()
            assert to_openai_messages(context) == [
                {
                    "role": "system",
                    "content": "be brief\n\nGoal: new goal\n\nConstraint k: no network",
                },
                {"role": "user", "content": "now"},
            ]
            assert context.base_seq == (await owned.state()).cleared_seq
            assert context.messages == (await whole(owned)).messages


async def test_after_a_compaction_the_tail_gives_what_the_whole_history_gives() -> None:
    """And it stays the same when more comes behind."""
    async with client(memory()) as own:
        owned = await own.create(agent="a", goal="ship it")
        async with owned.turn("one") as turn:
            await turn.context()
            seq = (await owned.state()).seq
            await owned.append(
                CompactionCompleted(
                    compaction_id="c",
                    from_seq=1,
                    to_seq=seq,
                    base_seq=seq,
                    strategy="summary",
                    blocks=(text_block("so far: one"),),
                )
            )
            before = await turn.context()
            assert before.base_seq == seq
            await owned.message("two")
            after = await turn.context()
            assert after.messages[: len(before.messages)] == before.messages
            assert after.messages == (await whole(owned)).messages


async def test_steering_from_before_a_clearing_is_still_delivered() -> None:
    """Its text lies in front of what the context needs: it is fetched."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        async with owned.turn("one") as turn:
            await owned.append(SteeringReceived(blocks=(text_block("use nix"),)))
            await owned.append(ContextCleared())
            context = await turn.context()
            assert to_openai_messages(context) == [{"role": "user", "content": "use nix"}]


async def test_a_large_output_is_shown_whole() -> None:
    """From the blob store, read once."""
    large = "line\n" * 40_000

    def read(arguments: dict[str, object], context: ToolContext) -> str:
        assert context.attempt == 1
        return large * (1 + len(arguments))

    tools = Toolbox(Tool(read, effect="READ_ONLY"))
    async with client(memory(), Settings(inline_max_bytes=1_000)) as own:
        owned = await own.create(agent="a")
        async with owned.turn("go") as turn:
            calls = await model_says(turn, ToolRequest("read", "{}", "p"))
            first = await turn.run_tools(calls, tools)
            assert to_openai_messages(await turn.context())[-1]["content"] == large
            assert len(await turn.run_tools(calls, tools)) == len(first)


async def test_a_long_argument_comes_back_from_the_log_as_it_was() -> None:
    """Arguments above the inline limit run whole after a resume."""
    log = memory()
    text = "x" * 5_000
    seen: list[object] = []

    def write(arguments: dict[str, object], context: ToolContext) -> None:
        assert context.attempt == 1
        seen.append(arguments["text"])

    tools = Toolbox(Tool(write))
    async with client(log, Settings(inline_max_bytes=1_000)) as own:
        owned = await own.create(agent="a", session_id="s")
        async with owned.turn("go") as turn:
            await model_says(turn, ToolRequest("write", f'{{"text": "{text}"}}', "p"))
            turn.leave()
    async with client(log) as other:
        owned = await other.take("s")
        async with await owned.resume_turn() as turn:
            await turn.run_tools(await turn.open_calls(), tools)
    assert seen == [text]
