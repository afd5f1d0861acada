"""The command as a process: exit codes, streams, signals, and files that are no logs."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foldline.cli.app import app
from foldline.cli.failures import EXIT_CODES
from foldline.processors.log import Log

Foldline = Callable[..., Any]
COMMAND = str(Path(sys.executable).with_name("foldline"))


def test_help_lists_every_command_and_every_exit_code(foldline: Foldline) -> None:
    done = foldline("--help")
    assert done.code == 0
    for name in app:
        assert re.search(rf"(?<![\w-]){name}\b", done.out), name
    assert "--log" in done.out
    assert "--json" in done.out
    for code, meaning in EXIT_CODES.items():
        assert f"{code}  {meaning}" in done.out


def test_help_loads_neither_events_nor_a_database() -> None:
    """What is heavy is loaded by the command that needs it."""
    heavy = ("pydantic", "fastavro", "sqlite3", "asyncio", "foldline.schemas")
    script = (
        "import sys; from foldline.cli import main; main(['--help']);"
        f"print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_the_version_is_that_of_the_package(foldline: Foldline) -> None:
    from importlib.metadata import version

    assert foldline("--version").out.strip() == version("foldline")


@pytest.mark.parametrize(
    "arguments",
    [
        ("evnts",),
        ("events",),
        ("events", "s", "--after-seq", "x"),
        ("events", "s", "--bogus"),
        ("sessions", "--log"),
        ("sessions", "--log", "ftp://example.org"),
        ("sessions", "--log", "kafka://localhost:9092"),
        ("sessions", "--limit", "0"),
        ("schemas", "shwo"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_exit_code_two(
    run: Foldline, arguments: tuple[str, ...]
) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("foldline: ")
    assert len(done.err.splitlines()) == 1


def test_with_json_an_error_is_also_an_object_on_stdout(foldline: Foldline) -> None:
    done = foldline("sessions", "--json", "--log", "sqlite:///nowhere/x.db")
    error = done.json()["error"]
    assert (error["kind"], error["exit_code"]) == ("NoLogError", done.code)
    assert error["looked_at"].startswith("nowhere/x.db")
    assert error["retryable"] is False


def test_a_setting_that_makes_no_sense_is_named(foldline: Foldline) -> None:
    environment = os.environ | {"FOLDLINE_BATCH_MAX": "many"}
    done = foldline("sessions", env=environment)
    assert done.code == 2
    assert "FOLDLINE_BATCH_MAX" in done.err


def a_newer_log(path: Path, log: Log) -> None:
    """The log's own file, with a format number that nobody knows yet."""
    log.close()
    database = sqlite3.connect(path)
    with database:
        database.execute("PRAGMA user_version = 99")
        database.execute("UPDATE meta SET value = '99' WHERE name LIKE '%format%'")
    database.close()


def a_foreign_database(path: Path) -> None:
    database = sqlite3.connect(path)
    with database:
        database.execute("CREATE TABLE cats (name TEXT)")
    database.close()


@pytest.mark.parametrize("command", ["sessions", "show s", "verify", "tail s"])
def test_a_file_that_is_no_log_is_exit_code_four(
    run: Foldline, tmp_path: Path, command: str
) -> None:
    files = {"text.db": b"this is no database at all\n" * 100}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    a_foreign_database(tmp_path / "cats.db")
    for name in (*files, "cats.db"):
        before = (tmp_path / name).read_bytes()
        done = run(*command.split(), "--log", f"sqlite:///{tmp_path / name}")
        assert done.code == 4, done
        assert name in done.err
        assert len(done.err.splitlines()) == 1
        assert (tmp_path / name).read_bytes() == before


def test_a_torn_log_is_exit_code_four(
    foldline: Foldline, tmp_path: Path, log: Log, url: str
) -> None:
    log.close()
    file = tmp_path / "sessions.db"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    done = foldline("sessions", "--log", url)
    assert done.code == 4, done
    assert "Traceback" not in done.err


def test_a_newer_log_is_exit_code_four_and_says_to_upgrade(
    foldline: Foldline, tmp_path: Path, log: Log, url: str
) -> None:
    a_newer_log(tmp_path / "sessions.db", log)
    done = foldline("sessions", "--log", url)
    assert done.code == 4, done
    assert "upgrade" in done.err


def test_a_folder_in_the_place_of_a_log_is_exit_code_four(
    foldline: Foldline, tmp_path: Path
) -> None:
    done = foldline("sessions", "--log", f"sqlite:///{tmp_path}")
    assert done.code == 4, done
    assert len(done.err.splitlines()) == 1


def test_an_empty_file_is_no_log_and_stays_empty(
    foldline: Foldline, tmp_path: Path
) -> None:
    (tmp_path / "empty.db").touch()
    done = foldline("sessions", "--log", f"sqlite:///{tmp_path / 'empty.db'}")
    assert done.code == 3
    assert (tmp_path / "empty.db").stat().st_size == 0


@pytest.mark.usefixtures("log")
def test_a_reader_that_goes_away_ends_the_command_quietly(url: str) -> None:
    """As with `foldline events SESSION | head -1`, however much is still to come."""
    script = f"{COMMAND} events open-1 --json --log {url} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 141)  # 0: all was written before true had gone
    assert done.stderr == ""


@pytest.mark.usefixtures("log")
def test_a_pipe_that_nobody_reads_is_exit_code_141(url: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [COMMAND, "sessions", "--log", url],
        stdout=write_end,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.usefixtures("log")
def test_a_closed_stdout_is_no_traceback(url: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{COMMAND} sessions --log {url} >&-"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("log")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
def test_an_output_that_takes_nothing_more_is_exit_code_four(url: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{COMMAND} sessions --log {url} > /dev/full"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4, done
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("log")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("sessions --json >/dev/full", 4),
        ("verify --json >/dev/full", 4),
        ("bogus --json >/dev/full", 2),
        ("bogus 2>/dev/full", 2),
        ("bogus --json >/dev/full 2>/dev/full", 2),
    ],
)
def test_an_error_that_cannot_be_said_still_has_its_exit_code(
    url: str, words: str, code: int
) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{COMMAND} {words}"],
        env=os.environ | {"FOLDLINE_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("command", ["show", "events", "state", "tail", "verify"])
def test_a_session_id_that_is_not_utf_8_is_no_sessions(
    foldline: Foldline, url: str, command: str
) -> None:
    done = foldline(command, "\udcff", "--log", url)  # how Python hands on the byte 0xff
    assert done.code == 3
    assert "no session" in done.err


def test_a_database_that_was_lost_is_not_called_an_empty_start(
    foldline: Foldline, tmp_path: Path
) -> None:
    (tmp_path / "s.db-wal").write_bytes(b"what is left of it")
    done = foldline("sessions", "--log", f"sqlite:///{tmp_path}/s.db")
    assert done.code == 4
    assert "the database is gone" in done.err


@pytest.mark.parametrize("url", ["sqlite:///~nobody-has-this-name/s.db", ""])
def test_a_url_of_no_file_is_a_usage_error(foldline: Foldline, url: str) -> None:
    done = foldline("sessions", "--log", url)
    assert done.code == 2, done
    assert "url=" in done.err


@pytest.mark.usefixtures("log")
def test_an_output_of_few_characters_gets_the_others_written_out(url: str) -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [COMMAND, "events", "open-1", "--log", url],
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()


def test_a_defect_is_one_line_and_a_traceback_only_where_asked_for() -> None:
    script = (
        "import sys; from foldline.cli import app, context;"
        "context.Context.reading = lambda self: 1 / 0;"
        "sys.exit(app.main(['sessions']))"
    )

    def stderr_of(debug: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            env=os.environ | {"FOLDLINE_DEBUG": debug},
            check=False,
        )
        return done.returncode, done.stderr

    code, err = stderr_of("")
    assert code == 5
    assert "ZeroDivisionError" in err
    assert len(err.splitlines()) == 1
    assert "Traceback" in stderr_of("1")[1]


@pytest.mark.usefixtures("log")
def test_tail_of_an_ended_session_shows_it_and_ends(foldline: Foldline, url: str) -> None:
    done = foldline("tail", "done-1", "--json", "--log", url)
    assert done.code == 0
    assert [view["seq"] for view in done.lines()] == [1, 2, 3, 4]


@pytest.mark.usefixtures("log")
def test_tail_that_times_out_before_the_end_says_no(foldline: Foldline, url: str) -> None:
    done = foldline("tail", "open-1", "--json", "--timeout", "0.1", "--log", url)
    assert done.code == 1
    assert [view["seq"] for view in done.lines()] == list(range(7, 17))


@pytest.mark.usefixtures("log")
def test_tail_shows_what_another_process_appends_and_ends_at_ctrl_c(
    foldline: Foldline, url: str
) -> None:
    tail = subprocess.Popen(
        [COMMAND, "tail", "open-1", "--after-seq", "16", "--json", "--log", url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    arguments = ("--type", "SteeringReceived", "--field", "blocks=now", "--log", url)
    assert foldline("append", "open-1", *arguments).code == 0
    assert tail.stdout is not None
    view = json.loads(tail.stdout.readline())
    assert (view["seq"], view["type"]) == (17, "SteeringReceived")
    tail.send_signal(signal.SIGINT)
    _, err = tail.communicate(timeout=30)
    assert (tail.returncode, err) == (130, "")


@pytest.mark.usefixtures("log")
def test_colour_is_for_terminals_only(foldline: Foldline, url: str) -> None:
    assert "\x1b" not in foldline("events", "open-1", "--log", url).out
    coloured = on_terminal("events", "open-1", "--log", url)
    assert "\x1b[" in coloured
    assert "\x1b]0;" not in coloured  # what the tool said still steers nothing
    assert "\u202e" not in coloured


@pytest.mark.usefixtures("log")
def test_a_terminal_without_colour_gets_none(url: str) -> None:
    shown = on_terminal("events", "open-1", "--log", url, NO_COLOR="1")
    assert "\x1b" not in shown
    assert all(len(line) <= 60 for line in shown.splitlines())


def on_terminal(*arguments: str, **environment: str) -> str:
    """What a terminal of 60 columns is shown."""
    import fcntl
    import pty
    import struct
    import termios

    terminal, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        [COMMAND, *arguments],
        stdin=side,
        stdout=side,
        stderr=side,
        env=plain | {"TERM": "xterm"} | environment,
    )
    os.close(side)
    shown = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other side has closed
            break
        if not part:
            break
        shown += part
    process.wait(timeout=30)
    os.close(terminal)
    return shown.decode()
