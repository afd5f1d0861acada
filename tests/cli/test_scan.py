"""`foldline scan`: a second look with newer rules, which says where and never what."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foldline.processors.log import Log
from tests.cli.conftest import Writer, as_somebody_else

Run = Callable[..., Any]

ACME = "acme_" + "a1b2c3d4e5" * 3
RULES = '[[rule]]\nname = "acme"\nanchors = ["acme_"]\npattern = "acme_[a-z0-9]{20,40}"\n'
TOKEN = "ghp_" + "aB3dE5gH7jK9" * 3


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    return path


@pytest.fixture
def leaky(log: Log) -> Log:
    """A log that holds a secret which was written past the redactor."""
    Writer(log, "open-1").append_message(f"my token is {ACME}")
    return log


@pytest.mark.usefixtures("log")
def test_a_clean_log_is_said_to_be_clean(run: Run) -> None:
    done = run("scan", "--json")
    assert done.code == 0
    view = done.json()
    assert (view["ok"], view["found"], view["findings"]) == (True, 0, [])
    assert (view["sessions"], view["events"]) == (3, 22)
    assert run("scan").out.startswith("clean: ")


@pytest.mark.usefixtures("leaky")
def test_a_newer_rule_finds_what_was_stored(run: Run, rules: Path) -> None:
    done = run("scan", "--rules", str(rules), "--json")
    assert done.code == 1
    (finding,) = done.json()["findings"]
    assert finding["session_id"] == "open-1"
    assert (finding["rule"], finding["count"]) == ("acme", 1)
    assert finding["event_type"] == "UserMessage"
    assert ACME not in done.out


@pytest.mark.usefixtures("leaky")
def test_people_are_told_the_place_and_not_the_secret(run: Run, rules: Path) -> None:
    done = run("scan", "open", "--rules", str(rules))
    assert done.code == 1
    assert "acme" in done.out
    assert "open-1, seq " in done.out
    assert "not clean" in done.out
    assert ACME[5:] not in done.out


@pytest.mark.usefixtures("leaky")
def test_only_the_sessions_that_are_named_are_looked_at(run: Run, rules: Path) -> None:
    assert run("scan", "done", "--rules", str(rules), "--json").code in {0, 3}
    assert run("scan", "nobody").code == 3


def test_files_beside_a_log_are_looked_at(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "spool" / "deep"
    folder.mkdir(parents=True)
    (folder / "one.jsonl").write_text(f'{{"text": "{TOKEN}"}}\n')
    (folder / "two.log").write_text("nothing\n")
    done = run("scan", "--only-files", "--file", str(tmp_path / "spool"), "--json")
    assert done.code == 1
    view = done.json()
    assert view["files"] == 2
    assert view["findings"][0]["path"].endswith("one.jsonl")
    assert TOKEN not in done.out


def test_what_cannot_be_read_is_named_and_is_not_called_clean(run: Run) -> None:
    folder = Path(tempfile.mkdtemp())  # where somebody else can go, too
    closed = folder / "closed"
    closed.mkdir()
    (folder / "log").write_text("nothing\n")
    listed = folder / "listed"  # and nothing in it may be looked at
    listed.mkdir()
    (listed / "log").write_text("nothing\n")
    listed.chmod(0o744)
    folder.chmod(0o755)
    closed.chmod(0)
    try:
        with as_somebody_else():
            done = run("scan", "--only-files", "--file", str(folder))
            view = run("scan", "--only-files", "--file", str(folder), "--json").json()
    finally:
        closed.chmod(0o700)
        shutil.rmtree(folder)
    assert done.code == 1
    for path in (closed, listed / "log"):
        assert f"not read: {path}: Permission denied" in done.out
    assert "not all could be read: 0 found" in done.out
    assert (view["ok"], view["files"]) == (False, 1)


def test_what_makes_no_sense_is_refused(run: Run, tmp_path: Path) -> None:
    assert run("scan", "--only-files").code == 2
    assert run("scan", "--only-files", "--file", str(tmp_path / "none")).code == 3
    bad = tmp_path / "bad.toml"
    bad.write_text("what = 1")
    assert run("scan", "--rules", str(bad)).code == 2


@pytest.mark.usefixtures("log")
def test_an_import_goes_by_the_same_file_of_rules(
    run: Run, rules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.transcripts import SESSION, Transcript

    script = Transcript()
    script.user(f"use {ACME}")
    (tmp_path / "t.jsonl").write_bytes(script.data)
    monkeypatch.setenv("FOLDLINE_REDACTION_RULES", str(rules))
    assert run("import", str(tmp_path / "t.jsonl")).code == 0
    assert ACME not in run("events", SESSION, "--json").out
    assert run("scan", "--json").code == 0
