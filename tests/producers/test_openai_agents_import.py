"""Run states and item lists: answers, calls, approvals, nested runs, versions, growth."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.errors import ImportSourceError
from foldline.processors.open_log import open_log
from foldline.processors.verify import verify
from foldline.producers.json_fields import as_list, as_object
from foldline.producers.openai_agents_state import NEWEST, session_of
from foldline.schemas.blocks import text_of
from foldline.schemas.events import (
    AssistantMessage,
    ForeignRecord,
    HandedOff,
    ModelCallCompleted,
    PermissionDenied,
    PermissionGranted,
    PermissionRequested,
    SessionCreated,
    SubagentStarted,
    ToolCallRequested,
    ToolExecutionCompleted,
    ToolResultProjected,
    UserMessage,
)
from tests.rollouts import into_agents
from tests.transcripts import Import

TRACE = "trace_1"
TOKEN = "ghp_" + "aB3dE5gH7jK9" * 3

Json = dict[str, Any]


@pytest.fixture
def into(tmp_path: Path) -> Import:
    return into_agents(open_log("memory:"), tmp_path)


def call(call_id: str, name: str = "look") -> Json:
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": name,
        "arguments": "{}",
    }


def answer(call_id: str, output: Any = "ok") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def said(text: str) -> Json:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "id": f"msg_{text}", "role": "assistant", "content": content}


def response(number: int, *outputs: Json) -> Json:
    usage = {
        "requests": 1,
        "input_tokens": 100 + number,
        "output_tokens": 10,
        "total_tokens": 110 + number,
        "input_tokens_details": [{"cached_tokens": 7}],
        "output_tokens_details": [{"reasoning_tokens": 3}],
    }
    return {"response_id": f"resp_{number}", "output": list(outputs), "usage": usage}


def run_item(kind: str, raw: Json, **more: Any) -> Json:
    return {"type": kind, "raw_item": raw, "agent": {"name": "a"}, **more}


def state(**fields: Any) -> Json:
    """A run that was given a task, called a tool, and said what came of it."""
    reasoning: Json = {"type": "reasoning", "id": "rs", "encrypted_content": "gAAAA"}
    whole: Json = {
        "$schemaVersion": "1.13",
        "current_agent": {"name": "a"},
        "original_input": "do it",
        "model_responses": [
            response(1, reasoning, call("c1"), call("c2")),
            response(2, said("done")),
        ],
        "generated_items": [],
        "session_items": [
            run_item("reasoning_item", reasoning),
            run_item("tool_call_item", call("c1")),
            run_item("tool_call_item", call("c2")),
            run_item("tool_call_output_item", answer("c2")),
            run_item("tool_call_output_item", answer("c1")),
            run_item("message_output_item", said("done")),
        ],
        "context": {"approvals": {}, "context": {}},
        "trace": {"id": TRACE},
    }
    return whole | fields


def data_of(document: Any) -> bytes:
    return json.dumps(document, indent=2).encode()


def camel(value: Any) -> Any:
    """The same as JavaScript writes it."""
    if isinstance(value, list):
        return [camel(item) for item in as_list(cast("object", value))]
    if not isinstance(value, dict):
        return value
    changed: Json = {}
    for name, item in as_object(cast("object", value)).items():
        first, *rest = name.split("_")
        changed[first + "".join(part.capitalize() for part in rest)] = camel(item)
    if changed.get("type") == "function_call_output":
        changed["type"] = "function_call_result"
    return changed


# --- a run state -----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [state(), camel(state())])
def test_a_run_state_is_told_in_the_order_in_which_it_happened(
    into: Import, shape: Json
) -> None:
    report = into.take(data_of(shape), "state.json")
    assert into.order(TRACE) == [
        "SessionCreated",
        "TurnStarted",
        "UserMessage",
        "ModelCallCompleted",
        "AssistantMessage",
        *("AssistantMessage", "ToolCallRequested") * 2,
        *("ToolExecutionCompleted",) * 2,
        "ModelCallCompleted",
        "AssistantMessage",
        "ForeignRecord",
    ]
    first, second = into.of(ModelCallCompleted, TRACE)
    assert (first.response_id, second.response_id) == ("resp_1", "resp_2")
    assert first.usage is not None
    assert (first.usage.input_tokens, first.usage.cache_read_input_tokens) == (101, 7)
    assert first.usage.reasoning_output_tokens == 3
    ids = [r.call_id for r in into.of(ToolCallRequested, TRACE)]
    assert ids == ["resp_1:1", "resp_1:2"]
    ends = [e.call_id for e in into.of(ToolExecutionCompleted, TRACE)]
    assert ends == list(reversed(ids))
    opaque = str(into.of(AssistantMessage, TRACE)[0].blocks[0].opaque)
    assert json.loads(opaque)["encrypted_content"] == "gAAAA"
    assert (report.tool_calls, report.tool_results, report.open_tool_calls) == (2, 2, 0)
    assert into.take(data_of(shape), "other.json").events == 0
    assert verify(into.log).ok


def test_a_run_that_went_on_adds_what_it_did_since(into: Import) -> None:
    """What waited no longer waits; that the new state does not say so is no loss."""
    waiting = run_item("tool_approval_item", call("c1"))
    items = state()["session_items"]
    early = state(
        model_responses=state()["model_responses"][:1], session_items=[*items[:3], waiting]
    )
    into.take(data_of(early))
    before = len(into.events(TRACE))
    assert len(into.of(PermissionRequested, TRACE)) == 1
    late = state(context={"approvals": {"look": {"approved": ["c1"], "rejected": []}}})
    report = into.take(data_of(late))
    assert report.alarms == []
    assert into.order(TRACE)[before:] == [
        "ToolExecutionCompleted",
        "PermissionGranted",
        "ToolExecutionCompleted",
        "ModelCallCompleted",
        "AssistantMessage",
        "ForeignRecord",
    ]
    request, grant = (
        into.of(PermissionRequested, TRACE)[0],
        into.of(PermissionGranted, TRACE)[0],
    )
    assert (grant.request_id, grant.call_id) == (request.request_id, request.call_id)


def test_a_refused_call_is_denied_and_did_not_fail(into: Import) -> None:
    approvals = {
        "look": {
            "approved": [],
            "rejected": ["c1"],
            "rejection_messages": {"c1": "not today"},
        }
    }
    into.take(data_of(state(context={"approvals": approvals})))
    (denied,) = into.of(PermissionDenied, TRACE)
    assert text_of(denied.feedback) == "not today"
    assert [p.form for p in into.of(ToolResultProjected, TRACE)] == ["denied"]
    assert len(into.of(ToolExecutionCompleted, TRACE)) == 1


def test_a_call_that_waits_is_open_and_asks_for_permission(into: Import) -> None:
    waiting = run_item("tool_approval_item", call("c1"))
    items = [run_item("tool_call_item", call("c1")), waiting]
    report = into.take(
        data_of(state(model_responses=[response(1, call("c1"))], session_items=items))
    )
    (request,) = into.of(PermissionRequested, TRACE)
    assert request.call_id == "resp_1:0"
    assert (report.tool_calls, report.open_tool_calls) == (1, 1)


def test_a_nested_run_is_a_session_of_its_own_with_its_call(into: Import) -> None:
    inner = state(trace=None, original_input="inner")
    pending = {"look:c1": json.dumps(inner)}
    report = into.take(data_of(state(pending_agent_tool_runs=pending)))
    (started,) = into.of(SubagentStarted, TRACE)
    child = started.child_session_id
    created = into.of(SessionCreated, child)[0]
    assert (created.relation, created.parent_session_id) == ("SUBAGENT", TRACE)
    assert created.parent_call_id == started.call_id == "resp_1:1"
    assert into.of(UserMessage, child)[0].message_id
    assert report.tool_calls == 4
    assert into.take(data_of(state(pending_agent_tool_runs=pending))).events == 0


def test_a_handoff_names_both_agents(into: Import) -> None:
    agents = {"source_agent": {"name": "a"}, "target_agent": {"name": "b"}}
    items = [
        run_item("handoff_call_item", call("c1", "transfer_to_b")),
        run_item("handoff_output_item", answer("c1"), **agents),
    ]
    into.take(
        data_of(state(model_responses=[response(1, call("c1"))], session_items=items))
    )
    (handed,) = into.of(HandedOff, TRACE)
    assert (handed.from_agent, handed.to_agent) == ("a", "b")
    assert handed.call_id == "resp_1:0"


def test_what_a_state_says_beside_its_history_is_kept(into: Import) -> None:
    into.take(data_of(state(tool_use_tracker={"a": ["look"]})))
    (kept,) = into.of(ForeignRecord, TRACE)
    rest = json.loads(text_of(kept.blocks))
    assert rest["tool_use_tracker"] == {"a": ["look"]}
    assert "session_items" not in rest


def test_items_without_an_answer_are_calls_of_their_own(into: Import) -> None:
    """A state from a server that keeps the history holds only what was new."""
    into.take(data_of(state(model_responses=[])))
    assert [c.usage for c in into.of(ModelCallCompleted, TRACE)] == [None, None]
    assert len(into.of(ToolExecutionCompleted, TRACE)) == 2


@pytest.mark.parametrize("version", ["999", f"1.{NEWEST + 1}", "2.0", "1", "", 1.0, None])
def test_a_state_of_an_unknown_version_is_refused(into: Import, version: Any) -> None:
    document = state() | {"$schemaVersion": version}
    with pytest.raises(ImportSourceError, match=f"1.0 to 1.{NEWEST} are read"):
        into.take(data_of(document))
    assert into.log.sessions() == []


# --- item lists ------------------------------------------------------------------------


def items(turns: int = 3) -> list[Json]:
    listed: list[Json] = []
    for n in range(turns):
        listed += [{"role": "user", "content": f"do {n}"}, call(f"c{n}")]
        listed += [answer(f"c{n}"), said(f"done {n}")]
    return listed


def test_an_item_list_is_a_session(into: Import) -> None:
    report = into.take(data_of(items()), "items.json")
    (session,) = report.sessions
    assert len(into.of(UserMessage, session.session_id)) == 3
    assert len(into.of(ModelCallCompleted, session.session_id)) == 6
    assert (report.tool_calls, report.tool_results, report.records) == (3, 3, 12)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(2, 11), max_size=4))
def test_a_list_that_grows_item_by_item_ends_as_one_import_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    whole = into_agents(open_log("memory:"), tmp_path_factory.mktemp("whole"))
    grown = into_agents(open_log("memory:"), tmp_path_factory.mktemp("grown"))
    whole.folder = grown.folder
    whole.take(data_of(items()))
    for cut in sorted(cuts):
        assert grown.take(data_of(items()[:cut])).alarms == []
    assert grown.take(data_of(items())).alarms == []
    assert grown.image() == whole.image()


@pytest.mark.parametrize("item", [7, None, "text", [], {}, {"type": "new"}, {"role": "x"}])
def test_an_item_of_no_known_make_is_kept_in_its_place(into: Import, item: Any) -> None:
    report = into.take(data_of([*items(1), item, {"role": "user", "content": "on"}]))
    session_id = report.sessions[0].session_id
    assert report.foreign.total() == len(into.of(ForeignRecord, session_id)) == 1
    assert into.order(session_id)[-1] == "UserMessage"


def test_two_runs_that_begin_alike_are_two_sessions() -> None:
    """A first prompt says nothing about which run it is; what a model gave does."""
    one = state(trace=None)
    other = state(trace=None, model_responses=[response(9, said("no"))])
    assert session_of(one) != session_of(other)
    assert session_of(one) == session_of(state(trace=None, context={"approvals": {}}))
    assert session_of([*items(1)]) == session_of([*items(3)])


@pytest.mark.parametrize("name", ["a\x1b[2J", "a\nb", "a\u202eb", " a"])
def test_a_trace_that_no_session_can_be_called_is_no_name(name: str) -> None:
    assert session_of(state(trace={"id": name})) == session_of(state(trace=None))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["id", "type", "output", "raw_item"]), inner)
    ),
    max_leaves=5,
)


def spoiled(value: Any, places: st.DataObject) -> Any:
    """The document with something else in one place of it."""
    items: dict[Any, Any] = {**dict(enumerate(as_list(value))), **as_object(value)}
    if not items:
        return places.draw(JUNK)
    at = places.draw(st.sampled_from(list(items)))
    deeper = isinstance(items[at], dict | list) and places.draw(st.booleans())
    value[at] = spoiled(items[at], places) if deeper else places.draw(JUNK)
    return value


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_anything_in_any_place_is_refused_or_imported_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A document is somebody else's word: it may say anything, also of versions."""
    document: Any = state(
        context={"approvals": {"look": {"approved": ["c1"], "rejected": ["c2"]}}},
        pending_agent_tool_runs={"look:c1": json.dumps(state(trace=None))},
    )
    document["session_items"].append(run_item("tool_approval_item", call("c1")))
    spoiled(document, data)
    into = into_agents(open_log("memory:"), tmp_path_factory.mktemp("junk"))
    try:
        into.take(data_of(document))
    except ImportSourceError:
        assert into.log.sessions() == []
        return
    assert into.take(data_of(document)).events == 0
    assert verify(into.log).ok


def test_what_is_no_text_and_what_is_too_deep_does_no_harm(into: Import) -> None:
    report = into.take(b'[{"type": "reasoning", "id": "\\ud800", "x": "\\udfff\xff"}]')
    assert report.mapped == 1
    deep = b'{"$schemaVersion": "1.0", "context": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    with pytest.raises(ImportSourceError):
        into.take(deep)


def test_secrets_in_inputs_and_contexts_are_redacted(into: Import) -> None:
    into.take(data_of(state(original_input=f"use {TOKEN}", context={"key": TOKEN})))
    assert TOKEN not in "".join(str(one.event) for one in into.events(TRACE))
