"""Hooks of Claude Code: spooled without secrets, and met with their transcripts."""

import json
import os
import signal
import stat
from pathlib import Path

import pytest

from foldline.errors import RedactionError
from foldline.places import own_url
from foldline.processors.open_log import open_log
from foldline.processors.verify import verify
from foldline.producers import hook_draining, spool
from foldline.producers.hook import HOOKS, TOLD_MAX_BYTES, settings_of
from foldline.producers.hook_spooling import keep
from foldline.producers.redaction_file import SETTING, redactor_with
from foldline.producers.redaction_key import key_of_log
from foldline.producers.spool import make_spool, spool_of
from foldline.schemas.blocks import text_of
from foldline.schemas.events import SessionCreated, ToolCallRequested
from tests.hooked import AT_US, LATER_US, TOKEN, Harness, play
from tests.mirrors import Follower, foldline, follow_once, imported, live
from tests.transcripts import SESSION, Transcript, line_of, tool_use

# --- the spool -------------------------------------------------------------------------


def all_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_secret_that_a_hook_is_told_is_in_no_byte_of_spool_or_log(
    harness: Harness, tmp_path: Path
) -> None:
    """B45: in a prompt, arguments, an output, a path, a name, and split by escapes."""
    harness.hook("UserPromptSubmit", prompt=f"use {TOKEN}")
    harness.hook(
        "PreToolUse",
        tool_name="Bash",
        tool_input={
            "command": f"curl -H 'Authorization: Bearer {TOKEN}'",
            "api_key": TOKEN,
        },
        tool_use_id="c1",
    )
    output = {"stdout": f"MY_SECRET=plain-{TOKEN}\n" + json.dumps({"t": TOKEN})}
    harness.hook("PostToolUse", tool_name="Bash", tool_response=output, tool_use_id="c1")
    harness.hook("Notification", message=f"needs {TOKEN}", transcript_path=f"/{TOKEN}/x")
    harness.hook(TOKEN, session_id=TOKEN, tool_use_id=TOKEN)
    keep(
        b'{"broken": "' + TOKEN.encode(),
        at_us=AT_US,
        url=harness.url,
        told_max_bytes=TOLD_MAX_BYTES,
    )
    assert harness.waiting == 5
    assert TOKEN.encode() not in all_bytes(tmp_path)
    assert TOKEN[10:].encode() not in all_bytes(tmp_path)
    harness.is_at(LATER_US)
    harness.follower.go()
    assert len(harness.hooks()) == 4
    assert TOKEN[10:].encode() not in all_bytes(tmp_path)


def test_a_spooled_record_is_for_its_owner_only(harness: Harness) -> None:
    harness.hook("Stop")
    folder = spool_of(harness.url)
    (record,) = folder.glob("*.json")
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("told", [b"", b"{", b"[1]", b"\xff\xfe", b'{"a":' * 5_000])
def test_a_hook_that_is_told_nonsense_is_silent_and_says_why_in_its_file(
    tmp_path: Path, told: bytes
) -> None:
    done = foldline(
        "hook", "--wait", told=told, environment={"XDG_DATA_HOME": str(tmp_path)}
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (log,) = tmp_path.rglob(spool.LOG_NAME)
    assert "no JSON object" in json.loads(log.read_text())["reason"]


def test_a_hook_that_cannot_write_anywhere_ends_with_nothing_on_stdout(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_bytes(b"")
    nowhere = {"XDG_DATA_HOME": str(tmp_path / "file")}
    for options in ([], ["--wait"]):
        done = foldline(
            "hook", *options, told=b'{"hook_event_name":"Stop"}', environment=nowhere
        )
        assert (done.returncode, done.stdout) == (0, b"")


def test_a_hook_that_is_installed_wrongly_stops_no_tool_of_the_agent() -> None:
    """Exit code 2, which a wrong option has elsewhere, would do that."""
    for before in ((), ("--log", "memory:"), ("--json",)):
        done = foldline(*before, "hook", "--no-such-option", told=b"{}")
        assert done.returncode == 0
        assert b"--no-such-option" in done.stderr


def test_a_hook_hands_on_and_the_record_comes(tmp_path: Path) -> None:
    """Nobody waits for it: the test has to."""
    told = json.dumps({"hook_event_name": "Stop", "session_id": SESSION}).encode()
    done = foldline("hook", told=told, environment={"XDG_DATA_HOME": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    while not list(tmp_path.rglob("*.json")):
        os.sched_yield()


def test_a_known_value_too_short_to_be_told_from_text_is_refused_as_by_a_mirror(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[value]]\nname = "pin"\nenv = "A_PIN"\n')
    monkeypatch.setenv(SETTING, str(rules))
    monkeypatch.setenv("A_PIN", "1")
    harness.hook("Notification", message="1 of 1")
    assert harness.waiting == 0
    assert "pin" in (spool_of(harness.url) / spool.LOG_NAME).read_text()
    with pytest.raises(RedactionError):
        redactor_with(rules)


def test_a_full_spool_takes_nothing_more_and_says_so(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.hook("Stop")
    monkeypatch.setattr(spool, "SPOOL_MAX_BYTES", 10)
    harness.hook("Stop")
    assert harness.waiting == 1
    log = (spool_of(harness.url) / spool.LOG_NAME).read_text()
    assert "holds more than" in log


def test_the_file_of_errors_begins_anew_when_it_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "LOG_MAX_BYTES", 100)
    for at_us in range(50):
        spool.say_failed(tmp_path, at_us, "something")
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) < 200


@pytest.mark.crash
def test_a_hook_that_dies_while_it_writes_leaves_no_half_record(tmp_path: Path) -> None:
    make_spool(tmp_path / "spool")
    record = spool.Spooled(AT_US, "Stop", SESSION)
    ended_by = live(
        lambda: spool.put(tmp_path / "spool", record), crash_at="CP_SPOOL_BEFORE_RENAME:1"
    )
    assert ended_by == signal.SIGKILL
    assert list(spool.record_ids(tmp_path / "spool")) == []


def test_the_settings_install_every_hook() -> None:
    done = foldline("hook", "--print-settings", "--log", "sqlite:////somewhere/s.db")
    settings = json.loads(done.stdout)
    assert settings == settings_of("foldline hook --log sqlite:////somewhere/s.db")
    assert set(settings["hooks"]) == set(HOOKS)
    (tool,) = settings["hooks"]["PreToolUse"]
    assert tool["matcher"] == "*"


# --- meeting the transcript ------------------------------------------------------------


@pytest.mark.parametrize("order", ["hooks", "transcript", "turns"])
def test_hooks_and_transcript_meet_in_one_session_without_doubles(
    harness: Harness, order: str
) -> None:
    play(harness, order)
    harness.follower.go()
    assert harness.waiting == 0
    names = [one.hook for one in harness.hooks()]
    assert sorted(names) == sorted(
        [
            *("SessionStart", "UserPromptSubmit", "PreToolUse"),
            *("Notification", "PostToolUse", "Stop"),
        ]
    )
    of_call = {one.hook: one.call_id for one in harness.hooks() if one.call_id}
    assert of_call == {"PreToolUse": "m1:0", "PostToolUse": "m1:0"}
    said = {one.hook: text_of(one.blocks) for one in harness.hooks()}
    assert (said["PreToolUse"], said["PostToolUse"], said["UserPromptSubmit"]) == ("",) * 3
    assert "needs your permission" in said["Notification"]
    alone = imported(
        harness.follower.folder,
        harness.follower.path(),
        redactor=harness.follower.redactor,
    )
    expected = [(one.event_id, event) for one, event in alone[SESSION][0]]
    assert harness.without_hooks() == expected


@pytest.mark.parametrize("order", ["hooks", "transcript"])
def test_an_import_after_hooks_adds_nothing(harness: Harness, order: str) -> None:
    play(harness, order)
    harness.follower.go()
    before = harness.follower.image()
    harness.follower.mirroring.close()
    again = Follower(harness.follower.folder, harness.follower.log)
    again.redactor = harness.follower.redactor
    again.settings = again.settings.model_copy(
        update={"state_dir": again.folder / "other-state"}
    )
    again.start()
    assert (again.go().events, again.go().alarms) == (0, 0)
    assert again.image() == before
    again.mirroring.close()
    assert verify(again.log).ok


def test_what_no_transcript_tells_is_recorded_from_the_hook_when_the_session_is_over(
    harness: Harness,
) -> None:
    harness.hook(
        "PreToolUse", tool_name="Bash", tool_input={"command": "rm"}, tool_use_id="c"
    )
    harness.hook("SessionEnd", reason="exit")
    harness.follower.go()
    assert (harness.waiting, harness.hooks()) == (2, [])
    harness.is_at(AT_US + (hook_draining.END_GRACE_S + 5) * 1_000_000)
    harness.follower.go()
    assert harness.waiting == 0
    tool, end = harness.hooks()
    assert json.loads(text_of(tool.blocks)) == {
        "tool_input": {"command": "rm"},
        "tool_name": "Bash",
        "tool_use_id": "c",
    }
    assert (end.hook, json.loads(text_of(end.blocks))) == ("SessionEnd", {"reason": "exit"})
    state = harness.follower.log.state(SESSION)
    assert state is not None
    assert state.mode == "MIRRORED"


def test_a_transcript_that_comes_after_its_hooks_were_recorded_adds_itself_once(
    harness: Harness,
) -> None:
    harness.hook("PreToolUse", tool_name="Bash", tool_input={}, tool_use_id="c1")
    harness.is_at(LATER_US)
    harness.follower.go()
    play(harness, "transcript")
    harness.follower.go()
    events = list(harness.follower.log.events(SESSION))
    ids = [one.envelope.event_id for one in events]
    assert len(ids) == len(set(ids))
    assert [one.type for one in events].count("SessionCreated") == 1
    requested = [one for one in events if isinstance(one.event, ToolCallRequested)]
    assert len(requested) == 1


def test_a_hook_of_a_session_that_rests_meets_its_transcript_after_a_restart(
    harness: Harness,
) -> None:
    play(harness, "transcript")
    harness.follower.go()
    harness.follower.restart()
    harness.hook("PostToolUse", tool_response="again", tool_use_id="c1")
    harness.follower.go()
    assert harness.waiting == 0
    assert [one.call_id for one in harness.hooks()].count("m1:0") == 3


def test_a_mirror_that_is_told_of_no_path_follows_what_hooks_name(harness: Harness) -> None:
    elsewhere = harness.follower.folder / "elsewhere.jsonl"
    harness.follower.mirroring.close()
    harness.follower.mirroring = harness.follower.start(harness.follower.folder / "none")
    elsewhere.write_bytes(line_of(harness.script.user("hello")))
    harness.hook("Stop", transcript_path=str(elsewhere))
    harness.follower.go()
    assert [one.hook for one in harness.hooks()] == ["Stop"]


def test_a_hook_of_a_subagent_meets_the_transcript_of_the_agent(harness: Harness) -> None:
    """Its call is in another file and another session; nothing of it is said again."""
    harness.write(harness.script.user("delegate it"))
    folder = harness.follower.path("session/subagents")
    folder.mkdir(parents=True)
    agent = Transcript(prefix="a")
    agent.user("you are to", agentId="a7")
    agent.assistant("m7", tool_use("c7", command="ls"), agentId="a7")
    (folder / "agent-a7.jsonl").write_bytes(agent.data)
    tool = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "c7"}
    harness.hook("PreToolUse", **tool, agent_id="a7")
    harness.follower.go()
    (ran,) = harness.hooks()
    assert ran.call_id is None
    assert json.loads(text_of(ran.blocks)) == {"agent_id": "a7", "tool_use_id": "c7"}


def test_a_record_that_names_no_session_is_set_aside_and_said(harness: Harness) -> None:
    harness.hook("Stop", session_id="")
    harness.hook("Stop", session_id=5)
    harness.follower.go()
    assert harness.waiting == 0
    assert harness.follower.kinds().count("failed") == 2
    assert len(list(spool_of(harness.url).glob("*.refused"))) == 2


@pytest.mark.crash
def test_a_mirror_killed_behind_the_log_records_each_hook_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Harness(tmp_path, monkeypatch)
    play(harness, "hooks_alone")
    harness.write(*harness.script.records)
    harness.follower.mirroring.close()
    harness.follower.log.close()

    def drain() -> None:
        follow_once(tmp_path, harness.url, spool_of(harness.url))

    assert live(drain, crash_at="CP_SPOOL_AFTER_RECORDED:1") == signal.SIGKILL
    assert harness.waiting == 6
    assert live(drain) == 0
    assert harness.waiting == 0
    harness.follower.log = open_log(harness.url)
    assert len(harness.hooks()) == 6
    assert verify(harness.follower.log).ok
    harness.follower.log.close()


def test_hooks_wait_in_the_spool_while_the_log_is_away(
    harness: Harness, tmp_path: Path
) -> None:
    """No log was ever made there: hooks do not ask."""
    url = f"sqlite:///{tmp_path}/later/s.db"
    told = {"hook_event_name": "Stop", "session_id": SESSION, "transcript_path": ""}
    keep(json.dumps(told).encode(), at_us=1, url=url, told_max_bytes=TOLD_MAX_BYTES)
    assert not (tmp_path / "later/s.db").exists()
    done = foldline(
        "mirror",
        "--once",
        "--log",
        url,
        "--json",
        environment={"XDG_DATA_HOME": str(tmp_path / "data")},
    )
    assert json.loads(done.stdout.splitlines()[-1])["hooks"] == 1
    assert harness.hooks() == []
    assert [one.type for one in open_log(url).events(SESSION)] == [
        "SessionCreated",
        "HookRan",
    ]


# --- which log ------------------------------------------------------------------------


def test_every_url_of_a_log_has_one_spool_and_one_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lg").mkdir()
    for urls in (
        [f"jsonl:///{tmp_path}/lg/", "jsonl:///lg", "jsonl:lg/", "jsonl:///~/lg"],
        [f"sqlite:///{tmp_path}/s.db", "sqlite:///s.db", "sqlite:///~/s.db"],
        ["https://log.example", "https://log.example/"],
        ["kafka://one:9092", "kafka://one:9092/", "kafka://one:9092/foldline."],
    ):
        assert len({spool_of(url) for url in urls}) == 1
        assert len({key_of_log(url) for url in urls}) == 1
    for url in ("jsonl:///lg", "sqlite:///s.db"):
        log = open_log(url)
        assert log.url == own_url(url)
        log.close()


def test_a_relative_url_is_refused_by_hooks_and_made_absolute_in_their_settings(
    tmp_path: Path,
) -> None:
    place = {"XDG_DATA_HOME": str(tmp_path)}
    told = json.dumps({"hook_event_name": "Stop", "session_id": SESSION}).encode()
    done = foldline(
        "hook", "--log", "sqlite:///no-such-db", "--wait", told=told, environment=place
    )
    assert (done.returncode, done.stdout) == (0, b"")
    (log,) = tmp_path.rglob(spool.LOG_NAME)
    assert "relative" in log.read_text()
    assert not Path("no-such-db.redaction-key").exists()
    printed = foldline("hook", "--print-settings", "--log", "sqlite:///x.db").stdout
    assert f"sqlite:///{Path.cwd()}/x.db" in printed.decode()


def test_a_session_that_a_hook_creates_knows_its_folder(harness: Harness) -> None:
    harness.hook("Stop")
    harness.is_at(LATER_US)
    harness.follower.go()
    created = next(iter(harness.follower.log.events(SESSION))).event
    assert isinstance(created, SessionCreated)
    assert json.loads(created.environment_json or "") == {"cwd": "/home/somebody/project"}
    assert "cwd" not in text_of(harness.hooks()[0].blocks)
