"""The benchmark of contexts: what it takes, and where it has nothing to measure."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.transcripts import Transcript

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A script, so found by its folder; it builds no large sessions here."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    module = importlib.import_module("context")
    monkeypatch.setattr(module, "SIZES_QUICK", (50,))
    monkeypatch.setattr(module, "COMPACTED_BEFORE_END", 20)
    monkeypatch.setattr(module, "BUILDS", 1)
    return module


def measure(benchmark: Any, monkeypatch: pytest.MonkeyPatch, path: Path) -> int:
    """Its exit code."""
    argv = ["context.py", str(path), "--quick", "--json"]
    monkeypatch.setattr(sys, "argv", argv)
    return benchmark.main()


@pytest.mark.parametrize("name", ["", "notes.txt", "gone"])
def test_where_nothing_is_imported_it_says_so_in_one_line(
    benchmark: Any,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "notes.txt").write_text("hello", encoding="utf-8")
    assert measure(benchmark, monkeypatch, tmp_path / name) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[-1] == f"no model call in {tmp_path / name}"


def test_a_file_is_taken_and_the_result_says_what_its_shares_are_of(
    benchmark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = Transcript()
    script.user("hello")
    script.assistant("m1", {"type": "text", "text": "hi"})
    (tmp_path / "a.jsonl").write_bytes(script.data)
    assert measure(benchmark, monkeypatch, tmp_path / "a.jsonl") == 0
    found = json.loads(capsys.readouterr().out)
    of = found["denominators"]
    assert (found["calls"], of["sessions"]) == (1, 1)
    assert of["tokens_raw"] == found["tokens_raw_mean"] > 0
    assert of["raw_leaves_out"] == ["reasoning", "tool declarations"]
