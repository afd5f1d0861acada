"""A transcript that was imported comes back: what is exported tells the same again."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.processors.open_log import open_log
from tests.exports import STEPS, back, exported, transcript
from tests.transcripts import SESSION, Import, Transcript, called, text, tool_use

FIXTURES = sorted((Path(__file__).parent.parent / "fixtures").rglob("*.jsonl"))
TOKEN = "ghp_" + "aB3dE5gH7jK9" * 3


def lines_of(into: Import, session_id: str = SESSION) -> list[dict[str, Any]]:
    """The records of an export that loses nothing."""
    found, path = exported(into.log, session_id, into.folder)
    assert found.lossless, found.examples
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_fixture_comes_back(into: Import, path: Path) -> None:
    report = into.file(path)
    for session in report.sessions:
        before, after = back(into.log, session.session_id, into.folder)
        assert before == after


@settings(deadline=None, max_examples=1200)
@given(st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 60)), max_size=60))
def test_any_transcript_comes_back(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]]
) -> None:
    into = Import(open_log("memory:"), tmp_path_factory.mktemp("any"))
    report = into.take(transcript(steps))
    for session in report.sessions:
        before, after = back(into.log, session.session_id, into.folder)
        assert before == after


def test_every_step_there_is_comes_back(into: Import) -> None:
    into.take(transcript([(step, n) for n in range(40) for step in range(len(STEPS))]))
    before, after = back(into.log, SESSION, into.folder)
    assert len(before) > 1_000
    assert before == after
