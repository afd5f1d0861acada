"""A transcript that was imported comes back: what is exported tells the same again."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.processors.open_log import open_log
from tests.exports import STEPS, back, exported, transcript
from tests.transcripts import SESSION, Import, Transcript, called, text, tool_use

FIXTURES = sorted((Path(__file__).parent.parent / "fixtures").rglob("*.jsonl"))
TOKEN = "ghp_" + "aB3dE5gH7jK9" * 3


def lines_of(into: Import, session_id: str = SESSION) -> list[dict[str, Any]]:
    """The records of an export that loses nothing."""
    found, path = exported(into.log, session_id, into.folder)
    assert found.lossless, found.examples
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_fixture_comes_back(into: Import, path: Path) -> None:
    report = into.file(path)
    for session in report.sessions:
        before, after = back(into.log, session.session_id, into.folder)
        assert before == after


@settings(deadline=None, max_examples=12)
@given(st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 60)), max_size=10))
def test_any_transcript_comes_back(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]]
) -> None:
    into = Import(open_log("memory:"), tmp_path_factory.mktemp("any"))
    report = into.take(transcript(steps))
    for session in report.sessions:
        before, after = back(into.log, session.session_id, into.folder)
        assert before == after


def test_every_step_there_is_comes_back(into: Import) -> None:
    into.take(transcript([(step, n) for n in range(12) for step in range(len(STEPS))]))
    before, after = back(into.log, SESSION, into.folder)
    assert len(before) > 300
    assert before == after


def test_secrets_stay_placeholders_and_are_no_loss(into: Import) -> None:
    script = Transcript()
    script.user(f"use {TOKEN}")
    script.assistant("m1", tool_use("c1", command=f"curl -H 'token {TOKEN}'"))
    script.result("c1", f"it is {TOKEN}")
    into.take(script)
    found, path = exported(into.log, SESSION, into.folder)
    assert found.lossless
    assert found.redacted == 3
    assert TOKEN not in path.read_text()
    assert "‹secret:" in path.read_text()


def test_records_are_called_what_they_were_where_a_fact_says_it(into: Import) -> None:
    """A prompt and a boundary keep their uuids; an answer is named after its fact."""
    script = called(Transcript())
    script.result("c1")
    script.add("system", subtype="compact_boundary", compactMetadata={"trigger": "auto"})
    strange = script.add("canvas", value=1)
    into.take(script)
    prompt, answer, result, boundary, kept = lines_of(into)
    assert (prompt["uuid"], boundary["uuid"], kept) == ("r1", "r4", strange)
    assert answer["parentUuid"] == "r1"
    assert result["parentUuid"] == answer["uuid"] == result["sourceToolAssistantUUID"]
    assert (boundary["parentUuid"], boundary["logicalParentUuid"]) == (None, result["uuid"])
    for name in ("cwd", "version", "gitBranch", "sessionId", "timestamp"):
        assert answer[name] == script.records[1][name]


def test_what_was_noise_is_not_there_but_for_a_stub_in_the_chain(into: Import) -> None:
    script = Transcript()
    script.user("one")
    script.add("progress", data={"type": "bash_progress", "output": "much"})
    script.add("canvas", value=1)
    into.take(script)
    prompt, stub, kept = lines_of(into)
    assert (stub["type"], stub["uuid"], stub["parentUuid"]) == ("progress", "r2", "r1")
    assert stub["data"] == {"type": "hook_progress"}
    assert kept["parentUuid"] == "r2"
    assert prompt["message"] == {"role": "user", "content": "one"}


def test_usage_and_signed_thinking_come_back(into: Import) -> None:
    script = Transcript()
    script.user("one")
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    usage = {"input_tokens": 3, "output_tokens": 1, "cache_read_input_tokens": 7}
    more = {"service_tier": "standard", "cache_creation_input_tokens": 0}
    script.assistant("m1", thinking, usage=usage | more, requestId="req1")
    script.assistant("m1", text("so"), usage=usage | {"output_tokens": 40})
    into.take(script)
    _, first, second = lines_of(into)
    assert first["message"]["content"] == [thinking]
    assert first["message"]["usage"] == usage | more
    assert (first["requestId"], first["message"]["stop_reason"]) == ("req1", None)
    assert second["message"]["usage"]["output_tokens"] == 40


def test_a_session_that_goes_on_from_another_says_so_and_comes_back_alone(
    into: Import,
) -> None:
    script = called(Transcript())
    script.session_id = "second"
    script.user("and on")
    script.user("further")
    into.take(script)
    found, _ = exported(into.log, "second", into.folder)
    assert (found.lossless, found.outside) == (True, 2)
    first, *_ = lines_of(into, "second")
    assert first["forkedFrom"] == {"sessionId": SESSION}


def test_a_subagent_in_its_parents_file_comes_back_as_its_own(into: Import) -> None:
    script = called(Transcript())
    script.user("look", agentId="a9", isSidechain=True)
    into.take(script)
    (first,) = lines_of(into, f"{SESSION}/agent-a9")
    assert (first["sessionId"], first["agentId"]) == (SESSION, "a9")
