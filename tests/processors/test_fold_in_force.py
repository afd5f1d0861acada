"""What is in force, what is counted, what is listed: and that a state stays small."""

import pytest

from foldline.processors.fold import initial, replay
from foldline.processors.kept import MAX_KEPT_CHARS, short
from foldline.schemas.events import (
    ConfigChanged,
    ContextCleared,
    Inherited,
    Label,
    LabelsSet,
    SessionSuspended,
    ToolsDeclared,
)
from foldline.schemas.snapshots import decode_snapshot, encode_snapshot
from foldline.schemas.state import FINISHED_KEPT, WINDOW
from foldline.schemas.verdicts import ACCEPTED
from tests import happenings as h
from tests.story import Story

TYPICAL_STATE_MAX_BYTES = 16_384
"""What a state of a session takes, whatever its length, with nothing much open."""


def test_the_newest_of_each_kind_is_in_force_by_reference() -> None:
    """The state says which event holds it, not what it says."""
    story = h.session().given(h.goal(), h.plan(), h.budget(), h.goal())
    story.given(ToolsDeclared(tools=()), ConfigChanged(model="x"))
    story.given(LabelsSet(labels=(Label(key="a", value="b"),)))
    story.given(h.instructions("system"), h.instructions("developer"))
    state = story.state
    newest = {e.type: e for e in story.events}
    for ref, name in (
        (state.goal, "GoalSet"),
        (state.plan, "PlanUpdated"),
        (state.budget, "BudgetSet"),
        (state.tools, "ToolsDeclared"),
        (state.config, "ConfigChanged"),
        (state.labels, "LabelsSet"),
    ):
        assert ref is not None
        assert (ref.event_id, ref.seq) == (
            newest[name].envelope.event_id,
            newest[name].seq,
        )
    assert set(state.instructions) == {"system", "developer"}


def test_the_labels_of_the_creation_are_in_force_until_others_are_set() -> None:
    """They are the whole set."""
    story = h.session(labels=(Label(key="a", value="b"),))
    assert story.state.labels is not None
    assert story.state.labels.seq == 1
    assert h.session().state.labels is None


def test_constraints_and_harness_state_are_listed_until_lifted_or_removed() -> None:
    """By id, and by namespace and key."""
    story = h.session().given(h.constraint("a"), h.constraint("b"))
    story.given(h.constraint_lifted("a"), h.harness_state("x"), h.harness_state("y"))
    story.given(h.harness_state("x", removed=True))
    assert set(story.state.constraints) == {"b"}
    assert set(story.state.harness_state) == {"n/y"}


def test_no_two_pairs_of_namespace_and_key_are_one() -> None:
    """Whatever characters they hold."""
    story = h.session().given(
        h.harness_state("b/c", state_namespace="a"),
        h.harness_state("c", state_namespace="a/b"),
        h.harness_state("c", state_namespace="a~1b"),
    )
    assert len(story.state.harness_state) == 3


def test_a_fork_goes_on_with_what_its_creation_says_it_inherits() -> None:
    """No grants, no open work; what means nothing here is counted."""
    fork = h.created(
        relation="FORK",
        parent_session_id="p",
        fork_seq=9,
        inherits=(
            "goal",
            "plan",
            "budget",
            "tools",
            "instructions:system",
            "constraint:k",
            "moon",
        ),
        inherited=Inherited(),
    )
    story = Story()
    assert story.when(fork, prev_hash=b"p" * 32).kind == ACCEPTED
    state = story.state
    for ref in (state.goal, state.plan, state.budget, state.tools):
        assert ref is not None
        assert ref.seq == 10
    assert set(state.instructions) == {"system"}
    assert set(state.constraints) == {"k"}
    assert state.dropped == {"inherits": 1}
    story.given(h.constraint_lifted("k"))


def test_steering_is_pending_until_applied_or_expired() -> None:
    """And the latest stays known."""
    story = h.session().given(h.steer(), h.steer("NEXT_TURN"))
    first, second = story.state.steering
    story.given(h.steering_applied(first), h.steering_expired(second))
    assert not story.state.steering
    assert story.state.steering_latest is not None
    assert story.state.steering_latest.event_id == second


def test_usage_counts_each_call_once_and_corrections_replace() -> None:
    """Absolute numbers: totals grow by the difference."""
    story = h.in_turn().given(h.model_starts())
    story.given(h.model_completes(usage={"input_tokens": 10, "output_tokens": 4}))
    story.given(h.usage_corrected(input_tokens=12), h.model_starts("b"))
    story.given(h.model_fails("b", usage={"input_tokens": 5}))
    usage = story.state.usage
    assert (usage.input_tokens, usage.output_tokens) == (17, 0)


def test_a_compaction_is_in_force_until_the_context_is_cleared_or_taken_back() -> None:
    """Cleared, or rewound to before it."""
    story = h.in_turn().given(h.user(), h.compaction_starts(3), h.compaction(2, 3))
    story.given(h.summary(1, 2))
    compaction = story.state.compaction
    assert compaction is not None
    assert (compaction.to_seq, compaction.base_seq) == (2, 3)
    assert compaction.summary_seq == story.seq
    assert story.state.open_compaction is None
    story.given(h.rewind(story.seq))
    assert story.state.compaction is not None
    story.given(h.rewind(3))
    assert story.state.compaction is None
    story.given(h.user(), h.compaction(1, story.seq), ContextCleared())
    assert story.state.compaction is None


def test_a_new_owner_finds_no_compaction_begun() -> None:
    """What the old one had begun is void."""
    story = h.in_turn().given(h.compaction_starts(2))
    assert story.state.open_compaction is not None
    story.given(h.compaction_fails())
    assert story.state.open_compaction is None


@pytest.mark.parametrize("text", ["x" * 10_000, "\ud83d" + "y" * 600, "\U0001f600" * 600])
def test_what_a_state_keeps_of_a_long_text_is_short_and_its_own(text: str) -> None:
    """Cut, with a hash: still another than every other text."""
    kept = short(text)
    assert len(kept) <= MAX_KEPT_CHARS
    assert kept.encode().decode() == kept
    assert short(text + "z") != kept
    assert short("short") == "short"


def test_a_call_with_a_long_id_is_found_again_by_that_id() -> None:
    """Fold and admission see the same short text; the event keeps every character."""
    long_id, handle = "i" * 5_000, "h" * 5_000
    story = h.in_turn().given(h.request(long_id, tool="t" * 5_000), h.start(long_id))
    assert story.when(h.start(long_id)).rule == "attempt"
    story.given(h.backgrounded(handle, long_id), h.background_ends(handle))
    assert len(encode_snapshot(story.state)) < TYPICAL_STATE_MAX_BYTES
    whole = story.codec.decode(story.events[2].schema_id, story.events[2].body)
    assert whole.event == h.request(long_id, tool="t" * 5_000)


def test_a_lone_surrogate_in_an_id_is_the_character_that_is_stored_for_it() -> None:
    """So the state of this process is the state of the next one."""
    story = h.in_turn().given(h.request("a\ud83d", tool="t\udc00"), h.start("a\ud83d"))
    story.given(SessionSuspended(reason="r\ud83d"))
    codec = story.codec
    recorded = [codec.decode_structure(e.schema_id, e.body) for e in story.events]
    assert replay(initial("session"), recorded) == story.state
    assert decode_snapshot(encode_snapshot(story.state)) == story.state
    assert set(story.state.calls) == {"a\ufffd"}


def one_turn(story: Story, number: int) -> None:
    """A turn with a model call, two tools, a permission and some talk."""
    n = f"{number:04}"
    story.given(h.turn(), h.user(n), h.model_starts(n))
    story.given(h.model_completes(n, usage={"input_tokens": 100}))
    for call_id in (f"{n}:0", f"{n}:1"):
        story.given(h.request(call_id), h.ask(call_id, call_id))
        story.given(h.grant(call_id, call_id), h.start(call_id), h.done(call_id))
    story.given(h.plan(), h.turn_ends())


def test_a_state_stays_small_however_long_the_session_is() -> None:
    """What finished long ago is counted, not listed."""
    story = h.session().given(h.goal(), h.instructions())
    sizes: list[int] = []
    for number in range(150):
        one_turn(story, number)
        sizes.append(len(encode_snapshot(story.state)))
    assert max(sizes) < TYPICAL_STATE_MAX_BYTES
    assert max(sizes[100:]) - min(sizes[50:100]) < 64  # seqs and counts get longer
    assert len(story.state.event_ids) == WINDOW
    assert len(story.state.finished) == FINISHED_KEPT
    assert story.state.counts["ToolExecutionCompleted"] == 300
    assert story.state.usage.input_tokens == 15_000


def test_a_correction_of_a_call_that_is_no_longer_listed_changes_no_total() -> None:
    """What was counted for it is not known any more, and counting it twice is worse."""
    story = h.session(mode="MIRRORED")
    for number in range(FINISHED_KEPT + 1):
        story.given(h.model_completes(f"m{number}", usage={"input_tokens": 10}))
    story.given(h.usage_corrected("m0", input_tokens=12))
    assert story.state.usage.input_tokens == 10 * (FINISHED_KEPT + 1)
    assert story.state.anomalies["correction_of_unknown_call"] == 1


def test_who_was_handed_the_session_is_its_agent() -> None:
    """The owner stays; the agent is another."""
    story = h.session().given(h.handed_off("reviewer"))
    assert (story.state.agent, story.state.epoch) == ("reviewer", 1)
