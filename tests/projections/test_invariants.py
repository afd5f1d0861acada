"""A context that is not sound is an error that names its events, and never a request."""

from dataclasses import replace

import pytest

from foldline.errors import ContextInvariantError
from foldline.projections.context import Context, Message, Part
from foldline.projections.invariants import check

WORDS = Part("text", text="go")
CALL = Part("call", call_id="a", tool="t")
RESULT = Part("result", call_id="a", tool="t", parts=(WORDS,))
OTHER = replace(CALL, call_id="b"), replace(RESULT, call_id="b")


def said(role: str, *parts: Part, event_id: str = "e") -> Message:
    """A message that stems from one event."""
    return Message(role, parts, (event_id,))


def context(*messages: Message) -> Context:
    """A context of these messages."""
    return Context(messages=messages, tools=(), base_seq=0, upto_seq=9)


SOUND = context(
    said("system", WORDS),
    said("user", WORDS),
    said("assistant", WORDS, CALL, OTHER[0]),
    said("tool", RESULT, OTHER[1]),
    said("user", WORDS),
)


def test_a_sound_context_is_given_back() -> None:
    """As it is."""
    assert check(SOUND) is SOUND


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ((said("assistant", CALL),), "no results"),
        ((said("assistant", CALL), said("user", WORDS)), "have the results"),
        (
            (said("assistant", CALL, OTHER[0]), said("tool", OTHER[1], RESULT)),
            "have the results",
        ),
        ((said("user", WORDS), said("tool", RESULT)), "without their calls"),
        ((said("assistant", CALL), said("tool", RESULT)) * 2, "there twice"),
        ((said("user", WORDS), said("system", WORDS)), "does not lead"),
        ((said("user"),), "is empty"),
        ((said("user", Part("text")),), "empty part"),
        ((said("user", Part("text", text="cut \ud83d")),), "lone surrogate"),
        ((said("user", CALL),), "makes the call"),
        ((said("assistant", CALL), said("tool", replace(RESULT, parts=()))), "is empty"),
        ((said("user", RESULT),), "of kind result"),
        ((said("critic", WORDS),), "role"),
        ((Message("user", (WORDS,), ()),), "no event"),
    ],
)
def test_a_breach_says_what_is_wrong(messages: tuple[Message, ...], problem: str) -> None:
    """One kind each."""
    with pytest.raises(ContextInvariantError, match=problem):
        check(context(*messages))


def test_a_breach_names_the_events_of_both_ends() -> None:
    """So that whoever is called knows where to look."""
    broken = context(
        said("assistant", CALL, event_id="e1"), said("user", WORDS, event_id="e2")
    )
    with pytest.raises(ContextInvariantError) as caught:
        check(broken)
    assert caught.value.event_ids == ("e1", "e2")
    assert "events e1, e2" in str(caught.value)
