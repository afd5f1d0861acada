"""What a fleet worker does with events that are missing, old, mirrored, or read again."""

import pytest

from foldline.errors import LogFormatError
from foldline.processors.fleet_port import Row
from foldline.projections.fleet_folding import LEFT_ALONE, OLD, FleetFolding
from foldline.projections.fleet_rows import LOOP, PANE, session_key
from foldline.projections.fleet_text import FleetPages
from foldline.schemas.events import SessionCreated, TurnStarted
from foldline.schemas.recorded import Append
from foldline.schemas.snapshots import encode_snapshot
from foldline.settings import Settings
from tests import happenings as h
from tests.story import BEGIN_US, Story

HOUR_US = 3_600_000_000


class Life:
    """A fleet worker from a start to its end; its rows outlive it."""

    def __init__(self, rows: dict[bytes, bytes] | None = None, **more: bool) -> None:
        self.rows = {} if rows is None else rows
        self.folding = FleetFolding(Settings(), **more)
        stored = [(key, row) for key, row in sorted(self.rows.items()) if key >= PANE]
        self.folding.load(0, stored)

    def read(
        self, story: Story, *numbers: int, begin: int = 0, now_us: int = BEGIN_US
    ) -> list[Append]:
        """Read these events of a story, each at the offset of its number."""
        key = session_key(story.session_id)
        found: list[Append] = []
        for number in numbers:
            recorded = story.events[number]
            found += self.folding.take(
                0, begin + number, recorded, row=lambda: self.rows.get(key), now_us=now_us
            )
        return found

    def keep(self) -> None:
        """What a commit does."""
        for row in self.folding.changed():
            self._keep(row)

    def _keep(self, row: Row) -> None:
        if row.value is None:
            self.rows.pop(row.key, None)
        else:
            self.rows[row.key] = row.value


def asking(mode: str = "OWNED", *, times: int = 3, session_id: str = "session") -> Story:
    """A session that asks for the same so often: created, a turn, then the requests."""
    story = Story(session_id=session_id).given(SessionCreated(agent="coder", mode=mode))
    story.given(TurnStarted(trigger="USER"))
    requests = (h.request(f"m:{one}", args_hash="same") for one in range(times))
    return story.given(*requests)


# --- holes ---------------------------------------------------------------------------


def test_a_hole_that_reading_again_may_fill_ends_the_process() -> None:
    life = Life()
    life.read(asking(), 0, 1)
    with pytest.raises(LogFormatError, match="seq 3 was to come, 4 came"):
        life.read(asking(), 3)


def test_behind_a_record_that_cannot_be_read_the_session_goes_on_as_one_with_a_gap() -> (
    None
):
    story, life = asking(times=4), Life()
    life.read(story, 0, 1)
    life.folding.skipped(0, 2)
    found = life.read(story, 3, 4, 5)
    assert (life.folding.gaps, life.folding.skips, life.folding.events) == (1, 1, 5)
    assert len(found) == 1  # three requests, all behind the hole


def test_a_hole_behind_what_a_former_life_committed_is_a_gap_too() -> None:
    """It skipped the record, or nobody read it before it was deleted."""
    story, first = asking(), Life()
    first.read(story, 0, 1)
    first.keep()
    again = Life(first.rows)
    again.read(story, 3)
    assert again.folding.gaps == 1
    with pytest.raises(LogFormatError):
        Life(first.rows).read(story, 1, 3)  # this one reads it from behind the hole on


def test_the_state_of_a_session_with_a_gap_is_compared_with_no_snapshot() -> None:
    story, life = asking(), Life()
    life.read(story, 1, 2, 3, 4)
    life.keep()
    snapshot = encode_snapshot(story.state)
    for one in (life, Life(life.rows)):
        row = one.rows[session_key(story.session_id)]
        one.folding.compare(story.session_id, snapshot, row=lambda row=row: row)
        assert not one.folding.compared
    ahead = Life()
    ahead.folding.compare(story.session_id, snapshot, row=lambda: None)
    ahead.read(story, 1, 2, 3, 4)
    assert not ahead.folding.compared


# --- which loops are said ------------------------------------------------------------


def test_a_loop_of_long_ago_is_counted_and_its_session_left_alone() -> None:
    story, life = asking(), Life()
    assert life.read(story, 0, 1, 2, 3, 4, now_us=BEGIN_US + 2 * HOUR_US) == []
    assert life.folding.untold == {OLD: 1, LEFT_ALONE: 0}
    assert life.folding.loops["SAME_CALL"] == 1
    assert len(Life().read(story, 0, 1, 2, 3, 4, now_us=BEGIN_US + HOUR_US // 2)) == 1


def test_a_mirrored_session_is_left_alone_unless_that_is_asked_for() -> None:
    story, life = asking("MIRRORED"), Life()
    assert life.read(story, 0, 1, 2, 3, 4) == []
    assert life.folding.untold[LEFT_ALONE] == 1
    assert len(Life(mirrored=True).read(story, 0, 1, 2, 3, 4)) == 1


# --- the list of loops ---------------------------------------------------------------


def test_listed_loops_outlive_a_process_and_go_with_their_partition() -> None:
    story, life = asking(), Life()
    life.read(story, 0, 1, 2, 3, 4)
    life.keep()
    again = Life(life.rows)
    [before] = FleetPages(life.folding, Settings()).loops("")["loops"]
    assert FleetPages(again.folding, Settings()).loops("")["loops"] == [before]
    assert before["at_us"] == story.events[4].envelope.recorded_at
    again.folding.forget(0)
    assert again.folding.latest.all() == []


def test_of_too_many_listed_loops_the_oldest_rows_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("foldline.projections.fleet_latest.LATEST_LOOPS", 2)
    life = Life()
    for number in range(3):
        story = asking(session_id=f"s{number}")
        life.read(story, 0, 1, 2, 3, 4, begin=10 * number)
    life.keep()
    kept = [key for key in life.rows if key.startswith(LOOP)]
    assert len(kept) == 2
    assert [one.session_id for one in life.folding.latest.all()] == ["s1", "s2"]
