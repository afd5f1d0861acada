"""Hooks of Claude Code: spooled without secrets, and met with their transcripts."""

import json
import os
import signal
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from foldline.places import own_url
from foldline.processors.open_log import open_log
from foldline.processors.verify import verify
from foldline.producers import hook_draining, spool
from foldline.producers.hook import HOOKS, TOLD_MAX_BYTES, settings_of
from foldline.producers.hook_draining import HookSpool
from foldline.producers.hook_spooling import keep
from foldline.producers.redaction import Redactor
from foldline.producers.redaction_key import key_of_log
from foldline.producers.spool import make_spool, spool_of
from foldline.schemas.blocks import text_of
from foldline.schemas.events import HookRan, SessionCreated, ToolCallRequested
from tests.mirrors import Follower, append, foldline, follow_once, imported, live
from tests.transcripts import SESSION, Json, Transcript, line_of, tool_use

TOKEN = "ghp_" + "aB3dE5gH7jK9" * 3
AT_US = 1_800_000_000_000_000
LATER_US = AT_US + 10 * hook_draining.HOLD_MAX_S * 1_000_000


class Harness:
    """A harness that writes a transcript and runs its hooks, in whatever order."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
        self.url = f"sqlite:///{folder}/s.db"
        self.follower = Follower(folder, open_log(self.url), spool_of(self.url))
        self.follower.redactor = Redactor(key_of_log(self.url))
        self.follower.start()
        self.script = Transcript()
        self.at_us = AT_US
        self.monkeypatch = monkeypatch
        self.is_at(AT_US + 1_000_000)

    def is_at(self, now_us: int) -> None:
        """Let the mirror's clock say this."""
        self.monkeypatch.setattr("time.time_ns", lambda: now_us * 1000)

    def hook(self, name: str, **fields: Any) -> None:
        told = {
            "session_id": SESSION,
            "transcript_path": str(self.follower.path()),
            "cwd": "/home/somebody/project",
            "hook_event_name": name,
        } | fields
        self.at_us += 1_000
        keep(
            json.dumps(told).encode(),
            at_us=self.at_us,
            url=self.url,
            told_max_bytes=TOLD_MAX_BYTES,
        )

    def write(self, *records: Json) -> None:
        for record in records:
            append(self.follower.path(), line_of(record))

    @property
    def waiting(self) -> int:
        return len(list(spool.record_ids(spool_of(self.url))))

    def hooks(self) -> list[HookRan]:
        events = self.follower.log.events(SESSION)
        return [one.event for one in events if isinstance(one.event, HookRan)]

    def without_hooks(self) -> list[Any]:
        """What the session holds beside them."""
        return [
            (one.envelope.event_id, one.event)
            for one in self.follower.log.events(SESSION)
            if not isinstance(one.event, HookRan)
        ]


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    made = Harness(tmp_path, monkeypatch)
    yield made
    made.follower.mirroring.close()
    made.follower.log.close()


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


def play(harness: Harness, order: str) -> None:
    """One turn with a tool: hooks first, or the transcript first, or by turns."""
    script = harness.script
    prompt = script.user(f"list it, {TOKEN}")
    call = script.assistant("m1", tool_use("c1", command="ls"))
    result = script.result("c1", "a b c")
    tool = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "c1"}
    if order == "transcript":
        harness.write(prompt, call, result)
        harness.follower.go()
    harness.hook("SessionStart", source="startup")
    harness.hook("UserPromptSubmit", prompt=f"list it, {TOKEN}")
    if order == "turns":
        harness.follower.go()
        harness.write(prompt)
    harness.hook("PreToolUse", **tool)
    harness.hook("Notification", message="Claude needs your permission to use Bash")
    if order == "turns":
        harness.follower.go()
        harness.write(call)
    harness.hook("PostToolUse", **tool, tool_response={"stdout": "a b c"})
    harness.hook("Stop", stop_hook_active=False)
    if order == "turns":
        harness.follower.go()
        harness.write(result)
    if order == "hooks":
        harness.follower.go()
        assert harness.follower.log.state(SESSION) is None
        harness.write(prompt, call, result)


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


# --- what is odd stops nothing else ----------------------------------------------------


def odd_record(harness: Harness, name: str, **fields: Any) -> None:
    """A record that no hook of this version writes."""
    whole = {"at_us": AT_US, "hook": "Stop", "session_id": SESSION} | fields
    make_spool(spool_of(harness.url))
    path = spool_of(harness.url) / f"{AT_US:020}-{name}.json"
    path.write_text(json.dumps(whole))


@pytest.mark.parametrize(
    "fields",
    [
        {"at_us": "1"},
        {"at_us": True},
        {"at_us": 1 << 80},
        {"hook": 5},
        {"tool_use_id": ["x"]},
        {"transcript_path": 7},
        {"content": {"a": 1}},
        {"more": "than there is"},
    ],
)
def test_a_record_of_wrong_types_is_set_aside_and_the_others_go_on(
    harness: Harness, fields: Json
) -> None:
    harness.write(harness.script.user("hello"))
    harness.hook("Notification")
    odd_record(harness, "odd", **fields)
    harness.follower.go()
    assert [one.hook for one in harness.hooks()] == ["Notification"]
    assert harness.follower.kinds().count("failed") == 1
    assert harness.waiting == 0
    assert len(list(spool_of(harness.url).glob("*.refused"))) == 1


@pytest.mark.parametrize(
    "path", ["/", ".", "x" * 300, "a\0b", "\ud800", "/" + "d/" * 3_000, "loop/x.jsonl"]
)
def test_a_transcript_path_that_is_none_ends_no_mirror(
    harness: Harness, tmp_path: Path, path: str
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    harness.write(harness.script.user("hello"))
    odd_record(
        harness,
        "a",
        transcript_path=path.replace("loop", f"{tmp_path}/loop"),
        agent_id="a7",
    )
    harness.hook("Notification")
    harness.follower.go()
    assert [one.hook for one in harness.hooks()] == ["Notification"]
    assert harness.waiting == 1
    harness.is_at(LATER_US)
    harness.follower.go()
    assert (harness.waiting, len(harness.hooks())) == (0, 2)


def test_a_lone_surrogate_in_what_a_hook_is_told_is_recorded_as_ufffd(
    harness: Harness,
) -> None:
    said_by_it = json.dumps(harness.script.user("a \ud800 b")).encode()
    append(harness.follower.path(), said_by_it + b"\n")
    harness.hook("UserPromptSubmit", prompt="a \ud800 b")
    harness.hook("Notification", message="x \udfff", **{"\ud800": "key"})
    odd_record(harness, "old", content='{"\\ud800": "\ud800"}')
    harness.follower.go()
    assert harness.waiting == 1  # it names no transcript
    harness.is_at(LATER_US)
    harness.follower.go()
    assert harness.waiting == 0
    said = {one.hook: text_of(one.blocks) for one in harness.hooks()}
    assert said["UserPromptSubmit"] == ""
    assert json.loads(said["Notification"]) == {"message": "x \ufffd", "\ufffd": "key"}
    assert said["Stop"]


def test_hooks_that_run_at_once_are_all_kept(tmp_path: Path) -> None:
    record = spool.Spooled(AT_US, "Stop", SESSION)
    with ThreadPoolExecutor(16) as pool:
        ids = list(pool.map(spool.put, [tmp_path] * 400, [record] * 400))
    assert sorted(ids) == list(spool.record_ids(tmp_path))


def test_what_cannot_be_written_leaves_nothing_and_old_rubbish_goes_away(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = spool_of(harness.url)
    harness.hook("Stop")
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", os.close)  # the file's own close fails then
        harness.hook("Stop")
    assert harness.waiting == 1
    assert list(folder.glob(".*")) == []
    for name, age_s in ((".old", 2 * spool.PART_MAX_S), (".new", 1)):
        (folder / name).write_bytes(b"{")
        at_s = time.time() - age_s
        os.utime(folder / name, (at_s, at_s))
    harness.follower.go()
    assert [path.name for path in folder.glob(".*")] == [".new"]


def test_two_mirrors_of_one_spool_record_and_count_each_hook_once(
    harness: Harness,
) -> None:
    harness.write(harness.script.user("hello"))
    for _ in range(3):
        harness.hook("Stop")
    harness.hook("Stop", session_id="")
    slower = HookSpool(
        spool_of(harness.url),
        settings=harness.follower.settings,
        redactor=harness.follower.redactor,
    )
    slower.look()
    assert harness.follower.go().hooks == 3
    done = slower.drain(harness.follower.log, lambda _: None, now_us=LATER_US)
    assert (done.recorded, done.refused, done.held) == (0, [], 0)
    assert len(harness.hooks()) == 3


def test_a_record_that_another_mirror_has_recorded_is_not_counted_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed before it could take the record away."""
    harness.write(harness.script.user("hello"))
    harness.hook("Stop")
    with monkeypatch.context() as killed:
        killed.setattr(spool, "take_away", Path.joinpath)
        assert harness.follower.go().hooks == 1
    harness.follower.restart()
    assert harness.follower.go().hooks == 0
    assert harness.waiting == 0


# --- before their transcript is read ---------------------------------------------------


def test_a_long_transcript_that_only_a_hook_names_is_read_to_its_end_first(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long ago the hook ran, and by as many rounds as it takes."""
    monkeypatch.setattr("foldline.producers.growing.READ_BYTES", 500)
    elsewhere = harness.follower.folder / "elsewhere.jsonl"
    harness.follower.mirroring.close()
    harness.follower.start(harness.follower.folder / "none")
    script = harness.script
    for number in range(20):
        script.user(f"prompt {number}")
    elsewhere.write_bytes(script.data)
    harness.hook("UserPromptSubmit", prompt="prompt 19", transcript_path=str(elsewhere))
    harness.is_at(LATER_US)
    harness.follower.go()
    (ran,) = harness.hooks()
    assert text_of(ran.blocks) == ""
    assert list(harness.follower.log.events(SESSION))[-1].event == ran


def test_a_hook_of_a_rested_transcript_waits_its_turn_while_others_catch_up(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(harness, "transcript")
    harness.follower.go()
    harness.follower.restart()
    monkeypatch.setattr("foldline.producers.mirroring.CATCHING_UP_MAX", 1)
    monkeypatch.setattr("foldline.producers.growing.READ_BYTES", 500)
    busy = Transcript(session_id="busy0000", prefix="b")
    for number in range(20):
        busy.user(f"prompt {number}")
    harness.follower.path("a-busy.jsonl").write_bytes(busy.data)
    harness.hook("PostToolUse", tool_response="again", tool_use_id="c1")
    harness.is_at(LATER_US)
    harness.follower.go()
    assert harness.waiting == 0
    assert [one.call_id for one in harness.hooks()].count("m1:0") == 3


def test_a_prompt_that_waits_is_not_read_again_before_its_transcript_grows(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.write(harness.script.user("hello"))
    harness.hook("UserPromptSubmit", prompt="and then")
    harness.follower.go()
    with monkeypatch.context() as rests:
        rests.setattr(spool, "read", None)
        harness.follower.go()
    assert harness.waiting == 1
    harness.write(harness.script.user("and then"))
    harness.follower.go()
    assert harness.waiting == 0


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
