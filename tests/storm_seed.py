"""Storms: chance from a seed that is printed, and can be given again.

FOLDLINE_STORM_SEED=7 pytest -m storm tests/processors/test_worker_storm.py

FOLDLINE_STORM_ROUNDS makes one shorter or longer.
"""

import os
import random

import pytest

by_name = pytest.mark.skipif(
    "'storm' not in config.getoption('markexpr')", reason="by name only: -m storm"
)
"""Keeps a test out of every run that does not ask for storms."""


def storm_seed() -> int:
    """The seed of this run: given, or new; printed either way."""
    given = os.environ.get("FOLDLINE_STORM_SEED")
    seed = int(given) if given else random.SystemRandom().randrange(2**32)
    print(f"FOLDLINE_STORM_SEED={seed}")  # noqa: T201 - for whoever runs it again
    return seed


def storm_rounds(otherwise: int) -> int:
    """How many faults a storm has."""
    return int(os.environ.get("FOLDLINE_STORM_ROUNDS") or otherwise)
