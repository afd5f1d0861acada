"""docs/command.md says what the command does."""

from pathlib import Path

from foldline.cli.failures import EXIT_CODES

COMMAND = Path(__file__).resolve().parents[2] / "docs" / "command.md"


def test_every_exit_code_is_documented_with_its_meaning() -> None:
    text = COMMAND.read_text(encoding="utf-8")
    rows = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    assert [row for row in rows if row not in text] == []
