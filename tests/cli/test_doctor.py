"""`foldline doctor`: it names what is wrong, says what to do, and touches nothing."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from foldline.cli import doctor_machine
from foldline.processors.log import Log
from tests.cli.conftest import Ran, Run

OTHERS_READ = 0o644


def findings(done: Ran, *, about: str = "", status: str = "") -> list[dict[str, Any]]:
    rows = done.lines()[:-1]
    return [
        row for row in rows if about in ("", row["about"]) and status in ("", row["status"])
    ]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_sound_log_is_healthy_and_stays_as_it_is(
    log: Log, run: Run, tmp_path: Path
) -> None:
    log.close()
    before = contents(tmp_path)
    done = run("doctor", "--json")
    assert done.code == 0
    assert done.lines()[-1]["healthy"] is True
    assert findings(done, status="BAD") == []
    (answer,) = [f for f in findings(done, about="log") if "answers" in f["detail"]]
    assert "1 IDLE" in answer["detail"] or "1 COMPLETED" in answer["detail"]
    assert contents(tmp_path) == before


def test_where_there_is_no_log_none_is_made(run: Run, tmp_path: Path) -> None:
    done = run("doctor", "--json")
    assert done.code == 0
    (finding,) = findings(done, about="log")
    assert "no log here yet" in finding["detail"]
    assert "foldline import" in finding["advice"]
    assert contents(tmp_path) == {}


@pytest.mark.usefixtures("log")
def test_a_session_that_nobody_goes_on_with_is_named(run: Run) -> None:
    (finding,) = findings(run("doctor", "--json"), about="log", status="WARNING")
    assert "open-1" in finding["detail"]
    assert "foldline recovery" in finding["advice"]


@pytest.mark.usefixtures("log")
def test_a_log_that_others_may_read_is_a_warning_with_the_command(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "sessions.db").chmod(OTHERS_READ)
    done = run("doctor", "--json")
    assert done.code == 0
    (finding,) = findings(done, about="file", status="WARNING")
    assert "mode 644" in finding["detail"]
    assert finding["advice"].endswith(f"chmod go= {tmp_path / 'sessions.db'}")


def test_a_file_that_is_no_log_is_bad_and_the_rest_is_still_looked_at(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "sessions.db").write_bytes(b"not a database" * 500)
    done = run("doctor", "--json")
    assert done.code == 1
    (finding,) = findings(done, status="BAD")
    assert finding["about"] == "log"
    assert findings(done, about="room")


def test_damaged_pages_are_found(log: Log, run: Run, tmp_path: Path) -> None:
    log.close()
    path = tmp_path / "sessions.db"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size - 4096)
        file.write(os.urandom(4096))
    done = run("doctor", "--json")
    assert done.code == 1
    assert findings(done, about="log", status="BAD")


def test_a_slip_in_a_variables_name_is_found(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDLINE_LEASE_TTL", "9000")
    monkeypatch.setenv("FOLDLINE_KAFKA__EXTRA__CLIENT_RACK", "a")
    (finding,) = findings(run("doctor", "--json"), about="settings", status="WARNING")
    assert finding["detail"].startswith("FOLDLINE_LEASE_TTL ")
    assert "FOLDLINE_LEASE_TTL_MS" in finding["advice"]


def test_a_setting_that_means_nothing_is_bad(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDLINE_BATCH_MAX", "many")
    done = run("doctor", "--json")
    assert done.code == 1
    (finding,) = findings(done, status="BAD")
    assert "FOLDLINE_BATCH_MAX" in finding["detail"]


def test_a_file_of_rules_that_cannot_be_read_is_bad(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("[[rule]]\nname = ")
    monkeypatch.setenv("FOLDLINE_REDACTION_RULES", str(rules))
    done = run("doctor", "--json")
    assert done.code == 1
    assert "rules.toml" in findings(done, about="redaction", status="BAD")[0]["detail"]


def test_a_log_over_a_network_is_bad(
    log: Log, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    del log
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr(doctor_machine, "MOUNTS", mounts)
    done = run("doctor", "--json")
    assert done.code == 1
    assert "nfs4" in findings(done, about="room", status="BAD")[0]["detail"]


def test_brokers_that_do_not_answer_are_bad(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as held:  # bound, and nobody listens
        held.bind(("127.0.0.1", 0))
        monkeypatch.setenv("FOLDLINE_URL", f"kafka://127.0.0.1:{held.getsockname()[1]}")
        monkeypatch.setenv("FOLDLINE_REGISTRY_URL", "http://127.0.0.1:1/")
        monkeypatch.setenv("FOLDLINE_REGISTRY_WAIT_MS", "0")
        done = run("doctor", "--json")
    assert done.code == 1
    assert findings(done, about="kafka", status="BAD")


@pytest.mark.usefixtures("log")
def test_people_read_lines_with_what_to_do(run: Run) -> None:
    done = run("doctor")
    assert done.code == 0
    assert "-> foldline recovery plan" in done.out
    assert done.out.splitlines()[-1].startswith("healthy, 0 bad, ")
