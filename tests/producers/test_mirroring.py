"""Following transcripts as they grow: what comes is what one import of them gives."""

import os
import random
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from foldline.processors.open_log import open_log
from foldline.processors.verify import verify
from foldline.producers import mirror_files, mirror_reading, mirror_renamed, positions
from foldline.producers.redaction import Redactor
from foldline.producers.redaction_key import key_of_log
from tests.mirrors import (
    Follower,
    append,
    follow_once,
    imported,
    live,
)
from tests.rollouts import Rollout
from tests.transcripts import SESSION, Transcript, line_of, text, tool_use

TOKEN = "ghp_" + "aB3dE5gH7jK9" * 3
POINTS = (
    "CP_IMPORT_AFTER_BATCH",
    "CP_MIRROR_AFTER_PIECE",
    "CP_MIRROR_AFTER_READ",
    "CP_MIRROR_BEFORE_POSITIONS",
    "CP_MIRROR_AFTER_POSITIONS",
)


def conversation(turns: int = 4, session_id: str = SESSION) -> bytes:
    """Prompts with a secret, calls, results, text beyond ASCII, a bad line."""
    script = Transcript(session_id=session_id, prefix=session_id[:8])
    data = line_of({"type": "summary", "summary": "of another", "leafUuid": "x"})
    for turn in range(turns):
        script.user(f"do {turn}, grüße 世界, with {TOKEN}")
        script.assistant(f"m{turn}", text("I will"), tool_use(f"a{turn}", command="ls"))
        script.result(f"a{turn}", "x" * 100)
        script.bare("strange", value=turn)
    lines = [line_of(record) for record in script.records]
    return data + b"".join(lines[:5]) + b'{"no": whole object\n' + b"".join(lines[5:])


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Follower]:
    follower = Follower(tmp_path)
    yield follower
    follower.mirroring.close()


# --- growing ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_growing_by_any_bytes_ends_as_one_import(follower: Follower, seed: int) -> None:
    """Half records, bytes in the middle of a character, restarts in between."""
    chance = random.Random(seed)
    data = conversation()
    path = follower.path()
    at = 0
    while at < len(data):
        step = chance.choice([1, 2, 7, 100, 1_000, 5_000])
        append(path, data[at : at + step])
        at += step
        follower.go()
        if chance.random() < 0.1:
            follower.restart()
    assert follower.go().alarms == 0
    assert follower.image() == imported(follower.folder, path)
    assert verify(follower.log).ok


def test_a_batch_import_after_a_mirror_adds_nothing(follower: Follower) -> None:
    follower.path().write_bytes(conversation())
    follower.go()
    before = follower.image()
    assert before == imported(follower.folder, follower.path())
    follower.restart()
    assert follower.go().events == 0
    assert follower.image() == before


def test_a_torn_line_waits_until_it_is_whole(follower: Follower) -> None:
    line = line_of(Transcript().user("grüße 世界"))
    cut = line.index("世".encode()) + 1
    follower.path().write_bytes(line_of(Transcript(prefix="a").user("first")) + line[:cut])
    follower.go()
    before = follower.log.state(SESSION)
    append(follower.path(), line[cut:-1])  # whole, and still without its LF
    follower.go()
    after = follower.log.state(SESSION)
    assert before is not None
    assert after is not None
    assert after.seq > before.seq
    append(follower.path(), b"\n")
    follower.go()
    assert follower.log.state(SESSION) == after
    assert follower.image() == imported(follower.folder, follower.path())


def test_two_records_on_one_line_and_garbage_behind_them_come_as_they_grow(
    follower: Follower,
) -> None:
    one, two = (line_of(Transcript(prefix=p).user(p)).rstrip() for p in "ab")
    for part in (one, two[:30], two[30:], b" and th", b"is\n", one[:9], b"\n"):
        append(follower.path(), part)
        follower.go()
    assert follower.image() == imported(follower.folder, follower.path())


def test_a_session_is_not_guessed_before_a_record_names_it(follower: Follower) -> None:
    """What stands before the first name belongs to it, also where that comes late."""
    script = Transcript(session_id=None)
    early = line_of(script.user("hello"))
    follower.path().write_bytes(early)
    assert follower.go().held == 1
    assert follower.image() == {}
    append(follower.path(), line_of(Transcript(prefix="z").user("more")))
    assert follower.go().held == 0
    assert list(follower.image()) == [SESSION]
    assert follower.image() == imported(follower.folder, follower.path())


def test_rollouts_of_codex_are_followed_too(follower: Follower) -> None:
    script = Rollout()
    script.meta()
    for number in range(3):
        script.turn(number)
    data = script.data
    for at in range(0, len(data), 333):
        append(follower.path(), data[at : at + 333])
        follower.go()
    assert follower.image() == imported(follower.folder, follower.path())


# --- cut, rewritten, renamed -----------------------------------------------------------


@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_shrank_alarms_and_what_was_recorded_is_kept(
    follower: Follower, *, restarted: bool
) -> None:
    """B04."""
    follower.path().write_bytes(conversation(5))
    follower.go()
    before = follower.image()
    if restarted:
        follower.restart()
    follower.path().write_bytes(conversation(1))
    assert follower.go().alarms == 1
    assert "alarm" in follower.kinds()
    assert follower.image() == before


def test_an_old_session_rewritten_with_only_its_new_turn_keeps_both(
    follower: Follower,
) -> None:
    """B04: 52 turns in the log, one in the file."""
    follower.path().write_bytes(conversation(52))
    follower.go()
    before = len(list(follower.log.events(SESSION)))
    new = Transcript(prefix="new")
    new.user("only this")
    replacement = follower.folder / "replacement"
    replacement.write_bytes(new.data)
    replacement.replace(follower.path())
    assert follower.go().alarms == 1
    events = list(follower.log.events(SESSION))
    assert len(events) > before
    append(follower.path(), line_of(new.user("and that")))
    assert follower.go().alarms == 1
    assert len(list(follower.log.events(SESSION))) > len(events)


@pytest.mark.parametrize("same_length", [False, True])
def test_a_file_rewritten_in_place_is_begun_anew(
    follower: Follower, *, same_length: bool
) -> None:
    first, second = (Transcript(session_id=f"s-{name}", prefix=name) for name in "ab")
    first.user("one")
    second.user("two" if same_length else "another that is longer")
    follower.path().write_bytes(first.data)
    follower.go()
    follower.path().write_bytes(second.data)
    follower.go()
    assert set(follower.image()) == {"s-a", "s-b"}


@pytest.mark.parametrize("is_open", [True, False])
def test_what_a_file_got_before_it_was_renamed_away_is_not_lost(
    follower: Follower, *, is_open: bool
) -> None:
    old = Transcript(session_id="s-old", prefix="o")
    old.user("one")
    follower.path().write_bytes(old.data)
    follower.go()
    if not is_open:
        follower.restart()
        follower.go()
    append(follower.path(), line_of(old.user("the last of the old file")))
    follower.path().rename(follower.path("session.jsonl.1"))
    new = Transcript(session_id="s-new", prefix="n")
    new.user("the first of the new one")
    follower.path().write_bytes(new.data)
    follower.go()
    append(follower.path("session.jsonl.1"), line_of(old.user("written late")))
    follower.go()
    both = (follower.path("session.jsonl.1"), follower.path())
    texts = {
        name: [event for _, event in events]
        for name, (events, _) in follower.image().items()
    }
    assert texts == {
        name: [event for _, event in events]
        for name, (events, _) in imported(follower.folder, *both).items()
    }


# --- many, new, and after a restart ----------------------------------------------------


def test_hundreds_of_files_rest_closed_and_those_that_grow_are_read(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_files, "OPEN_MAX", 5)
    scripts = {n: Transcript(session_id=f"s-{n}", prefix=f"{n}-") for n in range(120)}
    for number, script in scripts.items():
        script.user("hello")
        follower.path(f"{number}.jsonl").write_bytes(script.data)
    first = follower.go().events
    assert follower.mirroring.open_count <= 5
    assert follower.go().events == first
    for number in (3, 77, 119):
        append(follower.path(f"{number}.jsonl"), line_of(scripts[number].user("more")))
    follower.go()
    files = [follower.path(f"{number}.jsonl") for number in scripts]
    assert follower.image() == imported(follower.folder, *files)
    assert follower.mirroring.totals.files == 120


def test_many_files_that_are_new_at_once_are_read_some_at_a_time(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_files, "CATCHING_UP_MAX", 2)
    monkeypatch.setattr("foldline.producers.growing.READ_BYTES", 700)
    files = [follower.path(f"{number}.jsonl") for number in range(7)]
    for number, file in enumerate(files):
        file.write_bytes(conversation(3, f"{number}0000000-session"))
    follower.go()
    assert follower.image() == imported(follower.folder, *files)


def test_new_files_in_new_folders_are_found(follower: Follower) -> None:
    follower.go()
    script = Transcript()
    script.user("hello")
    follower.path("deep/er").mkdir(parents=True)
    follower.path("deep/er/new.jsonl").write_bytes(script.data)
    assert follower.go().files == 1
    assert list(follower.image()) == [SESSION]


def test_after_a_restart_what_rests_is_not_read_again(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower.path().write_bytes(conversation())
    follower.go()
    follower.restart()
    monkeypatch.setattr(mirror_reading, "Growing", None)  # whoever reads a file calls it
    assert follower.go().files == 1


@pytest.mark.parametrize("kept", ["{", "[]", '{"1": {"x": {}}}', '{"1": 5}', '{"2": {}}'])
def test_positions_that_mean_nothing_are_not_looked_at(
    follower: Follower, kept: str
) -> None:
    path = positions.positions_path(follower.settings.state_dir, follower.log.url)
    path.parent.mkdir(parents=True)
    path.write_text(kept)
    follower.path().write_bytes(conversation())
    follower.start()
    assert follower.go().events > 0


def test_positions_are_in_folders_for_their_owner_only(follower: Follower) -> None:
    follower.path().write_bytes(conversation())
    follower.go()
    follower.mirroring.close()
    state = follower.settings.state_dir
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (state, state / "mirror")}
    assert modes == {0o700}


def test_positions_of_a_log_that_lost_its_sessions_count_for_nothing(
    follower: Follower,
) -> None:
    follower.path().write_bytes(conversation())
    events = follower.go().events
    follower.mirroring.close()
    follower.log = open_log("memory:")
    follower.start()
    assert follower.go().events == events


def test_what_is_no_transcript_is_said_once_and_others_go_on(follower: Follower) -> None:
    follower.path("list.jsonl").write_text('[{"type": "message", "role": "user"}]')
    follower.path().write_bytes(conversation())
    assert follower.go().failed == 1
    assert follower.go().failed == 1
    assert follower.kinds().count("failed") == 1
    assert SESSION in follower.image()


# --- odd folders, and files that are gone ----------------------------------------------


def test_a_folder_as_deep_as_paths_allow_and_a_loop_of_links_cost_nothing_else(
    follower: Follower,
) -> None:
    follower.path().write_bytes(conversation())
    follower.path("loop.jsonl").symlink_to(follower.path("loop.jsonl"))
    follower.path("around").symlink_to(follower.transcripts)
    follower.path("dangling.jsonl").symlink_to(follower.path("nothing"))
    deep = follower.path("deep")
    deep.mkdir()
    at = os.open(deep, os.O_RDONLY)
    for _ in range(2_200):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    try:
        totals = follower.go()
        assert (totals.files, totals.held, totals.failed) == (1, 0, 2)
        assert SESSION in follower.image()
        follower.go()
        assert follower.kinds().count("failed") == 2
    finally:
        subprocess.run(["rm", "-rf", str(deep)], check=True)


def test_a_file_that_is_gone_is_no_held_one_and_forgotten_but_where_it_was_named(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = follower.folder / "named.jsonl"
    for path in (named, follower.path()):
        path.write_bytes(b"")
    follower.start(follower.transcripts, named)
    assert follower.go().held == 2
    for path in (named, follower.path()):
        path.unlink()
    totals = follower.go()
    assert (totals.files, totals.held) == (2, 0)
    monkeypatch.setattr(mirror_renamed, "RENAMED_S", 0.0)
    assert follower.go().files == 1
    named.write_bytes(conversation())
    assert follower.go().events > 0


def test_a_mirror_that_is_stopped_says_that_there_is_more(follower: Follower) -> None:
    follower.path().write_bytes(conversation())
    follower.stop = True
    assert follower.mirroring.round()


# --- killed ----------------------------------------------------------------------------


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(10))
def test_a_mirror_killed_anywhere_and_begun_again_ends_as_one_import(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    folder = tmp_path / "transcripts"
    folder.mkdir()
    files = {
        folder / f"{n}.jsonl": conversation(3, f"{n}0000000-session") for n in range(2)
    }
    url = f"sqlite:///{tmp_path}/s.db"
    killed = 0
    for part in range(1, 9):
        for file, data in files.items():
            there = file.stat().st_size if file.exists() else 0
            append(file, data[there : len(data) * part // 8])
        point = f"{chance.choice(POINTS)}:{chance.randint(1, 4)}"
        ended_by = live(lambda: follow_once(tmp_path, url), crash_at=point)
        killed += ended_by == signal.SIGKILL
    assert killed
    log = open_log(url)
    redactor = Redactor(key_of_log(url))
    follow_once(tmp_path, url)
    follower = Follower(tmp_path, log)
    assert follower.image() == imported(tmp_path, *files, redactor=redactor)
    assert verify(log).ok
    log.close()
