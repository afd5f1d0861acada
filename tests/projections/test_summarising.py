"""The summary that no model makes: what it says, and what has room."""

import json
from dataclasses import replace

import pytest

from foldline.projections.digest import Digest
from foldline.projections.facts import FAILURES_MAX
from foldline.projections.policy import LEAN
from foldline.projections.pruning import fitted
from foldline.projections.room import BytesAsTokens
from foldline.projections.summarising import (
    SUMMARY_MIN_TOKENS,
    Originals,
    summary_from,
    summary_of,
)
from foldline.schemas.blocks import Blob, json_block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    ContextCleared,
    InputProvided,
    InputRequested,
    PlanItem,
    PlanUpdated,
    SteeringReceived,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    UserMessage,
)
from tests.happenings import (
    backgrounded,
    in_turn,
    request,
    start,
    steering_applied,
    turn,
    turn_ends,
)
from tests.projections.test_shaping import WORDS, acts
from tests.story import Story


def told(story: Story, *, tokens: int = 4_000, to_seq: int | None = None) -> str:
    """The summary of a story."""
    policy = replace(LEAN, summary_tokens=tokens)
    seq = story.seq if to_seq is None else to_seq
    return summary_of(Originals(story.events, seq, {}), policy=policy, counter=WORDS)


def fails(story: Story, name: str, why: str, arguments: str = '{"run": "make"}') -> None:
    """A call that fails."""
    story.when(
        AssistantMessage(message_id=f"m {name}", blocks=(text_block("try"),)),
    )
    asked = (json_block(arguments),)
    story.when(
        request(
            name,
            message_id=f"m {name}",
            tool="shell",
            arguments=asked,
            args_hash=arguments,
        )
    )
    story.when(start(name))
    story.when(
        ToolExecutionFailed(
            call_id=name, layer="TOOL", error_type="Exit", blocks=(text_block(why),)
        )
    )


def test_what_people_said_is_there_in_their_words() -> None:
    """Messages, answers to questions, and steering."""
    story = in_turn().given(
        UserMessage(message_id="u", blocks=(text_block("mend the parser"),)),
        InputRequested(request_id="q", prompt=(text_block("which one?"),)),
        InputProvided(request_id="q", blocks=(text_block("the old one"),)),
    )
    summary = told(story)
    assert "mend the parser" in summary
    assert "the old one" in summary
    assert "which one?" not in summary


def test_a_failure_is_said_with_how_often_and_its_last_words() -> None:
    """So that the same is not tried for ever."""
    story = in_turn()
    for number in range(3):
        fails(story, f"c{number}", f"no rule {number}")
    summary = told(story)
    assert "3 times" in summary
    assert "no rule 2" in summary


def test_failures_are_bounded_and_the_newest_stay() -> None:
    """However many different ones there are."""
    story = in_turn()
    for number in range(FAILURES_MAX + 5):
        fails(story, f"c{number}", f"why {number}", json.dumps({"run": f"make t{number}"}))
    lines = [line for line in told(story).splitlines() if " times, last:" in line]
    assert len(lines) <= FAILURES_MAX
    assert f"t{FAILURES_MAX + 4}" in lines[-1]


def test_the_plan_and_open_questions_are_there() -> None:
    """The plan as it is now, and what nobody answered."""
    items = (
        PlanItem(item_id="1", status="COMPLETED", blocks=(text_block("look"),)),
        PlanItem(item_id="2", status="PENDING", blocks=(text_block("write tests"),)),
    )
    story = in_turn().given(
        PlanUpdated(items=items[:1]),
        PlanUpdated(items=items),
        InputRequested(request_id="q", prompt=(text_block("deploy it?"),)),
    )
    summary = told(story)
    assert "PENDING: write tests" in summary
    assert "deploy it?" in summary


def test_every_call_is_a_line_with_its_event_and_its_end() -> None:
    """Arguments that the call before had too are left out."""
    story = in_turn()
    for number in range(2):
        acts(
            story,
            str(number),
            arguments=json.dumps({"cwd": "/srv/app", "path": f"a{number}.py"}),
            output="read 7 lines",
        )
    lines = [line for line in told(story).splitlines() if line.startswith("- [")]
    assert "/srv/app a0.py -> read 7 lines" in lines[0]
    assert "look a1.py -> read 7 lines" in lines[1]
    assert lines[0].startswith("- [4]")


def test_what_only_outputs_named_is_mentioned() -> None:
    """Paths, names and numbers of outputs that are no longer there."""
    story = in_turn()
    acts(story, "1", output="x " * 200 + "src/deep/file.py parse_line 4711 " + "y " * 200)
    summary = told(story)
    assert "src/deep/file.py" in summary
    assert "parse_line" in summary
    assert "4711" in summary


def test_a_summary_keeps_to_its_tokens_and_to_the_newest() -> None:
    """The first thing that was said stays too: it is the task."""
    story = in_turn().given(UserMessage(message_id="u", blocks=(text_block("the task"),)))
    for number in range(200):
        acts(story, f"step{number}", output=f"see file{number}.py and " + "more " * 20)
    summary = told(story, tokens=300)
    assert WORDS.count(summary) <= 330
    assert "the task" in summary
    assert "step199" in summary
    assert "step3 " not in summary


def test_a_short_history_may_have_a_summary_that_is_not_shorter() -> None:
    """The least that a summary may have, so that short ones say anything."""
    story = in_turn()
    acts(story, "1", output="a " * 20)
    assert WORDS.count(told(story)) <= SUMMARY_MIN_TOKENS


def test_what_was_cleared_or_lies_behind_is_not_summarised() -> None:
    """A clearing forgets, and the summary ends where it says."""
    story = in_turn().given(UserMessage(message_id="u", blocks=(text_block("old"),)))
    story.given(ContextCleared())
    story.given(UserMessage(message_id="v", blocks=(text_block("new"),)))
    seq = story.seq
    story.given(UserMessage(message_id="w", blocks=(text_block("later"),)))
    summary = told(story, to_seq=seq)
    assert "new" in summary
    assert "old" not in summary
    assert "later" not in summary


def test_texts_of_blobs_are_read_and_others_give_their_preview() -> None:
    """A long output lies in the blob store."""
    blob = Blob(sha256=b"t" * 32, size=9, media_type="text/plain", preview="peek.py")
    story = in_turn()
    acts(story, "1")
    last = story.events[-1]
    output = (text_block("").model_copy(update={"body": blob}),)
    ended = ToolExecutionCompleted(call_id="call 1", output=output)
    events = [*story.events[:-1], last._replace(event=ended)]
    policy = LEAN
    for texts, name in (({}, "peek.py"), ({b"t" * 32: "whole/story.py"}, "whole/story.py")):
        originals = Originals(events, story.seq, texts)
        assert name in summary_of(originals, policy=policy, counter=WORDS)


def test_steering_is_what_a_person_said() -> None:
    """As soon as it was applied."""
    story = in_turn()
    story.when(SteeringReceived(mode="NEXT_TURN", blocks=(text_block("use tabs"),)))
    event_id = story.events[-1].envelope.event_id
    assert "use tabs" not in told(story)
    story.when(turn_ends())
    story.when(turn())
    story.when(steering_applied(event_id))
    assert "use tabs" in told(story)


@pytest.mark.parametrize("tokens", [40, 150, 300, 1_000])
def test_the_newest_failures_survive_in_the_shortest_summary(tokens: int) -> None:
    """With their counts, in fewer words where there is no room for more."""
    story = in_turn().given(UserMessage(message_id="u", blocks=(text_block("x " * 500),)))
    for number in range(8):
        for again in range(number + 1):
            run = json.dumps({"run": f"make target{number} " + "very " * 60})
            fails(story, f"c{number}.{again}", f"why{number} " + "so " * 90, run)
    summary = told(story, tokens=tokens)
    for number in (5, 6, 7):
        assert f"target{number}" in summary
        assert f"{number + 1} times, last: Exit. why{number}" in summary
    assert "What people said:\n- x x" in summary


def test_steps_that_are_open_survive_before_those_that_are_done() -> None:
    """In a short summary of a long plan."""
    items = tuple(
        PlanItem(
            item_id=str(n),
            status="PENDING" if n > 36 else "COMPLETED",
            blocks=(text_block(f"step{n} " + "and " * 30),),
        )
        for n in range(40)
    )
    story = in_turn().given(PlanUpdated(items=items))
    summary = told(story, tokens=60)
    assert all(f"PENDING: step{n}" in summary for n in (37, 38, 39))


PROMPT = "Mend the parser of the old format, and keep the tests as they are. " * 18
CHINESE = "请修复旧格式的解析器,并保持测试不变。不要改动生产环境的配置。" * 30
"""What somebody asks for at length: some 270 tokens of each."""


@pytest.mark.parametrize("calls", [10, 40])
@pytest.mark.parametrize("prompt", [PROMPT, CHINESE, "x1 " * 5_000])
def test_a_long_task_is_cut_to_its_room_and_what_was_said_later_stays(
    prompt: str, calls: int
) -> None:
    """As a model's own vocabulary counts, which takes a token for each of many signs."""
    counter = BytesAsTokens(3)
    story = in_turn().given(UserMessage(message_id="u", blocks=(text_block(prompt),)))
    for number in range(calls):
        acts(story, f"step{number}", output=f"see file{number}.py and " + "more " * 20)
    later = text_block("never touch prod")
    story.given(UserMessage(message_id="v", blocks=(later,)))
    policy = replace(LEAN, summary_tokens=1_000)
    originals = Originals(story.events, story.seq, {})
    summary = summary_of(originals, policy=policy, counter=counter)
    assert prompt[:100] in summary
    assert "never touch prod" in summary
    assert counter.count(summary) <= 1_100


@pytest.mark.parametrize("tokens", [200, 1_000])
def test_one_long_thing_keeps_no_other_out(tokens: int) -> None:
    """Of what people said since, and of what was done."""
    story = in_turn().given(UserMessage(message_id="u", blocks=(text_block("task"),)))
    for number in range(3):
        words = text_block("w " * 10 if number % 2 else "long " * 600)
        story.given(UserMessage(message_id=f"v{number}", blocks=(words,)))
    assert "w w w" in told(story, tokens=tokens)


def test_what_is_open_is_told_through_a_clearing_and_what_failed_is_not() -> None:
    """As the session's state has it; so also where the clearing comes later."""
    story = in_turn()
    item = PlanItem(item_id="1", status="PENDING", blocks=(text_block("write tests"),))
    story.given(
        UserMessage(message_id="u", blocks=(text_block("old words"),)),
        PlanUpdated(items=(item,)),
        InputRequested(request_id="q", prompt=(text_block("deploy it?"),)),
    )
    fails(story, "c1", "no rule")
    story.given(AssistantMessage(message_id="m", blocks=(text_block("serve"),)))
    story.given(request("c2", message_id="m", tool="serve"), start("c2"))
    story.given(backgrounded("h7", "c2"))
    before = story.seq
    story.given(ContextCleared())
    acts(story, "new", output="fine")
    at_once = told(story)
    digest = Digest({}, WORDS)
    digest.take(story.events[:before], before)
    digest.take(story.events[before:], story.seq)
    assert summary_from(digest, policy=LEAN, counter=WORDS) == at_once
    for told_still in ("PENDING: write tests", "deploy it?", "in the background, as h7"):
        assert told_still in at_once
    for gone in ("old words", "no rule", "serve ->"):
        assert gone not in at_once


def test_a_text_is_cut_to_its_tokens_by_whatever_counter() -> None:
    text = "字" * 500 + " and more words " * 200
    for counter in (BytesAsTokens(1), BytesAsTokens(4), WORDS):
        assert fitted("short", tokens=9, counter=counter) == "short"
        for tokens in (0, 5, 50, 500):
            short = fitted(text, tokens=tokens, counter=counter)
            assert counter.count(short) <= tokens
            assert bool(short) or tokens < 50
