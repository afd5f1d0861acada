"""A second look at what is stored: what it finds, what it never says; it only reads."""

import json
import sqlite3
from dataclasses import asdict
from pathlib import Path

import pytest

from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog
from foldline.producers.redaction import Redactor
from foldline.producers.redaction_rule import Rule, shape
from foldline.producers.redaction_rules import DEFAULT_RULES
from foldline.producers.scanning import FILE_CHARS, LISTED_MAX, Finding, Scanner, ScanReport
from foldline.settings import Settings
from tests.transcripts import KEY, SESSION, Import, Transcript, text, tool_use

ACME = "acme_" + "a1b2c3d4e5" * 3
"""What the rules of today do not know, and those of tomorrow do."""

NEWER: tuple[Rule, ...] = (*DEFAULT_RULES, shape("acme", "acme_", r"acme_[a-z0-9]{20,40}"))


@pytest.fixture
def log(tmp_path: Path) -> AuditableLog:
    """Secrets in a prompt, arguments, a name, an output in a blob, an unknown record."""
    log = open_log(f"sqlite:///{tmp_path}/sessions.db")
    script = Transcript()
    script.user([text(f"use {ACME}")])
    script.assistant("m1", tool_use("c1", tool=f"tool-{ACME}", key=ACME))
    script.result("c1", "x " * 2_000 + ACME)
    script.add("strange", payload=ACME)
    Import(log, tmp_path, Settings(inline_max_bytes=1_024)).take(script, "in.jsonl")
    return log


def scan(log: AuditableLog, rules: tuple[Rule, ...] = NEWER) -> ScanReport:
    scanner = Scanner(Redactor(KEY, rules))
    scanner.session(log, SESSION)
    return scanner.report


def test_what_newer_rules_know_is_found_in_every_place(log: AuditableLog) -> None:
    report = scan(log)
    assert {finding.rule for finding in report.findings} == {"acme"}
    assert {finding.where for finding in report.findings} == {"event", "structure", "blob"}
    types = {finding.event_type for finding in report.findings}
    assert {"UserMessage", "ToolCallRequested", "ForeignRecord"} <= types
    assert (report.sessions, report.blobs) == (1, 1)
    assert report.found == sum(finding.count for finding in report.findings)


def test_a_finding_says_where_and_never_what(log: AuditableLog) -> None:
    said = json.dumps(asdict(scan(log)))
    assert ACME not in said
    assert ACME[5:] not in said


def test_the_rules_of_the_import_find_nothing_again(log: AuditableLog) -> None:
    assert scan(log, DEFAULT_RULES).findings == []


def test_a_scan_changes_no_byte(log: AuditableLog, tmp_path: Path) -> None:
    before = image_of(tmp_path)
    scan(log)
    assert image_of(tmp_path) == before


def image_of(folder: Path) -> dict[Path, bytes]:
    """Every file but the one in which SQLite notes who reads."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in files if path.suffix != ".db-shm"}


def test_a_blob_that_cannot_be_read_is_named(log: AuditableLog, tmp_path: Path) -> None:
    (blob,) = [p for p in (tmp_path / "sessions.db.blobs").rglob("*") if p.is_file()]
    blob.unlink()
    report = scan(log)
    assert len(report.unread) == 1
    assert report.blobs == 0


def test_a_newer_rule_finds_a_secret_over_two_records(tmp_path: Path) -> None:
    log = open_log(f"sqlite:///{tmp_path}/sessions.db")
    script = Transcript()
    script.user([text(f"it begins {ACME[:14]}")])
    script.user([text(f"{ACME[14:]} and ends")])
    Import(log, tmp_path, Settings()).take(script, "in.jsonl")
    (finding,) = scan(log).findings
    assert (finding.where, finding.rule, finding.count) == ("event", "acme", 1)
    log.close()


def test_a_session_that_is_damaged_is_named_and_what_was_found_stays(
    log: AuditableLog, tmp_path: Path
) -> None:
    whole = scan(log)
    with sqlite3.connect(tmp_path / "sessions.db") as database:
        database.execute(
            "UPDATE events SET body = x'00'"
            " WHERE position = (SELECT max(position) FROM events)"
        )
    database.close()
    report = scan(log)
    (unread,) = report.unread
    assert unread.startswith(f"session {SESSION}: ")
    assert 0 < report.found < whole.found


def test_a_file_that_is_gone_by_now_is_nothing_to_name(tmp_path: Path) -> None:
    scanner = Scanner(Redactor(KEY, NEWER))
    scanner.file(tmp_path / "drained")
    assert (scanner.report.files, scanner.report.unread) == (0, [])


def test_what_cannot_be_read_is_named_and_the_next_file_is_looked_at(
    tmp_path: Path,
) -> None:
    (tmp_path / "next").write_text(ACME)
    scanner = Scanner(Redactor(KEY, NEWER))
    for name in ("", "next"):
        scanner.file(tmp_path / name)
    assert scanner.report.unread == [f"{tmp_path}: Is a directory"]
    assert scanner.report.found == 1


@pytest.mark.parametrize("back", [20, 100, 9_000])
def test_a_secret_near_the_border_of_two_parts_is_counted_once(
    tmp_path: Path, back: int
) -> None:
    path = tmp_path / "file"
    path.write_text("-" * (FILE_CHARS - back) + f" {ACME} " + "-" * FILE_CHARS)
    scanner = Scanner(Redactor(KEY, NEWER))
    scanner.file(path)
    assert scanner.report.found == 1


@pytest.mark.parametrize("at", [0, FILE_CHARS - 9, FILE_CHARS + 50, 2 * FILE_CHARS])
def test_a_file_is_looked_at_to_its_end(tmp_path: Path, at: int) -> None:
    size = 2 * FILE_CHARS
    path = tmp_path / "spool"
    dashes = b"- " * (at // 2), b" -" * ((size - at) // 2)
    path.write_bytes(b"\xff" + dashes[0] + ACME.encode() + dashes[1])
    scanner = Scanner(Redactor(KEY, NEWER))
    scanner.file(path)
    (finding,) = scanner.report.findings
    assert (finding.where, finding.rule, finding.path) == ("file", "acme", str(path))


def test_a_report_lists_so_many_findings_and_counts_all() -> None:
    report = ScanReport()
    for _ in range(LISTED_MAX + 3):
        report.add(Finding("event", "acme", 2))
    assert len(report.findings) == LISTED_MAX
    assert report.found == 2 * (LISTED_MAX + 3)
