"""Panes are bounded over all partitions: what goes is the oldest, wherever it is."""

from collections.abc import Sequence

from foldline.projections.fleet_board import Board, Bounds, Changed, Counted, Place, When
from foldline.projections.fleet_folding import FleetFolding
from foldline.projections.fleet_rows import PANE, encode_pane, pane_key
from foldline.projections.fleet_windows import TOOL, Increment, Pane, Tally
from foldline.projections.metric_names import MICROS
from foldline.settings import Settings

FEW = Bounds(pane_s=60, keep_s=10**6, panes_max=4)


def add(board: Board, partition: int, second: int, *, offset: int = 0) -> Changed:
    when = When(second * MICROS, second * MICROS)
    call = Increment(TOOL, "ls", "calls")
    return board.add(partition, offset, when=when, increments=(call,))


def starts(board: Board) -> Sequence[int]:
    return sorted(pane.start_s for pane, _ in board.snapshot())


def test_of_too_many_panes_the_oldest_go_whichever_partition_they_are_of() -> None:
    board = Board(FEW)
    for second in (0, 60, 120):
        add(board, 0, second, offset=second)
    add(board, 1, 180)
    changed = add(board, 1, 240, offset=1)
    assert changed.dropped == (Place(0, Pane(TOOL, "ls", 0)),)
    assert starts(board) == [60, 120, 180, 240]
    assert board.dropped_early == 1


def test_a_moment_that_went_is_gone_in_every_partition_and_does_not_come_again() -> None:
    board = Board(FEW)
    for partition in range(3):
        add(board, partition, 0)
    add(board, 0, 60, offset=1)
    dropped = add(board, 0, 120, offset=2).dropped
    assert sorted(dropped) == [Place(one, Pane(TOOL, "ls", 0)) for one in range(3)]
    assert add(board, 1, 59, offset=1).late
    assert starts(board) == [60, 120]


def test_the_newest_moment_stays_however_many_panes_it_has() -> None:
    board = Board(Bounds(pane_s=60, keep_s=10**6, panes_max=1))
    for partition in range(3):
        assert add(board, partition, 0).dropped == ()
    assert starts(board) == [0, 0, 0]


def test_what_was_stored_is_trimmed_when_it_is_taken_over_and_its_rows_go() -> None:
    board = Board(FEW)
    panes = [Pane(TOOL, "ls", 60 * number) for number in range(6)]
    dropped = board.load(3, [(pane, Counted(1, Tally(calls=1))) for pane in panes])
    assert dropped == [Place(3, pane) for pane in panes[:2]]

    folding = FleetFolding(Settings(fleet_panes_max=100))
    many = [Pane(TOOL, "ls", 60 * number) for number in range(101)]
    folding.load(0, [(pane_key(pane), encode_pane(Counted())) for pane in many])
    assert list(folding.changed()) == [(0, pane_key(many[0]), None)]
    assert folding.board.count == 100
    assert pane_key(many[0]).startswith(PANE)


def test_what_is_too_old_goes_from_its_partition_only() -> None:
    board = Board(Bounds(pane_s=60, keep_s=600, panes_max=100))
    add(board, 0, 0)
    add(board, 1, 0)
    assert add(board, 0, 6_000, offset=1).dropped == (Place(0, Pane(TOOL, "ls", 0)),)
    assert board.dropped_early == 0
