"""How numbers are spread: quantiles close to the true ones, in little memory."""

import math

from hypothesis import given
from hypothesis import strategies as st

from foldline.projections.spread import LEAST, WIDER, Spread

NUMBERS = st.lists(st.integers(0, 10**9), min_size=1, max_size=200)


def spread_of(numbers: list[int]) -> Spread:
    spread = Spread()
    for number in numbers:
        spread.add(number)
    return spread


@given(NUMBERS, st.sampled_from([0.01, 0.5, 0.9, 0.95, 1.0]))
def test_a_quantile_is_off_by_no_more_than_a_bucket(numbers: list[int], q: float) -> None:
    true = sorted(numbers)[max(math.ceil(len(numbers) * q), 1) - 1]
    assert true / WIDER - 1 <= spread_of(numbers).quantile(q) <= true * WIDER + 1


@given(st.lists(st.floats(LEAST, 3_600), min_size=1), st.sampled_from([0.01, 0.5, 0.9]))
def test_times_below_a_second_are_no_less_exact(numbers: list[float], q: float) -> None:
    spread = Spread()
    for number in numbers:
        spread.add(number)
    true = sorted(numbers)[max(math.ceil(len(numbers) * q), 1) - 1]
    off = WIDER**0.51
    assert true / off <= spread.quantile(q) <= true * off or spread.whole


@given(NUMBERS)
def test_count_sum_least_and_most_are_exact(numbers: list[int]) -> None:
    spread = spread_of(numbers)
    exact = (len(numbers), sum(numbers), min(numbers), max(numbers))
    assert (spread.count, spread.total, spread.least, spread.most) == exact


@given(NUMBERS, NUMBERS)
def test_two_spreads_joined_are_the_spread_of_all(one: list[int], other: list[int]) -> None:
    joined = spread_of(one)
    joined.join(spread_of(other))
    assert joined == spread_of(one + other)


@given(NUMBERS, st.integers(2, 30))
def test_columns_hold_every_number_once(numbers: list[int], most: int) -> None:
    columns = list(spread_of(numbers).columns(most))
    assert sum(count for _, _, count in columns) == len(numbers)
    assert len(columns) <= most
    assert all(low <= high for low, high, _ in columns)


def test_memory_does_not_follow_the_numbers() -> None:
    spread = spread_of(list(range(50_000)))
    assert len(spread.buckets) < 130


def test_nothing_has_no_quantile_and_what_is_below_nothing_is_nothing() -> None:
    empty = Spread()
    assert (empty.quantile(0.5), empty.mean, list(empty.columns(9))) == (0.0, 0.0, [])
    empty.join(Spread())
    empty.add(-3)
    assert (empty.least, empty.most, empty.zeros) == (0.0, 0.0, 1)
