"""What is kept as it is, what is noise; sessions, branches, parents and copies."""

import json
import re
from typing import Any

import pytest

from foldline.processors.anomalies import MISSING_PARENT_ID
from foldline.producers.claude_code_mapping import NOISE
from foldline.projections.building import build
from foldline.projections.context import Sources
from foldline.projections.explain import explain
from foldline.schemas.blocks import text_of
from foldline.schemas.events import (
    AssistantMessage,
    CompactionCompleted,
    ForeignRecord,
    ModelCallCompleted,
    SessionCreated,
    TurnStarted,
    UserMessage,
)
from foldline.tokenizers import default_counter
from tests.transcripts import (
    DENIAL,
    LAUNCHED,
    SESSION,
    Import,
    Transcript,
    called,
    text,
    tool_use,
)

# --- what is not mapped ---


def test_an_unknown_record_is_kept_as_it_is_in_its_place(
    script: Transcript, into: Import
) -> None:
    """B40."""
    script.user("one")
    strange = script.add("canvas", payload={"x": [1, 2.50, None]}, ü="ü")
    script.user("two")
    report = into.take(script)
    (kept,) = into.of(ForeignRecord)
    assert into.order()[3] == "ForeignRecord"
    assert json.loads(text_of(kept.blocks)) == strange
    assert (kept.record_type, kept.record_id, kept.parent_record_id) == (
        *("canvas", "r2"),
        "r1",
    )
    assert report.foreign == {"canvas": 1}
    parents = [e.envelope.parent_event_id for e in into.events()]
    assert parents[-1] == into.events()[3].envelope.event_id


@pytest.mark.parametrize("kind", sorted(NOISE))
def test_declared_noise_is_counted_and_not_recorded(
    script: Transcript, into: Import, kind: str
) -> None:
    script.user("one")
    head, _, sub = kind.partition("/")
    script.bare(head, uuid="p1", parentUuid="r1", data={"type": sub})
    script.user("two", parentUuid="p1")
    report = into.take(script)
    assert report.noise == {kind: 1}
    first, second = (e.envelope for e in into.events() if e.type == "UserMessage")
    assert second.parent_event_id == first.event_id
    assert report.missing_parents == 0


@pytest.mark.parametrize(
    "record",
    [
        {"type": "user"},
        {"type": "user", "message": "text"},
        {"type": "user", "message": {"content": 7}},
        {"type": "user", "message": {"content": []}},
        {"type": "user", "message": {"content": [1, "x", None]}},
        {"type": "assistant", "message": []},
        {"type": "assistant", "message": {"id": "m1", "content": {"text": "lost?"}}},
        {"type": "assistant", "message": {"id": "m1", "content": [["lost?"]]}},
        {"type": "system", "subtype": {"a": 1}},
        {"type": "attachment", "attachment": "x"},
        {"type": "queue-operation"},
        {"type": ["user"]},
        {},
    ],
)
def test_records_of_the_wrong_make_are_kept_as_foreign(
    script: Transcript, into: Import, record: dict[str, Any]
) -> None:
    script.user("one")
    script.records.append(record)
    report = into.take(script)
    assert sum(report.foreign.values()) == 1
    assert text_of(into.of(ForeignRecord)[0].blocks) == json.dumps(record)


# --- sessions, branches, parents, copies ---


def test_an_inline_sidechain_is_a_branch_named_after_its_root(
    script: Transcript, into: Import
) -> None:
    script.user("go")
    script.assistant("m1", tool_use("c1", "Task"))
    main = script.last
    script.last = None
    root = script.user("look around", isSidechain=True)
    script.assistant("m2", tool_use("c2"), isSidechain=True)
    script.result("c2", isSidechain=True)
    script.result("c1", parentUuid=main)
    into.take(script)
    branches = [e.envelope.branch for e in into.events()]
    assert set(branches) == {None, root["uuid"]}
    assert branches[-1] is None
    assert len(into.of(TurnStarted)) == 1
    prompts = [e for e in into.events() if e.type == "UserMessage"]
    assert [e.envelope.actor.kind for e in prompts] == ["PERSON", "AGENT"]


def test_the_model_of_the_parent_is_not_shown_what_its_sidechain_said(
    script: Transcript, into: Import
) -> None:
    """It sees the call and its result; why the rest is left out can be asked."""
    script.user("go")
    script.assistant("m1", tool_use("c1", "Task"))
    main = script.last
    script.last = None
    script.user("look around", isSidechain=True)
    script.assistant("m2", text("a secret of mine"), tool_use("c2"), isSidechain=True)
    script.result("c2", "far away", isSidechain=True)
    script.result("c1", "found it", parentUuid=main)
    into.take(script)
    events = list(into.events())
    context = build(Sources(events))
    shown = context.as_bytes().decode()
    assert "found it" in shown
    assert not any(said in shown for said in ("look around", "a secret of", "far away"))
    left = explain(context, events, default_counter()).left_out
    assert "on a branch" in {one.why for one in left}


def test_an_agent_with_an_id_is_a_child_session_with_its_call(
    script: Transcript, into: Import
) -> None:
    called(script).result("c1", LAUNCHED, toolUseResult={"isAsync": True, "agentId": "a77"})
    script.user("look", agentId="a77", isSidechain=True, parentUuid=None)
    script.assistant("m9", text("found"), agentId="a77", isSidechain=True)
    into.take(script)
    child = f"{SESSION}/agent-a77"
    (created,) = into.of(SessionCreated, child)
    assert (created.relation, created.parent_session_id, created.parent_call_id) == (
        *("SUBAGENT", SESSION),
        "m1:0",
    )
    assert into.of(TurnStarted, child)[0].trigger == "PARENT"
    assert {e.envelope.branch for e in into.events(child)} == {None}
    assert "AssistantMessage" in into.types(child)


def test_an_agent_that_is_not_yet_named_is_of_the_call_with_its_prompt(
    script: Transcript, into: Import
) -> None:
    calls = [tool_use("c1", "Task", prompt="a"), tool_use("c2", "Task", prompt="b")]
    script.user("go")
    script.assistant("m1", *calls, tool_use("c3", "Task", prompt="b"))
    for agent, prompt in (("a1", "a"), ("a2", "b")):
        script.user(prompt, agentId=agent, isSidechain=True, parentUuid=None)
    into.take(script)
    created = [into.of(SessionCreated, f"{SESSION}/agent-{a}")[0] for a in ("a1", "a2")]
    assert [one.parent_call_id for one in created] == ["m1:0", None]


def test_progress_of_an_agent_is_foreign_and_links_its_call(
    script: Transcript, into: Import
) -> None:
    called(script)
    data = {"type": "agent_progress", "agentId": "a77", "message": {"huge": "x"}}
    script.add("progress", data=data, parentToolUseID="c1")
    script.user("look", agentId="a77")
    report = into.take(script)
    assert report.foreign == {"progress/agent_progress": 1}
    (created,) = into.of(SessionCreated, f"{SESSION}/agent-a77")
    assert created.parent_call_id == "m1:0"


def test_an_agent_in_a_file_of_its_own_is_a_child_session(into: Import) -> None:
    script = Transcript(session_id="agent-a77")
    script.user("look", isSidechain=True, agentId="a77")
    into.take(script, "agent-a77.jsonl")
    assert into.of(SessionCreated, "agent-a77")[0].relation == "SUBAGENT"


def test_two_sessions_in_one_file_are_two_sessions(
    script: Transcript, into: Import
) -> None:
    script.user("old", sessionId="old")
    script.assistant("m1", text("hi"))
    script.user("again", sessionId="old")
    report = into.take(script)
    assert {one.session_id: one.head for one in report.sessions} == {"old": 6, SESSION: 4}
    (created,) = into.of(SessionCreated)
    assert (created.relation, created.parent_session_id) == ("CONTINUATION", "old")


@pytest.mark.parametrize("name", ["a\x1b[2J", "a\nb", "a\u202eb", " a"])
def test_a_name_that_no_session_can_have_is_no_sessions_name(
    into: Import, name: str
) -> None:
    script = Transcript(session_id=name)
    script.user("hello")
    report = into.take(script)
    (session,) = report.sessions
    assert re.fullmatch("[0-9a-f]{64}", session.session_id)


@pytest.mark.parametrize("named_later", [True, False])
def test_records_without_a_session_belong_to_their_neighbours(
    into: Import, *, named_later: bool
) -> None:
    script = Transcript(session_id=None)
    script.user("first")
    script.user("second")
    if named_later:
        script.user("third", sessionId="named")
        script.user("fourth")
    into.take(script)
    (session,) = into.log.sessions()
    assert (session.session_id == "named") is named_later
    assert len(into.of(UserMessage, session.session_id)) == (4 if named_later else 2)
    assert len(session.session_id) == (5 if named_later else 64)


def test_a_missing_parent_is_a_new_root_with_a_mark(
    script: Transcript, into: Import
) -> None:
    script.last = "never-written"
    script.user("one")
    script.user("two")
    report = into.take(script)
    assert report.missing_parents == 1
    marked = [
        e.type for e in into.events() if e.envelope.parent_event_id == MISSING_PARENT_ID
    ]
    assert marked == ["TurnStarted"]
    state = into.log.state(SESSION)
    assert state is not None
    assert state.anomalies == {"missing_parent": 1}


def test_a_copy_is_known_whatever_directory_and_version_it_names(
    script: Transcript, into: Import
) -> None:
    """B25, B27: what is copied, with another parent too, is counted and not repeated."""
    script.user("one")
    script.assistant("m1", text("two"))
    first = script.records[0]
    script.records.append(first | {"cwd": "/other", "version": "9", "parentUuid": "r2"})
    newer = json.loads(json.dumps(script.records[1]))
    newer["message"]["context_management"] = None
    script.records.append(newer)
    report = into.take(script)
    assert (report.records, report.copies, report.flagged) == (4, 2, 0)
    assert len(into.of(UserMessage)) == len(into.of(AssistantMessage)) == 1


def test_a_known_id_with_other_content_is_kept_and_flagged(
    script: Transcript, into: Import
) -> None:
    first = script.user("one")
    other = first | {"message": {"role": "user", "content": "another"}}
    script.records += [other, other, first]
    report = into.take(script)
    assert (report.copies, report.flagged) == (2, 1)
    said = [text_of(one.blocks) for one in into.of(UserMessage)]
    assert said == ["one", "another"]


def test_ids_that_somebody_redacted_are_no_ids(into: Import) -> None:
    script = Transcript()
    for said in ("one", "two"):
        script.user(said, uuid="REDACTED", parentUuid="REDACTED", agentId="[trimmed]")
    report = into.take(script)
    assert (report.flagged, report.copies, report.missing_parents) == (0, 0, 0)
    assert len(into.of(UserMessage)) == 2


def test_time_that_goes_back_changes_no_order(script: Transcript, into: Import) -> None:
    for minute in (5, 3, 9):
        script.user(str(minute), timestamp=f"2026-01-02T03:0{minute}:00.000Z")
    script.user("no zone", timestamp="2026-01-02T03:00:00")
    script.user("nonsense", timestamp="[trimmed]")
    into.take(script)
    said = [text_of(one.blocks) for one in into.of(UserMessage)]
    assert said == ["5", "3", "9", "no zone", "nonsense"]
    assert into.events()[-1].envelope.occurred_at is None


def test_a_boundary_whose_stitch_is_broken_is_flagged_and_all_stays_reachable(
    script: Transcript, into: Import
) -> None:
    """B24: the last record before the compaction, as it names it, was never written."""
    for number in range(20):
        script.user(f"turn {number}")
    boundary = {"parentUuid": None, "logicalParentUuid": "never-written"}
    script.add("system", subtype="compact_boundary", compactMetadata={}, **boundary)
    script.user("in short", isCompactSummary=True)
    report = into.take(script)
    assert report.missing_parents == 1
    assert len(into.of(UserMessage)) == 20
    (compacted,) = into.of(CompactionCompleted)
    assert compacted.to_seq == into.order().index("CompactionCompleted")


def test_work_between_two_compactions_stays_when_the_second_links_into_a_copy(
    script: Transcript, into: Import
) -> None:
    """B25."""
    early = script.user("early")
    script.add("system", subtype="compact_boundary", compactMetadata={})
    script.user("summary one", isCompactSummary=True)
    script.user("work in between")
    script.add("system", subtype="compact_boundary", compactMetadata={})
    script.records.append(early | {"parentUuid": script.last})
    script.user("summary two", isCompactSummary=True, parentUuid=early["uuid"])
    report = into.take(script)
    assert (report.compactions, report.copies, report.missing_parents) == (2, 1, 0)
    assert [text_of(one.blocks) for one in into.of(UserMessage)] == [
        *("early", "work in between")
    ]
    by_id = {e.envelope.event_id: e for e in into.events()}
    summary = next(e for e in reversed(into.events()) if e.type == "SummaryCreated")
    parent = by_id[summary.envelope.parent_event_id or ""]
    assert parent.type == "UserMessage"


def test_two_children_of_one_record_are_both_kept_with_their_parent(
    script: Transcript, into: Import
) -> None:
    """B26."""
    script.user("r1")
    script.assistant("a", text("answer shown"), parentUuid="r1")
    script.assistant("b", text("later"), parentUuid="r1")
    script.user("r3")
    into.take(script)
    events = {e.envelope.event_id: e for e in into.events()}
    prompt = next(e for e in into.events() if e.type == "UserMessage")
    said = [e for e in into.events() if e.type == "ModelCallCompleted"]
    assert {e.envelope.parent_event_id for e in said} == {prompt.envelope.event_id}
    last = into.events()[-1]
    parent = events[last.envelope.parent_event_id or ""]
    assert isinstance(parent.event, ModelCallCompleted)
    assert parent.event.model_call_id == "b"


def test_a_continued_file_that_copies_its_parent_adds_only_what_is_new(
    into: Import,
) -> None:
    """B27: what two files share is there once, in the session that it is of."""
    old = Transcript(session_id="old")
    old.user("one")
    old.add("system", subtype="compact_boundary", compactMetadata={})
    old.user("in short", isCompactSummary=True)
    into.take(old, "old.jsonl")
    before = into.order("old")
    new = Transcript(session_id="new", prefix="n")
    new.records = list(old.records)
    new.last = old.last
    new.user("two")
    report = into.take(new, "new.jsonl")
    assert report.alarms == []
    assert into.order("old") == before
    assert into.order("new") == ["SessionCreated", "TurnStarted", "UserMessage"]
    (created,) = into.of(SessionCreated, "new")
    assert (created.relation, created.parent_session_id) == ("CONTINUATION", "old")
    assert report.events == 3


def test_no_start_and_no_request_is_invented(script: Transcript, into: Import) -> None:
    """No start, no request for permission: the transcript records neither."""
    called(script).result("c1", DENIAL, is_error=True)
    script.assistant("m2", tool_use("c2"))
    script.result("c2")
    report = into.take(script)
    assert report.mapped == 5
    assert not {
        *("ToolExecutionStarted", "PermissionRequested", "ModelCallStarted"),
        *("ToolCallValidated", "SubagentStarted", "SessionCompleted"),
    } & set(into.types())
