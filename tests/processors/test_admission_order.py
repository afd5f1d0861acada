"""The order of admission's checks is the order of `VERDICT_KINDS`."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from foldline.processors.admission import (
    MAX_CONTENT_BYTES,
    RULES_VERSION,
    admit,
    unrecoverable,
)
from foldline.processors.listing import LIMITS
from foldline.schemas.events import SessionCompleted
from foldline.schemas.recorded import Append
from foldline.schemas.state import WINDOW
from foldline.schemas.topic_records import LostSession
from foldline.schemas.verdicts import (
    ACCEPTED,
    CLOSED,
    CONFLICT,
    DUPLICATE,
    EXISTS,
    FENCED,
    ILLEGAL,
    LIMIT,
    MISROUTED,
    NO_SESSION,
    TOO_LARGE,
    TOO_OLD,
    UNDECODABLE,
    UNRECOVERABLE,
    VERDICT_KINDS,
    Verdict,
)
from tests import happenings as h
from tests.story import Story, Writer, altered

ZOMBIE = Writer("zombie", 3)
LARGE = b"x" * (MAX_CONTENT_BYTES + 1)

Pair = tuple[Verdict, Verdict]
"""What an append gets that breaks two checks, and one that breaks the later alone."""

NEVER_BOTH = {(NO_SESSION, DUPLICATE), (ILLEGAL, ACCEPTED)}
"""Neighbours that no append meets at once."""


def lost(append: Append) -> Verdict:
    """What an append gets in a session whose events were deleted."""
    session = LostSession(
        session_id="session",
        tenant="default",
        partition=0,
        known_seq=1,
        next_seq=0,
        from_offset=0,
        to_offset=1,
    )
    return unrecoverable(session, append, now=1, rules_version=RULES_VERSION)


def old() -> Story:
    """A session that has moved on further than its window reaches."""
    return h.session().given(*[h.user()] * (WINDOW + 1))


def ended() -> Story:
    """The same in a turn, and completed."""
    return old().given(h.turn(), SessionCompleted())


def full() -> Story:
    """A session with as many open calls as it may have."""
    calls = [h.request(str(number)) for number in range(LIMITS["open_calls"])]
    return h.in_turn().given(*calls)


def undecodable_or_too_large() -> Pair:
    """No `known_seq`, and too much content."""
    large = altered(h.in_turn())._replace(content=LARGE)
    story = h.in_turn()
    return story.send(large._replace(known_seq=-1)), story.send(large)


def too_large_or_misrouted() -> Pair:
    """Too much content, for another tenant's session."""
    story = h.in_turn()
    astray = altered(story, tenant="other")
    return story.send(astray._replace(content=LARGE)), story.send(astray)


def misrouted_or_unrecoverable() -> Pair:
    """Another tenant's session, whose events were deleted."""
    story = h.in_turn()
    return lost(altered(story, tenant="other")), lost(altered(story))


def unrecoverable_or_no_session() -> Pair:
    """Nothing is known of the session: because it was deleted, or was never there."""
    append = altered(h.in_turn())
    return lost(append), admit(None, append, now=1).verdict


def duplicate_or_exists() -> Pair:
    """The creation again, and another one."""
    story = h.session()
    return story.send(story.appends[0]), story.when(h.created())


def exists_or_too_old() -> Pair:
    """Another creation, by somebody who has not looked for long."""
    story = old()
    return story.when(h.created(), known_seq=0), story.when(h.user(), known_seq=0)


def too_old_or_closed() -> Pair:
    """Long not looked, and it has ended since."""
    story = ended()
    return story.when(h.turn(), known_seq=0), story.when(h.turn())


def closed_or_fenced() -> Pair:
    """A decision of somebody who is not the owner, in a session that has ended or not."""
    return ended().when(h.turn(), by=ZOMBIE), old().when(h.turn(), by=ZOMBIE)


def fenced_or_conflict() -> Pair:
    """A decision from a seq that is not the session's, by the owner or not."""
    story = h.session()
    return (
        story.when(h.turn(), by=ZOMBIE, expected_seq=9),
        story.when(h.turn(), expected_seq=9),
    )


def conflict_or_limit() -> Pair:
    """One call too many, from a seq that is not the session's."""
    story = full()
    return story.when(h.request("x"), expected_seq=9), story.when(h.request("x"))


def limit_or_illegal() -> Pair:
    """One call too many, of another turn; then one of them ends."""
    story = full()
    first = story.when(h.request("x"), turn_id="other")
    story.given(h.validated(valid=False, call_id="0"))
    return first, story.when(h.request("x"), turn_id="other")


EXAMPLES: dict[tuple[str, str], Callable[[], Pair]] = {
    (UNDECODABLE, TOO_LARGE): undecodable_or_too_large,
    (TOO_LARGE, MISROUTED): too_large_or_misrouted,
    (MISROUTED, UNRECOVERABLE): misrouted_or_unrecoverable,
    (UNRECOVERABLE, NO_SESSION): unrecoverable_or_no_session,
    (DUPLICATE, EXISTS): duplicate_or_exists,
    (EXISTS, TOO_OLD): exists_or_too_old,
    (TOO_OLD, CLOSED): too_old_or_closed,
    (CLOSED, FENCED): closed_or_fenced,
    (FENCED, CONFLICT): fenced_or_conflict,
    (CONFLICT, LIMIT): conflict_or_limit,
    (LIMIT, ILLEGAL): limit_or_illegal,
}


def test_every_two_neighbours_of_the_order_have_an_example() -> None:
    """A kind that moves in the tuple takes its example with it, or fails here."""
    assert EXAMPLES.keys() == set(pairwise(VERDICT_KINDS)) - NEVER_BOTH


@pytest.mark.parametrize("kinds", EXAMPLES, ids="-".join)
def test_of_two_checks_that_fail_the_earlier_of_the_tuple_is_the_answer(
    kinds: tuple[str, str],
) -> None:
    """Mended where the first check looks, the append is refused by the second."""
    both, later = EXAMPLES[kinds]()
    assert (both.kind, later.kind) == kinds


def test_a_known_seq_above_the_head_is_illegal_before_the_session_is_looked_at() -> None:
    """Who knew another log is told so, whatever else is wrong."""
    verdict = ended().when(h.turn(), by=ZOMBIE, known_seq=999, expected_seq=9)
    assert (verdict.kind, verdict.rule) == (ILLEGAL, "known_seq")
