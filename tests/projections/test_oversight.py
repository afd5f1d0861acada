"""Rules over events: what each says, once, under ids that follow from the events."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from foldline.projections.oversight import (
    FINDINGS_MAX,
    Finding,
    Policy,
    Rule,
    Seen,
    Watching,
    Wish,
    steering,
    stopping,
    violation,
)
from foldline.projections.oversight_rules import (
    Budget,
    ForbiddenTool,
    Limits,
    Loop,
    Reaction,
    RepeatedDenial,
)
from foldline.schemas.blocks import text_of
from foldline.schemas.events import (
    CancellationRequested,
    Cost,
    PolicyViolation,
    SteeringReceived,
    type_of,
)
from foldline.schemas.recorded import Recorded
from tests import happenings as h
from tests.story import Story


def found(story: Story, *rules: Policy) -> list[Finding]:
    """What rules say of a story, of which none fails."""
    watching, findings = watched(story, *rules)
    assert watching.failures == {}
    return findings


def watched(story: Story, *rules: Policy) -> tuple[Watching, list[Finding]]:
    watching = Watching(story.session_id, rules)
    findings = [f for recorded in story.events for f in watching.take(recorded)]
    return watching, findings


def wants(finding: Finding) -> list[str]:
    return [type_of(one.event) for one in finding.wanted]


def used(name: str, tokens: int, micros: int = 0) -> tuple[Wish, ...]:
    """A model call that used so much."""
    completed = h.model_completes(
        name,
        usage={"input_tokens": tokens, "output_tokens": 1},
        cost=Cost(amount_micros=micros, currency="USD") if micros else None,
    )
    return h.model_starts(name), completed  # type: ignore[return-value]


# --- budgets -------------------------------------------------------------------------


def test_a_budget_says_once_that_it_is_exceeded_and_by_which_event() -> None:
    story = h.in_turn().given(*used("m1", 60), *used("m2", 60), *used("m3", 60))
    (finding,) = found(story, Budget("spend", Limits(tokens=100)))
    assert finding.seq == story.events[-3].seq
    assert finding.said == "122 tokens used, of 100"
    assert finding.action == "NONE"
    (wanted,) = finding.wanted
    assert isinstance(wanted.event, PolicyViolation)
    about = wanted.event.rule, wanted.event.subject_seq, wanted.event.policy
    assert about == ("spend", finding.seq, "default")


def test_each_limit_of_a_budget_is_told_by_itself() -> None:
    limits = Limits(tokens=100, cost=0.5, model_calls=2)
    story = h.in_turn()
    story.given(*used("m1", 101, 600_000), *used("m2", 1), *used("m3", 1))
    first, second = found(story, Budget("spend", limits))
    assert first.said == "102 tokens used, of 100; 0.6 USD used, of 0.5"
    assert second.said == "3 model calls used, of 2"


def test_a_corrected_usage_and_a_repeated_end_count_once() -> None:
    story = h.in_turn().given(*used("m1", 60), h.usage_corrected("m1", input_tokens=80))
    story.given(h.usage_corrected("m1", input_tokens=90))
    assert not found(story, Budget("spend", Limits(tokens=100)))


def test_minutes_are_those_of_the_session_or_of_each_turn() -> None:
    story = h.in_turn()
    story.wait_ms(120_000)
    story.given(h.user(), h.turn_ends(), h.turn())
    story.wait_ms(120_000)
    story.given(h.user("u2"), h.user("u3"))
    session = found(story, Budget("slow", Limits(minutes=3)))
    turns = found(story, Budget("slow", Limits(turn_minutes=1.5)))
    assert [f.said for f in session] == ["4 minutes used, of 3"]
    assert [f.said for f in turns] == ["2 minutes of a turn used, of 1.5"] * 2


# --- tools, denials, loops -----------------------------------------------------------


@pytest.mark.parametrize(
    ("globs", "exceptions", "hits"),
    [
        (("deploy*",), (), 2),
        (("deploy*",), ("*_preview",), 1),
        (("prod/*",), (), 1),
        (("shell",), (), 0),
    ],
)
def test_a_forbidden_tool_is_found_by_name_or_namespace(
    globs: tuple[str, ...], exceptions: tuple[str, ...], hits: int
) -> None:
    story = h.in_turn().given(
        h.request("m:0", tool="deploy", namespace="prod"),
        h.request("m:1", tool="deploy_preview"),
        h.request("m:2", tool="read"),
    )
    assert len(found(story, ForbiddenTool("no", globs, exceptions))) == hits


def test_a_forbidden_call_is_asked_to_stop_by_its_id() -> None:
    story = h.in_turn().given(h.request("m:0", tool="deploy"))
    reaction = Reaction("CANCEL", "CALL", "CRITICAL", message="ask first")
    (finding,) = found(story, ForbiddenTool("no", ("deploy",), reaction=reaction))
    violated, stop = (one.event for one in finding.wanted)
    assert isinstance(violated, PolicyViolation)
    assert (violated.severity, violated.action, violated.call_id) == (
        "CRITICAL",
        "CANCEL",
        "m:0",
    )
    assert stop == CancellationRequested(target="CALL", target_id="m:0", reason="ask first")
    assert (finding.action, finding.target) == ("CANCEL", "CALL")


def denied_times(times: int) -> Story:
    """The same call asked for and denied so often."""
    story = h.in_turn()
    for number in range(times):
        call_id, request_id = f"m:{number}", f"r{number}"
        story.given(
            h.request(call_id, args_hash="same"),
            h.ask(request_id, call_id=call_id, args_hash="same"),
            h.deny(request_id, call_id=None),
        )
    return story


def test_the_third_denial_of_the_same_call_is_told_once() -> None:
    rule = RepeatedDenial("stubborn", reaction=Reaction("STEER"))
    assert not found(denied_times(2), rule)
    (finding,) = found(denied_times(5), rule)
    assert wants(finding) == ["PolicyViolation", "SteeringReceived"]
    assert (
        finding.said == "the same call of send_mail was denied 3 times since a person spoke"
    )


def test_what_a_person_says_begins_the_count_anew() -> None:
    story = denied_times(2).given(h.user())
    story.given(
        h.request("m:9", args_hash="same"),
        h.ask("r9", call_id="m:9", args_hash="same"),
        h.deny("r9"),
    )
    assert not found(story, RepeatedDenial("stubborn"))


def test_other_arguments_are_another_call_unless_any_counts() -> None:
    story = h.in_turn()
    for number in range(3):
        call_id, request_id = f"m:{number}", f"r{number}"
        about = {"call_id": call_id, "args_hash": call_id}
        story.given(h.request(call_id, args_hash=call_id), h.ask(request_id, **about))
        story.given(h.deny(request_id))
    assert not found(story, RepeatedDenial("stubborn"))
    assert len(found(story, RepeatedDenial("stubborn", any_call=True))) == 1


def test_a_loop_is_told_once_for_each_fingerprint_from_its_times_on() -> None:
    story = h.in_turn().given(
        h.looped(count=3),
        h.looped(count=4, tool="shell"),
        h.looped(count=5),
        h.looped(count=9, fingerprint="other", kind="SAME_FAILURE"),
    )
    assert len(found(story, Loop("loops"))) == 2
    assert len(found(story, Loop("loops", kinds=("SAME_FAIL*",)))) == 1
    (first, _) = found(story, Loop("loops", times=4))
    assert first.seq == story.events[-3].seq
    assert "SAME_CALL of shell, 4 times" in first.said


def test_a_loop_is_seen_without_a_detector_where_that_is_asked_for() -> None:
    """Calls of the same arguments, and denials of one that nobody reads about."""
    story = h.in_turn()
    for number in range(4):
        story.given(h.request(f"m:{number}", args_hash="same", tool="shell"))
    assert not found(story, Loop("loops"))
    (finding,) = found(story, Loop("loops", times=4, detect=True))
    assert finding.seq == story.seq
    assert "SAME_CALL of shell, 4 times" in finding.said
    (finding,) = found(denied_times(3), Loop("loops", kinds=("PERM*",), detect=True))
    assert "PERMISSION_PING_PONG of send_mail, 3 times" in finding.said


# --- the port ------------------------------------------------------------------------


def judge_messages(seen: Seen, recorded: Recorded) -> Sequence[Wish]:
    """A user's rule with a memory: every second message is one too many."""
    if recorded.type != "UserMessage":
        return ()
    seen.memory["messages"] = seen.memory.get("messages", 0) + 1
    if seen.memory["messages"] % 2:
        return ()
    return [violation("two at once"), steering("one at a time"), stopping("too much")]


def test_the_same_events_give_the_same_ids_whoever_asks() -> None:
    story = h.in_turn().given(h.user("a"), h.user("b"), h.user("c"), h.user("d"))
    once = found(story, Rule("mine", judge_messages))
    assert once == found(story, Rule("mine", judge_messages))
    ids = [one.event_id for finding in once for one in finding.wanted]
    assert len(set(ids)) == 6


def test_another_version_and_another_name_are_other_rules() -> None:
    story = h.in_turn().given(h.user("a"), h.user("b"))
    rules = (
        Rule("mine", judge_messages),
        Rule("mine", judge_messages, version=2),
        Rule("yours", judge_messages),
    )
    ids = {f.wanted[0].event_id for rule in rules for f in found(story, rule)}
    assert len(ids) == 3


def test_each_rule_has_a_memory_of_its_own() -> None:
    story = h.in_turn().given(h.user("a"), h.user("b"))
    both = found(story, Rule("mine", judge_messages), Rule("yours", judge_messages))
    assert [finding.rule for finding in both] == ["mine", "yours"]


def test_a_rule_is_not_asked_about_what_rules_wanted() -> None:
    """Else one that is set off by steering would never end."""

    def echo(_seen: Seen, recorded: Recorded) -> Sequence[Wish]:
        steered = isinstance(recorded.event, SteeringReceived)
        return [steering("heard")] if steered else ()

    story = h.in_turn().given(h.steer())
    rule = Rule("echo", echo)
    (finding,) = found(story, rule)
    story.when(finding.wanted[0].event, event_id=finding.wanted[0].event_id)
    story.given(h.violated())
    assert found(story, rule) == [finding]


def test_a_rule_that_has_said_enough_is_not_heard_any_more() -> None:
    story = h.in_turn()
    for number in range(FINDINGS_MAX + 5):
        story.given(h.user(f"u{number}"))
    rule = Rule("all", lambda _seen, _recorded: [violation("again")])
    assert len(found(story, rule)) == FINDINGS_MAX


def test_a_rule_that_fails_says_where_and_the_others_go_on() -> None:
    def broken(_seen: Seen, recorded: Recorded) -> Sequence[Wish]:
        raise KeyError(recorded.type)

    story = h.in_turn().given(h.user("a"))
    watching, heard = watched(story, Rule("bad", broken), Rule("mine", judge_messages))
    assert list(watching.failures) == [0]
    error = watching.failures[0]
    assert str(error).startswith("rule 'bad' failed at seq 1 of session: KeyError")
    assert heard == found(story, Rule("mine", judge_messages))


def test_a_rule_that_wants_without_end_or_exits_takes_nothing_with_it() -> None:
    def endless(_seen: Seen, _recorded: Recorded) -> Iterator[Wish]:
        while True:
            yield violation("again")

    def leaves(_seen: Seen, _recorded: Recorded) -> Sequence[Wish]:
        raise SystemExit(0)

    story = h.in_turn().given(h.user("a"))
    without_end = Rule("endless", endless)  # type: ignore[arg-type]
    rules = Rule("leaves", leaves), Rule("mine", judge_messages)
    watching, heard = watched(story, without_end, *rules)
    assert "wants more than" in str(watching.failures[0])
    assert "SystemExit" in str(watching.failures[1])
    assert heard == found(story, Rule("mine", judge_messages))


def test_a_rule_may_want_nothing_that_is_not_said_from_outside() -> None:
    def owner(_seen: Seen, _recorded: Recorded) -> Sequence[Wish]:
        return [h.turn_ends()]  # type: ignore[list-item]

    watching, heard = watched(h.session(), Rule("bad", owner))
    assert heard == []
    assert "may not want TurnEnded" in str(watching.failures[0])


def test_taking_events_in_parts_gives_what_taking_them_at_once_gives() -> None:
    story = denied_times(4).given(*used("m1", 500))
    rules = (RepeatedDenial("stubborn"), Budget("spend", Limits(tokens=100)))
    whole = found(story, *rules)
    for cut in range(len(story.events)):
        watching = Watching(story.session_id, rules)
        parts = (story.events[:cut], story.events[cut:])
        taken = [f for part in parts for r in part for f in watching.take(r)]
        assert taken == whole
    assert all(one.seq < other.seq for one, other in pairwise(whole))


def test_what_a_violation_says_is_content_and_the_rest_is_structure() -> None:
    story = h.in_turn().given(h.user("a"), h.user("b"))
    (finding,) = found(story, Rule("mine", judge_messages))
    violated = finding.wanted[0].event
    assert isinstance(violated, PolicyViolation)
    assert text_of(violated.blocks) == "two at once"
