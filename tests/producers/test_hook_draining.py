"""From the spool into the log: what is odd, refused or not read yet stops nothing else."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from foldline.processors.open_log import open_log
from foldline.producers import spool
from foldline.producers.hook_draining import NO_MIRROR, HookSpool
from foldline.producers.spool import spool_of
from foldline.schemas.blocks import text_of
from foldline.settings import Settings
from foldline.testing import make_append
from foldline.testing.samples import created
from tests.hooked import AT_US, LATER_US, Harness, odd_record, play
from tests.mirrors import append, imported
from tests.transcripts import SESSION, Json, Transcript

# --- what is odd stops nothing else ----------------------------------------------------


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


def test_a_pipe_among_the_records_is_set_aside_and_keeps_no_mirror_waiting(
    harness: Harness,
) -> None:
    harness.write(harness.script.user("hello"))
    harness.hook("Notification")
    os.mkfifo(spool_of(harness.url) / f"pipe{spool.SUFFIX}")
    harness.follower.go()
    assert [one.hook for one in harness.hooks()] == ["Notification"]
    assert [path.name for path in spool_of(harness.url).glob("*.refused")] == [
        "pipe.refused"
    ]


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
    monkeypatch.setattr("foldline.producers.mirror_files.CATCHING_UP_MAX", 1)
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


def test_a_late_hook_of_a_long_transcript_that_rests_is_recorded_at_once(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else is to do: the rounds go on until that transcript is read again."""
    play(harness, "transcript")
    harness.follower.go()
    harness.follower.restart()
    monkeypatch.setattr("foldline.producers.growing.READ_BYTES", 500)
    harness.hook("PostToolUse", tool_response="again", tool_use_id="c1")
    harness.is_at(LATER_US)
    harness.follower.go()
    assert harness.waiting == 0
    assert [one.call_id for one in harness.hooks()].count("m1:0") == 3


# --- refused, or not to be read by now --------------------------------------------------


@pytest.mark.parametrize("transcript", [True, False])
@pytest.mark.parametrize(
    "odd", [{"hook": "x" * 1_000_000}, {"content": '{"message": "too long"}'}]
)
def test_what_the_log_refuses_is_set_aside_and_the_others_are_recorded_and_counted(
    harness: Harness, odd: dict[str, str], *, transcript: bool
) -> None:
    """An event that is too large for any log, and a body too large for its blobs."""
    follower = harness.follower
    follower.mirroring.close()
    small = Settings(blob_max_bytes=len("hello"), inline_max_bytes=5)
    follower.log = open_log(harness.url, settings=small)
    follower.settings = follower.settings.model_copy(update={"inline_max_bytes": 5})
    follower.start()
    if transcript:
        harness.write(harness.script.user("hello"))
    path = str(follower.path()) if transcript else ""
    odd_record(harness, "a", transcript_path=path)
    odd_record(harness, "b", transcript_path=path, **odd)
    odd_record(harness, "c", transcript_path=path)
    harness.is_at(LATER_US)
    totals = follower.go()
    assert [one.hook for one in harness.hooks()] == ["Stop", "Stop"]
    assert (totals.hooks, totals.hooks_refused, totals.failed) == (2, 1, 1)
    assert follower.kinds().count("failed") == 1
    assert harness.waiting == 0
    if transcript:
        harness.write(harness.script.user("hi"))
        follower.go()
        assert harness.without_hooks() == alone(harness)


def alone(harness: Harness) -> list[Any]:
    """What an import of the transcript gives."""
    (events, _) = imported(
        harness.follower.folder, harness.follower.path(), redactor=harness.follower.redactor
    )[SESSION]
    return [(envelope.event_id, event) for envelope, event in events]


def test_a_hook_of_a_session_that_is_no_mirror_is_set_aside_and_said(
    harness: Harness,
) -> None:
    """The log refuses no such hook: it would be a fact of somebody else's session."""
    own = make_append(SESSION, created("OWNED"), known_seq=0, epoch=1)
    harness.follower.log.append([own])
    harness.hook("Stop")
    harness.is_at(LATER_US)
    totals = harness.follower.go()
    assert (totals.hooks, totals.failed, harness.hooks()) == (0, 1, [])
    (said,) = [one for one in harness.follower.said if one.kind == "failed"]
    assert said.detail == NO_MIRROR
    assert [str(path) for path in spool_of(harness.url).glob("*.refused")] == [said.path]


def test_a_record_that_cannot_be_read_by_now_stays_and_is_recorded_later(
    harness: Harness,
) -> None:
    harness.write(harness.script.user("hello"))
    harness.hook("Stop")
    record = next(spool_of(harness.url).glob("*.json"))
    beside = record.rename(record.with_suffix(".elsewhere"))
    record.mkdir()
    harness.hook("Notification")
    for _ in range(2):
        assert harness.follower.go().failed == 1
    assert [one.hook for one in harness.hooks()] == ["Notification"]
    assert harness.follower.kinds().count("failed") == 1
    record.rmdir()
    beside.rename(record)
    totals = harness.follower.go()
    assert (totals.failed, totals.hooks, harness.waiting) == (0, 2, 0)


def test_a_spool_that_cannot_be_looked_through_ends_no_mirror(harness: Harness) -> None:
    folder = spool_of(harness.url)
    folder.parent.mkdir(parents=True)
    folder.write_text("no folder")
    harness.write(harness.script.user("hello"))
    totals = harness.follower.go()
    assert (totals.failed, totals.events > 0) == (1, True)
    folder.unlink()
    harness.hook("Stop")
    totals = harness.follower.go()
    assert (totals.failed, totals.hooks) == (0, 1)


def not_allowed(folder: Path, record_id: str) -> None:
    """What a folder of somebody else does (not to root, who runs tests in a container)."""
    raise PermissionError(folder, record_id)


def test_a_record_that_cannot_be_taken_away_is_said_and_not_recorded_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.write(harness.script.user("hello"))
    harness.hook("Stop")
    with monkeypatch.context() as held:
        held.setattr(spool, "take_away", not_allowed)
        totals = harness.follower.go()
        assert (totals.hooks, totals.failed, harness.waiting) == (1, 1, 1)
        held.setattr(spool, "read", None)  # nobody looks at it again
        harness.follower.go()
    totals = harness.follower.go()
    assert (totals.hooks, totals.failed, harness.waiting) == (1, 0, 0)
