"""What a history says of how its contexts were made smaller, and for whom."""

from collections.abc import Sequence

import pytest

from foldline.projections.shaped import NOT_TRIED, Shaped, shaped_by
from foldline.schemas.events import (
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    ContextPruned,
    KnownEvent,
    ModelCallStarted,
    RequestRef,
)
from foldline.schemas.recorded import Recorded
from tests.projections.test_progress import history

BEGUN = CompactionStarted(compaction_id="c", base_seq=1, reason="budget", token_before=900)
DONE = CompactionCompleted(
    compaction_id="c", from_seq=1, to_seq=1, base_seq=1, strategy="s"
)


def asked(policy: str) -> ModelCallStarted:
    """A model call whose context was made by a policy."""
    request = RequestRef(
        ranges=(),
        renderer="r",
        renderer_version=1,
        policy=policy,
        policy_version=1,
        instructions_event_ids=(),
        parameters_json="{}",
        sha256=b"",
    )
    return ModelCallStarted(
        model_call_id=policy, purpose="TURN", provider="p", model="m", request=request
    )


def shaped(events: Sequence[Recorded]) -> Shaped:
    """What a history says of which nothing was taken back."""
    return shaped_by(events, events)


def failed(reason: str) -> CompactionFailed:
    """A compaction that came to nothing."""
    return CompactionFailed(compaction_id="c", reason=reason)


@pytest.mark.parametrize("reason", ["stands for", *sorted(NOT_TRIED)])
def test_only_what_failed_by_itself_is_a_failure(reason: str) -> None:
    """After a crash the same may succeed."""
    found = shaped(history(BEGUN, failed(reason)))
    assert found.failed_tokens == (0 if reason in NOT_TRIED else 900)


def test_a_compaction_that_succeeds_makes_a_failure_forgotten() -> None:
    found = shaped(history(BEGUN, failed("x"), BEGUN, DONE))
    assert (found.failed_tokens, found.last_seq) == (0, 4)


def test_prunings_and_compactions_are_what_changed_the_prefix() -> None:
    assert shaped(history(DONE, ContextPruned(rule="r"), BEGUN)).last_seq == 2


@pytest.mark.parametrize(
    ("policies", "kept"),
    [
        ((), ""),
        (("roomy",), "roomy"),
        (("roomy", "roomy", "full"), "roomy"),
        (("roomy@900", "roomy@800", "full"), "roomy"),
        (("lean",) * 9 + ("roomy",) * 3, "roomy"),
    ],
)
def test_the_policy_is_that_of_most_of_the_last_calls(
    policies: tuple[str, ...], kept: str
) -> None:
    """One context by another policy is one context; budgets have its name."""
    events: list[KnownEvent] = [asked(policy) for policy in policies]
    found = shaped(history(*events))
    assert found == (Shaped(policy=kept, provider="p", model="m") if kept else Shaped())
