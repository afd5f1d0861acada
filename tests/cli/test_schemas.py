"""schemas show, freeze and check, as the command gives them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foldline.schemas.authority import AUTHORITY
from foldline.schemas.events import EVENT_TYPES
from foldline.schemas.frozen import NO_EVENTS

Run = Callable[..., Any]


def test_show_lists_every_event_type_with_its_authority(run: Run) -> None:
    listed = {v["type"]: v["authority"] for v in run("schemas", "show", "--json").lines()}
    assert listed == {**AUTHORITY, **dict.fromkeys(NO_EVENTS)}


def test_show_prints_the_avro_schema_of_a_type(run: Run) -> None:
    for arguments in ((), ("--json",)):  # a file's text, and one line
        schema = json.loads(run("schemas", "show", "ToolExecutionStarted", *arguments).out)
        assert schema["name"] == "ToolExecutionStarted"
        assert schema["fields"][0]["name"] == "event_id"


def test_a_type_that_there_is_not_is_exit_code_three(run: Run) -> None:
    done = run("schemas", "show", "GoalSett")
    assert done.code == 3
    assert "did you mean GoalSet" in done.err


def test_schemas_needs_no_log(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDLINE_URL", "nonsense:")
    assert run("schemas", "show").code == 0


def test_what_was_frozen_checks_and_what_was_changed_does_not(
    run: Run, tmp_path: Path
) -> None:
    folder = ("--folder", str(tmp_path / "avro"))
    (tmp_path / "avro").mkdir()
    written = run("schemas", "freeze", *folder, "--json").json()["written"]
    assert len(written) >= len(EVENT_TYPES)
    assert run("schemas", "check", *folder, "--json").json() == {
        "ok": True,
        "problems": [],
    }
    (frozen,) = [path for path in written if "GoalSet/" in path]
    text = Path(frozen).read_text(encoding="utf-8")
    Path(frozen).write_text(text.replace('"blocks"', '"words"'), encoding="utf-8")
    done = run("schemas", "check", *folder, "--json")
    assert done.code == 1
    assert done.json()["ok"] is False
    assert any(p["name"] == "GoalSet" for p in done.json()["problems"])
    assert "GoalSet" in run("schemas", "check", *folder).out
