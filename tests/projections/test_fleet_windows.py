"""Windows are sums of panes, and a pane counts an event once, whatever was killed when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.projections.fleet_board import Board, Bounds, When
from foldline.projections.fleet_folding import FleetFolding
from foldline.projections.fleet_rows import (
    PANE,
    decode_session,
    encode_session,
    pane_in,
    pane_key,
    session_key,
)
from foldline.projections.fleet_windows import (
    AGENT,
    BUCKETS_S,
    TOOL,
    Increment,
    Pane,
    Span,
    Tally,
    add,
    p95_s,
    tally_view,
)
from foldline.projections.metric_names import LABEL_VALUES_MAX, MICROS, OTHER
from foldline.schemas.events import SessionCreated, ToolCallRequested
from foldline.schemas.recorded import Recorded
from foldline.schemas.snapshots import encode_snapshot
from foldline.settings import Settings
from tests import happenings as h
from tests.story import BEGIN_US, Story
from tests.strategies import colliding_events

BOUNDS = Bounds(pane_s=60, keep_s=3_600, panes_max=1_000)
FIELDS = ("calls", "errors", "retries", "loops")


def board_of(*increments: tuple[int, Increment], bounds: Bounds = BOUNDS) -> Board:
    """A board with increments at these seconds of log time."""
    board = Board(bounds)
    for offset, (second, increment) in enumerate(increments):
        when = When(second * MICROS, second * MICROS)
        board.add(0, offset, when=when, increments=(increment,))
    return board


def call(name: str = "ls") -> Increment:
    return Increment(TOOL, name, "calls")


# --- windows -------------------------------------------------------------------------


@given(
    seconds=st.lists(st.integers(0, 20_000), max_size=40),
    step=st.integers(1, 5),
    wide=st.integers(1, 6),
)
def test_every_window_has_what_happened_in_it(
    seconds: list[int], step: int, wide: int
) -> None:
    span = Span(size_s=60 * step * wide, step_s=60 * step)
    bounds = Bounds(pane_s=60, keep_s=10**9, panes_max=1_000)
    board = board_of(*((second, call()) for second in seconds), bounds=bounds)
    found = board.windows(span)
    for window in found:
        inside = [one for one in seconds if window.start_s <= one < window.end_s]
        assert window.tally.calls == len(inside) > 0
        assert window.start_s % span.step_s == 0
    assert sum(window.tally.calls for window in found) == wide * len(seconds)


def test_hopping_windows_overlap_and_tumbling_ones_do_not() -> None:
    board = board_of((30, call()), (90, call()), (150, call()))
    tumbling = board.windows(Span(120, 120))
    assert [(one.start_s, one.tally.calls) for one in tumbling] == [(0, 2), (120, 1)]
    hopping = board.windows(Span(120, 60))
    starts = [(one.start_s, one.tally.calls) for one in hopping]
    assert starts == [(-60, 1), (0, 2), (60, 2), (120, 1)]


@given(st.lists(st.integers(0, 20_000_000_000), min_size=1, max_size=60))
def test_the_p95_is_the_bucket_of_the_95th_of_a_hundred(micros: list[int]) -> None:
    tally = Tally()
    for value in micros:
        add(tally, "durations", value)
    found = p95_s(tally)
    assert found is not None
    under = sum(value / MICROS <= found for value in micros)
    assert under >= 0.95 * len(micros) or found == BUCKETS_S[-1]
    assert found in BUCKETS_S
    assert tally.duration_us == sum(micros)


def test_rates_of_nothing_are_not_known() -> None:
    view = tally_view(Tally())
    assert view["calls"] == 0
    unknown = ("error_rate", "duration_p95_s", "approval_wait_mean_s", "loop_rate")
    assert [view[name] for name in unknown] == [None] * 4


# --- bounds --------------------------------------------------------------------------


def test_an_event_that_comes_again_counts_once_in_each_pane() -> None:
    board = Board(BOUNDS)
    when = When(60 * MICROS, 60 * MICROS)
    both = (call(), Increment(AGENT, "coder", "loops"))
    board.add(0, 7, when=when, increments=both[:1])
    board.add(0, 7, when=when, increments=both)
    assert [tally for _, tally in board.snapshot()] == [Tally(calls=1), Tally(loops=1)]


def test_panes_go_when_they_are_too_old_or_too_many() -> None:
    old = board_of((0, call()), (10_000, call()))
    assert [pane.start_s for pane, _ in old.snapshot()] == [9_960]
    few = Bounds(pane_s=60, keep_s=10**6, panes_max=3)
    many = board_of(*((60 * number, call()) for number in range(9)), bounds=few)
    assert [pane.start_s for pane, _ in many.snapshot()] == [360, 420, 480]


def test_what_is_too_old_is_not_counted_and_the_future_is_now() -> None:
    board = board_of((10_000, call()))
    log_us = 10_000 * MICROS
    late = board.add(0, 5, when=When(1, log_us), increments=(call(),))
    assert late.late
    board.add(0, 6, when=When(10**18, log_us), increments=(call(),))
    assert [(one.start_s, tally.calls) for one, tally in board.snapshot()] == [(9_960, 2)]


def test_names_are_bounded_and_those_that_come_later_are_other() -> None:
    names = [(60, call(f"tool-{number}")) for number in range(LABEL_VALUES_MAX + 5)]
    found = {pane.name: tally.calls for pane, tally in board_of(*names).snapshot()}
    assert len(found) == LABEL_VALUES_MAX + 1
    assert found[OTHER] == 5


@given(st.integers(-(2**40), 2**40), st.text(max_size=70))
def test_a_pane_is_known_by_its_key_and_keys_are_in_the_order_of_time(
    second: int, name: str
) -> None:
    pane = Pane(TOOL, name, second)
    assert pane_in(pane_key(pane)) == pane


# --- killed and begun again ----------------------------------------------------------


def read(stories: Sequence[Story]) -> list[Recorded]:
    """The events of some sessions as a partition has them."""
    found = [recorded for story in stories for recorded in story.events]
    return sorted(found, key=lambda one: (one.envelope.recorded_at, one.seq))


@dataclass
class Disk:
    """A table whose writes happen in order, and stop where the process is killed."""

    rows: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    left: int = 10**9
    committed: int = 0
    """The next offset, as far as all rows behind it are kept."""

    def keep(self, folding: FleetFolding, *, offset: int) -> None:
        """Keep what has changed, and commit, if it is not killed meanwhile."""
        for _, key, value in folding.changed():
            self.left -= 1
            if self.left < 0:
                return
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
        self.committed = offset


def process(events: Sequence[Recorded], disk: Disk, *, every: int) -> FleetFolding:
    """Read events on from what is committed, and keep rows every so many."""
    folding = FleetFolding(Settings())
    folding.load(0, [(k, v) for k, v in disk.rows.items() if k >= PANE])
    for offset in range(disk.committed, len(events)):
        if disk.left < 0:
            break
        key = session_key(events[offset].envelope.session_id)
        row = partial(disk.rows.get, key)
        folding.take(0, offset, events[offset], row=row, now_us=BEGIN_US)
        if offset % every == every - 1:
            disk.keep(folding, offset=offset + 1)
    if disk.left >= 0:
        disk.keep(folding, offset=len(events))
    return folding


def nothing() -> None:
    """The row of a session that has none."""


def panes_of(disk: Disk) -> Mapping[bytes, bytes]:
    """Panes, and loops."""
    return {key: row for key, row in disk.rows.items() if key >= PANE}


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_fleet_killed_at_any_row_counts_every_event_once(data: st.DataObject) -> None:
    stories = [Story(session_id=name).given(SessionCreated(agent=name)) for name in "ab"]
    for _ in range(data.draw(st.integers(1, 25))):
        story = data.draw(st.sampled_from(stories))
        story.when(data.draw(colliding_events()))
    for number in range(4):
        request = ToolCallRequested(
            call_id=f"{number}", tool="ls", args_hash="h", message_id="m", position=0,
            arguments=(),
        )  # fmt: skip
        stories[0].when(h.turn())
        stories[0].when(request)
    events = read(stories)
    whole, killed = Disk(), Disk(left=data.draw(st.integers(1, 2 * len(events))))
    never_killed = process(events, whole, every=1)
    process(events, killed, every=data.draw(st.integers(1, 9)))
    killed.left = 10**9
    again = process(events, killed, every=data.draw(st.integers(1, 9)))
    assert panes_of(killed) == panes_of(whole)
    assert dict(again.board.snapshot()) == dict(never_killed.board.snapshot())
    assert again.latest.all() == never_killed.latest.all()


def test_an_event_wants_its_loop_appended_under_the_same_id_each_time() -> None:
    story = h.in_turn()
    for number in range(3):
        request = ToolCallRequested(
            call_id=f"{number}", tool="ls", args_hash="h", message_id="m", position=0,
            arguments=(),
        )  # fmt: skip
        story.given(request)
    found = [
        append
        for _ in range(2)
        for folding in [FleetFolding(Settings())]
        for offset, recorded in enumerate(read([story]))
        for append in folding.take(0, offset, recorded, row=nothing, now_us=BEGIN_US)
    ]
    assert len(found) == 2
    assert found[0] == found[1]
    assert found[0].known_seq == story.seq


def test_a_row_of_a_session_is_read_back_as_it_was() -> None:
    folding = FleetFolding(Settings())
    for offset, recorded in enumerate(h.waiting().events):
        folding.take(0, offset, recorded, row=nothing, now_us=BEGIN_US)
    *_, (_, _, last) = folding.changed()
    assert last is not None
    assert encode_session(decode_session(last)) == last
    assert folding.changes == 0


def test_states_are_compared_with_snapshots_ahead_of_them_and_at_them() -> None:
    story = h.waiting()
    folding = FleetFolding(Settings())
    snapshot = encode_snapshot(story.state)
    folding.compare(story.session_id, snapshot, row=nothing)  # ahead of all events
    for offset, recorded in enumerate(story.events):
        folding.take(0, offset, recorded, row=nothing, now_us=BEGIN_US)
    assert folding.compared == {"match": 1}
    folding.compare(story.session_id, snapshot, row=nothing)
    other = h.with_call(tool="other").given(h.ask())
    folding.compare(story.session_id, encode_snapshot(other.state), row=nothing)
    before = encode_snapshot(h.in_turn().state)
    folding.compare(story.session_id, before, row=nothing)
    assert folding.compared == {"match": 2, "mismatch": 1, "unseen": 1}
