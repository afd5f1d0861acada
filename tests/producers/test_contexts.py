"""Contexts made smaller by their owner, in memory and in a file."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from foldline.errors import SettingsError
from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.producers.client import connect
from foldline.producers.model import ModelResponse
from foldline.projections import shaped_anew
from foldline.projections.context_views import (
    Wanted,
    built,
    context_view,
    policy_wanted,
)
from foldline.projections.policy import FULL, ContextPolicy
from foldline.projections.shaped_anew import SHAPED_BYTES_MAX
from foldline.projections.token_count import context_tokens, message_tokens
from foldline.schemas.blocks import Blob, Block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    CompactionCompleted,
    Usage,
    UserMessage,
)
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


def answered(log: Log, answers: int) -> str:
    """A session in which a model said something so many times."""
    story = LogStory(log).given(created(mode="MIRRORED"))
    for number in range(answers):
        said = (Block(kind="text", body="so"),)
        call, message = f"c{number}", f"m{number}"
        answer = AssistantMessage(message_id=message, model_call_id=call, blocks=said)
        story.given(answer)
    return story.session_id


def test_a_policy_that_is_far_from_any_step_builds_one_context() -> None:
    """What bytes say is not built at each model call: a long session takes no longer."""
    log = open_log("memory:")
    session_id = answered(log, 1_500)
    wanted = Wanted(policy=policy_wanted("full", 1_000_000_000))
    found = built(log, session_id, wanted)
    assert found is not None
    assert len(found.context.messages) > 1_000
    log.close()


def test_a_policy_that_takes_too_much_work_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One whose contexts are long, at many calls; a smaller budget is none."""
    log = open_log("memory:")
    session_id = answered(log, 60)
    monkeypatch.setattr(shaped_anew, "SHAPED_WORK_MAX", 900)
    with pytest.raises(SettingsError, match="smaller budget"):
        built(log, session_id, Wanted(policy=policy_wanted("full", 8_000)))
    assert built(log, session_id, Wanted(policy=policy_wanted("lean", 100))) is not None
    log.close()


async def test_a_budget_is_kept_by_the_count_of_its_model() -> None:
    """Once a few calls have said that it counts more than is counted here."""
    counter = default_counter()
    counter.load()
    policy = ContextPolicy("small", budget_tokens=1_000)
    over: list[int] = []
    tokens = 0
    async with connect("memory:") as client:
        owned = await client.create(agent="a", policy=policy)
        for number in range(5):
            async with owned.turn("word " * 100 * (1 + (number == 4))) as turn:
                context = await turn.context()
                over.append(owned.over_budget_tokens)
                tokens = context_tokens(context, counter)
                usage = Usage(input_tokens=2 * tokens)
                async with turn.model_call(context, model="m") as call:
                    answer = ModelResponse(parts=(text_block("ok"),), usage=usage)
                    await call.complete(answer)

    assert (over[:4], over[4]) == ([0] * 4, tokens - 500)


async def test_a_budget_is_kept_from_the_first_context_on_whatever_the_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Numbers and hashes have few bytes for each token; prose would be within it."""
    default_counter.cache_clear()  # as in a process that has counted nothing yet
    policy = ContextPolicy("small", budget_tokens=10_000)
    async with connect("memory:") as client:
        owned = await client.create(agent="a", policy=policy)
        hashes = "".join(f"{sha256(b'%d' % n).hexdigest()}\n" for n in range(400))
        async with owned.turn(hashes) as turn:
            await turn.context()
        assert owned.over_budget_tokens > 1_000
    assert "above its budget" in caplog.text


async def test_the_first_context_of_a_session_taken_over_waits_for_no_vocabulary() -> None:
    """By its bytes it is within the budget, as by its owner's count; then it is counted."""
    policy = ContextPolicy("small", budget_tokens=10_000)
    log = open_log("memory:")
    async with connect(log) as dead, connect(log) as client:
        left = await dead.create(agent="a", session_id="s", policy=policy)
        async with left.turn("word " * 4_000) as turn:
            await turn.context()
            turn.leave()
        default_counter.cache_clear()  # as in a process that has counted nothing yet
        taken = await client.take("s", steal=True, policy=policy)
        async with await taken.resume_turn() as turn:
            first = await turn.context()
            assert not default_counter().loaded
            assert (await turn.context()).messages == first.messages
            assert default_counter().loaded
    log.close()
