"""A host whose clock is wrong: Python reads this file at its start, where it is told of it.

`FOLDLINE_TEST_SKEW_S` says by how many seconds; with `FOLDLINE_TEST_SKEW_TURNS_S` the
clock is as far behind after so many seconds as it was ahead before: it jumps back while
the process runs. Clocks that only measure how long something takes are left alone, as
they are on a host whose date somebody sets.
"""

import os
import time

_SKEW_NS = int(float(os.environ.get("FOLDLINE_TEST_SKEW_S", "0")) * 1e9)
_TURNS_NS = int(float(os.environ.get("FOLDLINE_TEST_SKEW_TURNS_S", "0")) * 1e9)
_BEGAN_NS = time.monotonic_ns()
_true_ns = time.time_ns


def _wrong_ns() -> int:
    """Nanoseconds since 1970, by this host."""
    turned = _TURNS_NS and time.monotonic_ns() - _BEGAN_NS > _TURNS_NS
    return _true_ns() + (-_SKEW_NS if turned else _SKEW_NS)


time.time_ns = _wrong_ns
time.time = lambda: _wrong_ns() / 1e9
