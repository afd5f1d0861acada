"""A context from a base is that of the whole history, at every cut, whatever happened."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from foldline.processors.clock import wall_clock
from foldline.processors.lineage import joined_events, lineage_of
from foldline.processors.memory_log import MemoryLog
from foldline.projections.building import build
from foldline.projections.context import Context, Part, Sources, text_blobs
from foldline.projections.inheritance import seqs_in_force
from foldline.projections.reading import context_of
from foldline.projections.render import FORMATS, render
from foldline.projections.render_rules import breaches
from foldline.schemas.events import (
    CompactionCompleted,
    ConstraintLifted,
    ConstraintSet,
    ContextCleared,
    ContextPruned,
    GoalSet,
    HistoryRewound,
    InstructionsSet,
    KnownEvent,
    MessageRetracted,
    SessionCreated,
    SteeringApplied,
    SteeringReceived,
    ToolDeclaration,
    ToolExecutionCompleted,
    ToolResultProjected,
    ToolsDeclared,
    UserMessage,
)
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.samples import created, said, started
from tests.happenings import request, start
from tests.projections.test_context import asks_for, done, lines, text
from tests.telling import telling

EXPLORED = (Phase.explicit, Phase.reuse, Phase.generate)
"""Without shrinking: the steps say what happened."""


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    with closing(MemoryLog(settings=Settings(), clock=wall_clock)) as log:
        yield log


def whole(log: MemoryLog, session_id: str) -> Context:
    """The context built from the first event on, ancestors included."""
    events = list(joined_events(log, lineage_of(log, session_id)))
    texts = {sha256: log.blobs.get(sha256).decode() for sha256 in text_blobs(events)}
    return build(Sources(events, texts=texts))


def from_base(log: MemoryLog, session_id: str) -> Context:
    """The context built from its base, which is that of the whole history."""
    found, expected = context_of(log, session_id), whole(log, session_id)
    assert found is not None
    assert found.messages == expected.messages
    assert found.sha256() == expected.sha256()
    assert (found.tools_event_id, found.held_seq, found.stand_ins) == (
        expected.tools_event_id,
        expected.held_seq,
        expected.stand_ins,
    )
    return found


def shown(story: LogStory) -> list[tuple[str, str]]:
    """Who says what in a session's context."""
    assert isinstance(story.log, MemoryLog)
    context = from_base(story.log, story.session_id)
    return [line for message in context.messages for line in lines(message)]


def broken(context: Context) -> list[str]:
    """What the rules of each API say of the context, if it says anything."""
    if all(message.role == "system" for message in context.messages):
        return []
    return [
        f"{wanted}: {breach}"
        for wanted in FORMATS
        for breach in breaches(render(context, wanted, model="a-model"), wanted)
    ]


@given(st.data())
@settings(max_examples=12, deadline=None, phases=EXPLORED)
def test_at_every_cut_the_base_gives_what_the_whole_history_gives(
    data: st.DataObject,
) -> None:
    """In bytes, and in what the owner still needs; and every API takes it.

    An output that the model was shown is not another one later, whatever is tried again.
    """
    with telling(data, steps_min=10, steps_max=20) as (teller, steps):
        now: dict[str, Part] = {}
        seen: dict[str, Part] = {}
        for step in steps:
            seq = teller.story.seq
            getattr(teller, step)()
            context = from_base(teller.log, teller.story.session_id)
            assert broken(context) == []
            if step in TAKE_BACK:
                seen = {}
            elif step == "ask" and teller.story.seq > seq:
                seen.update(now)
            now = outputs(context)
            assert {k: now[k] for k in seen if k in now} == {
                k: part for k, part in seen.items() if k in now
            }


TAKE_BACK = frozenset({"rewind", "retract", "say_instead", "fork"})
"""Steps after which the model may be shown its past anew."""


def outputs(context: Context) -> dict[str, Part]:
    """The results that a context shows which are outputs, by their call."""
    parts = (part for message in context.messages for part in message.parts)
    return {part.call_id: part for part in parts if part.form == "OUTCOME"}


# --- what stands on a branch -----------------------------------------------------------


def aside(story: LogStory, *events: KnownEvent) -> LogStory:
    """These happen on a branch."""
    for event in events:
        append = story.append(event)
        envelope = append.envelope.model_copy(update={"branch": "aside"})
        story.send([append._replace(envelope=envelope)]).then("ACCEPTED")
    return story


def test_what_a_branch_does_to_its_context_leaves_the_conversation_as_it_is(
    log: MemoryLog,
) -> None:
    """The state names its compaction, clearing, rewind and goal as any other."""
    goal = GoalSet(blocks=text("mend"))
    story = begun(log, goal, said("one"), said("two"))
    cut = story.seq
    story.given(said("three"), compacted(story, cut))
    expected = [("system", "Goal: mend"), ("user", "so far"), ("user", "three")]
    assert shown(story) == expected
    aside(story, said("to another"), compacted(story, story.seq))
    assert shown(story) == expected
    aside(story, ContextCleared())
    assert shown(story) == expected
    aside(story, HistoryRewound(to_seq=cut))
    assert shown(story) == expected
    aside(story, GoalSet(blocks=text("look around")))
    cut = story.seq
    story.given(said("four"), compacted(story, cut))
    assert shown(story) == [expected[0], ("user", "so far"), ("user", "four")]


# --- what a rewind takes back, and what not ------------------------------------------


def begun(log: MemoryLog, *events: KnownEvent) -> LogStory:
    """A session in a turn."""
    return LogStory(log).given(created(), *events, started())


def told(story: LogStory, *events: KnownEvent) -> int:
    """Tell these events and give the seq of the last."""
    return story.given(*events).seq


def compacted(story: LogStory, to_seq: int) -> CompactionCompleted:
    """All up to a seq is a summary from here on."""
    return CompactionCompleted(
        compaction_id="c",
        from_seq=1,
        to_seq=to_seq,
        base_seq=story.seq,
        strategy="s",
        blocks=text("so far"),
    )


def test_a_clearing_stays_undone_however_often_the_session_rewinds_after_it(
    log: MemoryLog,
) -> None:
    """The state tells of the last rewind only; it was the first that undid it."""
    story = begun(log, said("one"))
    early = story.seq
    story.given(ContextCleared(), said("two"), HistoryRewound(to_seq=early))
    later = told(story, said("three"))
    story.given(said("four"), HistoryRewound(to_seq=later), said("five"))
    assert shown(story) == [("user", "one"), ("user", "three"), ("user", "five")]


def test_a_compaction_behind_an_undone_clearing_covers_what_it_covers(
    log: MemoryLog,
) -> None:
    """One that begins behind a clearing which was undone leaves what lies before it."""
    story = begun(log, said("one"))
    early = story.seq
    cleared = told(story, ContextCleared())
    story.given(said("two"), HistoryRewound(to_seq=early), said("three"))
    story.given(said("four"), HistoryRewound(to_seq=story.seq))
    event = compacted(story, story.seq).model_copy(update={"from_seq": cleared + 1})
    story.given(event)
    assert shown(story) == [("user", "one"), ("user", "so far")]


def test_what_is_in_force_outlasts_a_rewind(log: MemoryLog) -> None:
    """As the state has it: nobody's word is taken back by going on from an earlier seq."""
    story = begun(log, GoalSet(blocks=text("old")))
    story.given(ConstraintSet(constraint_id="net", blocks=text("no network")))
    early = told(story, said("one"))
    tool = ToolDeclaration(name="read", effect="READ_ONLY")
    story.given(
        said("two"),
        GoalSet(blocks=text("new")),
        ConstraintLifted(constraint_id="net"),
        ConstraintSet(constraint_id="prod", blocks=text("not prod")),
        InstructionsSet(role="system", blocks=text("be brief")),
        ToolsDeclared(tools=(tool,)),
        HistoryRewound(to_seq=early),
    )
    assert shown(story) == [
        ("system", "Goal: old\n\nConstraint net: no network"),
        ("user", "one"),
        ("user", "Goal, from now on: new"),
        ("user", "Constraint net no longer holds."),
        ("user", "Constraint prod, from now on: not prod"),
        ("user", "The instructions, from now on: be brief"),
    ]
    assert from_base(log, story.session_id).tools == (tool,)
    story.given(compacted(story, story.seq))
    assert shown(story) == [
        ("system", "be brief\n\nGoal: new\n\nConstraint prod: not prod"),
        ("user", "so far"),
    ]
    (system, _) = from_base(log, story.session_id).messages
    ids = list(log.event_ids(story.session_id))
    seqs = {ids.index(event_id) + 1 for event_id in system.event_ids}
    state = story.state
    assert state.tools is not None
    assert seqs | {state.tools.seq} == set(seqs_in_force(state))


def test_a_retracted_message_stays_retracted_after_a_rewind(log: MemoryLog) -> None:
    """Whoever said it took it back; the owner's rewind does not bring it again."""
    gone = UserMessage(message_id="gone", blocks=text("my key is hunter2"))
    story = begun(log, gone, said("two"))
    early = story.seq
    story.given(MessageRetracted(message_ids=("gone",)), HistoryRewound(to_seq=early))
    assert shown(story) == [("user", "two")]
    story.given(UserMessage(message_id="gone", blocks=text("said anew")))
    assert shown(story) == [("user", "two"), ("user", "said anew")]


def test_steering_that_waits_outlasts_a_rewind_and_is_applied_once(
    log: MemoryLog,
) -> None:
    """One that was applied in what was taken back does not come again, nor wait."""
    story = begun(log, said("one"))
    early = story.seq
    steered = SteeringReceived(blocks=text("use nix"))
    waits = told(story, steered)
    name = list(log.event_ids(story.session_id))[-1]
    story.given(HistoryRewound(to_seq=early))
    assert from_base(log, story.session_id).held_seq == waits
    applied = told(story, SteeringApplied(steering_event_id=name))
    assert shown(story) == [("user", "one"), ("user", "use nix")]
    story.given(HistoryRewound(to_seq=applied - 1))
    assert shown(story) == [("user", "one")]
    assert from_base(log, story.session_id).held_seq is None


def test_what_became_of_a_call_is_known_after_a_rewind(log: MemoryLog) -> None:
    """Frozen before: a note. Frozen in what is taken back: its result. Else not told."""
    story = begun(log)
    story.given(*asks_for("a", "b"), start("a"), start("b"))
    frozen = ToolResultProjected(call_id="a", form="UNKNOWN", blocks=text("unknown"))
    early = told(story, frozen)
    for call_id in "bc":
        if call_id == "c":
            story.given(*asks_for("c", message="n"), start("c"))
        shown_so = frozen.model_copy(update={"call_id": call_id})
        story.given(shown_so, done(call_id))
    story.given(done("a"), HistoryRewound(to_seq=early))
    assert shown(story) == [
        ("assistant", "a b"),
        ("a", "unknown"),
        ("b", "output of b"),
        ("user", "Late result of the earlier call a: output of a"),
    ]


# --- cuts anywhere ---------------------------------------------------------------------


def test_a_cut_between_a_message_and_its_call_leaves_the_call_and_its_result(
    log: MemoryLog,
) -> None:
    """Also where another compaction keeps the whole history needed."""
    for kept in ((), ("00000000-0000-7000-8000-000000000000",)):
        story = begun(log)
        answer, *requests = asks_for("a", "b", words="I look")
        cut = told(story, answer)
        story.given(requests[0], start("a"), done("a"), requests[1])
        event = compacted(story, cut).model_copy(update={"kept": kept})
        story.given(event, start("b"), done("b"))
        assert shown(story) == [
            ("user", "so far"),
            ("assistant", "a b"),
            ("a", "output of a"),
            ("b", "output of b"),
        ]


def test_a_pruned_result_is_of_the_call_that_was_there(log: MemoryLog) -> None:
    """A provider that gives a later call the same id did not mean that one."""
    story = begun(log)
    for call_id in "ab":
        asked = request(call_id, message_id=f"m{call_id}", provider_call_id="same")
        ended = ToolExecutionCompleted(call_id=call_id, output=text(f"of {call_id}"))
        story.given(asked, start(call_id), ended)
        if call_id == "a":
            story.given(ContextPruned(targets=("same",), rule="r", blocks=text("short")))
    assert shown(story)[1::2] == [("a", "short"), ("b", "of b")]


def test_what_a_fork_does_not_go_on_with_is_not_in_force_there(log: MemoryLog) -> None:
    """Whoever made it: its state says what holds, before a compaction and behind it."""
    words = text("from before")
    goal, told_so = GoalSet(blocks=words), InstructionsSet(role="system", blocks=words)
    parent = begun(log, goal, told_so, said("one"))
    child = LogStory(log)
    bare = SessionCreated(
        agent="b",
        relation="FORK",
        parent_session_id=parent.session_id,
        fork_seq=parent.seq,
    )
    append = child.append(bare, known_seq=0)
    head = parent.state.chain_head
    envelope = append.envelope.model_copy(update={"prev_hash": head})
    child.send([append._replace(envelope=envelope)]).then("ACCEPTED")
    child.given(started())
    assert shown(child)[1:] == [
        ("user", "one"),
        ("user", "The goal no longer holds."),
        ("user", "The instructions no longer hold."),
    ]
    child.given(compacted(child, child.seq))
    assert shown(child) == [("user", "so far")]
