"""docs/sizing.md: its numbers are those that were measured, its example is its formulas."""

import math
import re
from pathlib import Path

from foldline.settings import Settings

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = (DOCS / "sizing.md").read_text(encoding="utf-8")
BENCHMARKS = (DOCS / "benchmarks.md").read_text(encoding="utf-8")

MEASURED = re.findall(
    r"^\| (?:`(\w+)`)? ?\| .+ \| ([\d.,]+) \| (\w+) \|$", PAGE, re.MULTILINE
)
GB = 10**9


def measured(sign: str) -> float:
    (value,) = [value for name, value, _ in MEASURED if name == sign]
    return float(value.replace(",", ""))


def part_of(title: str) -> str:
    """What the benchmarks say of one thing, up to the next."""
    return BENCHMARKS.partition(f"\n**{title}**")[2].partition("\n**")[0]


def test_every_number_was_measured() -> None:
    """A number that is measured anew changes here, too."""
    assert len(MEASURED) >= 9
    assert [row for row in MEASURED if not _stands(row[1], part_of(row[2]))] == []


def _stands(number: str, text: str) -> bool:
    return re.search(rf"(?<![\d.,]){re.escape(number)}(?!\d|[.,]\d)", text) is not None


def test_the_example_is_what_the_formulas_give() -> None:
    """Two hundred agents, a year."""
    peak, size, days, replicas = 200, 1_000, 365, 3
    day = peak // 10 * 24 * 60 * 60
    workers = math.ceil(peak / (0.3 * measured("rate")))
    brokers = replicas * day * size * (days + 7 * measured("spread")) / GB
    restore_s = Settings.model_construct().snapshot_lag_events / measured("fold")
    for row in (
        f"| `peak`, `day` | {peak} a second, {day:,} |",
        f"| workers | {workers}, and one more |",
        f"| disk of the brokers | {brokers:,.0f} GB, of all three together |",
        f"| disk of a read node | {day * size * days * 1.5 / GB:,.0f} GB |",
        f"| restore without a table | {restore_s:.0f} s a partition |",
    ):
        assert row in PAGE
