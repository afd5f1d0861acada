"""What a turn sends to a model is recorded by reference, and rebuilt from the log."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from foldline.errors import SettingsError
from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.replay_inputs import Inputs
from foldline.producers.replaying import replay
from foldline.producers.session import OwnedSession
from foldline.producers.tools import Tool, Toolbox, ToolContext
from foldline.producers.turn import Turn
from foldline.projections.reading import request_of
from foldline.projections.render import FORMATS, request_bytes
from foldline.projections.render_anthropic import Caching
from foldline.schemas.blocks import text_block
from foldline.schemas.events import CompactionCompleted, ConstraintSet
from tests.harness import client, types_in

LARGE = "many words " * 20_000
"""A blob, not an inline body."""


def echo(arguments: dict[str, object], context: ToolContext) -> object:
    """Say it again."""
    assert context.attempt == 1
    return LARGE if arguments.get("large") else "small"


TOOLS = Toolbox(Tool(echo, effect="READ_ONLY"))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(f"sqlite:///{tmp_path / 'log.db'}")


def lose_blobs(folder: Path) -> None:
    """Delete the blobs of a log, and nothing else."""
    blobs = [path for path in folder.rglob("*") if len(path.name) == 64]
    assert blobs
    for path in blobs:
        path.unlink()


async def asks(turn: Turn, *requests: ToolRequest, **how: Any) -> tuple[str, bytes]:
    """A model call; its id, and the bytes that went to the model."""
    context = await turn.context()
    async with turn.model_call(context, model="m", provider="p", **how) as call:
        sent = request_bytes(call.request) if call.request else context.as_bytes()
        calls = await call.complete(ModelResponse.of("ok", *requests))
    await turn.run_tools(calls, TOOLS)
    return call.model_call_id, sent


@pytest.mark.parametrize("name", ["", *FORMATS])
async def test_every_request_of_a_session_is_rebuilt_byte_for_byte(
    log: Log, name: str
) -> None:
    """With blobs, constraints, a compaction between, and a fork of it."""
    how: dict[str, Any] = {
        "format": name,
        "parameters": {"temperature": 1.0, "n": {"b": 1}},
    }
    sent: dict[str, dict[str, bytes]] = {}
    async with client(log) as own:
        owned = await own.create(
            agent="a", goal="win", instructions="be brief", tools=TOOLS
        )
        mine = sent.setdefault(owned.session_id, {})
        async with owned.turn("go") as turn:
            mine.update([await asks(turn, ToolRequest("echo", '{"large": true}'), **how)])
            limit = ConstraintSet(constraint_id="k", blocks=(text_block("no network"),))
            await turn.append(limit)
            mine.update([await asks(turn, ToolRequest("echo", "{}"), **how)])
            seq = (await owned.state()).seq
            compaction = CompactionCompleted(
                compaction_id="c",
                from_seq=1,
                to_seq=seq - 2,
                base_seq=seq,
                strategy="s",
                blocks=(text_block("it went well"),),
            )
            await turn.append(compaction)
            mine.update([await asks(turn, **how)])
        seq = (await owned.state()).seq
        fork = await own.fork(owned.session_id, seq)
        async with fork.turn("differently") as turn:
            sent[fork.session_id] = dict([await asks(turn, **how)]) | mine
    assert len({len(data) for data in mine.values()}) == 3
    for session_id, requests in sent.items():
        for model_call_id, data in requests.items():
            found = request_of(log, session_id, model_call_id)
            assert found is not None
            assert (found.problems, found.data) == ((), data)
    log.close()


async def test_breakpoints_of_a_cache_are_a_part_of_the_request(log: Log) -> None:
    async with client(log) as own:
        owned = await own.create(agent="a")
        async with owned.turn("go") as turn:
            name, sent = await asks(turn, format="anthropic", caching=Caching("1h"))
    assert b'"cache_control":{"type":"ephemeral","ttl":"1h"}' in sent
    found = request_of(log, owned.session_id, name)
    assert found is not None
    assert (found.data, hashlib.sha256(sent).digest()) == (sent, found.sha256)
    assert request_of(log, owned.session_id, "another") is None
    log.close()


async def test_a_blob_that_is_gone_is_named(log: Log, tmp_path: Path) -> None:
    async with client(log) as own:
        owned = await own.create(agent="a", instructions=LARGE)
        async with owned.turn("go") as turn:
            name, _ = await asks(turn, format="openai-chat")
    lose_blobs(tmp_path)
    found = request_of(log, owned.session_id, name)
    assert found is not None
    (problem,) = found.problems
    assert "its text is gone" in problem
    log.close()


async def test_a_replay_gives_its_harness_the_same_request(log: Log) -> None:
    """The harness sends it to nobody: the recorded answer is given."""
    seen: list[bytes] = []

    async def drive(turn: Turn, model: Any) -> None:
        context = await turn.context()
        how: dict[str, Any] = {"format": "anthropic", "parameters": {"max_tokens": 9}}
        async with turn.model_call(context, model="m", provider="p", **how) as call:
            seen.append(request_bytes(call.request))
            await call.complete(await model(context))

    async def answer(_context: Any) -> ModelResponse:
        return ModelResponse.of("ok")

    async def harness(session: OwnedSession, inputs: Inputs) -> None:
        for opening in inputs.turns():
            async with session.turn(opening.blocks) as turn:
                await drive(turn, inputs.model(answer))

    async with client(log) as own:
        owned = await own.create(agent="a")
        async with owned.turn("go") as turn:
            await drive(turn, answer)
    report = await replay(log, owned.session_id, harness)
    assert report.divergence is None
    assert seen[0] == seen[1]
    log.close()


async def test_a_request_that_cannot_be_rendered_begins_no_call(log: Log) -> None:
    async with client(log) as own:
        owned = await own.create(agent="a")
        async with owned.turn("go") as turn:
            for how in (
                {"format": "xml"},
                {"format": "anthropic", "parameters": {"x": {1}}},
            ):
                with pytest.raises(SettingsError):
                    await asks(turn, **how)
            assert "ModelCallStarted" not in await types_in(owned)
    log.close()
