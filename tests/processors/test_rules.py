"""Every rule of an owned session, each broken at least once."""

from collections.abc import Callable
from typing import Any

import pytest

from foldline.processors.listing import LIMITS
from foldline.processors.rules import CHECKS_OF, LISTED, RULES, full_list
from foldline.schemas.events import (
    EVENT_TYPES,
    AssistantMessage,
    KnownEvent,
    SessionCompleted,
    SessionResumed,
    SessionSuspended,
    UnknownEvent,
)
from foldline.schemas.verdicts import ACCEPTED, DUPLICATE, ILLEGAL, LIMIT, Verdict
from tests import happenings as h
from tests.samples import SAMPLES
from tests.story import PERSON, Story, Writer, altered

Example = Callable[[], Verdict]
EXAMPLES: dict[str, list[Example]] = {}


def breaks(rule: str) -> Callable[[Example], Example]:
    """Say that an example breaks a rule."""

    def register(example: Example) -> Example:
        EXAMPLES.setdefault(rule, []).append(example)
        return example

    return register


def of_rule(rule: str, *examples: Example) -> None:
    """Say that these, too, break a rule."""
    EXAMPLES.setdefault(rule, []).extend(examples)


def reader() -> Story:
    """A call that may be repeated safely, executing; its effect begins within 5 s."""
    return h.running(effect="READ_ONLY", start_by_ms=5_000)


def taken_over(story: Story) -> Story:
    """Another owner has taken the session over."""
    assert story.take("next", SessionResumed(reason="crash")).kind == ACCEPTED
    return story


@breaks("redelivered")
def a_provider_sends_an_open_call_again() -> Verdict:
    story = h.with_call(provider_call_id="toolu_1", args_hash="x")
    verdict = story.when(h.request("m:1", provider_call_id="toolu_1", args_hash="x"))
    assert verdict.related == h.CALL
    return verdict


@breaks("start_by_not_passed")
def the_next_owner_repeats_before_the_effect_can_no_longer_begin() -> Verdict:
    story = taken_over(reader())
    verdict = story.when(h.start(attempt=2, effect="READ_ONLY"))
    story.wait_ms(5_000)
    assert story.when(h.start(attempt=2, effect="READ_ONLY")).kind == ACCEPTED
    return verdict


@breaks("start_by_not_passed")
def unknown_is_said_before_the_effect_can_no_longer_begin() -> Verdict:
    return reader().given(h.unknown()).when(h.start(attempt=2, effect="READ_ONLY"))


@breaks("start_by_not_passed")
def the_next_owner_says_timed_out_and_repeats_at_once() -> Verdict:
    story = taken_over(reader()).given(h.timed_out())
    return story.when(h.start(attempt=2, effect="READ_ONLY"))


@breaks("start_by_not_passed")
def somebody_resolves_not_executed_while_it_may_still_begin() -> Verdict:
    return h.running(start_by_ms=5_000).when(h.resolved("NOT_EXECUTED"))


@breaks("start_by_not_passed")
def the_next_owner_says_that_nothing_happened_while_it_may_still_begin() -> Verdict:
    story = taken_over(h.running(start_by_ms=5_000))
    return story.when(h.failed(executed="NO"))


@breaks("unsafe_retry")
def an_effect_that_was_had_late_is_repeated() -> Verdict:
    story = h.running().given(h.resolved("NOT_EXECUTED"), h.start(attempt=2))
    story.given(h.done(attempt=1), h.failed(attempt=2, executed="NO"))
    return story.when(h.start(attempt=3))


@breaks("call_running")
def a_call_in_the_background_is_started_again() -> Verdict:
    story = h.running(effect="READ_ONLY").given(h.backgrounded())
    return story.when(h.start(attempt=2, effect="READ_ONLY"))


@breaks("compaction_stale")
def a_compaction_was_planned_before_another() -> Verdict:
    story = h.in_turn().given(h.user(), h.user(), h.compaction(2, 3))
    return story.when(h.compaction(2, 3))


@breaks("compaction_stale")
def a_compaction_was_planned_before_a_new_epoch() -> Verdict:
    return taken_over(h.in_turn()).when(h.compaction(1, 2))


@breaks("compaction_stale")
def a_compaction_was_planned_before_the_first_claim() -> Verdict:
    story = Story(owner=Writer("creator", 0)).given(h.created(), h.user())
    assert story.take("first", SessionResumed(reason="start")).kind == ACCEPTED
    return story.given(h.turn()).when(h.compaction(1, 2))


@breaks("grant_exists")
def a_grant_has_the_id_of_one_in_force() -> Verdict:
    story = h.waiting().given(
        h.grant(scope="SESSION"), h.request("m:1"), h.ask("r2", "m:1")
    )
    return story.when(h.grant("r2", "m:1", scope="TURN"))


@breaks("grant_exists")
def a_grant_has_no_id() -> Verdict:
    return h.waiting().when(h.grant(grant_id=""))


@breaks("no_such_grant")
def an_earlier_grant_was_for_another_tool() -> Verdict:
    story = h.waiting().given(h.grant(scope="SESSION"), h.request("m:1", tool="rm"))
    return story.when(h.grant(None, "m:1", decided_by="EARLIER_GRANT"))


@breaks("no_such_grant")
def an_earlier_grant_was_for_a_tool_of_another_namespace() -> Verdict:
    story = h.waiting().given(h.grant(scope="SESSION"), h.request("m:1", namespace="mcp"))
    return story.when(h.grant(None, "m:1", decided_by="EARLIER_GRANT"))


@breaks("no_such_grant")
def an_earlier_grant_was_for_its_turn_only() -> Verdict:
    story = h.waiting().given(
        h.grant(scope="TURN"), h.turn_ends("ABORTED"), h.turn(), h.request("m:1")
    )
    return story.when(h.grant(None, "m:1", decided_by="EARLIER_GRANT"))


@breaks("request_expired")
def a_person_answers_after_the_request_expired_by_log_time() -> Verdict:
    story = h.waiting(expires_ms=1_000)
    story.wait_ms(1_001)
    return story.when(h.grant())


@breaks("request_expired")
def a_person_answers_a_question_too_late() -> Verdict:
    story = h.in_turn().given(h.question(expires_ms=1_000))
    story.wait_ms(1_001)
    return story.when(h.answer())


@breaks("requires")
def what_an_append_requires_was_refused() -> Verdict:
    return h.session().when(h.user(), requires=("0" * 8 + "-0000" * 3 + "-" + "0" * 12,))


@breaks("open_work")
def a_turn_is_done_while_one_of_three_calls_has_no_outcome() -> Verdict:
    story = h.in_turn().given(*(h.request(c) for c in "abc"))
    story.given(*(h.start(c) for c in "abc"), h.done("b"), h.done("a"))
    return story.when(h.turn_ends())


@breaks("open_work")
def a_session_is_completed_while_an_earlier_turn_left_a_call_running() -> Verdict:
    story = h.running().given(h.turn_ends("ABORTED"))
    return story.when(SessionCompleted())


@breaks("fork_point")
def a_fork_without_a_hash() -> Verdict:
    return Story().when(h.created(relation="FORK", parent_session_id="p", fork_seq=5))


def fork(**fields: Any) -> Verdict:
    """A fork that is wrong in one way."""
    given: dict[str, Any] = {
        "relation": "FORK",
        "parent_session_id": "p",
        "fork_seq": 5,
    }
    return Story().when(h.created(**(given | fields)), prev_hash=b"p" * 32)


of_rule(
    "fork_point",
    lambda: fork(fork_seq=None),
    lambda: fork(fork_seq=0),
    lambda: fork(fork_seq=-1),
    lambda: fork(fork_seq=2**32),
    lambda: fork(fork_seq=2**62),
    lambda: fork(fork_seq=2**32, mode="MIRRORED"),
    lambda: fork(relation="ROOT"),
    lambda: fork(parent_session_id=None),
    lambda: fork(mode="MIRRORED", fork_seq=-1),
)
of_rule("mode", lambda: Story().when(h.created(mode="SHARED")))
of_rule(
    "known_seq",
    lambda: h.session().when(h.user(), known_seq=2),
    lambda: Story().when(h.created(), known_seq=1),
    lambda: Story().given(h.created(mode="MIRRORED")).when(h.user(), known_seq=9),
)
of_rule(
    "claim_without_expected_seq",
    lambda: h.session().when(SessionResumed(reason="r"), by=Writer("next", 2)),
)
of_rule("status", lambda: h.in_turn().when(h.turn()))
of_rule(
    "turn_id",
    lambda: h.session().when(h.turn(), turn_id=""),
    lambda: h.in_turn().when(h.turn_ends(), turn_id="another"),
    lambda: h.in_turn().when(h.request(), turn_id="another"),
    lambda: h.in_turn().when(
        AssistantMessage(message_id="m", blocks=()), turn_id="another"
    ),
)
of_rule(
    "outcome",
    lambda: h.in_turn().when(h.turn_ends("TIRED")),
    lambda: h.running().when(h.resolved("PERHAPS")),
    lambda: h.running().when(h.failed(executed="PERHAPS")),
    lambda: h.running().given(h.backgrounded()).when(h.background_ends("h", "?")),
    lambda: h.waiting().when(h.grant(decided_by="COIN")),
)
of_rule(
    "call_exists",
    lambda: h.with_call().when(h.request()),
    lambda: h.running().given(h.done()).when(h.request()),
)
of_rule(
    "no_request",
    lambda: h.in_turn().when(h.start()),
    lambda: h.in_turn().when(h.done()),
    lambda: h.in_turn().when(h.backgrounded()),
    lambda: h.in_turn().when(h.validated(valid=True)),
    lambda: h.in_turn().when(h.unknown()),
    lambda: h.in_turn().when(h.resolved()),
    lambda: h.in_turn().when(h.question(call_id="c9")),
    lambda: h.in_turn().when(h.ask()),
    lambda: h.in_turn().when(h.grant(None, decided_by="POLICY")),
)
of_rule(
    "call_waiting",
    lambda: h.waiting().when(h.start()),
    lambda: h.waiting().when(h.ask("another")),
)
of_rule(
    "call_denied",
    lambda: h.waiting().given(h.deny()).when(h.start()),
    lambda: h.waiting().given(h.deny(may_request_again=True)).when(h.start()),
)
of_rule("call_expired", lambda: h.waiting().given(h.expired()).when(h.start()))
of_rule(
    "call_begun",
    lambda: h.running().when(h.validated(valid=False)),
    lambda: h.running().when(h.ask()),
    lambda: h.running().when(h.grant(None, decided_by="POLICY")),
    lambda: h.running().when(h.deny(None, call_id=h.CALL, decided_by="POLICY")),
)
of_rule(
    "attempt",
    lambda: h.with_call().when(h.start(attempt=0)),
    lambda: h.with_call().when(h.start(attempt=2)),
    lambda: h.with_call().when(h.start(attempt=-1)),
    lambda: h.running().when(h.start(attempt=1)),
    lambda: h.running().when(h.start(attempt=3)),
)
of_rule(
    "unsafe_retry",
    lambda: h.running().when(h.start(attempt=2)),
    lambda: h.running().given(h.unknown()).when(h.start(attempt=2)),
    lambda: h.running().given(h.timed_out()).when(h.start(attempt=2)),
    lambda: h.running().given(h.timed_out(confirmed=True)).when(h.start(attempt=2)),
    lambda: h.running().given(h.failed()).when(h.start(attempt=2)),
    lambda: (
        h.running(effect="RECONCILABLE")
        .given(h.unknown())
        .when(h.start(attempt=2, effect="RECONCILABLE"))
    ),
)
of_rule(
    "operation_id",
    lambda: h.running(effect="READ_ONLY").when(
        h.start(attempt=2, effect="READ_ONLY", operation_id="another")
    ),
)
of_rule(
    "effect",
    lambda: h.with_call().when(h.start(effect="HARMLESS")),
    lambda: h.running().given(h.failed()).when(h.start(attempt=2, effect="READ_ONLY")),
)
of_rule(
    "not_started",
    lambda: h.with_call().when(h.done()),
    lambda: h.running().when(h.done(attempt=2)),
    lambda: h.running().when(h.done(attempt=0)),
    lambda: h.running().when(h.done(attempt=-1)),
    lambda: h.running().when(h.done(attempt=2**62)),
)
of_rule(
    "already_ended",
    lambda: h.running().given(h.done()).when(h.done()),
    lambda: h.running().given(h.failed()).when(h.done()),
    lambda: h.running().given(h.cancelled()).when(h.timed_out()),
    lambda: h.running().given(h.done()).when(h.start(attempt=2)),
    lambda: h.running().given(h.done()).when(h.unknown()),
    lambda: h.running().given(h.done()).when(h.resolved()),
    lambda: h.running().given(h.done()).when(h.backgrounded()),
    lambda: h.with_call().given(h.validated(valid=False)).when(h.start()),
)
of_rule(
    "not_unknown",
    lambda: h.with_call().when(h.unknown()),
    lambda: h.with_call().when(h.resolved()),
    lambda: h.running().when(h.unknown(attempt=2)),
    lambda: h.running().when(h.resolved(attempt=2)),
    lambda: h.running().given(h.unknown()).when(h.unknown()),
)
of_rule("unknown_handle", lambda: h.running().when(h.background_ends()))
of_rule(
    "handle_exists",
    lambda: (
        h.running()
        .given(h.backgrounded(), h.request("m:1"), h.start("m:1"))
        .when(h.backgrounded("h", "m:1"))
    ),
)
of_rule(
    "request_exists",
    lambda: h.waiting().given(h.request("m:1")).when(h.ask("r", "m:1")),
    lambda: h.in_turn().given(h.question()).when(h.question()),
)
of_rule("request_kind", lambda: h.with_call().when(h.ask(kind="INPUT")))
of_rule(
    "no_pending_request",
    lambda: h.with_call().when(h.grant()),
    lambda: h.with_call().when(h.grant(None)),
    lambda: h.with_call().when(h.deny()),
    lambda: h.waiting().given(h.request("m:1")).when(h.grant("r", "m:1")),
    lambda: h.in_turn().when(h.expired()),
    lambda: h.in_turn().when(h.answer()),
    lambda: h.waiting().when(h.answer("r")),
    lambda: h.in_turn().given(h.question()).when(h.grant("q", None)),
    lambda: h.waiting().given(h.turn_ends("ABORTED"), h.turn()).when(h.grant()),
)
of_rule(
    "args_hash",
    lambda: h.with_call().when(h.ask(args_hash="another")),
    lambda: h.waiting().when(h.grant(args_hash="another")),
    lambda: h.waiting().when(h.grant(args_hash=None)),
    lambda: h.with_call().when(h.grant(None, decided_by="POLICY", args_hash="x")),
    lambda: (
        h.in_turn()
        .given(h.ask("r", None, args_hash="plan"))
        .when(h.grant("r", None, args_hash="another"))
    ),
)
of_rule(
    "not_a_person",
    lambda: h.waiting().when(h.grant(), by=Writer("agent", 0, "AGENT")),
    lambda: h.waiting().when(h.deny(), by=Writer("owner", 1, "HARNESS")),
)
of_rule("scope", lambda: h.waiting().when(h.grant(scope="WORLD")))
of_rule(
    "model_call_exists",
    lambda: h.in_turn().given(h.model_starts()).when(h.model_starts()),
    lambda: h.in_turn().given(h.model_starts(), h.model_completes()).when(h.model_starts()),
)
of_rule(
    "model_call_not_open",
    lambda: h.in_turn().when(h.model_completes()),
    lambda: h.in_turn().given(h.model_starts(), h.model_fails()).when(h.model_fails()),
    lambda: h.in_turn().when(h.model_is_cancelled()),
)
of_rule("usage_unknown", lambda: h.in_turn().when(h.usage_corrected()))
of_rule(
    "no_such_steering",
    lambda: h.session().when(h.steering_applied("nothing")),
    lambda: h.session().when(h.steering_expired("nothing")),
)
of_rule("steering_mode", lambda: h.session().when(h.steer("SOFTLY")))
of_rule("no_such_constraint", lambda: h.session().when(h.constraint_lifted()))
of_rule("compaction_beyond_base", lambda: h.in_turn().when(h.compaction(2, 1)))
of_rule(
    "compaction_stale",
    lambda: h.in_turn().given(h.user(), h.rewind(2), h.user()).when(h.compaction(1, 3)),
    lambda: h.in_turn().given(h.rewind(1)).when(h.compaction_starts(2)),
)
of_rule(
    "compaction_open",
    lambda: h.in_turn().given(h.compaction_starts(2)).when(h.compaction_starts(2, "d")),
    lambda: (
        h.in_turn()
        .given(h.compaction_starts(2))
        .when(h.compaction(1, 2, compaction_id="d"))
    ),
)
of_rule(
    "no_such_compaction",
    lambda: h.in_turn().when(h.compaction_fails()),
    lambda: h.in_turn().given(h.compaction_starts(2)).when(h.compaction_fails("d")),
)
of_rule(
    "range",
    lambda: h.in_turn().when(h.compaction(1, 2, from_seq=2)),
    lambda: h.in_turn().when(h.compaction(1, 2, from_seq=0)),
    lambda: h.in_turn().when(h.compaction(1, 3)),
    lambda: h.in_turn().when(h.compaction_starts(0)),
    lambda: h.in_turn().when(h.summary(1, 3)),
    lambda: h.in_turn().when(h.summary(2, 1)),
    lambda: h.in_turn().when(h.rewind(3)),
    lambda: h.in_turn().when(h.rewind(-1)),
)
of_rule("checkpoint_seq", lambda: h.in_turn().when(h.checkpoint(1)))
of_rule("subagent_exists", lambda: h.session().given(h.child()).when(h.child()))
of_rule("no_such_subagent", lambda: h.session().when(h.child_ends()))
of_rule("not_its_agent", lambda: h.session().when(h.handed_off(from_agent="other")))


@breaks("unknown_type")
def a_writer_decides_by_an_event_that_this_log_does_not_know() -> Verdict:
    story = h.session()
    draft = story.appends[-1]._replace(
        envelope=story.appends[-1].envelope.model_copy(
            update={"event_id": story.fresh_id()}
        ),
        event=UnknownEvent("MoonPhaseChanged", {}),
        known_seq=1,
    )
    return story.send(draft)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_refuses_each_append_that_breaks_it(rule: str) -> None:
    """A rule without an example is a rule that nobody has seen at work."""
    examples = EXAMPLES.get(rule, [])
    assert examples, f"no example breaks {rule}"
    for number, example in enumerate(examples):
        verdict = example()
        assert (verdict.kind, verdict.rule) == (ILLEGAL, rule), (number, verdict)
        assert verdict.detail == RULES[rule]


def test_every_example_is_about_a_rule_that_exists() -> None:
    """A rule that was renamed leaves no example behind."""
    assert EXAMPLES.keys() <= RULES.keys()


def with_running(story: Story, ids: list[str]) -> Story:
    """Calls that execute."""
    for call_id in ids:
        story.given(h.request(call_id), h.start(call_id))
    return story


def with_grants(story: Story, ids: list[str]) -> Story:
    """All of the calls wait for permission."""
    for call_id in ids[:-1]:
        story.given(
            h.request(call_id),
            h.ask(call_id, call_id),
            h.grant(call_id, call_id, scope="SESSION", grant_id=call_id),
            h.start(call_id),
            h.done(call_id),
        )
    return story.given(h.request(ids[-1]), h.ask(ids[-1], ids[-1]))


def with_attempts(story: Story, ids: list[str]) -> Story:
    """As many attempts as there may be, but one."""
    story.given(h.request())
    for attempt in range(1, len(ids) - 1):
        failed = h.failed(attempt=attempt, executed="NO")
        story.given(h.start(attempt=attempt), failed)
    last = h.start(attempt=len(ids) - 1)
    return story.given(last, h.failed(attempt=last.attempt, executed="NO"))


FILLERS: dict[str, Callable[[str], KnownEvent]] = {
    "open_calls": h.request,
    "steering": lambda _: h.steer(),
    "requests": h.question,
    "handles": lambda i: h.backgrounded(i, i),
    "model_calls": h.model_starts,
    "constraints": h.constraint,
    "instructions": h.instructions,
    "harness_state": h.harness_state,
    "subagents": h.child,
    "retries": h.retry,
}


def fill(limit: str) -> tuple[Story, Verdict]:
    """A session whose list is full, and the answer to one more."""
    ids = [str(number) for number in range(LIMITS[limit] + 1)]
    story = h.in_turn()
    if limit == "attempts":
        return story, with_attempts(story, ids).when(h.start(attempt=len(ids)))
    if limit == "grants":
        more = h.grant(ids[-1], ids[-1], scope="TURN", grant_id=ids[-1])
        return story, with_grants(story, ids).when(more)
    if limit == "handles":
        with_running(story, ids)
    events = [FILLERS[limit](i) for i in ids]
    return story, story.given(*events[:-1]).when(events[-1])


@pytest.mark.parametrize("limit", LIMITS)
def test_a_full_list_answers_limit_and_a_resend_is_still_a_duplicate(
    limit: str,
) -> None:
    """The limit is looked at only after the resends."""
    story, verdict = fill(limit)
    assert (verdict.kind, verdict.rule) == (LIMIT, limit)
    assert not story.state.dropped
    assert story.send(story.appends[-2]).kind == DUPLICATE


@pytest.mark.parametrize(
    ("limit", "again"),
    [
        ("constraints", h.constraint("0")),
        ("instructions", h.instructions("0")),
        ("harness_state", h.harness_state("0")),
        ("retries", h.retry("0")),
    ],
)
def test_what_is_listed_already_may_be_set_again_when_the_list_is_full(
    limit: str, again: KnownEvent
) -> None:
    """Replacing makes no list longer."""
    story, _ = fill(limit)
    assert story.when(again).kind == ACCEPTED


def test_steering_alone_does_not_make_a_compaction_stale() -> None:
    """What a person says meanwhile stays behind the compacted range."""
    story = h.in_turn().given(h.compaction_starts(2), h.steer(), h.user())
    assert story.when(h.compaction(2, 2)).kind == ACCEPTED


def test_a_turn_is_done_although_a_call_timed_out_or_went_to_the_background() -> None:
    """They stay open over turns; the model was told."""
    story = h.in_turn()
    for call_id in ("a", "b", "c", "d"):
        story.given(h.request(call_id), h.start(call_id))
    story.given(
        h.timed_out("a"),
        h.backgrounded("h", "b"),
        h.unknown("c"),
        h.cancelled("d", confirmed=False),
        h.turn_ends(),
        SessionSuspended(reason="overnight"),
    )
    assert set(story.state.calls) == {"a", "b", "c", "d"}


def test_a_turn_is_done_whatever_an_earlier_turn_left_running() -> None:
    """Only calls of the open turn hold its end up."""
    story = h.running().given(h.turn_ends("ABORTED"), h.turn(), h.turn_ends())
    assert story.state.status == "IDLE"
    assert story.when(h.done()).kind == ACCEPTED


def test_the_owner_who_saw_it_time_out_may_repeat_at_once() -> None:
    """start_by protects against effects that the next writer cannot see."""
    story = reader().given(h.timed_out())
    assert story.when(h.start(attempt=2, effect="READ_ONLY")).kind == ACCEPTED


def test_a_second_permission_may_be_asked_for_after_the_first_grant() -> None:
    """A call runs after the last grant that it needs."""
    story = h.waiting().given(h.grant(), h.ask("r2"))
    assert story.when(h.start()).rule == "call_waiting"
    story.given(h.grant("r2"), h.start())
    assert PERSON.epoch == 0


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_a_check_says_nothing_of_a_type_that_the_table_does_not_send_it(name: str) -> None:
    """A new pattern in a check is asked only once the table has its type."""
    append = altered(h.running())._replace(event=SAMPLES[name])
    asked = CHECKS_OF.get(EVENT_TYPES[name], ())
    others = {check for checks in CHECKS_OF.values() for check in checks}
    state = h.running().state
    assert {check(state, append, 0) for check in others.difference(asked)} <= {""}


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_only_a_type_that_is_said_to_make_a_list_longer_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing may be listed, what is not said to be listed is taken."""
    for limit in LIMITS:
        monkeypatch.setitem(LIMITS, limit, 0)
    refused = full_list(h.session().state, SAMPLES[name])
    assert refused is None or EVENT_TYPES[name] in LISTED
