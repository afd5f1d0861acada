"""What a rule would have done, at which seq, and what came after it."""

from collections.abc import Sequence

import pytest

from foldline.projections.backtest import SEQS_SHOWN, Backtest, Hit, try_rule
from foldline.projections.oversight import Action, Policy
from foldline.projections.oversight_rules import (
    Budget,
    ForbiddenTool,
    Limits,
    Reaction,
)
from foldline.schemas.choices import CancelTarget
from foldline.schemas.events import Cost, KnownEvent
from tests import happenings as h
from tests.story import Story


def step(number: int, tokens: int = 100) -> Sequence[KnownEvent]:
    """A model call and a call of a tool."""
    name = f"m{number}"
    usage = {"input_tokens": tokens, "output_tokens": 10}
    cost = Cost(amount_micros=1_000, currency="USD")
    return (
        h.model_starts(name),
        h.model_completes(name, usage=usage, cost=cost),
        h.request(f"{name}:0", tool="deploy" if number == 2 else "read"),
    )


def two_turns() -> Story:
    """Two turns of three steps; the first has a call of `deploy`."""
    story = h.in_turn().given(
        *step(1), *step(2), *step(3), h.turn_ends("ABORTED"), h.turn()
    )
    return story.given(*step(4), *step(5), *step(6), h.turn_ends("ABORTED"))


def hit(story: Story, rule: Policy, *, since_us: int = 0) -> Hit:
    tried = try_rule(story.session_id, story.events, rule, since_us=since_us)
    assert tried.hit is not None
    return tried.hit


def forbidding(action: Action, target: CancelTarget = "SESSION") -> ForbiddenTool:
    return ForbiddenTool("no-deploy", ("deploy",), reaction=Reaction(action, target))


def test_it_says_at_which_event_and_what_was_spent_after_it() -> None:
    story = two_turns()
    found = hit(story, forbidding("CANCEL"))
    assert story.events[found.first.seq - 1].type == "ToolCallRequested"
    assert found.first.said == "tool deploy is forbidden"
    rest = found.rest
    assert (rest.model_calls, rest.tool_calls, rest.turns) == (4, 4, 1)
    assert (rest.tokens, rest.costs) == (440, {"USD": 4_000})
    assert rest.events == len(story.events) - found.first.seq
    assert found.next_types[0] == "ModelCallStarted"


def test_what_the_session_spent_before_and_after_is_all_of_it() -> None:
    found = hit(two_turns(), forbidding("CANCEL"))
    before = found.whole.since(found.rest)
    assert (before.model_calls, found.whole.model_calls) == (2, 6)


@pytest.mark.parametrize(
    ("action", "target", "spared"),
    [
        ("CANCEL", "SESSION", 4),
        ("CANCEL", "TURN", 1),
        ("STEER", "SESSION", 0),
        ("NONE", "SESSION", 0),
    ],
)
def test_a_stop_spares_what_it_would_have_stopped(
    action: Action, target: CancelTarget, spared: int
) -> None:
    assert hit(two_turns(), forbidding(action, target)).spared.model_calls == spared


def test_a_rule_that_says_nothing_still_counts_what_was_spent() -> None:
    story = two_turns()
    tried = try_rule(story.session_id, story.events, Budget("b", Limits(tokens=10_000)))
    assert tried.hit is None
    assert tried.whole.tokens == 660


def test_what_was_before_since_is_left_out_but_counts_for_the_rule() -> None:
    story = two_turns()
    budget = Budget("b", Limits(tool_calls=5))
    at_us = story.events[-2].envelope.recorded_at
    assert hit(story, budget, since_us=at_us).first.at_us == at_us
    assert try_rule("s", story.events, forbidding("CANCEL"), since_us=at_us).hit is None


def test_every_finding_is_counted_and_the_first_seqs_are_told() -> None:
    story = h.in_turn()
    for number in range(SEQS_SHOWN + 3):
        story.given(h.request(f"m:{number}", tool="deploy"))
    found = hit(story, forbidding("NONE"))
    assert (found.findings, len(found.seqs)) == (SEQS_SHOWN + 3, SEQS_SHOWN)


def test_many_sessions_are_added_up() -> None:
    whole = Backtest()
    for story in (two_turns(), two_turns(), h.in_turn()):
        whole.count(try_rule(story.session_id, story.events, forbidding("CANCEL")))
    assert (whole.sessions, whole.hit, whole.findings) == (3, 2, 2)
    assert (whole.spent.model_calls, whole.rest.model_calls) == (12, 8)
    assert whole.spared.costs == {"USD": 8_000}
