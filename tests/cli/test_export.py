"""`foldline export`: every event, the messages of an API, or the source's own format."""

import base64
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from foldline.cli.whole_file import BESIDE
from foldline.processors.log import Log
from foldline.projections import whole_history
from foldline.schemas.blocks import Blob, Block
from foldline.schemas.events import (
    CompactionCompleted,
    HistoryRewound,
    SessionCreated,
    UserMessage,
)
from tests.cli.conftest import HOSTILE, Writer, said
from tests.transcripts import SESSION, Transcript, called

pytestmark = pytest.mark.usefixtures("log")

Run = Callable[..., Any]

RECORDS_IMPORTED = 3

FORMATS = ("anthropic", "openai-chat", "openai-responses")


@pytest.fixture
def imported(run: Run, tmp_path: Path) -> str:
    """A session that was read from a transcript."""
    script = called(Transcript())
    script.result("c1", "three files")
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(script.data)
    assert run("import", str(path)).code == 0
    return SESSION


def conversation(log: Log, session_id: str = "talk") -> Writer:
    writer = Writer(log, session_id)
    writer.append(SessionCreated(agent="a"))
    writer.append_message("first")
    return writer


# --- every event -----------------------------------------------------------------------


def test_a_session_is_a_header_and_its_events_as_listed(run: Run) -> None:
    header, *events = run("export", "open-1").lines()
    listed = run("events", "open-1", "--json").lines()
    assert header["foldline"] == "session"
    assert (header["version"], header["session_id"]) == (1, "open-1")
    assert header["upto_seq"] == len(listed)
    assert events == listed


def test_a_large_body_is_in_its_event(run: Run, log: Log) -> None:
    writer = conversation(log)
    text, data = "é" * 50_000, b"\x00\xff" * 20
    kinds = ((text.encode(), "text/plain"), (data, "image/png"))
    blobs = [
        Blob(sha256=log.blobs.put(held), size=len(held), media_type=kind)
        for held, kind in kinds
    ]
    blocks = tuple(Block(kind="file", body=blob) for blob in blobs)
    writer.append(UserMessage(message_id="m", blocks=blocks), owner=False)
    *_, last = run("export", "talk").lines()
    one, other = (block["body"]["blob"] for block in last["event"]["blocks"])
    assert one["text"] == text
    assert base64.b64decode(other["base64"]) == data
    assert "base64" not in one


def test_a_fork_comes_with_its_ancestors(run: Run, log: Log) -> None:
    conversation(log).append_message("second")
    assert run("fork", "talk", "--at-seq", "2", "--session-id", "child").code == 0
    header, *events = run("export", "child").lines()
    assert [event["seq"] for event in events] == [1, 2, 3]
    assert [event["session_id"] for event in events] == ["talk", "talk", "child"]
    assert header["lineage"] == [
        {"session_id": "talk", "first_seq": 1},
        {"session_id": "child", "first_seq": 3},
    ]
    _, *before = run("export", "child", "--at-seq", "2").lines()
    assert before == events[:2]


def test_an_event_that_is_gone_is_an_error_and_no_file(
    run: Run, log: Log, tmp_path: Path
) -> None:
    writer = conversation(log)
    blob = Blob(sha256=b"\1" * 32, size=3, media_type="text/plain")
    block = Block(kind="text", body=blob)
    writer.append(UserMessage(message_id="m", blocks=(block,)), owner=False)
    path = tmp_path / "out.jsonl"
    assert run("export", "talk", "--output", str(path)).code == 4
    assert not path.exists()
    assert not list(tmp_path.glob(f"{BESIDE}*"))


# --- messages --------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_the_whole_history_is_one_request(run: Run, log: Log, name: str) -> None:
    """What compacted it is left out, and so is what was rewound."""
    writer = conversation(log)
    compaction = CompactionCompleted(
        compaction_id="c",
        from_seq=1,
        to_seq=2,
        base_seq=2,
        strategy="s",
        blocks=said("SUM"),
    )
    writer.append(compaction)
    writer.append_message("dead end")
    writer.append(HistoryRewound(to_seq=3))
    writer.append_message("second " + HOSTILE)
    request = run("export", "talk", "--format", name).json()
    text = json.dumps(request)
    assert "first" in text
    assert "second" in text
    assert "SUM" not in text
    assert "dead end" not in text
    assert request.get("messages", request.get("input"))


def test_calls_and_results_of_another_harness_are_messages(run: Run, imported: str) -> None:
    request = run("export", imported, "--format", "anthropic").json()
    roles = [message["role"] for message in request["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert request["model"] == "claude-test-1"
    assert "three files" in json.dumps(request["messages"][2])


def test_what_an_api_would_refuse_is_not_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renderers make nothing of the kind, so the checker finds what it wants here."""

    def breaches(request: Any, format: str) -> list[str]:  # noqa: A002 - as the checker's
        return [f"message 3 of {len(request)} is empty in {format}"]

    monkeypatch.setattr(whole_history, "breaches", breaches)
    path = tmp_path / "out.json"
    done = run("export", "open-1", "--format", "anthropic", "--output", str(path))
    assert done.code == 1
    assert "the API would refuse it: message 3 of " in done.err
    assert not path.exists()


def test_a_history_too_large_to_be_one_request_is_refused_with_what_takes_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_history, "HISTORY_MAX_BYTES", 500)
    done = run("export", "open-1", "--format", "openai-chat")
    assert done.code == 1
    assert "jsonl has no limit" in done.err


# --- its source ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["source", "claude-code"])
def test_a_mirrored_session_comes_back_as_its_harness_writes_it(
    run: Run, imported: str, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "back.jsonl"
    arguments = ("export", imported, "--format", name, "--output", str(path), "--json")
    view = run(*arguments).json()
    assert (view["lossless"], view["records"], view["source"]) == (True, 3, "claude-code")
    assert view["bytes"] == path.stat().st_size
    assert run("export", imported, "--format", name).out == path.read_text()
    url = f"sqlite:///{tmp_path / 'other.db'}"
    assert run("import", str(path), "--log", url, "--json").json()["events"] == 8


def test_what_does_not_come_back_is_counted_and_not_written(
    run: Run, imported: str, log: Log, tmp_path: Path
) -> None:
    Writer(log, imported).append_message("added here")
    path = tmp_path / "back.jsonl"
    arguments = ("export", imported, "--format", "source", "--output", str(path), "--json")
    refused = run(*arguments)
    assert refused.code == 1
    assert not path.exists()
    lost = {"UserMessage, added here": 1}
    assert json.loads(refused.out)["error"]["kind"] == "ExportLossError"
    assert "UserMessage, added here 1; --lossy writes what there is" in refused.err
    written = run(*arguments, "--lossy")
    assert (written.code, written.json()["lost"]) == (0, lost)
    assert not written.json()["lossless"]
    assert "lost: 1 UserMessage, added here" in written.err
    assert path.exists()


def test_a_session_of_foldline_itself_has_no_source_to_go_back_to(run: Run) -> None:
    done = run("export", "open-1", "--format", "claude-code")
    assert done.code == 1
    assert "jsonl, anthropic, openai-chat and openai-responses take any session" in done.err


def test_half_a_record_is_left_out_and_said(run: Run, imported: str, log: Log) -> None:
    """Every seq has an export that comes back whole; the last one before it, if need be."""
    head = log.state(imported)
    assert head is not None
    reached: list[int] = []
    for seq in range(1, head.seq + 1):
        done = run("export", imported, "--format", "source", "--at-seq", str(seq))
        if done.code == 1:
            assert "its first record is whole at seq " in done.err
            assert not reached
            continue
        assert done.code == 0
        said_one = f"up to seq {reached[-1] if reached else 0}: seq {seq} is in the middle"
        reached.append(reached[-1] if said_one in done.err else seq)
    assert reached[-1] == head.seq
    assert len(set(reached)) == RECORDS_IMPORTED


def test_what_was_written_says_up_to_which_seq(
    run: Run, imported: str, tmp_path: Path
) -> None:
    path = tmp_path / "back.jsonl"
    arguments = ("export", imported, "--format", "source", "--output", str(path))
    listed = run("events", imported, "--json").lines()
    (said_by,) = [row for row in listed if row["type"] == "AssistantMessage"]
    arguments += ("--at-seq", str(said_by["seq"]))  # its record goes on with the call
    view = run(*arguments, "--json").json()
    assert view["upto_seq"] < said_by["seq"]
    assert (view["lossless"], view["records"]) == (True, 1)
    assert f"up to seq {view['upto_seq']}, " in run(*arguments).out


# --- files and mistakes ----------------------------------------------------------------


def test_a_file_is_its_owners_alone_and_takes_the_place_of_another(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("old")
    path.chmod(0o644)
    done = run("export", "done-1", "--output", str(path))
    assert done.code == 0
    assert f"done-1 up to seq 4, {path.stat().st_size:,} bytes" in done.out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_text().splitlines()) == 5


def test_a_killed_export_leaves_the_file_of_before(
    foldline: Callable[..., Any], url: str, tmp_path: Path
) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("old")
    killed = foldline(
        *("export", "open-1", "--output", str(path)),
        env=os.environ
        | {"FOLDLINE_URL": url, "FOLDLINE_CRASH_AT": "CP_EXPORT_BEFORE_NAME"},
    )
    assert killed.code == -signal.SIGKILL
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    ("format_", "number", "code"),
    [
        ("source", signal.SIGTERM, 143),
        ("jsonl", signal.SIGHUP, 129),
    ],
)
def test_an_export_that_is_ended_leaves_nothing_behind(
    imported: str, url: str, tmp_path: Path, format_: str, number: int, code: int
) -> None:
    """It is ended when all is written, and nothing has its name yet."""
    command = Path(sys.executable).with_name("foldline")
    folder = tmp_path / "plain"
    folder.mkdir()
    arguments = ("export", imported, "--format", format_, "--output", str(folder / "o"))
    environment = os.environ | {
        "FOLDLINE_URL": url,
        "TMPDIR": str(folder),
        "FOLDLINE_HANG_AT": "CP_EXPORT_BEFORE_NAME",
    }
    ended = subprocess.Popen([command, *arguments], env=environment)
    try:
        while not list(folder.glob(f"{BESIDE}*")):
            assert ended.poll() is None
            time.sleep(0.02)
        ended.send_signal(number)
        assert ended.wait(timeout=60) == code
    finally:
        ended.kill()
        ended.wait()
    assert not list(folder.iterdir())


def test_a_signal_that_is_ignored_stays_so(run: Run, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    asked = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a test before may have set it
    try:
        assert run("export", "done-1", "--output", str(tmp_path / "o")).code == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, asked)
        signal.signal(signal.SIGHUP, before)


def test_a_link_stays_one_and_what_it_names_is_written(run: Run, tmp_path: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder / "named")  # not there yet
    for _ in range(2):
        assert run("export", "done-1", "--output", str(link)).code == 0
        assert link.is_symlink()
        assert len((folder / "named").read_text().splitlines()) == 5
    assert [path.name for path in folder.iterdir()] == ["named"]


@pytest.fixture
def terminal() -> Iterator[str]:
    """A device in a folder where no file can be made, so that no defect makes one."""
    ends = os.openpty()
    yield os.ttyname(ends[1])
    for end in ends:
        os.close(end)


@pytest.mark.parametrize(
    ("what", "format_"),
    [
        ("fifo", "source"),
        ("fifo", "jsonl"),
        ("socket", "anthropic"),
        ("folder", "source"),
        ("device", "jsonl"),
        ("link to a device", "source"),
    ],
)
def test_what_is_no_file_is_refused_and_stays(
    run: Run, imported: str, tmp_path: Path, terminal: str, what: str, format_: str
) -> None:
    path = tmp_path / "out"
    match what:
        case "fifo":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(path))
        case "folder":
            path.mkdir()
        case "device":
            path = Path(terminal)
        case _:
            path.symlink_to(terminal)
    before = os.lstat(path)
    done = run("export", imported, "--format", format_, "--output", str(path))
    assert done.code == 2
    assert "--output: a file; " in done.err
    assert what == "folder" or "leave out --output: that is stdout" in done.err
    assert os.path.samestat(os.lstat(path), before)
    assert done.out == ""


@pytest.mark.parametrize("into", ["pipe", "file"])
def test_stdout_by_its_name_is_refused(url: str, tmp_path: Path, into: str) -> None:
    """The name is in a folder of the test: root could replace the machine's own."""
    command = [Path(sys.executable).with_name("foldline"), "export", "done-1"]
    name = tmp_path / "stdout"
    name.symlink_to("/proc/self/fd/1")
    environment = os.environ | {"FOLDLINE_URL": url}
    with (tmp_path / "out").open("w+b") as file:
        done = subprocess.run(
            [*command, "--output", name],
            env=environment,
            stdout=file if into == "file" else subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
        assert done.returncode == 2
        assert b"leave out --output" in done.stderr
        assert os.path.samestat(os.fstat(file.fileno()), (tmp_path / "out").stat())


def test_the_log_itself_is_never_written_over(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "link"
    path.symlink_to(tmp_path / "sessions.db")
    done = run("export", "done-1", "--output", str(path))
    assert done.code == 2
    assert "is the log" in done.err
    assert run("export", "done-1").code == 0


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--format", "xml"), "--format: one of jsonl, anthropic"),
        (("--lossy",), "--lossy: a --format that can lose"),
        (("--at-seq", "0"), "--at-seq: a seq from 1 to 4"),
        (("--at-seq", "5"), "--at-seq: a seq from 1 to 4"),
        (("--output", "nowhere/at/all"), "--output: a file in a folder that is there"),
        (("--output", ""), "--output: a file; . is a folder"),
    ],
)
def test_an_argument_that_means_nothing_is_said(
    run: Run, arguments: tuple[str, ...], word: str
) -> None:
    done = run("export", "done-1", *arguments)
    assert done.code == 2
    assert word in done.err
    assert done.out == ""
