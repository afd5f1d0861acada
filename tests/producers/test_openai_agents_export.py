"""A list of items that was imported comes back; a run state has no way back."""

import json
from pathlib import Path
from typing import Any

import pytest

from foldline.errors import ExportRefusedError
from foldline.processors.open_log import open_log
from tests.exports import back, exported, exported_at_every_seq
from tests.rollouts import into_agents
from tests.transcripts import Import

ITEMS: list[Any] = [
    {"role": "user", "content": "hi"},
    {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "gAAA"},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"a": 1}'},
    {"type": "function_call_output", "call_id": "c1", "output": "seen"},
    {"type": "function_call_output", "call_id": "c1", "output": "seen twice"},
    {"type": "of_tomorrow", "x": 1},
    5,
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "done"}],
    },
]


@pytest.fixture
def into(tmp_path: Path) -> Import:
    return into_agents(open_log("memory:"), tmp_path)


@pytest.mark.parametrize("count", range(2, len(ITEMS) + 1))
def test_a_list_of_items_comes_back(into: Import, count: int) -> None:
    report = into.take(json.dumps(ITEMS[:count]).encode())
    (session,) = report.sessions
    before, after = back(into.log, session.session_id, into.folder)
    assert before == after
    _, path = exported(into.log, session.session_id, into.folder)
    assert len(json.loads(path.read_bytes())) == count


def test_whatever_the_seq_whole_items_come_back(into: Import) -> None:
    (session,) = into.take(json.dumps(ITEMS).encode()).sessions
    reached = exported_at_every_seq(into.log, session.session_id, into.folder)
    assert len(set(reached)) < len(reached)


def test_a_run_state_has_no_way_back(into: Import) -> None:
    items = [{"type": "message_output_item", "raw_item": ITEMS[0]}]
    state = {"$schemaVersion": "1.5", "original_input": "hi", "generated_items": items}
    report = into.take(json.dumps(state).encode())
    with pytest.raises(ExportRefusedError, match="only lists of items"):
        exported(into.log, report.sessions[0].session_id, into.folder)
