"""An export is checked by importing it again: what does not come back is counted."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foldline.errors import ExportRefusedError
from foldline.processors.log import Log
from foldline.producers import source_export
from foldline.producers.claude_code_export import records
from foldline.producers.identity import fresh_id
from foldline.producers.source_bodies import Bodies
from foldline.producers.source_export import check_way_back, export_source, source_of
from foldline.producers.source_groups import Grouped, border_at
from foldline.producers.source_lines import Line
from foldline.schemas.codec import encode_content
from foldline.schemas.envelope import Actor, Envelope, Source
from foldline.schemas.events import (
    KnownEvent,
    RedactionApplied,
    SessionCreated,
    UserFeedback,
)
from foldline.schemas.recorded import Append, Recorded
from tests.exports import exported, exported_at_every_seq
from tests.transcripts import SESSION, Import, Transcript, called, text, tool_use


def conversation() -> Transcript:
    script = called(Transcript())
    script.result("c1", "three files", toolUseResult={"exitCode": 0, "durationMs": 5})
    script.assistant("m2", tool_use("c2", path="x"))
    script.user("and on")
    return script


def add(log: Log, session_id: str, event: KnownEvent) -> None:
    """Record something that no transcript tells."""
    state = log.state(session_id)
    envelope = Envelope(
        event_id=fresh_id(),
        session_id=session_id,
        writer="w",
        epoch=0 if state else 1,
        actor=Actor(kind="PERSON", id="p"),
    )
    append = Append(
        envelope, event, encode_content(event), known_seq=state.seq if state else 0
    )
    (verdict,) = log.append([append])
    assert verdict.recorded


def fact(seq: int, record: str) -> Recorded:
    """What a record of this name tells at a seq."""
    source = Source(system="claude-code", stream="s", position=record, sha256=b"")
    envelope = Envelope(
        event_id=fresh_id(),
        session_id=SESSION,
        writer="w",
        epoch=0,
        actor=Actor(kind="PERSON", id="p"),
        source=source,
        seq=seq,
    )
    return Recorded(envelope, UserFeedback(target=record), b"", 0)


SECRET = "ghp_" + "aB3dE5gH7jK9" * 3

CHANGES: dict[str, tuple[int, Any]] = {
    "a prompt that says something else": (0, ("do it", "do not")),
    "another call": (1, ("ls", "rm")),
    "a result of another call": (2, ('"c1"', '"c9"')),
    "another exit code": (2, ('"exitCode":0', '"exitCode":1')),
    "another time": (3, ("03:00:04", "03:00:05")),
    "another parent": (3, ('"parentUuid":"', '"parentUuid":"x')),
    "a call that is no more one": (3, ('"tool_use"', '"text_use"')),
    "another session": (4, (SESSION, "elsewhere")),
    "another place": (0, ("/home/somebody", "/home/nobody")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_an_export_tells_otherwise_is_seen(
    into: Import, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The comparison is shown exports that are wrong in one place each."""
    at, (old, new) = CHANGES[name]

    def wrong(grouped: Grouped, bodies: Bodies) -> Iterator[Line]:
        for line in records(grouped, bodies):
            text = (line.data or b"").decode()
            assert line.index != at or old in text
            yield Line(
                line.index, (text.replace(old, new) if line.index == at else text).encode()
            )

    into.take(conversation())
    monkeypatch.setitem(source_export.EXPORTERS, "claude-code", wrong)
    found, _ = exported(into.log, SESSION, into.folder)
    assert found.lost
    assert found.examples


@pytest.mark.parametrize("at", range(5))
def test_a_record_that_is_missing_or_twice_is_seen(
    into: Import, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    def missing(grouped: Grouped, bodies: Bodies) -> Iterator[Line]:
        yield from (line for line in records(grouped, bodies) if line.index != at)

    def more(grouped: Grouped, bodies: Bodies) -> Iterator[Line]:
        for line in records(grouped, bodies):
            yield line
            if line.index == at:
                record = json.loads(line.data or b"") | {"uuid": "another"}
                yield Line(None, json.dumps(record).encode())

    into.take(conversation())
    for wrong in (missing, more):
        monkeypatch.setitem(source_export.EXPORTERS, "claude-code", wrong)
        found, _ = exported(into.log, SESSION, into.folder)
        assert not found.lossless


def test_what_was_added_here_is_in_no_record_of_the_source(into: Import) -> None:
    into.take(conversation())
    add(into.log, SESSION, UserFeedback(target="m1", score=1.0))
    found, _ = exported(into.log, SESSION, into.folder)
    assert found.lost == {"UserFeedback, added here": 1}
    assert found.records == 5


def test_whatever_the_seq_whole_records_come_back(into: Import) -> None:
    """A redaction belongs to what it was made in; it tells nothing of its own."""
    script = conversation()
    script.user(f"my key is {SECRET}")
    script.assistant("m9", tool_use("c9", path=SECRET), text("so"))
    into.take(script)
    assert into.of(RedactionApplied)
    reached = exported_at_every_seq(into.log, SESSION, into.folder)
    assert len(set(reached)) < len(reached)


def test_a_session_whose_first_record_is_not_whole_is_refused(into: Import) -> None:
    into.take(conversation())
    with pytest.raises(ExportRefusedError, match="whole at seq 3, and not yet at seq 2"):
        export_source(
            into.log, SESSION, into.folder / "x", system="claude-code", upto_seq=2
        )


def test_records_whose_facts_are_among_each_other_are_taken_or_left_together() -> None:
    facts = [fact(seq, name) for seq, name in enumerate("aabacddc", start=1)]
    borders = [border_at(facts, seq) for seq in range(1, 9)]
    assert borders == [
        *((0, 4), (0, 4), (0, 4), (4, 4)),
        *((4, 8), (4, 8), (4, 8), (8, 8)),
    ]


def test_a_session_of_foldline_itself_has_no_source(into: Import) -> None:
    add(into.log, "own", SessionCreated(agent="a"))
    state = into.log.state("own")
    assert state is not None
    assert source_of(into.log, state) == ""
    with pytest.raises(ExportRefusedError, match="not read from another harness"):
        check_way_back("own", "", "source")


@pytest.mark.parametrize(
    ("found", "wanted", "said"),
    [
        ("other", "source", "no way back, claude-code, codex, openai-agents have"),
        ("codex", "claude-code", "read from codex"),
    ],
)
def test_a_format_without_a_way_back_names_those_that_have(
    found: str, wanted: str, said: str
) -> None:
    with pytest.raises(ExportRefusedError, match=said):
        check_way_back("s", found, wanted)
    check_way_back("s", "codex", "codex")
    check_way_back("s", "codex", "source")


def test_a_session_too_large_to_compare_is_refused_with_what_takes_it(
    into: Import, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    into.take(conversation())
    monkeypatch.setattr(source_export, "EVENTS_MAX", 3)
    with pytest.raises(ExportRefusedError, match="jsonl takes it"):
        exported(into.log, SESSION, tmp_path)
