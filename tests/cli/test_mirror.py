"""`foldline mirror` and `foldline hook` as commands: what they print, and how they end."""

import io
import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foldline.cli import main
from foldline.processors.open_log import open_log
from foldline.producers.redaction import Redactor
from foldline.producers.redaction_key import key_of_log
from foldline.producers.spool import make_spool, spool_of
from tests.mirrors import RUN, Follower, append, foldline, imported
from tests.transcripts import SESSION, Transcript, called, line_of


def until(happens: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_a_mirror_waits_for_its_log_says_so_and_ends_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    url = f"sqlite:///{tmp_path}/s.db"
    open_log(url).close()
    (folder / "a.jsonl").write_bytes(called(Transcript(session_id="a0000000")).data)
    out, err = tmp_path / "out", tmp_path / "err"
    environment = {
        "FOLDLINE_STATE_DIR": str(tmp_path / "state"),
        "FOLDLINE_BUSY_TIMEOUT_MS": "50",
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
    }
    command = [sys.executable, "-c", RUN, "mirror", str(folder), "--log", url, "--json"]

    def kinds() -> list[str]:
        whole = out.read_bytes().rpartition(b"\n")[0]
        return [json.loads(line)["kind"] for line in whole.splitlines()]

    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [*command, "--interval-ms", "20"],
            env=environment,
            stdout=stdout,
            stderr=stderr,
        )
    try:
        until(lambda: "ready" in kinds())
        blocker = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        blocker.execute("BEGIN EXCLUSIVE")
        append(
            folder / "a.jsonl",
            line_of(Transcript(session_id="a0000000").user("more", uuid="z1")),
        )
        until(lambda: "waiting" in kinds())
        blocker.execute("ROLLBACK")
        blocker.close()
        until(lambda: "back" in kinds())
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, err.read_text()
    finally:
        process.kill()
        process.wait()
    assert kinds()[-1] == "done"
    assert b"waiting for the log" in err.read_bytes()
    redactor = Redactor(key_of_log(url))
    assert Follower(tmp_path, open_log(url)).image() == imported(
        tmp_path, folder / "a.jsonl", redactor=redactor
    )


def test_once_records_what_is_there_and_says_how_much(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(called(Transcript()).data)
    place = {"FOLDLINE_STATE_DIR": str(tmp_path / "state"), "HOME": str(tmp_path)}
    url = f"sqlite:///{tmp_path}/s.db"
    command = ("mirror", str(file), "--once", "--log", url)
    first = foldline(*command, "--json", environment=place)
    recorded, done = [json.loads(line) for line in first.stdout.splitlines()]
    assert (recorded["kind"], recorded["session_ids"]) == ("recorded", [SESSION])
    assert (done["kind"], done["events"]) == ("done", recorded["events"])
    file.write_bytes(called(Transcript(prefix="other")).data)
    again = foldline(*command, environment=place)
    assert again.returncode == 1
    assert b"ALARM" in again.stdout
    assert b"1 files, " in again.stdout


def test_once_ends_with_1_where_a_file_could_not_be_followed(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "list.jsonl").write_text('[{"type": "message", "role": "user"}]')
    done = run("mirror", str(tmp_path / "list.jsonl"), "--once", "--no-hooks")
    assert done.code == 1
    assert "cannot follow" in done.err


def test_once_ends_with_1_where_a_hook_was_set_aside(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told as `failed`, and counted as that."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    url = f"sqlite:///{tmp_path}/s.db"
    folder = spool_of(url)
    make_spool(folder)
    (folder / "1.json").write_text("{}")
    done = run("mirror", "--once", "--json", "--log", url)
    failed, last = [json.loads(line) for line in done.out.splitlines()]
    assert (failed["kind"], failed["path"]) == ("failed", str(folder / "1.refused"))
    assert (last["failed"], last["hooks_refused"], done.code) == (1, 1, 1)
    (folder / "2.json").write_text("{}")
    assert "1 hooks cannot be recorded" in run("mirror", "--once", "--log", url).out


def test_once_ends_with_130_where_it_was_stopped_before_its_end(tmp_path: Path) -> None:
    """The signal comes as soon as the command can hear it."""
    (tmp_path / "a.jsonl").write_bytes(called(Transcript()).data)
    stopped = (
        "import sys, signal; from foldline.cli import main, signals\n"
        "hear = signals.stop_on_signals\n"
        "import foldline.cli.mirror as mirror\n"
        "def at_once(stop):\n"
        "    hear(stop)\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "mirror.stop_on_signals = at_once\n"
        "sys.exit(main())"
    )
    url = f"sqlite:///{tmp_path}/s.db"
    done = subprocess.run(
        [sys.executable, "-c", stopped, "mirror", str(tmp_path), "--once", "--log", url],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 130, done.stderr


class Interrupted(io.BytesIO):
    """A stdin that is read when Ctrl-C comes."""

    @property
    def buffer(self) -> "Interrupted":
        return self

    def read(self, size: int | None = -1, /) -> bytes:
        raise KeyboardInterrupt(size)


def test_a_hook_that_is_interrupted_while_it_reads_ends_with_0_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Interrupted())
    assert main(["hook"]) == 0
    assert capsys.readouterr() == ("", "foldline hook: KeyboardInterrupt\n")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--no-hooks"], 2), (["nowhere.jsonl"], 3), (["--interval-ms", "0"], 2)],
)
def test_what_cannot_be_followed_is_refused_in_one_line(
    run: Callable[..., Any], arguments: list[str], code: int
) -> None:
    done = run("mirror", *arguments, "--once")
    assert (done.code, done.err.count("\n")) == (code, 1)


def test_the_lines_that_install_the_hooks_are_json_for_people_and_machines(
    run: Callable[..., Any],
) -> None:
    assert (
        json.loads(run("hook", "--print-settings").out)
        == run("hook", "--print-settings", "--json").json()
    )
