"""What no summary may leave out: failures, calls without an end, the plan, questions."""

from dataclasses import replace

import pytest

from foldline.projections.building import build
from foldline.projections.context import Sources
from foldline.projections.facts import UNENDED_MAX
from foldline.projections.policy import LEAN
from foldline.projections.summarising import Originals, facts_of, summary_of
from foldline.schemas.blocks import json_block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    Inherited,
    InputRequested,
    KnownEvent,
    PlanItem,
    SessionCreated,
    ToolExecutionTimedOut,
    ToolResultProjected,
)
from tests.happenings import (
    ask,
    background_ends,
    backgrounded,
    deny,
    done,
    expired,
    failed,
    in_turn,
    request,
    resolved,
    start,
    turn_ends,
    unknown,
)
from tests.story import Story
from tests.words import Words

WORDS = Words()

ASKED = (json_block('{"env": "prod"}'),)


def facts(story: Story) -> str:
    """The facts of a story."""
    return facts_of(Originals(story.events, story.seq, {}), policy=LEAN, counter=WORDS)


def calls(*events: KnownEvent) -> Story:
    """A turn with one call, and what became of it; its stand-in was shown."""
    story = in_turn().given(AssistantMessage(message_id="m", blocks=(text_block("so"),)))
    story.given(request(tool="deploy", arguments=ASKED), *events)
    for shown in build(Sources(story.events)).stand_ins:
        story.given(
            ToolResultProjected(call_id=shown.call_id, form=shown.form, blocks=shown.blocks)
        )
    return story


OPEN = 'Still open:\n- [4] deploy {"env": "prod"}: '
UNKNOWN = "Nobody knows how these ended, verify first:\n- [4] deploy"


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([], f"{OPEN}not run"),
        ([ask()], f"{OPEN}waits for a person's permission"),
        ([ask(), expired()], f"{OPEN}nobody answered in time"),
        ([ask(), deny(may_request_again=True)], f"{OPEN}denied, may be asked for again"),
        ([start(), backgrounded("h7")], f"{OPEN}goes on in the background, as h7"),
        ([start(), unknown(), resolved("NOT_EXECUTED")], f"{OPEN}not run"),
        ([start()], UNKNOWN),
        ([start(), unknown()], UNKNOWN),
        ([start(), ToolExecutionTimedOut(call_id="m:0", stop_confirmed=False)], UNKNOWN),
        ([start(), backgrounded("h7"), background_ends("h7", "UNKNOWN")], UNKNOWN),
        ([start(), failed(executed="NO"), start(attempt=2)], UNKNOWN),
    ],
)
def test_a_call_without_an_end_is_told_as_what_it_is(
    events: list[KnownEvent], told: str
) -> None:
    """However its stand-in was shown, it is no failure."""
    told_facts = facts(calls(*events))
    assert told in told_facts
    assert ("What failed" in told_facts) == any(e == failed(executed="NO") for e in events)


@pytest.mark.parametrize(
    "events",
    [[start(), done()], [ask(), turn_ends("ABORTED")], [turn_ends("ABORTED")]],
)
def test_what_ended_or_did_not_begin_in_its_turn_is_not_open(
    events: list[KnownEvent],
) -> None:
    """Nobody waits for it any more."""
    assert facts(calls(*events)) == ""


def test_a_call_without_an_end_is_told_whatever_the_share() -> None:
    """Behind failures of many tools, and in the shortest summary."""
    story = calls(ask())
    for number in range(40):
        name = f"c{number}"
        story.given(AssistantMessage(message_id=name, blocks=(text_block("so"),)))
        story.given(request(name, message_id=name, tool=f"t{number}", arguments=ASKED))
        story.given(start(name), failed(name, executed="NO"))
    policy = replace(LEAN, summary_tokens=40)
    originals = Originals(story.events, story.seq, {})
    assert OPEN in summary_of(originals, policy=policy, counter=WORDS)


def test_of_very_many_calls_without_an_end_the_newest_are_told_and_how_many_there_are() -> (
    None
):
    """They are bounded, and nothing is left out in silence."""
    story = in_turn()
    for number in range(UNENDED_MAX + 3):
        name = f"c{number}"
        story.given(AssistantMessage(message_id=name, blocks=(text_block("so"),)))
        story.given(request(name, message_id=name, tool="send"), start(name), unknown(name))
    lines = facts(story).splitlines()
    assert f"(the newest {UNENDED_MAX} of {UNENDED_MAX + 3})" in lines[0]
    assert len(lines) == UNENDED_MAX + 1


def test_failures_are_the_same_by_all_of_their_arguments() -> None:
    """Not by the beginning that is shown of them."""
    story = in_turn()
    for number in range(3):
        name = f"c{number}"
        story.given(AssistantMessage(message_id=name, blocks=(text_block("so"),)))
        asked = (json_block(f'"{"word " * 200}{number}"'),)
        story.given(request(name, message_id=name, arguments=asked))
        story.given(start(name), failed(name, executed="NO"))
    told = facts(story)
    assert told.count(": 1 times") == 3
    assert "3 times" not in told


def test_a_fork_has_the_plan_it_was_created_with_and_no_question_of_its_parent() -> None:
    """A call that was open stays its parent's."""
    item = PlanItem(item_id="1", status="PENDING", blocks=(text_block("ship it"),))
    story = calls(ask()).given(
        InputRequested(request_id="q", prompt=(text_block("when?"),))
    )
    last = story.events[-1]
    created = SessionCreated(
        agent="coder",
        parent_session_id="p",
        inherits=("plan",),
        inherited=Inherited(plan=(item,)),
    )
    envelope = last.envelope.model_copy(update={"seq": story.seq + 1, "event_id": "f"})
    events = [*story.events, last._replace(envelope=envelope, event=created)]
    originals = Originals(events, story.seq + 1, {})
    told = facts_of(originals, policy=LEAN, counter=WORDS)
    assert "PENDING: ship it" in told
    assert "when?" not in told
    assert f"{OPEN}left to the session" in told
