"""The storm: harnesses and recoveries killed and frozen at random, people in between.

Whatever comes together, in the end each session is completed or asks a person, what must
not happen twice did not, everything acknowledged is in the log, and the log is sound. What
a seed is made of, and what is checked, is in `benchmarks/storm*.py`; a seed that fails is
printed with the command that repeats it.
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.logs import FreshLog

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 200
SEEDS_ON_LINES = 3
SEEDS_ON_KAFKA = 5
LIMIT_S = 900
ZEROS = ("acknowledged_lost", "unsafe_twice", "reconcilable_twice")

pytestmark = [pytest.mark.crash, pytest.mark.slow]


def storm(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run one, show its counts, and give its last line."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("FOLDLINE_")}
    command = [sys.executable, "benchmarks/storm.py", "--json", "--folder", str(folder)]
    done = subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env=own | dict(environment or {}),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    print(done.stderr)  # noqa: T201 - the counts, and how to repeat a seed
    assert done.returncode == 0, done.stderr
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(last)  # noqa: T201 - see above
    return last


def check(last: dict[str, Any], *, seeds: int) -> None:
    """Nothing lost, nothing twice, nothing left undone; and there was a storm at all."""
    assert {last[name] for name in ZEROS} == {0}
    assert last["seeds"] == seeds
    assert last["sessions"] == last["parked"] + last["completed"] >= seeds
    assert last["kills"] >= seeds
    assert last["completed"] > 0


def test_whatever_comes_together_nothing_is_lost_and_nothing_is_done_twice(
    tmp_path: Path,
) -> None:
    """Seeded; the processes' own timing is not."""
    check(storm(tmp_path, "--seeds", str(SEEDS)), seeds=SEEDS)


def test_nor_on_a_log_of_json_lines(tmp_path: Path) -> None:
    log = ("--log", f"jsonl:///{tmp_path / 'here'}")
    check(storm(tmp_path, "--seeds", str(SEEDS_ON_LINES), *log), seeds=SEEDS_ON_LINES)
    assert (tmp_path / "here").is_dir()


@pytest.mark.parametrize(
    "url", ["memory:", "http://127.0.0.1:1", "sqlite:nowhere", "jsonl:///{}/a-file"]
)
def test_a_log_that_no_storm_can_have_is_refused_at_once(
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "a-file").touch()
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    monkeypatch.setattr(sys, "argv", ["storm.py", "--log", url.format(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module("storm").main()
    assert ended.value.code == 2
    assert "error: --log" in capsys.readouterr().err


@pytest.mark.kafka
def test_nor_on_kafka_where_the_workers_are_killed_too(
    fresh_log: FreshLog, tmp_path: Path
) -> None:
    seeds = ("--seeds", str(SEEDS_ON_KAFKA))
    log = ("--log", fresh_log.cluster.url)
    last = storm(tmp_path, *seeds, *log, environment=fresh_log.environment)
    check(last, seeds=SEEDS_ON_KAFKA)
