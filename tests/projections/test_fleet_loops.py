"""A session that goes round in a circle is told so once, by what comes again."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from foldline.processors.fold import fold_in, initial
from foldline.projections.calls import INTERRUPT_POLICY
from foldline.projections.fleet_circles import (
    KNOWN_MAX,
    RUNS_MAX,
    SEQS_MAX,
    Circles,
    LoopLimits,
)
from foldline.projections.fleet_loops import (
    NO_PROGRESS,
    PERMISSION_PING_PONG,
    SAME_CALL,
    SAME_FAILURE,
    watch,
)
from foldline.schemas.blocks import Blocks, Sealed, text_block
from foldline.schemas.events import (
    KnownEvent,
    LoopDetected,
    ModelCallFailed,
    ModelCallStarted,
    PermissionDenied,
    PermissionGranted,
    PermissionRequested,
    ToolCallRequested,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionStarted,
)
from tests import happenings as h
from tests.story import PERSON, Story

LIMITS = LoopLimits()


def loops_of(story: Story, limits: LoopLimits = LIMITS) -> list[LoopDetected]:
    circles = Circles()
    state = initial(story.session_id)
    found: list[LoopDetected] = []
    for recorded in story.events:
        found += watch(circles, state, recorded, limits=limits)
        fold_in(state, recorded)
    return found


def kinds_of(story: Story) -> list[str]:
    return [loop.kind for loop in loops_of(story)]


def said(text: str) -> Blocks:
    return (text_block(text),)


def asked(number: int, args_hash: str = "same", tool: str = "ls") -> ToolCallRequested:
    return ToolCallRequested(
        call_id=f"m:{number}",
        tool=tool,
        args_hash=args_hash,
        message_id="m",
        position=0,
        arguments=(),
    )


def run(number: int, *, output: Blocks = (), **call: Any) -> Sequence[KnownEvent]:
    """A call from its request to an outcome."""
    return (
        asked(number, **call),
        ToolExecutionStarted(call_id=f"m:{number}", operation_id="o", effect="READ_ONLY"),
        ToolExecutionCompleted(call_id=f"m:{number}", output=output),
    )


def failed(number: int, *, error: str = "no such file", **call: Any) -> list[KnownEvent]:
    """A call from its request to a failure."""
    request, started, _ = run(number, **call)
    failure = ToolExecutionFailed(
        call_id=f"m:{number}", layer="TOOL", error_type="OSError", blocks=said(error)
    )
    return [request, started, failure]


def turn(*groups: Iterable[KnownEvent]) -> Story:
    return h.in_turn().given(*(event for group in groups for event in group))


def test_the_third_request_of_a_call_with_the_same_outcome_is_a_loop() -> None:
    story = turn(*(run(number, output=said("a b c")) for number in range(3)))
    [loop] = loops_of(story)
    seqs = [one.seq for one in story.events if one.type == "ToolCallRequested"]
    assert (loop.kind, loop.count, loop.tool, loop.call_id) == (SAME_CALL, 3, "ls", "m:2")
    assert (loop.from_seq, loop.to_seq, loop.seqs) == (seqs[0], seqs[2], tuple(seqs))


def test_a_circle_is_said_once_however_long_it_goes_on() -> None:
    assert kinds_of(turn(*(run(number) for number in range(20)))) == [SAME_CALL]


def test_a_call_whose_outcome_changes_is_no_loop() -> None:
    """Tests are run again after each change: that is work."""
    changing = [run(number, output=said(f"{number} failed")) for number in range(9)]
    assert kinds_of(turn(*changing)) == []


def test_a_sealed_outcome_cannot_be_compared_and_is_no_loop() -> None:
    sealed = text_block("").model_copy(
        update={"body": Sealed(key_id="k", nonce=b"n", ciphertext=b"c")}
    )
    assert kinds_of(turn(*(run(number, output=(sealed,)) for number in range(6)))) == []


def test_calls_with_other_arguments_are_no_loop() -> None:
    others = [run(number, args_hash=f"h{number}") for number in range(9)]
    assert kinds_of(turn(*others)) == []


def test_what_a_person_says_begins_the_counts_anew() -> None:
    story = turn(run(0), run(1))
    story.when(h.user("u1"), by=PERSON)
    story.given(*run(2), *run(3))
    assert kinds_of(story) == []
    story.given(*run(4))
    assert kinds_of(story) == [SAME_CALL]


def test_a_call_that_comes_again_much_later_begins_anew() -> None:
    limits = LoopLimits(within_calls=3)
    between = [run(number, args_hash=f"h{number}") for number in range(1, 5)]
    story = turn(run(0), *between, run(5), run(6))
    assert loops_of(story, limits) == []


def test_the_same_failure_is_a_loop_whatever_is_tried() -> None:
    story = turn(*(failed(number, args_hash=f"h{number}") for number in range(3)))
    [loop] = loops_of(story)
    assert (loop.kind, loop.count, loop.tool) == (SAME_FAILURE, 3, "ls")


def test_a_call_that_fails_again_and_again_is_one_circle_not_two() -> None:
    assert kinds_of(turn(*(failed(number) for number in range(5)))) == [SAME_FAILURE]


def test_different_failures_are_no_loop_and_success_ends_one() -> None:
    different = [failed(number, error=f"{number}") for number in range(4)]
    assert kinds_of(turn(*different)) == []
    between = turn(failed(0), failed(1), run(2, args_hash="good"), failed(3), failed(4))
    assert kinds_of(between) == []


def test_a_model_that_fails_in_one_way_is_a_loop() -> None:
    story = h.in_turn()
    for number in range(3):
        name = f"model-{number}"
        story.given(
            ModelCallStarted(model_call_id=name, provider="p", model="m"),
            ModelCallFailed(model_call_id=name, error_type="overloaded"),
        )
    [loop] = loops_of(story)
    assert (loop.kind, loop.tool) == (SAME_FAILURE, None)


def stuck_or_not(outputs: Sequence[str]) -> Story:
    """A call with each of these outputs, and a compaction after each."""
    story = h.in_turn()
    for number, output in enumerate(outputs):
        story.given(*run(number, output=said(output), args_hash=f"h{len(outputs)}"))
        story.given(
            h.compaction_starts(story.seq, f"c{number}"),
            h.compaction(1, story.seq, compaction_id=f"c{number}"),
        )
    return story


def test_compactions_without_progress_are_a_loop_and_a_new_outcome_is_progress() -> None:
    assert NO_PROGRESS in kinds_of(stuck_or_not(["x"] * 4))
    assert kinds_of(stuck_or_not(["a", "b", "c", "d", "e", "f"])) == []


def permission(number: int) -> PermissionRequested:
    return PermissionRequested(
        request_id=f"r{number}", call_id=f"m:{number}", args_hash="same", display=()
    )


def denied(number: int, *, policy: str | None = None) -> Sequence[KnownEvent]:
    return (
        asked(number),
        permission(number),
        PermissionDenied(
            request_id=f"r{number}",
            call_id=f"m:{number}",
            decided_by="POLICY",
            policy=policy,
        ),
    )


def test_a_call_that_is_denied_and_asked_for_again_is_ping_pong() -> None:
    assert kinds_of(turn(denied(0), denied(1))) == []
    [loop] = loops_of(turn(denied(0), denied(1), denied(2), denied(3)))
    assert (loop.kind, loop.count, loop.call_id) == (PERMISSION_PING_PONG, 3, "m:2")


def test_an_interrupted_call_was_not_denied_and_a_grant_ends_the_ping_pong() -> None:
    interrupted = [denied(number, policy=INTERRUPT_POLICY) for number in range(2)]
    assert PERMISSION_PING_PONG not in kinds_of(turn(*interrupted, denied(2)))
    granted = (
        asked(2),
        permission(2),
        PermissionGranted(
            request_id="r2",
            call_id="m:2",
            grant_id="g",
            args_hash="same",
            decided_by="POLICY",
        ),
    )
    assert kinds_of(turn(denied(0), denied(1), granted, denied(3), denied(4))) == []


@pytest.mark.parametrize("secret", ["hunter2", "passw0rd"])
def test_a_fingerprint_shows_nothing_and_is_the_same_in_every_session(secret: str) -> None:
    first, second = (
        loops_of(turn(*(failed(number, error=secret) for number in range(3))))
        for _ in range(2)
    )
    assert first[0].fingerprint == second[0].fingerprint
    assert secret not in first[0].model_dump_json()


def test_what_is_kept_is_bounded_whatever_a_session_does() -> None:
    circles, state = Circles(), initial("session")
    story = h.in_turn()
    for number in range(400):
        story.given(*run(number, args_hash=f"h{number}", output=said(f"{number}")))
    for recorded in story.events:
        watch(circles, state, recorded, limits=LoopLimits(calls=1_000))
        fold_in(state, recorded)
    assert len(circles.calls) == RUNS_MAX
    assert len(circles.known) == KNOWN_MAX
    assert all(len(one.seqs) <= SEQS_MAX for one in circles.calls.values())
