"""The context: one result per call, nothing empty, the same bytes again, at every cut."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.projections.base import base_of, reaches_back
from foldline.projections.building import build
from foldline.projections.calls import (
    DENIED_TEXT,
    NO_OUTPUT_TEXT,
    NOT_EXECUTED_TEXT,
    NOT_RUN_TEXT,
    UNKNOWN_TEXT,
    WAITING_TEXT,
)
from foldline.projections.context import (
    Context,
    Message,
    Sources,
)
from foldline.schemas.blocks import Blob, Block, Blocks, json_block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    BackgroundEnded,
    CompactionCompleted,
    ConstraintSet,
    ContextCleared,
    ContextPruned,
    GoalSet,
    HistoryRewound,
    InstructionsSet,
    KnownEvent,
    MessageRetracted,
    PermissionDenied,
    SteeringApplied,
    SteeringReceived,
    ToolBackgrounded,
    ToolCallRequested,
    ToolCallValidated,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionTimedOut,
    ToolOutcomeResolved,
    ToolResultProjected,
    ToolsDeclared,
    UserMessage,
)
from foldline.schemas.recorded import Recorded
from tests.happenings import (
    ask,
    cancelled,
    constraint_lifted,
    deny,
    expired,
    grant,
    in_turn,
    request,
    resolved,
    session,
    start,
    steer,
    timed_out,
    turn,
    turn_ends,
    unknown,
)
from tests.story import Story


def text(words: str) -> Blocks:
    """One text block."""
    return (text_block(words),)


def says(words: str, message_id: str = "") -> UserMessage:
    """A person says something."""
    return UserMessage(message_id=message_id or f"id of {words}", blocks=text(words))


def asks_for(*call_ids: str, message: str = "m", words: str = "") -> list[KnownEvent]:
    """The model's message and its requests, as the client records them."""
    blocks = [*text(words)] if words else []
    blocks += [Block(kind="tool_call", call_id=call_id) for call_id in call_ids]
    said = AssistantMessage(message_id=message, final=True, blocks=tuple(blocks))
    requests = [
        request(call_id, message_id=message, arguments=(json_block("{}"),), tool="t")
        for call_id in call_ids
    ]
    return [said, *requests]


def done(call_id: str, words: str = "") -> ToolExecutionCompleted:
    """A tool ended and said something."""
    output = text(words or f"output of {call_id}")
    return ToolExecutionCompleted(call_id=call_id, output=output)


def runs(call_id: str) -> list[KnownEvent]:
    """A call begins and ends."""
    return [start(call_id), done(call_id)]


def shown(events: Sequence[Recorded]) -> list[tuple[str, str]]:
    """Who says what, results call by call."""
    return [line for message in build(Sources(events)).messages for line in lines(message)]


def lines(message: Message) -> list[tuple[str, str]]:
    """One line per message, or per result."""
    if message.role == "tool":
        return [
            (part.call_id, "".join(inner.text for inner in part.parts))
            for part in message.parts
        ]
    calls = [part.call_id for part in message.parts if part.kind == "call"]
    words = "".join(part.text for part in message.parts if part.kind != "call")
    return [(message.role, " ".join([*([words] if words else []), *calls]))]


# --- pairing -------------------------------------------------------------------------


def test_results_come_in_call_order_whatever_order_the_tools_ended_in() -> None:
    """Case B15: the log keeps c, a, b; the model sees a, b, c, right behind its calls."""
    story = in_turn().given(says("go"), *asks_for("a", "b", "c"))
    story.given(start("a"), start("b"), start("c"), done("c"), done("a"))
    story.given(says("meanwhile"), done("b"))
    assert shown(story.events) == [
        ("user", "go"),
        ("assistant", "a b c"),
        ("a", "output of a"),
        ("b", "output of b"),
        ("c", "output of c"),
        ("user", "meanwhile"),
    ]


def test_interrupted_calls_have_a_result_too() -> None:
    """Case B11: after an interrupt in three parallel calls the session goes on."""
    story = in_turn().given(*asks_for("a", "b", "c"), *runs("a"), start("b"))
    story.given(cancelled("b"), turn_ends("ABORTED"), turn(), says("use nix"))
    assert shown(story.events) == [
        ("assistant", "a b c"),
        ("a", "output of a"),
        ("b", "Cancelled: r."),
        ("c", NOT_RUN_TEXT),
        ("user", "use nix"),
    ]


def test_a_call_closed_by_an_interruption_says_so_and_is_no_denial() -> None:
    """Nobody denied it; the person said something else first."""
    story = in_turn().given(*asks_for("a"))
    story.given(
        PermissionDenied(
            call_id="a",
            decided_by="POLICY",
            policy="interrupt",
            feedback=text("Not run: interrupted by steering."),
        )
    )
    assert shown(story.events)[1] == ("a", "Not run: interrupted by steering.")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], NOT_RUN_TEXT),
        ([ask("r", "a")], WAITING_TEXT),
        ([start("a")], UNKNOWN_TEXT),
        ([start("a"), unknown("a")], UNKNOWN_TEXT),
        ([start("a"), resolved("NOT_EXECUTED", "a")], NOT_EXECUTED_TEXT),
        ([ask("r", "a"), deny("r", call_id="a")], DENIED_TEXT),
        (
            [ask("r", "a"), deny("r", call_id="a", feedback=text("use X"))],
            f"{DENIED_TEXT}\nuse X",
        ),
        (
            [ask("r", "a"), deny("r", call_id="a", may_request_again=True)],
            DENIED_TEXT,
        ),
        (
            [
                start("a"),
                ToolExecutionTimedOut(call_id="a", after_ms=5, stop_confirmed=True),
            ],
            f"Timed out after 5 ms. {UNKNOWN_TEXT}",
        ),
        (
            [start("a"), timed_out("a")],
            f"Timed out. It may still be running. {UNKNOWN_TEXT}",
        ),
        (
            [ToolCallValidated(call_id="a", valid=False, problem="no JSON")],
            "The call cannot be run: no JSON",
        ),
        (
            [
                start("a"),
                ToolExecutionFailed(
                    call_id="a",
                    layer="HARNESS",
                    error_type="StartTooLateError",
                    executed="NO",
                    blocks=text("late"),
                ),
            ],
            "StartTooLateError. Its effect did not happen. late",
        ),
        ([start("a"), ToolExecutionCompleted(call_id="a", output=())], "(no output)"),
        (
            [start("a"), ToolBackgrounded(call_id="a", handle="h", output=text("pid 7"))],
            "It goes on in the background, as h. pid 7",
        ),
    ],
)
def test_a_result_says_what_is_known_of_its_call(
    events: list[KnownEvent], expected: str
) -> None:
    """Denied, expired, unknown, timed out: the model is told the truth."""
    requested = request("a", args_hash="hash of a", message_id="m")
    story = in_turn().given(AssistantMessage(message_id="m", blocks=()), requested, *events)
    assert shown(story.events)[1] == ("a", expected)


def test_ids_that_a_provider_repeats_do_not_mix_results() -> None:
    """Case B16: our own call_id pairs them."""
    story = in_turn()
    for turn_number in ("1", "2"):
        call_id = f"m{turn_number}:0"
        message = f"m{turn_number}"
        story.given(AssistantMessage(message_id=message, blocks=()))
        story.given(request(call_id, provider_call_id="X", message_id=message))
        story.given(start(call_id), done(call_id, f"r{turn_number}"))
    assert [line for line in shown(story.events) if line[0] != "assistant"] == [
        ("m1:0", "r1"),
        ("m2:0", "r2"),
    ]


def test_a_call_in_a_message_that_was_never_requested_is_not_shown() -> None:
    """A torn batch, or a redelivery: no call without result, and no empty message."""
    message = AssistantMessage(
        message_id="m", blocks=(Block(kind="tool_call", call_id="a"),)
    )
    assert shown(in_turn().given(message).events) == []


def test_empty_blocks_and_messages_are_not_shown() -> None:
    """Case B06: an empty text block makes an API refuse every later request."""
    story = in_turn().given(
        AssistantMessage(message_id="m", blocks=(*text(""), *text(" \n"))),
        says(""),
        says("still here"),
    )
    assert shown(story.events) == [("user", "still here")]


@pytest.mark.parametrize(
    "nothing",
    [
        Block(kind="reasoning", signature=""),
        Block(kind="server_tool", opaque=""),
        Block(kind="json", body=Blob(sha256=b"e" * 32, size=0, media_type="text/plain")),
    ],
)
def test_what_holds_nothing_is_shown_nowhere(nothing: Block) -> None:
    """Case B06: an answer cut while it thinks has an empty signature, others a file."""
    story = in_turn().given(
        GoalSet(blocks=(nothing,)),
        AssistantMessage(message_id="torn", blocks=(nothing,)),
        UserMessage(message_id="u", blocks=(nothing, *text("go"))),
        *asks_for("a", "b"),
        start("a"),
        start("b"),
        ToolExecutionCompleted(call_id="a", output=(nothing,)),
        done("b"),
        ContextPruned(rule="r", targets=("b",), blocks=(nothing,)),
    )
    context = build(Sources(story.events, texts={b"e" * 32: ""}))
    assert [line for message in context.messages for line in lines(message)] == [
        ("user", "go"),
        ("assistant", "a b"),
        ("a", NO_OUTPUT_TEXT),
        ("b", NO_OUTPUT_TEXT),
    ]
    cleared = story.given(ContextCleared()).events
    assert build(Sources(cleared, texts={b"e" * 32: ""})).messages == ()


@pytest.mark.parametrize("kind", ["call", "result"])
def test_a_block_that_is_called_like_a_part_of_ours_is_none(kind: str) -> None:
    """Anybody may steer with any kind of block; no session ends by it."""
    block = Block(kind=kind, body="use nix")
    story = in_turn().given(
        AssistantMessage(message_id="m", blocks=(block, *text("so"))),
        UserMessage(message_id="u", blocks=(block,)),
        *asks_for("a", message="n"),
        start("a"),
        ToolExecutionCompleted(call_id="a", output=(block,)),
    )
    _, *told = shown(story.events)
    assert told == [("user", "use nix"), ("assistant", "a"), ("a", "use nix")]


def test_a_lone_surrogate_is_shown_as_the_replacement_character() -> None:
    """Case B38: also from an event that was never encoded."""
    cut = Block(kind="text", body="cut \ud83d")
    recorded = in_turn().given(says("x")).events[-1]
    event = UserMessage(message_id="x", blocks=(cut,))
    broken = Recorded(recorded.envelope, event, b"", 0)
    assert shown([broken]) == [("user", "cut \ufffd")]


def test_a_result_that_arrives_without_its_call_becomes_a_note() -> None:
    """Never a result without its call; never dropped in silence either."""
    story = in_turn().given(*asks_for("a"), *runs("a"))
    without_call = [r for r in story.events if not isinstance(r.event, ToolCallRequested)]
    assert shown(without_call) == [
        ("user", "Late result of the earlier call a: output of a")
    ]


# --- what was shown stays as it was --------------------------------------------------


def freeze(story: Story) -> Context:
    """Do what the client does before the model sees a context."""
    context = build(Sources(story.events))
    for stand_in in context.stand_ins:
        story.given(
            ToolResultProjected(
                call_id=stand_in.call_id, form=stand_in.form, blocks=stand_in.blocks
            )
        )
    return context


def test_a_late_outcome_is_a_note_and_changes_nothing_before_it() -> None:
    """Cases B32, B33: the tool had done it after all."""
    story = in_turn().given(*asks_for("a"), start("a"), timed_out("a"))
    before = freeze(story)
    story.given(says("and?"), done("a"))
    after = build(Sources(story.events))
    assert after.messages[: len(before.messages)] == before.messages
    assert shown(story.events)[-2:] == [
        ("user", "and?"),
        ("user", "Late result of the earlier call a: output of a"),
    ]


def test_an_outcome_that_comes_before_anybody_looked_is_the_result() -> None:
    """Nothing was shown yet, so nothing has to stay."""
    story = in_turn().given(*asks_for("a"), start("a"), timed_out("a"), done("a"))
    assert shown(story.events)[1] == ("a", "output of a")


def test_the_end_of_something_in_the_background_is_a_note() -> None:
    """The model was told that it goes on."""
    story = in_turn().given(*asks_for("a"), start("a"))
    story.given(ToolBackgrounded(call_id="a", handle="h"))
    freeze(story)
    story.given(BackgroundEnded(handle="h", outcome="COMPLETED", output=text("42")))
    assert shown(story.events)[-1] == (
        "user",
        "Late result of the earlier call h: Ended in the background: COMPLETED. 42",
    )


def test_a_real_outcome_after_a_resolved_one_is_a_note() -> None:
    """The resolved outcome was the result; the real one came late."""
    story = in_turn().given(*asks_for("a"), start("a"))
    story.given(
        ToolOutcomeResolved(
            call_id="a", outcome="COMPLETED", resolver="r", output=text("found")
        ),
        done("a"),
    )
    assert shown(story.events)[1:] == [
        ("a", "found"),
        ("user", "Late result of the earlier call a: output of a"),
    ]


def test_the_result_of_a_retried_call_is_that_of_its_last_attempt() -> None:
    """What the first attempt could not do."""
    story = in_turn().given(*asks_for("a"), start("a", effect="IDEMPOTENT"))
    failed = ToolExecutionFailed(
        call_id="a", layer="TOOL", error_type="Busy", executed="NO"
    )
    story.given(failed, start("a", attempt=2, effect="IDEMPOTENT"))
    story.given(ToolExecutionCompleted(call_id="a", attempt=2, output=text("second")))
    assert shown(story.events)[1:] == [("a", "second")]


# --- what is in force ----------------------------------------------------------------


def test_what_is_in_force_leads_and_what_is_set_later_is_a_note() -> None:
    """The prefix does not change when a goal does."""
    story = session().given(
        InstructionsSet(role="system", blocks=text("be brief")),
        GoalSet(blocks=text("fix it")),
        ConstraintSet(constraint_id="k", blocks=text("no network")),
        turn(),
        says("go"),
    )
    before = build(Sources(story.events))
    assert lines(before.messages[0]) == [
        ("system", "be brief\n\nGoal: fix it\n\nConstraint k: no network")
    ]
    story.given(GoalSet(blocks=text("ship it")), constraint_lifted())
    assert build(Sources(story.events)).messages[:2] == before.messages
    assert [line for line in shown(story.events) if line[0] == "user"] == [
        ("user", "go"),
        ("user", "Goal, from now on: ship it"),
        ("user", "Constraint k no longer holds."),
    ]


def test_steering_is_shown_where_it_was_applied() -> None:
    """Case B37: pending until then, and exactly once."""
    story = in_turn().given(says("go"), SteeringReceived(blocks=text("use nix")))
    assert shown(story.events) == [("user", "go")]
    story.given(SteeringApplied(steering_event_id=story.events[-1].envelope.event_id))
    assert shown(story.events) == [("user", "go"), ("user", "use nix")]
    assert not reaches_back(story.events[-2:], story.seq - 2)
    assert reaches_back(story.events[-1:], story.seq - 1)


# --- clearing, compaction, rewind ----------------------------------------------------


def compact(story: Story, to_seq: int, *, from_seq: int = 1, words: str = "so far") -> None:
    """Replace a range by a few words."""
    story.given(
        CompactionCompleted(
            compaction_id="c",
            from_seq=from_seq,
            to_seq=to_seq,
            base_seq=story.seq,
            strategy="summary",
            blocks=text(words),
        )
    )


def test_a_compaction_replaces_what_lies_in_its_range() -> None:
    """And what comes in between its base and itself stays."""
    story = in_turn().given(says("one"), says("two"))
    to_seq = story.seq
    story.given(says("three"))
    compact(story, to_seq)
    story.given(says("four"))
    assert shown(story.events) == [
        ("user", "so far"),
        ("user", "three"),
        ("user", "four"),
    ]


def test_a_result_whose_call_was_compacted_away_becomes_a_note() -> None:
    """Cases B12, B23: the cut runs between call and result."""
    story = in_turn().given(*asks_for("a"), start("a"))
    compact(story, story.seq)
    story.given(done("a"))
    assert shown(story.events) == [
        ("user", "so far"),
        ("user", "Late result of the earlier call a: output of a"),
    ]


def test_a_compaction_keeps_the_messages_that_it_names() -> None:
    """With their calls and results."""
    story = in_turn().given(says("one"), *asks_for("a"), *runs("a"), says("two"))
    kept = story.events[3].envelope.event_id
    story.given(
        CompactionCompleted(
            compaction_id="c",
            from_seq=1,
            to_seq=story.seq,
            base_seq=story.seq,
            strategy="s",
            kept=(kept,),
            blocks=text("sum"),
        )
    )
    assert shown(story.events) == [
        ("user", "sum"),
        ("assistant", "a"),
        ("a", "output of a"),
    ]


def test_a_cleared_context_starts_from_what_is_in_force() -> None:
    """The log keeps all."""
    story = session().given(GoalSet(blocks=text("old")), turn(), says("one"))
    story.given(GoalSet(blocks=text("new")), ContextCleared(), says("two"))
    assert shown(story.events) == [("system", "Goal: new"), ("user", "two")]


def test_a_rewind_goes_back_to_a_seq_and_on_from_there() -> None:
    """What came after it stays in the log."""
    story = in_turn().given(says("one"))
    back = story.seq
    story.given(*asks_for("a"), *runs("a"), HistoryRewound(to_seq=back), says("other"))
    assert shown(story.events) == [("user", "one"), ("user", "other")]


def test_a_rewind_undoes_a_clearing_that_came_after_its_seq() -> None:
    """And a compaction; then the whole history is needed again."""
    story = in_turn().given(says("one"))
    back = story.seq
    story.given(ContextCleared())
    assert base_of(story.state, None) == story.seq
    story.given(HistoryRewound(to_seq=back))
    assert base_of(story.state, None) == 0
    assert shown(story.events) == [("user", "one")]


def test_retracted_and_replaced_messages_are_not_shown() -> None:
    """Edited by whoever said them."""
    story = in_turn().given(says("one", "1"), says("two", "2"), says("three", "3"))
    story.given(
        MessageRetracted(message_ids=("1",)),
        UserMessage(message_id="4", replaces="2", blocks=text("two, better")),
    )
    assert shown(story.events) == [("user", "three"), ("user", "two, better")]


def test_the_tail_behind_a_base_gives_the_same_as_the_whole_history() -> None:
    """What lets a session of any length wake in the same time."""
    story = session().given(
        InstructionsSet(role="system", blocks=text("be brief")),
        GoalSet(blocks=text("old goal")),
        ToolsDeclared(tools=()),
        turn(),
        *asks_for("a"),
        start("a"),
    )
    compact(story, story.seq)
    compaction = story.events[-1].event
    story.given(says("next"), done("a"), GoalSet(blocks=text("new goal")))
    assert isinstance(compaction, CompactionCompleted)
    base = base_of(story.state, compaction)
    assert base == compaction.to_seq
    set_up = [r for r in story.events[:base] if isinstance(r.event, _SET_UP)]
    tail = build(Sources(story.events[base:], base, set_up))
    assert tail.messages == build(Sources(story.events)).messages
    assert tail.sha256() == build(Sources(story.events)).sha256()


_SET_UP = (InstructionsSet, GoalSet, ToolsDeclared)


def test_the_base_reaches_further_back_where_the_compaction_does_not_hold_all() -> None:
    """Kept messages, or a range that does not begin at the beginning."""
    story = in_turn().given(says("one"), says("two"))
    compact(story, story.seq, from_seq=3)
    event = story.events[-1].event
    assert isinstance(event, CompactionCompleted)
    assert base_of(story.state, event) == 0
    assert base_of(story.state, event.model_copy(update={"from_seq": 1})) == 4
    assert base_of(story.state, event.model_copy(update={"kept": ("x",)})) == 0


# --- large bodies --------------------------------------------------------------------


def test_a_large_text_is_shown_whole_or_by_its_preview() -> None:
    """Bodies in the blob store come in from outside: this room reads no disk."""
    blob = Blob(sha256=b"h" * 32, size=9, media_type="text/plain", preview="whole t")
    message = UserMessage(message_id="u", blocks=(Block(kind="text", body=blob),))
    events = in_turn().given(message).events
    whole = build(Sources(events, texts={b"h" * 32: "whole text"}))
    assert lines(whole.messages[0]) == [("user", "whole text")]
    expected = "whole t\n[9 bytes of text/plain, not shown]"
    assert shown(events) == [("user", expected)]


# --- at every cut --------------------------------------------------------------------


def check(context: Context) -> None:
    """What holds of every context."""
    messages = context.messages
    for position, message in enumerate(messages):
        assert message.parts
        calls = [part.call_id for part in message.parts if part.kind == "call"]
        assert len(calls) == len(set(calls))
        following = messages[position + 1] if position + 1 < len(messages) else None
        if calls:
            assert following is not None
            assert following.role == "tool"
            assert [part.call_id for part in following.parts] == calls
        if message.role == "tool":
            assert position > 0
            assert any(part.kind == "call" for part in messages[position - 1].parts)
            assert all(part.parts for part in message.parts)
        for part in message.parts:
            assert part.kind in ("call", "result") or part.text or part.blob
            part.text.encode()


Step = Callable[[Story, str], object]


def _model(story: Story, key: str) -> None:
    message = f"m{story.seq}"
    if story.when(AssistantMessage(message_id=message, blocks=text(key))).seq:
        for call_id in (f"{message}:a", f"{message}:b"):
            story.when(request(call_id, message_id=message, args_hash="h"))


def _pick(story: Story, key: str) -> str:
    calls = sorted({*story.state.calls, *story.state.finished})
    return calls[ord(key) % len(calls)] if calls else "none"


def _attempt(story: Story, call_id: str) -> int:
    call = story.state.calls.get(call_id) or story.state.finished.get(call_id)
    return call.attempt if call else 1


def _outcome(kind: str) -> Step:
    def step(story: Story, key: str) -> None:
        call_id = _pick(story, key)
        attempt = max(_attempt(story, call_id), 1)
        events: dict[str, KnownEvent] = {
            "done": ToolExecutionCompleted(
                call_id=call_id, attempt=attempt, output=text(f"out {key}")
            ),
            "failed": ToolExecutionFailed(
                call_id=call_id, attempt=attempt, layer="TOOL", error_type="E"
            ),
            "timed_out": timed_out(call_id, attempt),
            "cancelled": cancelled(call_id, attempt, confirmed=key < "m"),
            "unknown": unknown(call_id, attempt),
            "resolved": resolved("COMPLETED", call_id, attempt),
            "not_executed": resolved("NOT_EXECUTED", call_id, attempt),
            "background": ToolBackgrounded(
                call_id=call_id, attempt=attempt, handle=f"h{call_id}"
            ),
            "invalid": ToolCallValidated(call_id=call_id, valid=False, problem="p"),
        }
        story.when(events[kind])

    return step


def _start(story: Story, key: str) -> None:
    call_id = _pick(story, key)
    attempt = _attempt(story, call_id) + 1
    story.when(start(call_id, attempt, effect="IDEMPOTENT"))


def _permission(story: Story, key: str) -> None:
    call_id = _pick(story, key)
    asked = f"r{call_id}"
    match ord(key) % 4:
        case 0:
            story.when(ask(asked, call_id, args_hash="h"))
        case 1:
            story.when(grant(asked, call_id, args_hash="h"))
        case 2:
            story.when(deny(asked, call_id=call_id, may_request_again=key > "m"))
        case _:
            story.when(expired(asked))


def _end_background(story: Story, key: str) -> None:
    for handle in sorted(story.state.handles):
        story.when(BackgroundEnded(handle=handle, outcome="COMPLETED", output=text(key)))
        return


def _steering(story: Story, key: str) -> None:
    if story.state.steering and key > "m":
        steering_id = min(story.state.steering)
        story.when(SteeringApplied(steering_event_id=steering_id))
    else:
        story.when(steer())


def _next_turn(story: Story, key: str) -> None:
    story.when(turn_ends("ABORTED"))
    story.when(turn())
    story.when(says(key, f"u{story.seq}"))


def _say(story: Story, key: str) -> None:
    story.when(says(key, f"u{story.seq}"))


def _set_goal(story: Story, key: str) -> None:
    story.when(GoalSet(blocks=text(key)))


ADDING: dict[str, Step] = {
    "say": _say,
    "model": _model,
    "start": _start,
    "permission": _permission,
    "end_background": _end_background,
    "steering": _steering,
    "next_turn": _next_turn,
    "goal": _set_goal,
} | {
    kind: _outcome(kind)
    for kind in (
        "done",
        "failed",
        "timed_out",
        "cancelled",
        "unknown",
        "resolved",
        "not_executed",
        "background",
        "invalid",
    )
}
CUTTING: dict[str, Step] = {
    "clear": lambda story, _: story.when(ContextCleared()),
    "rewind": lambda story, key: story.when(
        HistoryRewound(to_seq=story.seq * ord(key) // 128)
    ),
    "compact": lambda story, key: story.when(
        CompactionCompleted(
            compaction_id="c",
            from_seq=1,
            to_seq=max(story.seq * ord(key) // 128, 1),
            base_seq=story.seq,
            strategy="s",
            blocks=text(key),
        )
    ),
    "retract": lambda story, key: story.when(
        MessageRetracted(message_ids=(f"m{ord(key) % 20}", f"u{ord(key) % 20}"))
    ),
}
KEYS = st.sampled_from("aemrxz")
OFTEN = ("model", "start", "start", "done", "timed_out") * 3
"""Steps that others build on: drawn more often, so that histories get somewhere."""


@given(
    steps=st.lists(
        st.tuples(st.sampled_from((*OFTEN, *sorted(ADDING), *sorted(CUTTING))), KEYS),
        max_size=25,
    )
)
@settings(max_examples=150, deadline=None)
def test_every_cut_of_every_legal_history_gives_a_sound_context(
    steps: list[tuple[str, str]],
) -> None:
    """Whatever happened, wherever it ends; and the same again, to the byte."""
    story = in_turn()
    for name, key in steps:
        (ADDING | CUTTING)[name](story, key)
    for cut in range(len(story.events) + 1):
        context = build(Sources(story.events[:cut]))
        check(context)
        assert build(Sources(story.events[:cut])).sha256() == context.sha256()


@given(
    steps=st.lists(st.tuples(st.sampled_from((*OFTEN, *sorted(ADDING))), KEYS), max_size=25)
)
@settings(max_examples=150, deadline=None)
def test_what_the_model_was_shown_never_changes(steps: list[tuple[str, str]]) -> None:
    """Each context begins with the one before it, byte for byte: caches stay warm."""
    story = in_turn().given(says("go"))
    before = freeze(story)
    for name, key in steps:
        ADDING[name](story, key)
        after = freeze(story)
        assert after.messages[: len(before.messages)] == before.messages
        before = build(Sources(story.events))
        assert before.messages == after.messages
