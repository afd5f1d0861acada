"""Reports of others about calls, results and permissions, as sequences."""

import itertools

import pytest

from foldline.processors.fold import initial, replay
from foldline.schemas.blocks import json_block, text_block
from foldline.schemas.codec import encode_content
from foldline.schemas.events import (
    AssistantMessage,
    KnownEvent,
    SessionResumed,
    SessionSuspended,
    ToolExecutionCompleted,
    ToolExecutionStarted,
)
from foldline.schemas.snapshots import decode_snapshot, encode_snapshot
from foldline.schemas.verdicts import ACCEPTED, ILLEGAL
from tests import happenings as h
from tests.story import Story


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_results_that_come_at_once_are_all_kept_and_the_turn_waits_for_the_last(
    order: tuple[str, ...],
) -> None:
    """B14: of three results in one message two were dropped.

    Each result is an event of its own, in whatever order it comes; the turn is done
    after 3 of 3, not before.
    """
    story = h.in_turn().given(*(h.request(c) for c in "abc"))
    story.given(*(h.start(c) for c in "abc"))
    for call_id in order:
        assert story.when(h.turn_ends()).rule == "open_work"
        story.given(h.done(call_id))
    results = [
        e.event.call_id for e in story.events if isinstance(e.event, ToolExecutionCompleted)
    ]
    assert results == list(order)
    story.given(h.turn_ends())


@pytest.mark.parametrize("provider_call_id", ["X", "", "call_0"])
@pytest.mark.parametrize("same_turn", [True, False])
def test_calls_with_one_provider_id_are_two_calls_when_the_first_has_ended(
    provider_call_id: str, *, same_turn: bool
) -> None:
    """B16: a server gives every call one id; all results but the first were deleted.

    Our ids differ, so r1 and r2 stay with their own calls; a third result is refused.
    """
    story = h.in_turn()
    for number in (1, 2):
        call_id = f"m{number}:0"
        story.given(
            h.request(call_id, provider_call_id=provider_call_id, args_hash="h"),
            h.start(call_id),
            h.done(call_id),
        )
        if not same_turn:
            story.given(h.turn_ends(), h.turn())
    assert story.when(h.done("m2:0")).rule == "already_ended"
    assert {c.call_id: c.status for c in story.state.finished.values()} == {
        "m1:0": "COMPLETED",
        "m2:0": "COMPLETED",
    }


def test_a_mirror_keeps_a_second_result_and_names_it() -> None:
    """B16 in a mirrored session: what its source wrote is a fact, counted as odd."""
    story = h.session(mode="MIRRORED").given(h.turn(), h.request(), h.done())
    verdict = story.when(h.done())
    assert (verdict.kind, verdict.anomalies) == (ACCEPTED, ("second_result",))


OPEN: dict[str, list[KnownEvent]] = {
    "requested": [],
    "waiting": [h.ask(call_id="m:0", args_hash="h")],
    "running": [h.start("m:0")],
    "timed out": [h.start("m:0"), h.timed_out("m:0")],
    "unknown": [h.start("m:0"), h.unknown("m:0")],
    "background": [h.start("m:0"), h.backgrounded("h", "m:0")],
}


@pytest.mark.parametrize("so_far", OPEN)
def test_a_call_that_a_reconnecting_provider_sends_again_runs_once(so_far: str) -> None:
    """B17: a stream was reset, the same tool_use came again, the tool ran twice.

    While the first is open, in whatever status: the answer names it. After a new turn,
    with other arguments, or without an id, it is another call.
    """
    story = h.in_turn()
    story.given(h.request("m:0", provider_call_id="X", args_hash="h"), *OPEN[so_far])
    verdict = story.when(h.request("m:1", provider_call_id="X", args_hash="h"))
    assert (verdict.kind, verdict.rule) == (ILLEGAL, "redelivered")
    assert verdict.related == "m:0"
    story.given(h.request("m:2", provider_call_id="X", args_hash="other"))
    story.given(h.request("m:3", provider_call_id="", args_hash="h"))
    story.given(h.turn_ends("ABORTED"), h.turn())
    story.given(h.request("m:4", provider_call_id="X", args_hash="h"))


@pytest.mark.parametrize("suspended", [True, False])
@pytest.mark.parametrize("taken_over", [True, False])
def test_a_call_is_on_the_log_before_anybody_is_asked_about_it(
    *, suspended: bool, taken_over: bool
) -> None:
    """B19: suspending on an approval wrote nothing; then came an output without call.

    Without its request there is no permission to ask for, to grant, and no start.
    """
    story = h.in_turn()
    for early in (h.ask(), h.grant(), h.start(), h.done()):
        assert story.when(early).kind == ILLEGAL
    story.given(h.request(), h.ask())
    if suspended:
        story.given(SessionSuspended(reason="approval"))
    if suspended or taken_over:
        assert story.take("next", SessionResumed(reason="r")).kind == ACCEPTED
    story.given(h.grant(), h.start(), h.done(), h.turn_ends())
    assert story.state.finished[h.CALL].status == "COMPLETED"


@pytest.mark.parametrize("interrupts", [1, 2, 5])
def test_what_ran_before_an_interrupt_does_not_run_again_after_it(
    interrupts: int,
) -> None:
    """B31: at each resume the calls before the approval ran again.

    `a` is taken from the log: no resume makes it startable, and no replay starts it.
    """
    story = h.in_turn().given(h.request("a"), h.start("a"), h.done("a"))
    for number in range(interrupts):
        b = f"b{number}"
        story.given(h.request(b), h.ask(b, b), SessionSuspended(reason="approval"))
        claim = SessionResumed(reason="granted")
        assert story.take(f"w{number}", claim).kind == ACCEPTED
        story.given(h.grant(b, b))
        for attempt in (1, 2):
            assert story.when(h.start("a", attempt)).rule == "already_ended"
        story.given(h.start(b), h.done(b))
    starts = [start.call_id for start in story.told(ToolExecutionStarted)]
    assert starts.count("a") == 1


SURROGATES = ["cut \ud83d", "\udc00 first", "현\ud99c", "\udc00\ud83d", "a\ud800b\udfffc"]


@pytest.mark.parametrize("text", SURROGATES)
def test_half_a_character_survives_import_fold_and_storage(text: str) -> None:
    """B38: output cut inside an emoji, or a model that says half a pair: always 400.

    In a result, in arguments, in a message, and in every id: it is stored as U+FFFD,
    its block is marked lossy, and every reader gets valid UTF-8.
    """
    story = h.in_turn()
    message = AssistantMessage(message_id=text, blocks=(text_block(text),))
    arguments = (json_block(f'{{"d":"{text}"}}'),)
    output = (text_block(text), text_block("good"))
    story.given(
        message,
        h.request(text, tool=text, provider_call_id=text, arguments=arguments),
        h.start(text, operation_id=text),
        ToolExecutionCompleted(call_id=text, output=output),
        h.turn_ends(),
    )
    codec = story.codec
    whole = [codec.decode(e.schema_id, e.body) for e in story.events]
    result = whole[-2].event
    assert isinstance(result, ToolExecutionCompleted)
    assert [block.lossy for block in result.output] == [True, False]
    assert "\ufffd" in str(result.output[0].body)
    assert replay(initial("session"), whole) == story.state
    assert decode_snapshot(encode_snapshot(story.state)) == story.state


def test_a_pair_that_was_written_as_two_escapes_is_one_character() -> None:
    """B38: a whole pair is no loss."""
    (block,) = (text_block("\ud83d\ude00"),)
    assert (block.body, block.lossy) == ("\U0001f600", False)
    assert encode_content(AssistantMessage(message_id="m", blocks=(block,)))


@pytest.mark.parametrize("repeats", [1, 2, 3, 7])
@pytest.mark.parametrize("mode", ["OWNED", "MIRRORED"])
def test_usage_that_is_repeated_with_each_part_of_a_message_counts_once(
    repeats: int, mode: str
) -> None:
    """B43: three records of one message repeated its usage; totals were 2.4 times.

    Per model call the last word counts.
    """
    story = h.session(mode=mode).given(h.turn(), h.model_starts())
    story.given(h.model_completes(usage={"input_tokens": 100, "output_tokens": 1}))
    for number in range(repeats):
        story.given(h.usage_corrected(input_tokens=100, output_tokens=10 + number))
    story.given(h.model_starts("other"), h.model_completes("other"))
    usage = story.state.usage
    assert (usage.input_tokens, usage.output_tokens) == (100, 9 + repeats)


def test_a_mirrored_end_that_is_repeated_counts_its_usage_once() -> None:
    """B43, where the source repeats the record itself."""
    story: Story = h.session(mode="MIRRORED").given(h.turn(), h.model_starts())
    for tokens in (1, 4, 9):
        story.given(h.model_completes(usage={"output_tokens": tokens}))
    assert story.state.usage.output_tokens == 9
