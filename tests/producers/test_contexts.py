"""Contexts made smaller by their owner, in memory and in a file."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from foldline.errors import SettingsError
from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.producers.client import connect
from foldline.projections.context_views import (
    SHAPED_BYTES_MAX,
    Wanted,
    built,
    context_view,
)
from foldline.projections.policy import FULL
from foldline.projections.token_count import message_tokens
from foldline.schemas.blocks import Blob, Block
from foldline.schemas.events import CompactionCompleted, UserMessage
from foldline.testing import LogStory
from foldline.testing.context_contract import ContextContract
from foldline.testing.context_kit import step
from foldline.tokenizers import default_counter
from tests.happenings import created


class TestInMemory(ContextContract):
    @pytest.fixture
    def log(self) -> Iterator[Log]:
        log = open_log("memory:")
        yield log
        log.close()


class TestInAFile(ContextContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[Log]:
        log = open_log(f"sqlite:///{tmp_path}/sessions.db")
        yield log
        log.close()


def file_of(folder: Path, size: int) -> Path:
    """The one file below a folder that has a size."""
    (found,) = [path for path in folder.rglob("*") if path.stat().st_size == size]
    return found


async def test_a_session_goes_on_without_a_text_that_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its preview is shown, to the model and to who asks why; a warning says so."""
    url = f"sqlite:///{tmp_path}/sessions.db"
    async with connect(url) as client:
        owned = await client.create(agent="a", session_id="s")
        async with owned.turn("begin " + "x" * 100_000) as turn:
            await turn.context()
    gone = file_of(tmp_path, 100_006)
    gone.unlink()
    async with connect(url) as client:
        owned = await client.take("s", steal=True)
        async with owned.turn("and now?") as turn:
            context = await turn.context()
            await turn.compact()
    first, last = (message.parts[0].text for message in context.messages)
    assert first.startswith("begin x")
    assert first.endswith("not shown]")
    assert last == "and now?"
    assert gone.name in caplog.text
    log = open_log(url)
    found = built(log, "s", Wanted())
    assert found is not None
    explained = context_view(found, default_counter())["explanation"]
    assert explained["texts_gone"] == [gone.name]
    log.close()


async def test_a_compaction_tells_what_is_left_with_what_is_kept() -> None:
    """What is pinned is no part of what the summary stands for."""
    async with connect("memory:") as client:
        owned = await client.create(agent="a", policy="full")
        async with owned.turn("word " * 2_000) as turn:
            for number in range(12):
                await step(turn, ("read", f'{{"path": "src/{number}.py"}}'))
            first = (await turn.context()).messages[0].event_ids
            assert await turn.compact(policy=replace(FULL, window_tokens=500, pinned=first))
            context = await turn.context()
        events = [recorded.event async for recorded in owned.events()]
    (done,) = [event for event in events if isinstance(event, CompactionCompleted)]
    assert done.kept == first
    tokens = sum(message_tokens(m, default_counter()) for m in context.messages)
    assert done.token_after == pytest.approx(tokens, abs=20)


def test_a_policy_is_tried_on_sessions_of_a_bounded_size() -> None:
    """A text counts as often as it is shown; without a policy there is no limit."""
    log = open_log("memory:")
    data = b"x" * (SHAPED_BYTES_MAX // 8)
    body = Blob(sha256=log.blobs.put(data), size=len(data), media_type="text/plain")
    story = LogStory(log).given(created())
    for number in range(9):
        block = Block(kind="text", body=body)
        story.given(UserMessage(message_id=str(number), blocks=(block,)))
    assert built(log, story.session_id, Wanted()) is not None
    with pytest.raises(SettingsError, match="without a policy"):
        built(log, story.session_id, Wanted(policy=FULL))
    log.close()
