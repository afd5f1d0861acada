"""Importing a file again, grown, shrunk, torn, killed, and next to another importer."""

import json
import os
import random
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.errors import ImportSourceError
from foldline.processors.open_log import open_log
from foldline.processors.verify import verify
from foldline.producers.claude_code import import_file
from foldline.producers.detect import OTHERS, check_format, detect
from foldline.producers.redaction import WITHHELD, Redactor
from foldline.producers.redaction_rule import Rule
from foldline.schemas.blocks import Blob, text_of
from foldline.schemas.codec import encode_content
from foldline.schemas.events import (
    ForeignRecord,
    RedactionApplied,
    SessionCreated,
    ToolCallRequested,
    ToolExecutionCompleted,
    UserMessage,
)
from foldline.schemas.recorded import Append
from foldline.settings import Settings
from tests.transcripts import KEY, SESSION, Import, Transcript, line_of, text, tool_use

FIXTURES = Path(__file__).parent.parent / "fixtures" / "claude_code"
TOKEN = "ghp_" + "aB3dE5gH7jK9" * 3


def conversation(turns: int = 6) -> Transcript:
    """Prompts, messages in parts, parallel calls, a compaction, and a secret."""
    script = Transcript()
    for turn in range(turns):
        script.user(f"do {turn}, with {TOKEN}" if turn == 1 else f"do {turn}")
        usage = {"input_tokens": 5, "output_tokens": 1}
        script.assistant(f"m{turn}", text("I will"), usage=usage)
        script.assistant(f"m{turn}", tool_use(f"a{turn}"), usage=usage)
        script.assistant(
            f"m{turn}",
            tool_use(f"b{turn}", query="grüße 世界"),
            usage=usage | {"output_tokens": 40},
        )
        script.result(f"b{turn}", "x" * 100)
        script.result(f"a{turn}", "failed", is_error=True)
        script.bare("queue-operation", operation="enqueue", content=f"hurry {turn}")
        script.bare("queue-operation", operation="remove")
        script.bare("strange", value=turn)
        if turn == turns // 2:
            script.add("system", subtype="compact_boundary", compactMetadata={})
            script.user("so far ...", isCompactSummary=True)
        script.add("system", subtype="turn_duration", durationMs=1)
    return script


# --- again -----------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/s.db"])
def test_the_same_file_again_adds_nothing(tmp_path: Path, url: str) -> None:
    into = Import(open_log(url.format(tmp_path)), tmp_path)
    first = into.take(conversation())
    before = into.image()
    again = into.take(conversation())
    assert first.events == sum(len(events) for events, _ in before.values())
    assert (again.events, again.alarms) == (0, [])
    assert into.image() == before
    counted = (first.records, first.tool_calls, first.compactions, first.mapped)
    assert (again.records, again.tool_calls, again.compactions, again.mapped) == counted
    assert verify(into.log).ok


def test_a_moved_file_adds_nothing_either(into: Import) -> None:
    into.take(conversation())
    again = into.take(conversation(), "elsewhere/other-name.txt")
    assert (again.events, again.alarms) == (0, [])


def test_a_grown_file_adds_its_tail(into: Import) -> None:
    into.take(conversation(2))
    before = len(into.events())
    grown = into.take(conversation(2).data + line_of(Transcript(prefix="z").user("more")))
    assert grown.events == len(into.events()) - before > 0
    assert grown.alarms == []


@settings(deadline=None, max_examples=30)
@given(st.randoms(use_true_random=False))
def test_growing_byte_by_byte_ends_as_one_import_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, chance: random.Random
) -> None:
    """Events depend on the records before them alone, however the file was cut."""
    data = conversation(4).data
    whole = Import(open_log("memory:"), tmp_path_factory.mktemp("whole"))
    grown = Import(open_log("memory:"), tmp_path_factory.mktemp("grown"))
    whole.folder = grown.folder
    whole.take(data)
    for cut in sorted(chance.randrange(400, len(data)) for _ in range(4)):
        report = grown.take(data[:cut])
        assert report.alarms == []
    assert grown.take(data).alarms == []
    assert grown.image() == whole.image()


# --- shrunk ----------------------------------------------------------------------------


def test_a_shrunken_file_alarms_and_nothing_is_removed(into: Import) -> None:
    """B04."""
    into.take(conversation(5))
    before = into.image()
    report = into.take(conversation(5).data[: len(conversation(1).data)])
    (alarm,) = report.alarms
    assert (alarm.kind, alarm.session_id) == ("SHRUNK", SESSION)
    assert alarm.missing_events == alarm.last_seq - alarm.first_seq + 1 > 0
    assert report.events == 0
    assert into.image() == before
    assert into.take(conversation(5)).alarms == []


def test_a_rewritten_file_alarms_and_both_are_kept(into: Import) -> None:
    """B04."""
    into.take(conversation(3))
    before = into.events()
    new = Transcript(prefix="new")
    new.user("only this")
    report = into.take(new)
    (alarm,) = report.alarms
    assert alarm.kind == "REWRITTEN"
    assert report.events > 0
    assert into.events()[: len(before)] == before
    assert text_of(into.of(UserMessage)[-1].blocks) == "only this"
    again = into.take(new)
    assert (again.events, [one.kind for one in again.alarms]) == (0, ["REWRITTEN"])


def test_another_file_of_the_same_session_is_no_loss(into: Import) -> None:
    into.take(conversation(2))
    other = Transcript(prefix="other")
    other.user("from another file")
    assert into.take(other, "other.jsonl").alarms == []
    assert into.take(conversation(2)).alarms == []
    assert len(into.of(SessionCreated)) == 1


def test_a_session_that_is_no_mirror_is_left_alone(into: Import) -> None:
    into.take(conversation(1))
    owned = Import(open_log("memory:"), into.folder)
    created = into.events()[0]

    event = SessionCreated(agent="mine", mode="OWNED")
    append = Append(created.envelope, event, encode_content(event), known_seq=0)
    owned.log.append([append])
    report = owned.take(conversation(1))
    assert [alarm.kind for alarm in report.alarms] == ["OWNED"]
    assert report.events == 0
    state = owned.log.state(SESSION)
    assert state is not None
    assert (state.seq, state.mode) == (1, "OWNED")


# --- torn ------------------------------------------------------------------------------


def test_a_torn_tail_is_reported_and_a_later_import_goes_on(into: Import) -> None:
    """B01: the records before it are there, and a new line goes below it."""
    data = conversation(3).data
    torn = data[: len(data) - 40]
    report = into.take(torn)
    assert report.torn_tail is not None
    assert report.rejected == [report.torn_tail]
    end = report.torn_tail.offset + report.torn_tail.length
    assert (end, report.torn_tail.recorded) == (len(torn), False)
    assert into.of(ForeignRecord)[-1].record_type == "strange"
    more = into.take(torn + b"\n" + line_of(Transcript(prefix="z").user("after")))
    assert (more.torn_tail, more.rejected_total, more.alarms) == (None, 1, [])
    assert into.of(ForeignRecord)[-1].record_type == "undecodable"
    assert text_of(into.of(UserMessage)[-1].blocks) == "after"


def test_one_bad_line_hides_nothing_after_it(into: Import) -> None:
    """B02: it is kept with its bytes, in its place."""
    script = Transcript()
    for number in range(200):
        script.user(f"turn {number}")
    lines = script.data.splitlines(keepends=True)
    lines[100] = lines[100][:60] + b"\n"
    report = into.take(b"".join(lines))
    assert (report.records, report.rejected_total) == (199, 1)
    assert report.rejected[0].offset == sum(map(len, lines[:100]))
    assert report.rejected[0].length == 60
    assert report.missing_parents == 1
    assert len(into.of(UserMessage)) == 199
    (kept,) = into.of(ForeignRecord)
    assert text_of(kept.blocks).encode() == lines[100][:60]
    assert kept.reason
    assert into.take(b"".join(lines)).events == 0


def test_a_record_written_again_whole_after_a_torn_one_is_neither_copy_nor_loss(
    into: Import,
) -> None:
    """B03."""
    script = Transcript()
    script.user("one")
    script.user("two")
    first, second = script.data.splitlines(keepends=True)
    report = into.take(first + second[: len(second) // 2] + b"\n" + second)
    assert (report.records, report.copies, report.flagged) == (2, 0, 0)
    assert report.rejected_total == 1
    assert len(into.of(UserMessage)) == 2


def test_junk_anywhere_leaves_an_importable_whole(into: Import) -> None:
    data = conversation(3).data
    chance = random.Random(7)
    for _ in range(25):
        junk = bytearray(data)
        for _ in range(chance.randrange(1, 20)):
            junk[chance.randrange(len(junk))] = chance.choice(b'\x00\n"{}\\\xff\xd8,:')
        fresh = Import(open_log("memory:"), into.folder)
        report = fresh.take(bytes(junk))
        again = fresh.take(bytes(junk))
        assert (again.events, again.alarms) == (0, [])
        assert again.rejected == report.rejected
        assert verify(fresh.log).ok


def test_lone_surrogates_become_replacement_characters(into: Import) -> None:
    """B38: cut emojis in text, arguments and outputs stop nothing."""
    script = Transcript()
    script.user("cut \ud83d")
    script.assistant("m1", tool_use("c1", d="현\ud99c"))
    script.result("c1", "…\ud83d")
    escaped = b"".join(json.dumps(record).encode() + b"\n" for record in script.records)
    for data in (escaped, script.data):
        fresh = Import(open_log("memory:"), into.folder)
        fresh.take(data)
        prompt = fresh.of(UserMessage)[0].blocks[0]
        assert str(prompt.body).startswith("cut \ufffd")
        (request,) = fresh.of(ToolCallRequested)
        assert json.loads(text_of(request.arguments))["d"].startswith("현\ufffd")
        assert fresh.take(data).events == 0
        assert verify(fresh.log).ok


def test_a_file_of_progress_is_read_in_bounded_batches(into: Import) -> None:
    """B39: what the model never saw does not enter its state, and is no noise either."""
    script = Transcript()
    script.user("go")
    script.assistant("m1", tool_use("c1", "Task"))
    for _ in range(2_000):
        data = {"type": "agent_progress", "agentId": "a", "message": {"x": "y" * 500}}
        script.add("progress", data=data, parentToolUseID="c1")
        script.add("progress", data={"type": "bash_progress", "output": "z" * 500})
    into.settings = Settings(batch_max=50)
    seen: list[int] = []

    path = into.folder / "big.jsonl"
    path.write_bytes(script.data)
    report = import_file(
        into.log,
        path,
        settings=into.settings,
        redactor=into.redactor,
        on_progress=lambda read, total, _: seen.append(read * 100 // total),
    )
    assert report.noise == {"progress/bash_progress": 2_000}
    assert report.foreign == {"progress/agent_progress": 2_000}
    assert seen == sorted(seen)
    assert seen[-1] == 100
    assert len(seen) >= 2_000 // 50
    state = into.log.state(SESSION)
    assert state is not None
    assert list(state.calls) == ["m1:0"]


def test_bodies_of_any_size_are_recorded(into: Import) -> None:
    script = Transcript()
    script.user("go")
    script.assistant("m1", tool_use("c1", content="y" * 300_000))
    many = [text("z" * 50_000) for _ in range(60)]
    script.result("c1", many)
    script.add("strange", payload="w" * 2_000_000)
    into.take(script)
    (done,) = into.of(ToolExecutionCompleted)
    assert len(done.output) == 60
    (strange,) = into.of(ForeignRecord)
    body = strange.blocks[0].body
    assert isinstance(body, Blob)
    stored = json.loads(into.log.blobs.get(body.sha256))
    assert stored == script.records[-1]
    assert verify(into.log).ok


# --- killed, and two at once -----------------------------------------------------------


def foldline(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from foldline.cli import main; main()", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.crash
@pytest.mark.parametrize("nth", [1, 2, 5])
def test_an_import_killed_between_batches_goes_on_to_the_same_end(
    tmp_path: Path, nth: int
) -> None:
    file = tmp_path / "session.jsonl"
    file.write_bytes(conversation(4).data)
    url = f"sqlite:///{tmp_path}/s.db"
    command = ("import", str(file), "--log", url, "--json")
    killed = foldline(
        *command,
        FOLDLINE_BATCH_MAX="9",
        FOLDLINE_CRASH_AT=f"CP_IMPORT_AFTER_BATCH:{nth}",
    )
    assert killed.returncode == -signal.SIGKILL
    done = foldline(*command)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["alarms"] == []
    again = Import(open_log(url), tmp_path)
    whole = Import(open_log("memory:"), tmp_path)
    whole.redactor = again.redactor = Redactor(
        (tmp_path / "s.db.redaction-key").read_bytes()
    )
    whole.take(conversation(4))
    assert again.image() == whole.image()
    assert verify(again.log).ok


def test_two_importers_of_one_file_at_once_record_each_fact_once(tmp_path: Path) -> None:
    script = conversation(40)
    (tmp_path / "session.jsonl").write_bytes(script.data)
    url = f"sqlite:///{tmp_path}/s.db"
    open_log(url).close()

    def run(batch_max: int) -> Any:
        log = open_log(url)
        into = Import(log, tmp_path, Settings(batch_max=batch_max))
        return into.file(tmp_path / "session.jsonl")

    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(run, [7, 60, 400, 7]))
    into = Import(open_log(url), tmp_path)
    ids = [e.envelope.event_id for e in into.events()]
    assert len(ids) == len(set(ids)) == sum(report.events for report in reports)
    alone = Import(open_log("memory:"), tmp_path)
    alone.file(tmp_path / "session.jsonl")
    assert set(ids) == {e.envelope.event_id for e in alone.events()}
    assert into.file(tmp_path / "session.jsonl").events == 0


# --- redaction -------------------------------------------------------------------------


def test_secrets_are_gone_from_log_and_blobs_and_are_counted(tmp_path: Path) -> None:
    """B45: in prompts, arguments, outputs, environment dumps, foreign and bad records."""
    script = Transcript()
    script.user([text(f"split {TOKEN[:15]}"), text(TOKEN[15:])])
    script.assistant("m1", tool_use("c1", command=f"curl -H 'x-api-key: {TOKEN}'"))
    dump = f"PATH=/usr/bin\nMY_SECRET=plain-{TOKEN}\nAuthorization: Bearer {TOKEN}\n"
    script.result("c1", dump + "x" * 100_000, toolUseResult={"stdout": dump})
    script.add("strange", headers={"Authorization": f"Bearer {TOKEN}"})
    bad = b'{"type":"user","token":"' + TOKEN.encode() + b"\n"
    into = Import(open_log(f"sqlite:///{tmp_path}/s.db"), tmp_path / "in")
    report = into.take(script.data + bad)
    into.log.close()
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.parent.name != "in":
            assert TOKEN.encode() not in path.read_bytes(), path
            assert TOKEN[15:].encode() not in path.read_bytes(), path
    assert sum(report.redactions.values()) >= 6


def test_redactions_stand_behind_what_they_are_of_and_ids_still_pair(
    into: Import,
) -> None:
    script = Transcript()
    script.user(f"use {TOKEN}")
    script.assistant("m1", tool_use("toolu_01HXFLXpDy2u8jcLHCiRxFSG", token=TOKEN))
    script.result("toolu_01HXFLXpDy2u8jcLHCiRxFSG", f"got {TOKEN}")
    into.take(script)
    events = into.events()
    targets = {
        e.event.target_event_id: i
        for i, e in enumerate(events)
        if isinstance(e.event, RedactionApplied)
    }
    for target, place in targets.items():
        assert events[place - 1].envelope.event_id == target
    assert len(targets) == 3
    state = into.log.state(SESSION)
    assert state is not None
    assert (state.calls, state.anomalies) == ({}, {})


def test_a_changed_redactor_changes_nothing_that_is_stored(into: Import) -> None:
    into.take(conversation(3))
    before = into.image()
    for redactor in (Redactor(KEY, enabled=False), Redactor(b"other" * 8)):
        into.redactor = redactor
        again = into.take(conversation(3))
        assert (again.events, again.alarms) == (0, [])
    assert into.image() == before


def _broken(_: object) -> bool:
    raise ValueError


def test_where_the_redactor_fails_the_content_is_withheld_and_the_import_goes_on(
    into: Import,
) -> None:

    rule = Rule("broken", ("do 1",), re.compile("(?P<s>do 1)"), _broken)
    into.redactor = Redactor(KEY, rules=(rule,))
    report = into.take(conversation(3))
    said = [text_of(one.blocks) for one in into.of(UserMessage)]
    assert said == ["do 0", WITHHELD, "do 2"]
    assert report.redactions == {"failed": 1}


# --- what is no transcript -------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b"hello\nworld\n", "no line of it"),
        (b'{"timestamp":"x","type":"session_meta","payload":{}}\n', "Codex"),
        (b'{"type":"session.start","data":{},"id":"x"}\n', "Copilot"),
        (b'{"type":"session","id":"x","cwd":"/"}\n', "pi"),
        (b'{"sessionId":"x","projectHash":"y","messages":[]}\n', "Gemini"),
        (b'{"role":"user","message":{"content":[]}}\n', "chat"),
        (b'{"a":1}\n{"type":"user","content":"x"}\n', "no known kind"),
    ],
)
def test_a_file_of_another_kind_is_refused_and_named(
    into: Import, data: bytes, says: str
) -> None:
    with pytest.raises(ImportSourceError, match=says):
        into.take(data, "claude-code-session.jsonl")
    assert into.log.sessions() == []


def test_what_other_kinds_look_like_is_named_with_an_article() -> None:
    assert all(name.split()[0] in ("a", "an") for name in OTHERS)


def test_a_folder_and_a_missing_file_are_refused(into: Import, tmp_path: Path) -> None:
    for path, says in ((tmp_path, "folder"), (tmp_path / "no.jsonl", "No such file")):
        with pytest.raises(ImportSourceError, match=says):
            into.file(path)


def test_a_transcript_is_known_by_its_content_whatever_stands_before(
    tmp_path: Path,
) -> None:
    path = tmp_path / "notes.txt"
    script = Transcript()
    script.user("x")
    path.write_bytes(b'junk\n{}\n{"type": ["user"]}\n' + script.data)
    assert detect(path, record_max_bytes=10_000) == "claude-code"
    path.write_bytes(b"junk\n{}\n")
    with pytest.raises(ImportSourceError, match="no known kind"):
        detect(path, record_max_bytes=10_000)


def test_a_file_of_noise_alone_makes_no_session(into: Import) -> None:
    summary = {"type": "summary", "summary": "x", "leafUuid": "y"}
    report = into.take(line_of(summary))
    assert (report.records, report.events, report.sessions) == (1, 0, [])
    assert into.log.sessions() == []


# --- whole files -----------------------------------------------------------------------

COUNTS = {
    "tour.jsonl": {
        "records": 24,
        "rejected_total": 1,
        "tool_calls": 5,
        "tool_results": 5,
        "open_tool_calls": 1,
        "orphan_results": 1,
        "duplicate_results": 0,
        "compactions": 1,
        "copies": 1,
        "flagged": 0,
        "missing_parents": 1,
    },
    "agent/agent-5f1.jsonl": {
        "records": 3,
        "rejected_total": 0,
        "tool_calls": 1,
        "tool_results": 1,
        "open_tool_calls": 0,
        "orphan_results": 0,
        "duplicate_results": 0,
        "compactions": 0,
        "copies": 0,
        "flagged": 0,
        "missing_parents": 0,
    },
}


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_a_saved_transcript_is_counted_as_by_hand(into: Import, name: str) -> None:
    report = into.file(FIXTURES / name)
    assert {key: getattr(report, key) for key in COUNTS[name]} == COUNTS[name]
    assert into.file(FIXTURES / name).events == 0
    assert verify(into.log).ok


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """An import reads its file twice, and again the next time."""
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    with pytest.raises(ImportSourceError, match="no regular file"):
        check_format(pipe, "claude-code", record_max_bytes=1_000)
