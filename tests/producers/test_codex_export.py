"""A rollout that was imported comes back: what is exported tells the same again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.processors.open_log import open_log
from tests.exports import back, exported, exported_at_every_seq
from tests.rollouts import DONE, EXITED, ROLLOUT, RUNNING, Rollout, into_codex, tokens
from tests.transcripts import Import

PNG = "data:image/png;base64,aGVsbG8="
PARENT = "01800000-0000-7000-8000-000000000001"


@pytest.fixture
def into(tmp_path: Path) -> Import:
    return into_codex(open_log("memory:"), tmp_path)


OUTPUTS: tuple[Any, ...] = (
    DONE,
    EXITED.format(2),
    RUNNING.format(7),
    "aborted by user after 29.7s",
    "command timed out after 500 ms",
    "exec command rejected by user",
    "failed to parse function arguments: x",
    "execution error: y",
    {"content": "said", "success": False},
    {"content": "said", "success": True},
    '{"output": "x", "metadata": {"exit_code": 3, "duration_seconds": 0.5}}',
    [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": PNG}],
    {"strange": [1, None]},
    [],
)

ITEMS: tuple[dict[str, Any], ...] = (
    {"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": "q"}},
    {"type": "image_generation_call", "id": "i", "status": "done", "result": "aGVsbG8="},
    {"type": "custom_tool_call", "call_id": "p", "name": "apply_patch", "input": "*** x"},
    {"type": "custom_tool_call_output", "call_id": "p", "output": "Exit code: 0\nok"},
    {"type": "local_shell_call", "call_id": "l", "action": {"command": ["ls"]}},
    {"type": "tool_search_call", "call_id": "t", "arguments": {"q": "x"}},
    {"type": "tool_search_output", "call_id": "t", "tools": [{"name": "y"}]},
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "reasoning", "summary": [], "encrypted_content": "gAAA", "content": None},
    {"type": "agent_message", "content": [{"type": "input_text", "text": "from b"}]},
    {"type": "ghost_snapshot", "x": 1},
)

EVENTS: tuple[dict[str, Any], ...] = (
    {"type": "error", "message": "no", "codex_error_info": "usage_limit"},
    {"type": "error", "message": "no", "codex_error_info": {"http": {"status": 5}}},
    {"type": "stream_error", "message": "again"},
    {"type": "thread_goal_updated", "goal": {"objective": "win"}},
    {"type": "collab_agent_spawn_end", "new_thread_id": "kid", "call_id": "a0"},
    {"type": "collab_close_end", "receiver_thread_id": "kid", "status": {"errored": "x"}},
    {"type": "turn_aborted", "reason": "interrupted"},
    {"type": "task_started"},
    {"type": "thread_rolled_back", "num_turns": 1},
    {"type": "thread_rolled_back", "num_turns": 3},
    {"type": "task_complete"},
    {"type": "token_count", "info": None},
    {"type": "of_tomorrow"},
)


def _compacted(script: Rollout, n: int) -> None:
    history: list[Any] = [
        {"type": "message", "role": "user", "content": "so far"},
        {"type": "message", "role": "user", "content": [{"type": "text", "text": "b"}]},
        {"type": "compaction", "encrypted_content": "gAAA"},
        {"type": "message", "role": "assistant", "content": "yes"},
        {"type": "other", "x": n},
    ]
    payload: dict[str, Any] = {"message": "sum", "replacement_history": history[: n % 6]}
    script.add("compacted", payload | ({"window_id": f"w{n}"} if n % 2 else {}))


def _context(script: Rollout, n: int) -> None:
    policies = ("never", {"granular": {"x": True}})
    sandbox = ({"type": "read-only"}, {"mode": "full", "net": True})[n % 2]
    more: dict[str, Any] = {"effort": "high"} if n % 3 else {}
    more |= {"developer_instructions": f"mind {n % 2}"} if n % 4 == 0 else {}
    policy = policies[n // 2 % 2]
    script.context(approval_policy=policy, sandbox_policy=sandbox, **more)


STEPS: tuple[Callable[[Rollout, int], Any], ...] = (
    lambda script, n: script.turn(n),
    lambda script, n: script.message("user", f"do {n}"),
    lambda script, n: script.message("developer", f"mind {n}"),
    lambda script, n: script.message("user", f"<environment_context>{n}"),
    lambda script, n: script.message(
        "assistant", f"a {n}", {"type": "refusal", "refusal": "no"}
    ),
    lambda script, n: script.message(
        "user", f"see {n}", {"type": "input_image", "image_url": PNG}
    ),
    lambda script, n: script.call(f"a{n % 3}", cmd="ls"),
    lambda script, n: script.call(f"a{n % 3}", "write_stdin", session_id=7),
    lambda script, n: script.output(f"a{n % 3}", OUTPUTS[n % len(OUTPUTS)]),
    lambda script, n: script.add("response_item", ITEMS[n % len(ITEMS)]),
    lambda script, n: script.add("event_msg", EVENTS[n % len(EVENTS)]),
    lambda script, n: script.used(n),
    lambda script, n: script.event("token_count", info=tokens(900 + n, n)),
    _compacted,
    _context,
)


def rollout(steps: list[tuple[int, int]], *, bare: bool = False) -> Rollout:
    """A rollout of these steps: which one, and a number for it."""
    script = Rollout(bare=bare)
    script.meta(git={"branch": "main"}, base_instructions={"text": "Be brief."})
    for step, number in steps:
        STEPS[step](script, number)
    return script


@settings(deadline=None, max_examples=12)
@given(st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 60)), max_size=10))
def test_any_rollout_comes_back(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]]
) -> None:
    into = into_codex(open_log("memory:"), tmp_path_factory.mktemp("any"))
    into.take(rollout(steps).data)
    before, after = back(into.log, ROLLOUT, into.folder)
    assert before == after


def test_every_step_there_is_comes_back(into: Import) -> None:
    into.take(rollout([(step, n) for n in range(14) for step in range(len(STEPS))]).data)
    before, after = back(into.log, ROLLOUT, into.folder)
    assert len(before) > 300
    assert before == after


def test_whatever_the_seq_whole_records_come_back(into: Import) -> None:
    into.take(rollout([(step, 5) for step in range(0, len(STEPS), 2)]).data)
    reached = exported_at_every_seq(into.log, ROLLOUT, into.folder)
    assert len(set(reached)) < len(reached)


def test_the_form_of_2025_comes_back_in_that_of_today(into: Import) -> None:
    script = Rollout(bare=True)
    script.meta()
    script.turn(1)
    into.take(script.data)
    before, after = back(into.log, ROLLOUT, into.folder)
    assert before == after
    _, path = exported(into.log, ROLLOUT, into.folder)
    first = json.loads(path.read_text().splitlines()[0])
    assert (first["type"], first["payload"]["instructions"]) == (
        "session_meta",
        "Be brief.",
    )


def test_totals_of_tokens_are_the_sums_of_what_was_used(into: Import) -> None:
    script = Rollout()
    script.meta()
    script.turn(1)
    script.turn(2)
    into.take(script.data)
    _, path = exported(into.log, ROLLOUT, into.folder)
    records = [json.loads(line)["payload"] for line in path.read_text().splitlines()]
    infos = [record["info"] for record in records if record.get("type") == "token_count"]
    assert [info["total_token_usage"]["input_tokens"] for info in infos] == [
        *(101, 112),
        *(214, 226),
    ]


def test_a_fork_comes_back_beside_its_parent(into: Import) -> None:
    """What it copied of its parent's tokens is known by the parent's rollout alone."""
    parent = Rollout(PARENT)
    parent.meta()
    parent.turn(1)
    into.take(parent.data, "parent.jsonl")
    child = Rollout(start=5)
    child.meta(forked_from_id=PARENT)
    child.turn(1)
    child.turn(2)
    into.take(child.data, "child.jsonl")
    found, path = exported(into.log, ROLLOUT, into.folder / "..")
    assert (found.lost, found.outside) == ({}, 2)
    first = json.loads(path.read_text().splitlines()[0])
    assert first["payload"]["forked_from_id"] == PARENT
