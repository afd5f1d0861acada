"""Samples, rounds and how a result is shown.

What is compared is measured in turns, round by round, so that a noisy moment of the
machine hits everybody; a ratio is the median over rounds of the ratio within a round.
"""

import argparse
import json
import os
import platform
import sqlite3
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
CACHE_FOLDER = CACHE / "foldline" / "benchmarks"
"""Where peers are installed and measured files lie: on a real disk, not in memory."""


def options(description: str) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--json", action="store_true", help="end with one line of JSON on stdout"
    )
    parser.add_argument(
        "--quick", action="store_true", help="little of everything: a try, no result"
    )
    parser.add_argument(
        "--folder", type=Path, default=CACHE_FOLDER, help="where measured files lie"
    )
    return parser


def percentile(samples: Sequence[float], percent: float) -> float:
    """The sample below which so many percent of them lie (nearest rank)."""
    ordered = sorted(samples)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


Rounds = dict[str, list[list[float]]]
"""Samples by name and round."""


def in_turns(
    runs: Mapping[str, Callable[[], list[float]]], *, rounds: int, warm_up: int = 1
) -> Rounds:
    """Run each once per round; every other round goes backwards.

    Args:
        runs: what gives the samples of one round, by name.
        rounds: how many rounds count.
        warm_up: how many rounds before them do not.
    """
    samples: Rounds = {name: [] for name in runs}
    for number in range(-warm_up, rounds):
        for name in list(runs)[:: 1 if number % 2 == 0 else -1]:
            found = runs[name]()
            if number >= 0:
                samples[name].append(found)
    return samples


def ratio(samples: Rounds, name: str, to: str) -> float:
    """The median over rounds of one's p50 over the other's."""
    pairs = zip(samples[name], samples[to], strict=True)
    return statistics.median(
        statistics.median(mine) / statistics.median(theirs) for mine, theirs in pairs
    )


def summary(rounds: Sequence[Sequence[float]]) -> dict[str, float]:
    """p50 (the median of the rounds' medians) and p99 (of all samples), in microseconds."""
    everything = [sample for found in rounds for sample in found]
    return {
        "p50_us": round(statistics.median(map(statistics.median, rounds)) * 1e6, 1),
        "p99_us": round(percentile(everything, 99) * 1e6, 1),
        "samples": len(everything),
    }


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "cores": os.cpu_count(),
        "system": platform.system(),
        "arch": platform.machine(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "load_1m": round(os.getloadavg()[0], 2),
    }


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows in columns, numbers to the right."""
    cells = [[str(head) for head in heads], *([_cell(c) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def say(text: str = "") -> None:
    """A line for people; on stderr, so that stdout stays for the result."""
    print(text, file=sys.stderr, flush=True)


def target(name: str, value: float, limit: float, *, at_least: bool = False) -> bool:
    """Say whether a target was reached."""
    reached = value >= limit if at_least else value <= limit
    bound = "at least" if at_least else "at most"
    mark = "reached" if reached else "MISSED "
    say(f"{mark}  {name}: {_cell(value)} ({bound} {_cell(limit)})")
    return reached


def finish(arguments: argparse.Namespace, result: Mapping[str, Any]) -> None:
    """The last line: one JSON object."""
    if arguments.json:
        print(json.dumps({**result, "quick": arguments.quick, "machine": machine()}))
