"""Whether a pattern may be slow on some text: how often it may go back and try again.

Python's own parser takes the pattern apart. A repetition that gives back what it took
multiplies the ways in which a text can be tried, one inside another raises them to a
power; a possessive one and an atomic group have one way.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

REPEAT_MAX = 20_000
"""The highest upper bound of a repetition."""

WAYS_MAX = 10_000
"""How many ways a pattern may try at one place of a text: a fraction of a millisecond."""

UNBOUNDED = "a repetition in its pattern has no upper bound: write {0,200} for *"
TOO_HIGH = f"a repetition in its pattern goes beyond {REPEAT_MAX:,}"
TOO_MANY = (
    "some text would make its pattern slow: bound its repetitions lower, and write"
    " {0,200}+ where one gives nothing back"
)

_Items = Sequence[tuple[Any, Any]]

# The module has a name of its own only in private; what it gives is that of `re`.
_parser: Any = import_module("re._parser")


class _SlowError(Exception):
    """What is wrong with the pattern."""


def slow_in(pattern: str) -> str:
    """Why a text may make this pattern slow; empty where none can.

    Raises:
        re.error: it is no pattern.
    """
    try:
        _ways(cast("_Items", _parser.parse(pattern)), last=True)
    except _SlowError as slow:
        return str(slow)
    return ""


def _ways(items: _Items, *, last: bool = False) -> int:
    """How many ways these may match one text, from one place on.

    After what comes last nothing can fail, so it gives nothing back.
    """
    ways = 1
    for index, (kind, argument) in enumerate(items):
        ends = last and index == len(items) - 1
        ways = _few_enough(ways * _ways_of(str(kind), argument, last=ends))
    return ways


def _ways_of(kind: str, argument: Any, *, last: bool) -> int:
    match kind:
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return _repeated(kind, argument, last=last)
        case "SUBPATTERN":
            return _ways(argument[3], last=last)
        case "BRANCH":
            return _chosen(argument[1], last=last)
        case "GROUPREF_EXISTS":
            return _ways(argument[1], last=last) + _ways(argument[2] or (), last=last)
        case "ASSERT" | "ASSERT_NOT":
            _ways(argument[1])
        case "ATOMIC_GROUP":
            _ways(argument)
        case _:
            pass
    return 1


def _chosen(branches: Sequence[_Items], *, last: bool) -> int:
    """One of several; where each begins with another letter, a text leaves one."""
    ways = [_ways(branch, last=last) for branch in branches]
    firsts = [str(branch[0]) if branch else "" for branch in branches]
    apart = len(set(firsts)) == len(firsts)
    literal = all(first.startswith("(LITERAL,") for first in firsts)
    return _few_enough(max(ways) if apart and literal else sum(ways))


def _repeated(kind: str, argument: tuple[int, int, _Items], *, last: bool) -> int:
    low, high, items = argument
    if high == int(_parser.MAXREPEAT):
        raise _SlowError(UNBOUNDED)
    if high > REPEAT_MAX:
        raise _SlowError(TOO_HIGH)
    inner = _ways(items)
    if kind == "POSSESSIVE_REPEAT":
        return 1
    if inner == 1:
        return 1 if last else high - low + 1
    ways = 0
    for count in range(low, high + 1):
        ways = _few_enough(ways + inner**count)
    return max(ways, 1)


def _few_enough(ways: int) -> int:
    if ways > WAYS_MAX:
        raise _SlowError(TOO_MANY)
    return ways
