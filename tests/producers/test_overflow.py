"""What an importer remembers of a long file lies on disk, and is the same."""

import random
import sqlite3
from pathlib import Path

import pytest

from foldline.errors import LogUnavailableError
from foldline.processors.open_log import open_log
from foldline.producers import overflow
from foldline.producers.claude_code_sessions import Message
from foldline.producers.overflow import Overflow, Remembered
from foldline.schemas.events import Usage
from tests.transcripts import Import, Transcript, text, tool_use

TURNS = 60


def far_back(chance: random.Random) -> Transcript:
    """A session whose records repeat, answer and continue those from long before."""
    script = Transcript()
    for turn in range(TURNS):
        script.user(f"do {turn}")
        usage = {"input_tokens": 5, "output_tokens": turn}
        script.assistant(f"m{turn}", text("I will"), tool_use(f"a{turn}"), usage=usage)
        before = chance.randrange(turn + 1)
        script.assistant(f"m{before}", tool_use(f"b{turn}"), usage=usage)
        for call in (f"a{before}", f"b{before}", "nobody's"):
            script.result(call, "x")
        copied = chance.choice(script.records)
        script.records.append(dict(copied))
        other = {"role": "user", "content": f"other {turn}"}
        script.records.append(copied | {"type": "user", "message": other})
        script.user("back again", parentUuid=chance.choice(script.records).get("uuid"))
        script.bare("strange", value=turn % 3)
    return script


def test_a_file_is_the_same_session_however_little_of_it_stays_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = far_back(random.Random(5))
    whole = Import(open_log("memory:"), tmp_path)
    report = whole.take(script)
    monkeypatch.setattr(overflow, "KEPT", 2)
    little = Import(open_log("memory:"), tmp_path)
    assert little.take(script) == report
    assert little.image() == whole.image()
    odd = (report.copies, report.flagged, report.orphan_results)
    assert min(*odd, report.duplicate_results, report.open_tool_calls) > 0


def test_the_oldest_entries_go_to_disk_and_are_found_there() -> None:
    remembered = Remembered(Message, Overflow(kept=4))
    for number in range(20):
        usage = Usage(input_tokens=number) if number % 2 else None
        remembered[f"\ud800{number}"] = Message(number, 1, usage)
    assert remembered.get("\ud8001") == Message(1, 1, Usage(input_tokens=1))
    assert "\ud80019" in remembered
    assert "\ud8000" in remembered
    assert "elsewhere" not in remembered
    assert remembered.get("elsewhere") is None
    remembered["\ud8000"] = Message(7, 7)
    for number in range(20, 40):
        remembered[str(number)] = Message()
    assert remembered.get("\ud8000") == Message(7, 7)


def test_maps_of_one_file_do_not_mix() -> None:
    shared = Overflow(kept=0)
    names, counts = Remembered(str, shared), Remembered(int, shared)
    names["one"], counts["one"] = "eins", 1
    assert (names.get("one"), counts.get("one")) == ("eins", 1)
    assert names.get(b"one") == "eins"


def test_a_disk_without_room_is_an_outage_and_no_defect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remembered = Remembered(str, full := Overflow(kept=0))
    remembered["a"] = "1"
    connection = sqlite3.connect(":memory:")
    connection.close()
    monkeypatch.setattr(full, "_connection", connection)
    with pytest.raises(LogUnavailableError, match="a temporary file"):
        remembered["b"] = "2"
    with pytest.raises(LogUnavailableError, match="a temporary file"):
        remembered.get("a")
