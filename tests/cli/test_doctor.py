"""`foldline doctor`: it names what is wrong, says what to do, and touches nothing."""

import os
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from foldline.cli import doctor_machine
from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.producers import spool
from foldline.producers.spool import Spooled, spool_of
from foldline.settings import Settings
from tests.cli.conftest import Ran, Run, as_somebody_else, write_done_session
from tests.transcripts import Transcript, called

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


def test_a_known_value_that_is_not_here_is_a_warning(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[value]]\nname = "database"\nenv = "DATABASE_PASSWORD"')
    monkeypatch.setenv("FOLDLINE_REDACTION_RULES", str(rules))
    monkeypatch.delenv("DATABASE_PASSWORD", raising=False)
    done = run("doctor", "--json")
    assert done.code == 0
    (finding,) = findings(done, about="redaction", status="WARNING")
    assert "value 'database': DATABASE_PASSWORD is not set here" in finding["detail"]


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


def test_brokers_that_do_not_answer_are_bad_and_the_state_is_still_looked_at(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket() as held:  # bound, and nobody listens
        held.bind(("127.0.0.1", 0))
        monkeypatch.setenv("FOLDLINE_URL", f"kafka://127.0.0.1:{held.getsockname()[1]}")
        monkeypatch.setenv("FOLDLINE_REGISTRY_URL", "http://127.0.0.1:1/")
        monkeypatch.setenv("FOLDLINE_REGISTRY_WAIT_MS", "0")
        monkeypatch.setenv("FOLDLINE_STATE_DIR", str(tmp_path))
        done = run("doctor", "--json")
    assert done.code == 1
    assert findings(done, about="kafka", status="BAD")
    assert findings(done, about="state")


@pytest.mark.usefixtures("log")
def test_people_read_lines_with_what_to_do(run: Run) -> None:
    done = run("doctor")
    assert done.code == 0
    assert "-> foldline recovery plan" in done.out
    assert done.out.splitlines()[-1].startswith("healthy, 0 bad, ")


def test_the_folder_of_blobs_is_looked_at(log: Log, run: Run) -> None:
    log.blobs.put(b"output")
    (finding,) = findings(run("doctor", "--json"), about="blobs")
    assert "sessions.db.blobs, 1 files, 6 bytes" in finding["detail"]


# --- hooks, and what lies beside a log ------------------------------------------------


@pytest.fixture
def left(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The spool of the log, in a data folder of its own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = spool_of(url)
    spool.make_spool(folder)
    return folder


def leave(folder: Path, *, age_s: int = 0) -> Path:
    record_id = spool.put(folder, Spooled(time.time_ns() // 1_000, "Stop", "s"))
    path = folder / f"{record_id}{spool.SUFFIX}"
    made = time.time() - age_s
    os.utime(path, (made, made))
    return path


def test_where_no_hook_is_installed_nothing_is_wrong(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    done = run("doctor", "--json")
    (finding,) = findings(done, about="hooks")
    assert finding["detail"].startswith("no hook has left anything in ")
    assert not (tmp_path / "data").exists()


def test_hooks_that_wait_are_counted_and_are_no_harm(run: Run, left: Path) -> None:
    leave(left)
    leave(left)
    (finding,) = findings(run("doctor", "--json"), about="hooks")
    assert finding["status"] == "OK"
    assert finding["detail"].startswith(f"2 hooks wait in {left}, ")


def test_hooks_that_no_mirror_takes_are_a_warning(run: Run, left: Path) -> None:
    leave(left)
    leave(left, age_s=90_000)
    (finding,) = findings(run("doctor", "--json"), about="hooks", status="WARNING")
    assert "2 hooks wait" in finding["detail"]
    assert "or their transcript is not read to its end" in finding["advice"]
    assert "for up to 90,0" in finding["detail"]
    assert "foldline mirror" in finding["advice"]


def test_a_spool_that_takes_nothing_more_in_is_bad(run: Run, left: Path) -> None:
    with leave(left).open("r+b") as file:
        file.truncate(spool.SPOOL_MAX_BYTES + 1)
    done = run("doctor", "--json")
    assert done.code == 1
    (finding,) = findings(done, about="hooks", status="BAD")
    assert "of 256.0 MiB" in finding["detail"]


def test_hooks_that_were_set_aside_are_counted(run: Run, left: Path) -> None:
    spool.set_aside(left, leave(left).name.removesuffix(spool.SUFFIX))
    (finding,) = findings(run("doctor", "--json"), about="hooks", status="WARNING")
    assert finding["detail"].startswith("1 hooks were set aside")
    assert finding["advice"].endswith("*.refused, and delete them")


def test_the_last_failure_of_a_hook_is_told(run: Run, left: Path) -> None:
    spool.say_failed(left, 0, "the first")
    spool.say_failed(left, 1_000_000, "the disk is full")
    (finding,) = findings(run("doctor", "--json"), about="hooks", status="WARNING")
    assert finding["detail"].endswith("1970-01-01T00:00:01.000000Z: the disk is full")
    assert finding["advice"].endswith("hook.log")


@pytest.mark.parametrize(
    "line", ["no json", "[1]", '{"at_us": "x"}', '{"at_us": 1, "reason": 5}', "\x1b[2J"]
)
def test_a_line_of_hook_log_that_is_none_is_told_as_it_is(
    run: Run, left: Path, line: str
) -> None:
    (left / spool.LOG_NAME).write_text(f"{line}\n\n")
    done = run("doctor", "--json")
    (finding,) = findings(done, about="hooks", status="WARNING")
    assert finding["detail"] == f"a hook failed: {line}"
    assert "\x1b" not in run("doctor").out


def test_a_spool_that_others_may_read_is_a_warning(run: Run, left: Path) -> None:
    left.chmod(0o755)
    (finding,) = findings(run("doctor", "--json"), about="hooks", status="WARNING")
    assert finding["advice"].endswith(f"chmod go= {left}")


def test_the_key_of_placeholders_is_looked_at(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "sessions.db.redaction-key"
    path.write_bytes(b"k" * 32)
    path.chmod(OTHERS_READ)
    (finding,) = findings(run("doctor", "--json"), about="redaction", status="WARNING")
    assert finding["advice"].endswith(f"chmod go= {path}")
    path.write_bytes(b"k")
    done = run("doctor", "--json")
    assert done.code == 1
    (finding,) = findings(done, about="redaction", status="BAD")
    assert finding["detail"].startswith(f"{path} does not hold 32 bytes")


def test_what_a_mirror_makes_is_nothing_to_warn_of(
    run: Run, left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the state folder and the spool are their owner's alone from the first on."""
    state = tmp_path / "of" / "state"
    monkeypatch.setenv("FOLDLINE_STATE_DIR", str(state))
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(called(Transcript()).data)
    assert run("mirror", str(path), "--once").code == 0
    assert (state / "mirror").is_dir()
    made = [*state.rglob("*"), state, *left.parents[:2]]
    assert all(one.stat().st_mode & 0o077 == 0 for one in made if one.is_dir())
    warned = findings(run("doctor", "--json"), status="WARNING")
    assert [one for one in warned if one["about"] in {"state", "hooks", "redaction"}] == []


@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
def test_a_log_that_cannot_be_written_is_no_full_disk(run: Run, scheme: str) -> None:
    folder = Path(tempfile.mkdtemp())  # where somebody else can go, too
    url = f"{scheme}:///{folder / 'log'}"
    try:
        log = open_log(url, settings=Settings(url=url))
        write_done_session(log, "done-1")
        log.close()
        for path in folder.rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        folder.chmod(0o555)
        with as_somebody_else():
            done = run("doctor", "--json", "--log", url)
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)
    assert done.code == 1
    (finding,) = findings(done, about="log", status="BAD")
    assert finding["advice"].startswith("give this user the right to write the log")
    assert "space" not in finding["advice"]
