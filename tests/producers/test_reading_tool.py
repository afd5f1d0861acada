"""The tool by which a model reads what its context shows no more."""

import json
from typing import Any

import pytest

from foldline import Toolbox, read_event_tool
from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.producers.client import connect
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.reading_tool import CHARACTERS_MAX
from foldline.producers.session import OwnedSession
from foldline.producers.tools import Done, Failed, Tool, ToolContext, ToolResult
from foldline.schemas.blocks import text_block, text_of
from foldline.schemas.events import (
    AssistantMessage,
    HistoryRewound,
    MessageRetracted,
    UserMessage,
)

LARGE = "".join(f"{number:07} ä\n" for number in range(12_000))
"""More than an event holds: it lies in the blob store."""


def large(_arguments: dict[str, Any], _context: ToolContext) -> str:
    """A large output."""
    return LARGE


@pytest.fixture
def log() -> Log:
    return open_log("memory:")


async def asked(owned: OwnedSession, tool: str, **arguments: Any) -> ToolResult:
    """One call of a tool in a turn of its own."""
    tools = Toolbox(Tool(large, effect="READ_ONLY"), read_event_tool(owned))
    async with owned.turn("go") as turn:
        async with turn.model_call(await turn.context(), model="m") as call:
            request = ToolRequest(tool, json.dumps(arguments))
            calls = await call.complete(ModelResponse.of("", request))
        (result,) = await turn.run_tools(calls, tools)
        return result


def said(result: ToolResult) -> str:
    """What it said."""
    assert isinstance(result, Done), result
    return text_of(result.output)


async def seq_of(owned: OwnedSession, kind: str) -> int:
    """The first event of a type."""
    async for recorded in owned.events():
        if recorded.type == kind:
            return recorded.seq
    return 0


async def test_an_output_in_the_blob_store_is_read_in_parts(log: Log) -> None:
    async with connect(log) as client:
        owned = await client.create(agent="a")
        await asked(owned, "large")
        seq = await seq_of(owned, "ToolExecutionCompleted")
        first = said(await asked(owned, "read_event", seq=seq, limit=200))
        assert f"[event {seq}: ToolExecutionCompleted, by AGENT a]" in first
        assert "more characters, from offset 200" in first
        far = said(await asked(owned, "read_event", seq=seq, offset=90_000, limit=40))
        assert far.split("\n[")[0] in LARGE
        whole = said(await asked(owned, "read_event", seq=seq, limit=10**9))
        assert len(whole) < CHARACTERS_MAX + 100
        beyond = said(await asked(owned, "read_event", seq=seq, offset=10**9))
        assert beyond.startswith("[nothing: it has ")


async def test_a_request_names_the_event_of_its_result(log: Log) -> None:
    async with connect(log) as client:
        owned = await client.create(agent="a")
        await asked(owned, "large")
        request = await seq_of(owned, "ToolCallRequested")
        result = await seq_of(owned, "ToolExecutionCompleted")
        text = said(await asked(owned, "read_event", seq=request))
        assert f"[its result is event {result}]" in text
        assert "tool: large" in text


async def test_a_fork_reads_its_ancestors_and_nobody_else(log: Log) -> None:
    async with connect(log) as client:
        parent = await client.create(agent="a")
        async with parent.turn("SAID BEFORE THE FORK"):
            pass
        seq = await seq_of(parent, "UserMessage")
        fork = await parent.fork((await parent.state()).seq)
        async with parent.turn("SAID AFTER IT"):
            pass
        assert "SAID BEFORE" in said(await asked(fork, "read_event", seq=seq))
        last = (await fork.state()).seq
        texts = [said(await asked(fork, "read_event", seq=n)) for n in range(1, last + 1)]
        assert all("SAID AFTER" not in text for text in texts)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"seq": 0}, {"seq": "1"}, {"seq": True}, {"seq": 10**9}, {"seq": 1, "limit": 0}],
)
async def test_what_cannot_be_read_is_said_in_words(
    log: Log, arguments: dict[str, Any]
) -> None:
    async with connect(log) as client:
        owned = await client.create(agent="a")
        result = await asked(owned, "read_event", **arguments)
    assert isinstance(result, Failed)
    assert result.executed == "NO"
    assert text_of(result.blocks)


@pytest.mark.parametrize("taken_back", ["retracted", "replaced", "rewound"])
async def test_what_was_taken_back_is_not_shown_again(log: Log, taken_back: str) -> None:
    """Neither words, nor a call and its output; what stands beside them is."""
    async with connect(log) as client:
        owned = await client.create(agent="a")
        await asked(owned, "large")
        before = (await owned.state()).seq
        message_id = await owned.message("THE SECRET")
        if taken_back == "rewound":
            async with owned.turn("x") as turn:
                await turn.append(HistoryRewound(to_seq=before))
        elif taken_back == "replaced":
            words = (text_block("instead"),)
            await owned.append(
                UserMessage(message_id="n", blocks=words, replaces=message_id)
            )
        else:
            said_by = [r.event async for r in owned.events()]
            answers = [e.message_id for e in said_by if isinstance(e, AssistantMessage)]
            gone = (message_id, *answers[:1])
            await owned.append(MessageRetracted(message_ids=gone))
        text = said(await asked(owned, "read_event", seq=before + 1))
        assert "taken back" in text
        assert "SECRET" not in text
        for kind in ("ToolCallRequested", "ToolExecutionCompleted"):
            seq = await seq_of(owned, kind)
            text = said(await asked(owned, "read_event", seq=seq, limit=99))
            assert ("taken back" in text) == (taken_back == "retracted")
