"""The environment of a process whose host has a wrong clock."""

from collections.abc import Mapping
from pathlib import Path

from tests.cluster.shared import ROOT

_FOLDER = Path(__file__).parents[1] / "skewed"


def wrong_clock(ahead_s: float, *, turns_after_s: float = 0) -> Mapping[str, str]:
    """A clock that is so far ahead, and perhaps as far behind after some seconds."""
    return {
        "PYTHONPATH": f"{_FOLDER}:{ROOT}",
        "FOLDLINE_TEST_SKEW_S": str(ahead_s),
        "FOLDLINE_TEST_SKEW_TURNS_S": str(turns_after_s),
    }
