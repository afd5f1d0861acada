"""Every verdict; their order is in `test_admission_order.py`."""

import pytest

from foldline.processors.admission import (
    ENVELOPE_MARGIN_BYTES,
    MAX_CONTENT_BYTES,
    MAX_ID_LENGTH,
    MAX_SOURCE_LENGTH,
    RULES_VERSION,
    log_time,
)
from foldline.schemas.blocks import text_block
from foldline.schemas.codec import MAX_EVENT_BYTES, encode_content, encode_envelope
from foldline.schemas.envelope import Actor, Envelope, Source
from foldline.schemas.events import (
    PlanUpdated,
    SessionResumed,
    UserMessage,
)
from foldline.schemas.state import WINDOW
from foldline.schemas.verdicts import (
    ACCEPTED,
    CONFLICT,
    DUPLICATE,
    EXISTS,
    FENCED,
    ILLEGAL,
    MISROUTED,
    NO_SESSION,
    TOO_LARGE,
    UNDECODABLE,
)
from tests import happenings as h
from tests.story import Story, Writer, altered

WIDEST = "\U0001f600" * MAX_ID_LENGTH
"""A text as long as an envelope's may be, of the characters that take most bytes."""


UNREADABLE: dict[str, object] = {
    "event_id": "A0000000-0000-7000-8000-000000000001",
    "session_id": "x" * (MAX_ID_LENGTH + 1),
    "tenant": "",
    "writer": "",
    "turn_id": "x" * (MAX_ID_LENGTH + 1),
    "branch": "x" * (MAX_ID_LENGTH + 1),
    "traceparent": "x" * (MAX_ID_LENGTH + 1),
    "certainty": "",
    "actor": Actor(kind="GHOST", id="x"),
    "epoch": -1,
    "schema_version": 0,
    "occurred_at": 2**63,
    "prev_hash": b"short",
    "source": Source(system="s", stream="x" * 5_000, position="", sha256=b""),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_envelope_that_no_reader_could_trust_is_undecodable(name: str) -> None:
    """Whatever the session's mode; the answer names the field."""
    for mode in ("OWNED", "MIRRORED"):
        story = h.session(mode=mode).given(h.user())
        verdict = story.send(altered(story, **{name: UNREADABLE[name]}))
        assert verdict.kind == UNDECODABLE
        assert name.replace("_", " ") in verdict.detail.replace("_", " ")


def test_a_lone_surrogate_in_an_id_is_undecodable_because_no_log_can_hold_it() -> None:
    """Two ids that differ in it would be stored as one."""
    story = h.session().given(h.user())
    for name in ("session_id", "tenant", "writer"):
        verdict = story.send(altered(story, **{name: "a\ud83d"}))
        assert (verdict.kind, verdict.detail) == (UNDECODABLE, f"{name} is not UTF-8")


def test_an_append_without_known_seq_is_undecodable() -> None:
    """It could not be told whether it is new."""
    story = h.session()
    assert story.when(h.user(), known_seq=-1).kind == UNDECODABLE


def test_what_is_just_small_enough_is_taken_and_fits_out() -> None:
    """One byte more is TOO_LARGE; the limit is on the bytes after serialisation."""
    story = h.session()
    frame = len(encode_content(UserMessage(message_id="", blocks=(text_block("x"),))))
    fits = MAX_CONTENT_BYTES - frame - 1  # a longer length takes two bytes more
    for size, kind in ((fits, ACCEPTED), (fits + 1, TOO_LARGE)):
        event = UserMessage(message_id="", blocks=(text_block("x" * size),))
        assert len(encode_content(event)) == MAX_CONTENT_BYTES + size - fits
        assert story.when(event).kind == kind
    assert len(story.events[-1].body) <= MAX_EVENT_BYTES


def test_the_widest_envelope_fits_into_the_margin() -> None:
    """So what admission takes in always fits out."""
    texts = dict.fromkeys(
        (
            "session_id",
            "tenant",
            "writer",
            "turn_id",
            "branch",
            "parent_event_id",
            "correlation_id",
            "batch_id",
            "traceparent",
            "certainty",
        ),
        WIDEST,
    )
    envelope = Envelope(
        event_id="0" * 36,
        **texts,
        actor=Actor(kind="HARNESS", id=WIDEST),
        epoch=2**62,
        seq=2**62,
        occurred_at=2**62,
        source=Source(
            system=WIDEST,
            stream="\U0001f600" * MAX_SOURCE_LENGTH,
            position="\U0001f600" * MAX_SOURCE_LENGTH,
            sha256=b"x" * 32,
        ),
        prev_hash=b"x" * 32,
    )
    assert len(encode_envelope(envelope)) <= ENVELOPE_MARGIN_BYTES


def test_another_session_or_another_tenant_is_misrouted() -> None:
    """One tenant never appends to a session of another."""
    story = h.session().given(h.user())
    for name in ("session_id", "tenant"):
        assert story.send(altered(story, **{name: "other"})).kind == MISROUTED


def test_the_first_event_of_a_session_is_its_creation() -> None:
    """Everything else has no session yet."""
    assert Story().when(h.user()).kind == NO_SESSION
    assert Story().when(SessionResumed(reason="r"), expected_seq=0).kind == NO_SESSION


def test_a_session_begins_in_epoch_0_or_1_and_with_expected_seq_0() -> None:
    """Epoch 1 makes the creator the first owner; 0 leaves it to be claimed."""
    assert Story().when(h.created(), by=Writer("w", 2)).kind == FENCED
    assert Story().when(h.created(), expected_seq=1).kind == CONFLICT
    verdict = Story().when(h.created(), expected_seq=0)
    assert (verdict.kind, verdict.seq, verdict.epoch) == (ACCEPTED, 1, 1)
    story = Story(owner=Writer("creator", 0)).given(h.created())
    assert (story.state.epoch, story.state.owner) == (0, "")
    assert story.when(h.turn(), by=Writer("creator", 0)).kind == FENCED


def test_a_mirrored_session_has_no_epoch_whatever_its_creator_says() -> None:
    """It has no owner, so nobody can be fenced."""
    story = Story(owner=Writer("importer", 7))
    verdict = story.when(h.created(mode="MIRRORED"), expected_seq=9)
    assert (verdict.kind, verdict.epoch) == (ACCEPTED, 0)
    assert (story.state.epoch, story.state.owner) == (0, "")


def test_a_creation_again_is_a_duplicate_and_another_one_exists_already() -> None:
    """At any distance: the id of the creation is kept beside the window."""
    story = h.session().given(*[h.user()] * (2 * WINDOW))
    again = story.send(story.appends[0])
    assert (again.kind, again.seq) == (DUPLICATE, 1)
    assert story.when(h.created()).kind == EXISTS


def test_a_refusal_says_where_the_session_is_and_what_its_epoch_is() -> None:
    """A loser re-reads from there."""
    story = h.session().given(h.user())
    verdict = story.when(h.user(), expected_seq=1)
    assert verdict.kind == CONFLICT
    assert (verdict.current_seq, verdict.epoch, verdict.seq) == (2, 1, 0)
    assert verdict.rules_version == RULES_VERSION
    assert not verdict.recorded


def test_admission_fills_what_only_the_log_knows() -> None:
    """seq, log time, rules version and the hash of the event before."""
    story = h.session().given(h.user())
    envelope = story.events[-1].envelope
    assert envelope.seq == 2
    assert envelope.recorded_at == story.verdicts[-1].recorded_at
    assert envelope.rules_version == RULES_VERSION
    assert envelope.prev_hash is not None
    assert len(envelope.prev_hash) == 32


def test_log_time_never_goes_back_when_a_clock_does() -> None:
    """The session's last log time counts until the clock has caught up."""
    story = h.session()
    before = story.state.recorded_at
    story.clock_us -= 1_000_000
    story.given(h.user())
    assert story.state.recorded_at == before
    assert log_time(None, 5) == 5


def test_what_is_required_may_be_the_creation_or_anything_in_the_window() -> None:
    """So appends that depend on each other can be under way together."""
    story = h.session().given(h.user())
    ids = tuple(e.envelope.event_id for e in story.events)
    assert story.when(PlanUpdated(items=()), requires=ids).kind == ACCEPTED


def test_a_pipeline_whose_first_append_is_refused_is_refused_as_a_whole() -> None:
    """Each names the one before it."""
    story = h.session()
    first, second, third = story.fresh_id(), story.fresh_id(), story.fresh_id()
    kinds = [
        story.when(h.request(), event_id=first).kind,
        story.when(h.user(), event_id=second, requires=(first,)).rule,
        story.when(h.user(), event_id=third, requires=(second,)).rule,
    ]
    assert kinds == [ILLEGAL, "requires", "requires"]


def test_a_fork_goes_on_behind_its_fork_point_with_the_parents_hash() -> None:
    """No event is copied: the first seq is the one after the fork point."""
    story = Story()
    verdict = story.when(
        h.created(relation="FORK", parent_session_id="p", fork_seq=40),
        prev_hash=b"p" * 32,
    )
    assert (verdict.kind, verdict.seq) == (ACCEPTED, 41)
    assert story.events[0].envelope.prev_hash == b"p" * 32
    story.given(h.turn(), h.user())
    assert story.seq == 43
    assert story.send(story.appends[0]).seq == 41
    assert story.when(h.compaction(41, 41)).kind == ACCEPTED


def test_a_mirrored_fork_need_not_know_where_it_forked() -> None:
    """Many sources name a parent and no position in it."""
    story = Story()
    fork = h.created(mode="MIRRORED", relation="FORK", parent_session_id="p")
    assert story.when(fork).kind == ACCEPTED


def test_a_creation_that_is_no_fork_has_no_hash_before_it() -> None:
    """Whatever its writer says."""
    story = Story()
    story.when(h.created(), prev_hash=b"x" * 32)
    assert story.events[0].envelope.prev_hash is None
