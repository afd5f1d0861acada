"""The command on a log of JSON lines: it reads it as any other, and names bad lines."""

from pathlib import Path

import pytest

from foldline.processors.log import Log
from tests.cli.conftest import Ran, Run

TRANSCRIPT = Path(__file__).resolve().parents[1] / "fixtures" / "claude_code"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Override: all fixtures of this folder use it."""
    return f"jsonl:///{tmp_path}/sessions.jsonl"


def test_every_command_reads_a_log_of_json_lines_as_any_other(log: Log, run: Run) -> None:
    for command in (
        ("sessions",),
        ("show", "open-1"),
        ("events", "done-1"),
        ("state", "done-1"),
        ("tail", "done-1"),
        ("tree", "done-1"),
        ("replay", "done-1"),
        ("recovery", "plan", "open-1"),
        ("fork", "done-1", "--at-seq", "2"),
        ("import", str(TRANSCRIPT), "--json"),
    ):
        done: Ran = run(*command)
        assert (done.code, done.err) in ((0, ""), (1, "")), (command, done)
    verified = run("verify", "--json").json()
    assert (verified["ok"], verified["sessions"]) == (True, 6)
    assert {row.session_id for row in log.sessions()} >= {"open-1", "done-1", "mirror-1"}


def test_verify_names_a_damaged_line_by_its_number(
    log: Log, run: Run, tmp_path: Path
) -> None:
    log.close()
    path = tmp_path / "sessions.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if b'"session":"done-1"' in line)
    lines[number] = lines[number].replace(b'"view"', b'"View"')
    path.write_bytes(b"".join(lines))
    done = run("verify")
    assert done.code == 1
    assert f"line {number + 1} " in done.out + done.err


def test_a_log_of_json_lines_that_is_not_there_is_not_made_by_reading(
    run: Run, tmp_path: Path
) -> None:
    done = run("sessions", "--log", f"jsonl:///{tmp_path}/nowhere/x.jsonl")
    assert done.code == 3
    assert not (tmp_path / "nowhere").exists()
