"""Reports of others about two writers, lost answers and imports, as sequences."""

import dataclasses
import itertools

import pytest

from foldline.processors.admission import MAX_CONTENT_BYTES
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    ForeignRecord,
    KnownEvent,
    SessionCompleted,
    SessionResumed,
    ToolExecutionCompleted,
)
from foldline.schemas.snapshots import state_hash
from foldline.schemas.verdicts import (
    ACCEPTED,
    CONFLICT,
    DUPLICATE,
    FENCED,
    TOO_LARGE,
    TOO_OLD,
)
from tests import happenings as h
from tests.story import Story, Writer

A, B = Writer("owner", 1), Writer("b", 2)


@pytest.mark.parametrize("writers", [2, 3, 5])
@pytest.mark.parametrize("rounds", [1, 4])
def test_of_writers_that_all_read_the_same_seq_one_wins_and_the_others_read_again(
    writers: int, rounds: int
) -> None:
    """B07: two programs on one session gave one seq to two events.

    Every loser gets a CONFLICT that says where the session is, and wins from there.
    """
    story = h.session()
    for _ in range(rounds):
        seq = story.seq
        verdicts = [story.when(h.user(), expected_seq=seq) for _ in range(writers)]
        assert [v.kind for v in verdicts] == [ACCEPTED] + [CONFLICT] * (writers - 1)
        for loser in verdicts[1:]:
            assert loser.current_seq == seq + 1
            again = story.when(h.user(), expected_seq=story.seq)
            assert (again.kind, again.seq) == (ACCEPTED, story.seq)
    assert [e.seq for e in story.events] == list(range(1, story.seq + 1))


@pytest.mark.parametrize(
    "late", [h.plan(), h.turn_ends(), h.request(), h.start("x"), SessionCompleted()]
)
def test_what_an_old_process_flushes_after_a_new_one_resumed_is_fenced(
    late: KnownEvent,
) -> None:
    """B08: a late flush of a buffered record made every later load fail.

    It is refused, whenever it comes; the session reads on as if it had not come.
    """
    for written in range(3):
        story = h.in_turn().given(h.request("x"))
        assert story.take("b", SessionResumed(reason="crash")).kind == ACCEPTED
        story.given(*[h.plan()] * written)
        before = state_hash(story.state)
        verdict = story.when(late, by=A, known_seq=3)
        assert (verdict.kind, verdict.epoch) == (FENCED, 2)
        assert state_hash(story.state) == before
        story.given(h.turn_ends("ABORTED"))


@pytest.mark.parametrize("resumed", [True, False])
@pytest.mark.parametrize("started", [True, False])
def test_a_compaction_of_an_old_copy_is_refused_and_what_came_since_stays(
    *, resumed: bool, started: bool
) -> None:
    """B09: an idle copy compacted and rewrote the file; ten events were gone.

    By the old owner: FENCED. By whoever owns it now, on the old base: stale after a
    new epoch or another compaction. Either way nothing of the log is touched.
    """
    story = h.in_turn().given(*[h.user()] * 8)
    base = story.seq
    if started:
        story.given(h.compaction_starts(base))
    if resumed:
        assert story.take("b", SessionResumed(reason="r")).kind == ACCEPTED
    else:
        story.given(h.compaction(2, base))
    story.given(*[h.user()] * 10)
    count = len(story.events)
    late = h.compaction(base, base)
    if resumed:
        assert story.when(late, by=A, known_seq=base).kind == FENCED
    assert story.when(late).rule == "compaction_stale"
    assert len(story.events) == count
    assert story.when(h.compaction(base, story.seq)).kind == ACCEPTED


@pytest.mark.parametrize("surplus", [1, 100, 1_000_000])
def test_an_output_that_is_too_large_is_refused_and_not_lost(surplus: int) -> None:
    """B10: a record over the maximum was dropped with a warning.

    The answer is TOO_LARGE; the same outcome, smaller, is then accepted.
    """
    story = h.running()
    huge = (text_block("x" * (MAX_CONTENT_BYTES + surplus)),)
    verdict = story.when(ToolExecutionCompleted(call_id=h.CALL, output=huge))
    assert verdict.kind == TOO_LARGE
    assert h.CALL in story.state.calls
    assert story.when(h.done()).kind == ACCEPTED


@pytest.mark.parametrize("arrived", [True, False])
@pytest.mark.parametrize("between", [0, 1, 127, 128, 300])
def test_an_outcome_whose_append_had_no_answer_is_appended_again(
    *, arrived: bool, between: int
) -> None:
    """B18: storing an output failed; history said the tool had never run.

    The same append, sent again, is recorded once, however often and however late: and
    where the window does not reach, TOO_OLD says to look before appending anew.
    """
    story = h.running()
    drafted = dataclasses.replace(story, events=[], appends=[], verdicts=[])
    drafted.when(h.done(), event_id="00000000-0000-7000-8000-00000000d07e")
    done = drafted.appends[-1]
    if arrived:
        assert story.send(done).kind == ACCEPTED
    story.given(*[h.user()] * between)
    first, second = story.send(done), story.send(done)
    recorded = [e for e in story.events if e.event == h.done()]
    if between + arrived > 128:
        assert (first.kind, second.kind) == (TOO_OLD, TOO_OLD)
        assert len(recorded) == arrived
        assert arrived or story.when(h.done()).kind == ACCEPTED
    else:
        assert (first.kind, second.kind) == (
            DUPLICATE if arrived else ACCEPTED,
            DUPLICATE,
        )
        assert len(recorded) == 1


def mirror(count: int) -> Story:
    """A mirrored session of so many records."""
    story = h.session(mode="MIRRORED")
    return story.given(*(h.user(str(n)) for n in range(count)))


@pytest.mark.parametrize("torn_at", [0, 150, 299])
def test_a_torn_record_is_kept_as_foreign_and_all_others_are_folded(
    torn_at: int,
) -> None:
    """B01, B02: one bad line hid everything after it, or before it."""
    story = h.session(mode="MIRRORED")
    for number in range(300):
        torn = ForeignRecord(system="s", record_type="torn", reason="r", blocks=())
        story.given(torn if number == torn_at else h.user(str(number)))
    assert story.state.counts["UserMessage"] == 299
    assert story.state.counts["ForeignRecord"] == 1
    assert story.seq == 301


def test_a_record_that_was_torn_and_then_written_whole_is_neither_lost_nor_doubled() -> (
    None
):
    """B03: the first write stopped halfway, the same payload came again whole.

    Their ids differ, being derived from different bytes: both are recorded, and only
    the whole one speaks.
    """
    story = mirror(2)
    torn = ForeignRecord(system="s", record_type="torn", reason="cut", blocks=())
    story.given(torn, h.user("whole"))
    assert story.state.counts["UserMessage"] == 3
    assert story.state.counts["ForeignRecord"] == 1


@pytest.mark.parametrize("left", [0, 1, 25, 52])
def test_a_source_that_shrank_takes_nothing_away_from_what_was_imported(
    left: int,
) -> None:
    """B04: an old session's file was rewritten with only its newest turn.

    What is read again is a duplicate, what is new is added, nothing else changes.
    """
    story = mirror(52)
    before = list(story.appends)
    kept = itertools.islice(before, 1, 1 + left)
    assert {story.send(a).kind for a in kept} <= {DUPLICATE}
    assert story.state.counts["UserMessage"] == 52
    story.given(h.user("new"))
    assert story.state.counts["UserMessage"] == 53
    assert B.epoch == 2
