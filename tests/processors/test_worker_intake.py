"""A batch begins where its partition stands, and has no hole in it."""

from dataclasses import dataclass, field
from typing import Any

from foldline.processors.worker_intake import Intake


@dataclass
class Record:
    """What a client gives, as far as an intake looks."""

    at: int
    index: int = 0

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return self.index

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, self.at

    def key(self) -> bytes:
        return b"s"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> None:
        return None


@dataclass
class Stand:
    """Where partitions stand, and which were fetched again."""

    offsets: dict[int, int]
    rewound: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        def never(_message: Any, _error: Any) -> None:
            raise AssertionError("no errors here")

        self.intake = Intake(
            None,
            topic="appends",
            batch_max=10,
            next_offset=self.offsets.get,
            rewind=self.rewound.append,
            on_error=never,
        )

    def owned(self, *records: Record) -> tuple[dict[int, list[int]], int]:
        """The offsets that are to be admitted, and how many records are not."""
        messages: Any = records
        taken, dropped = self.intake.owned(messages)
        return {i: [record.offset for record in r] for i, r in taken.items()}, dropped


def test_records_in_their_order_are_a_batch() -> None:
    stand = Stand({0: 5, 1: 0})
    taken = stand.owned(Record(5), Record(0, 1), Record(6), Record(1, 1))
    assert taken == ({0: [5, 6], 1: [0, 1]}, 0)


def test_records_of_a_partition_that_is_not_ours_or_were_answered_are_dropped() -> None:
    stand = Stand({0: 5})
    assert stand.owned(Record(4), Record(5), Record(0, 1)) == ({0: [5]}, 2)
    assert stand.rewound == []


def test_what_comes_too_early_is_fetched_again_and_nothing_is_skipped() -> None:
    stand = Stand({0: 5, 1: 0})
    assert stand.owned(Record(7), Record(0, 1), Record(8)) == ({1: [0]}, 2)
    assert stand.rewound == [0]
    assert stand.owned(Record(5), Record(6), Record(7)) == ({0: [5, 6, 7]}, 0)


def test_a_hole_in_the_middle_cuts_the_batch() -> None:
    stand = Stand({0: 5})
    assert stand.owned(Record(5), Record(7), Record(8)) == ({0: [5]}, 2)
    assert stand.rewound == [0]


def test_a_hole_that_the_log_really_has_is_passed_the_second_time() -> None:
    stand = Stand({0: 5})
    assert stand.owned(Record(7), Record(8)) == ({}, 2)
    assert stand.owned(Record(7), Record(8)) == ({0: [7, 8]}, 0)
    assert stand.rewound == [0]
