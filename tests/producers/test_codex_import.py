"""Importing a rollout again, grown, torn, of either form; and what a fork is charged."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.errors import ImportSourceError
from foldline.processors.open_log import open_log
from foldline.processors.verify import verify
from foldline.schemas.events import (
    ForeignRecord,
    RedactionApplied,
    SessionCreated,
    SteeringReceived,
    ToolCallRequested,
    UserMessage,
)
from tests.rollouts import ROLLOUT, Rollout, into_codex, tokens
from tests.transcripts import Import, Transcript, line_of

TOKEN = "ghp_" + "aB3dE5gH7jK9" * 3
OLDER = "018f0000-0000-7000-8000-000000000001"
"""A UUIDv7 that was made before `ROLLOUT`."""


@pytest.fixture
def into(tmp_path: Path) -> Import:
    return into_codex(open_log("memory:"), tmp_path)


def rollout(turns: int = 4, *, bare: bool = False, session_id: str = ROLLOUT) -> Rollout:
    """Turns, a compaction, a record that nobody knows, and a secret."""
    script = Rollout(session_id, bare=bare)
    script.meta()
    for number in range(turns):
        script.turn(number)
        if bare:
            script.records.append({"record_type": "state"})
            continue
        script.event("strange", value=number)
        if number == turns // 2:
            history = [{"type": "message", "role": "user", "content": "so far"}]
            script.add("compacted", {"message": "", "replacement_history": history})
            script.message("user", f"with {TOKEN}")
    return script


# --- again -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a\x1b[2J", "a\nb", "a\u202eb", " a"])
def test_a_name_that_no_session_can_have_is_no_sessions_name(
    into: Import, name: str
) -> None:
    """The file's records are a session all the same."""
    report = into.take(rollout(session_id=name).data)
    (session,) = report.sessions
    assert re.fullmatch("[0-9a-f]{64}", session.session_id)
    assert verify(into.log).ok


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/s.db"])
def test_the_same_rollout_again_adds_nothing(tmp_path: Path, url: str, bare: bool) -> None:  # noqa: FBT001
    into = into_codex(open_log(url.format(tmp_path)), tmp_path)
    script = rollout(bare=bare)
    first = into.take(script.data)
    before = into.image()
    again = into.take(script.data, "elsewhere/other-name.txt")
    assert (again.events, again.alarms) == (0, [])
    assert into.image() == before
    assert first.events == len(into.events(ROLLOUT))
    assert (first.tool_calls, first.tool_results, first.open_tool_calls) == (8, 8, 0)
    assert (first.records, first.compactions) == (again.records, again.compactions)
    assert verify(into.log).ok


@settings(deadline=None, max_examples=30)
@given(st.randoms(use_true_random=False), st.booleans())
def test_growing_byte_by_byte_ends_as_one_import_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory,
    chance: random.Random,
    bare: bool,  # noqa: FBT001
) -> None:
    """Events depend on the records before them alone, however the file was cut."""
    data = rollout(bare=bare).data
    begin = data.index(b"\n") + 1
    whole = into_codex(open_log("memory:"), tmp_path_factory.mktemp("whole"))
    grown = into_codex(open_log("memory:"), tmp_path_factory.mktemp("grown"))
    whole.folder = grown.folder
    whole.take(data)
    for cut in sorted(chance.randrange(begin, len(data)) for _ in range(4)):
        assert grown.take(data[:cut]).alarms == []
    assert grown.take(data).alarms == []
    assert grown.image() == whole.image()


def test_a_rollout_that_lost_its_end_alarms_and_nothing_is_removed(into: Import) -> None:
    data = rollout().data
    into.take(data)
    before = into.image()
    report = into.take(data[: data.index(b"\n", len(data) // 2) + 1])
    assert [alarm.kind for alarm in report.alarms] == ["SHRUNK"]
    assert into.image() == before


def test_equal_records_are_as_many_facts(into: Import) -> None:
    """Records of the bare form have neither ids nor times."""
    script = Rollout(bare=True)
    script.meta()
    script.message("user", "go on")
    script.message("user", "go on")
    into.take(script.data)
    assert len(into.of(UserMessage, ROLLOUT)) == 2


# --- what is broken --------------------------------------------------------------------


def test_a_torn_record_that_is_written_again_whole_is_rejected_once(into: Import) -> None:
    script = rollout(1)
    whole = line_of(script.item("reasoning", summary=[], encrypted_content="gAAAAwhole"))
    torn = whole[: len(whole) // 2] + b"\n"
    before = b"".join(line_of(record) for record in script.records[:-1])
    report = into.take(before + torn + whole)
    assert [(r.offset, r.recorded) for r in report.rejected] == [(len(before), True)]
    assert report.copies == 0
    kept = [f for f in into.of(ForeignRecord, ROLLOUT) if f.record_type == "undecodable"]
    assert len(kept) == 1
    assert report.records == len(script.records)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_junk_in_any_field_leaves_an_importable_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any field may be anything: it is mapped or kept, and the rest stays as it was."""
    junk = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
        lambda inner: (
            st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner)
        ),
        max_leaves=4,
    )
    script = rollout(2)
    record = data.draw(st.sampled_from(script.records[1:]))
    payload = record["payload"]
    name = data.draw(st.sampled_from(sorted(payload)))
    payload[name] = data.draw(junk)
    into = into_codex(open_log("memory:"), tmp_path_factory.mktemp("junk"))
    report = into.take(script.data)
    assert report.records == len(script.records)
    assert into.take(script.data).events == 0
    assert verify(into.log).ok


def test_secrets_are_redacted_and_ids_and_what_is_encrypted_are_not(into: Import) -> None:
    script = rollout(1)
    script.call("c1", cmd=f"curl -H {TOKEN}")
    script.output("c1", f"denied for {TOKEN}")
    report = into.take(script.data)
    said = "".join(str(one.event) for one in into.events(ROLLOUT))
    assert TOKEN not in said
    assert "gAAAA0" in said
    assert into.of(ToolCallRequested, ROLLOUT)[-1].provider_call_id == "c1"
    assert sum(report.redactions.values()) >= len(into.of(RedactionApplied, ROLLOUT)) > 0


def test_other_files_are_refused(into: Import) -> None:
    other = Transcript()
    other.user("hello")
    with pytest.raises(ImportSourceError, match="looks like a Claude Code"):
        into.take(other)
    with pytest.raises(ImportSourceError, match="log of its screen"):
        into.take(b'{"ts":"x","dir":"meta","kind":"session_start"}\n')
    assert into.log.sessions() == []


# --- forks -----------------------------------------------------------------------------


def fork(parent: Rollout, session_id: str = "child") -> Rollout:
    """A fork: a record about it, then the parent's records at another time."""
    child = Rollout(session_id, start=20)
    child.meta(forked_from_id=parent.session_id)
    for record in parent.records:
        child.add(record["type"], record["payload"])
    child.total = parent.total
    child.event("task_started", turn_id=f"{ROLLOUT[:-1]}9")
    child.context(turn_id=f"{ROLLOUT[:-1]}9", model="gpt-test-2")
    child.message("user", "and now this")
    child.message("assistant", "as you wish")
    child.used(7)
    return child


def parent_rollout(session_id: str = "parent") -> Rollout:
    script = Rollout(session_id)
    script.meta()
    script.event("task_started", turn_id=OLDER)
    script.context(turn_id=OLDER)
    for number in range(8):
        script.message("user", f"do {number}")
        script.message("assistant", f"done {number}")
        script.used(100 + number)
        script.event("token_count", info=tokens(script.total, 100 + number))
    return script


def charged(into: Import, session_id: str) -> tuple[int, int]:
    state = into.log.state(session_id)
    assert state is not None
    return state.usage.input_tokens, state.usage.output_tokens


@pytest.mark.parametrize("order", [("parent", "child"), ("child", "parent")])
def test_a_fork_beside_its_parent_is_charged_only_its_own(
    into: Import, order: tuple[str, str]
) -> None:
    parent = parent_rollout()
    files = {"parent": parent.data, "child": fork(parent).data}
    for name, data in files.items():
        (into.folder / f"{name}.jsonl").write_bytes(data)
    for name in order:
        into.file(into.folder / f"{name}.jsonl")
    assert charged(into, "child") == (7, 3)
    assert charged(into, "parent")[0] == parent.total
    said = [*into.of(UserMessage, "child"), *into.of(SteeringReceived, "child")]
    assert len(said) == 9
    created = into.of(SessionCreated, "child")[0]
    assert (created.relation, created.parent_session_id) == ("FORK", "parent")
    assert into.file(into.folder / "child.jsonl").events == 0


def test_a_fork_far_from_its_parent_is_known_by_the_log(into: Import) -> None:
    parent = parent_rollout()
    into.take(parent.data, "one/a.jsonl")
    into.take(fork(parent).data, "two/b.jsonl")
    assert charged(into, "child") == (7, 3)


def test_a_fork_without_its_parent_is_known_by_the_age_of_its_turns(into: Import) -> None:
    into.take(fork(parent_rollout(OLDER), ROLLOUT).data)
    assert charged(into, ROLLOUT) == (7, 3)


def test_a_fork_that_is_moved_away_from_its_parent_adds_nothing(into: Import) -> None:
    parent = parent_rollout()
    into.folder.joinpath("parent.jsonl").write_bytes(parent.data)
    into.take(fork(parent).data, "child.jsonl")
    again = into.take(fork(parent).data, "elsewhere/child.jsonl")
    assert (again.events, again.alarms) == (0, [])
    assert again.copies == 8


def test_what_was_charged_stays_when_the_parent_turns_up(into: Import) -> None:
    """Facts are not taken back; that the parent was not there is no loss of anything."""
    parent = parent_rollout()
    data = fork(parent).data
    into.take(data, "child.jsonl")
    before = charged(into, "child")
    into.take(parent.data, "parent.jsonl")
    again = into.take(data, "child.jsonl")
    assert (again.events, again.alarms) == (0, [])
    assert charged(into, "child") == before


def test_a_rollout_is_found_among_the_folders_of_dates(into: Import) -> None:
    parent = parent_rollout()
    old = into.folder / "2026/01/02/rollout-x-parent.jsonl"
    old.parent.mkdir(parents=True)
    old.write_bytes(parent.data)
    into.take(fork(parent).data, "2026/02/03/rollout-y-child.jsonl")
    assert charged(into, "child") == (7, 3)


def test_a_subagent_names_the_session_that_started_it(into: Import) -> None:
    spawn = {"thread_spawn": {"parent_thread_id": "parent", "depth": 1}}
    script = Rollout("child")
    script.meta(source={"subagent": spawn})
    script.message("user", "look into it")
    into.take(script.data)
    created = into.of(SessionCreated, "child")[0]
    assert (created.relation, created.parent_session_id) == ("SUBAGENT", "parent")
    assert into.events("child")[-1].envelope.actor.kind == "AGENT"
