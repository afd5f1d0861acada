"""What every log must give back: events, states at any seq, lists, and what is new."""

import threading
from typing import Any

from foldline.processors.fold import initial, replay
from foldline.processors.log import FOLLOW_MAX_EVENTS, Log, SessionSummary, order_of
from foldline.processors.memory_log import MemoryLog
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    CheckpointCreated,
    GoalSet,
    KnownEvent,
    ModelCallStarted,
    PlanUpdated,
    TurnEnded,
)
from foldline.schemas.recorded import Append
from foldline.schemas.snapshots import state_hash
from foldline.schemas.state import FOLD_VERSION
from foldline.schemas.verdicts import ACCEPTED
from foldline.settings import Settings
from foldline.testing.log_story import OWNER, TURN, LogStory, make_append, new_id
from foldline.testing.samples import created, said, started, ticking, told
from foldline.testing.verdict_contract import MakeLog


class ReadingContract:
    """The second part of `LogContract`."""

    def test_everything_accepted_is_read_back_as_it_was_sent(self, story: LogStory) -> None:
        events: list[KnownEvent] = [
            started(),
            said("grüße, 世界"),
            PlanUpdated(items=()),
            GoalSet(blocks=(text_block("make it green"),)),
        ]
        appends = [story.append(event) for event in events]
        accepted = story.send(appends).verdicts
        read = list(story.log.events(story.session_id, after_seq=1))
        assert [r.event for r in read] == events
        assert [r.envelope.event_id for r in read] == [v.event_id for v in accepted]
        assert all(recorded.complete for recorded in read)

    def test_reads_by_range(self, story: LogStory) -> None:
        story.given(*[said(str(n)) for n in range(9)])
        log, session_id = story.log, story.session_id

        def seqs(**bounds: int) -> list[int]:
            whole = [r.seq for r in log.events(session_id, **bounds)]
            assert [r.seq for r in log.structure(session_id, **bounds)] == whole
            return whole

        assert seqs() == list(range(1, 11))
        assert seqs(after_seq=3) == list(range(4, 11))
        assert seqs(after_seq=3, upto_seq=5) == [4, 5]
        assert seqs(upto_seq=2) == [1, 2]
        assert seqs(after_seq=10) == seqs(after_seq=99) == seqs(upto_seq=0) == []
        assert seqs(after_seq=1 << 40) == seqs(upto_seq=-1) == []
        assert seqs(after_seq=10**30) == []
        assert seqs(upto_seq=10**30) == list(range(1, 11))
        assert log.state(session_id, at_seq=10**30) is None
        assert log.follow(session_id, after_seq=10**30, timeout_ms=0) == []

    def test_a_long_session_is_read_whole(self, story: LogStory) -> None:
        told(story, 600)
        assert [r.seq for r in story.log.events(story.session_id)] == list(range(1, 602))

    def test_a_session_that_is_not_there_has_nothing(self, log: Log) -> None:
        nobody = new_id()
        assert log.state(nobody) is None
        assert log.state(nobody, at_seq=1) is None
        assert list(log.events(nobody)) == []
        assert list(log.structure(nobody)) == []
        assert list(log.event_ids(nobody)) == []
        assert log.follow(nobody, after_seq=0, timeout_ms=0) == []

    def test_event_ids_come_in_order(self, story: LogStory) -> None:
        told(story, 300)
        read = [r.envelope.event_id for r in story.log.events(story.session_id)]
        assert list(story.log.event_ids(story.session_id)) == read

    def test_the_state_at_every_seq_is_the_replay_up_to_it(self, story: LogStory) -> None:
        told(story.given(started()), 300)
        story.given(TurnEnded(outcome="DONE"))
        state = initial(story.session_id)
        for recorded in story.log.structure(story.session_id):
            state = replay(state, [recorded])
            assert story.log.state(story.session_id, at_seq=recorded.seq) == state
        assert story.log.state(story.session_id) == state
        assert story.log.state(story.session_id, at_seq=state.seq + 1) is None
        assert story.log.state(story.session_id, at_seq=0) is None

    def test_a_state_that_was_handed_out_is_the_callers(self, story: LogStory) -> None:
        mine = story.state
        mine.counts["UserMessage"] = 99
        mine.calls.clear()
        mine.seq = 77
        assert story.seq == 1
        story.when(said()).then(ACCEPTED, seq=2)

    def test_a_checkpoint_keeps_the_state_just_before_it(self, story: LogStory) -> None:
        story.given(started(), said())
        before = story.state
        story.given(
            CheckpointCreated(
                upto_seq=3, state_hash=state_hash(before), fold_version=FOLD_VERSION
            ),
            TurnEnded(outcome="DONE"),
        )
        assert story.log.state(story.session_id, at_seq=3) == before

    def test_the_same_appends_give_the_same_states_as_in_memory(
        self, make_log: MakeLog
    ) -> None:
        twin = f"twin-{new_id()}"
        appends = _a_session(twin)
        log = make_log(clock=ticking())
        memory = MemoryLog(settings=Settings(), clock=ticking())
        here = [log.append([append])[0] for append in appends]
        there = memory.append(appends)
        assert [(v.kind, v.seq, v.rule) for v in here] == [
            (v.kind, v.seq, v.rule) for v in there
        ]
        for seq in range(1, 6):
            state, other = log.state(twin, at_seq=seq), memory.state(twin, at_seq=seq)
            assert state is not None
            assert other is not None
            assert state_hash(state) == state_hash(other)
        log.close()

    def test_follow_gives_what_is_there_and_waits_for_what_is_not(
        self, story: LogStory
    ) -> None:
        log, session_id = story.log, story.session_id
        (first,) = log.follow(session_id, after_seq=0, timeout_ms=0)
        assert first.seq == 1
        assert log.follow(session_id, after_seq=1, timeout_ms=1) == []
        writer = threading.Timer(0.05, lambda: story.given(said("later")))
        writer.start()
        (later,) = log.follow(session_id, after_seq=1, timeout_ms=30_000)
        writer.join()
        assert later.seq == 2

    def test_follow_hands_a_long_backlog_over_in_parts(self, story: LogStory) -> None:
        told(story, FOLLOW_MAX_EVENTS + 10)
        log, seqs = story.log, list[int]()
        while found := log.follow(
            story.session_id, after_seq=seqs[-1] if seqs else 0, timeout_ms=0
        ):
            assert len(found) <= FOLLOW_MAX_EVENTS
            seqs.extend(recorded.seq for recorded in found)
        assert seqs == list(range(1, FOLLOW_MAX_EVENTS + 12))

    def test_follow_waits_for_a_session_that_is_yet_to_come(self, log: Log) -> None:
        story = LogStory(log)
        writer = threading.Timer(0.05, lambda: story.given(created()))
        writer.start()
        found = log.follow(story.session_id, after_seq=0, timeout_ms=30_000)
        writer.join()
        assert [recorded.seq for recorded in found] == [1]

    def test_sessions_are_listed_the_most_recent_first(
        self, make_log: MakeLog, tenant: str
    ) -> None:
        log = make_log(clock=ticking())
        old = LogStory(log, tenant=tenant).given(created())
        new = LogStory(log, tenant=tenant).given(created())

        def listed(**which: Any) -> list[str]:
            return [s.session_id for s in log.sessions(tenant=tenant, **which)]

        assert listed() == [new.session_id, old.session_id]
        old.given(started())
        assert listed() == [old.session_id, new.session_id]
        first = log.sessions(tenant=tenant)[0]
        assert (first.status, first.seq, first.owner, first.epoch) == (
            "RUNNING",
            2,
            OWNER,
            1,
        )
        assert listed(status="RUNNING") == [old.session_id]
        assert listed(limit=1) == [old.session_id]
        assert len(listed(limit=10**30)) == 2
        assert {old.session_id, new.session_id} <= {
            s.session_id for s in log.sessions(limit=10**30)
        }
        assert log.sessions(tenant=new_id()) == []
        log.close()

    def test_pages_have_each_session_once_even_where_times_are_equal(
        self, make_log: MakeLog, tenant: str
    ) -> None:
        log = make_log(clock=ticking(step=0))
        made = [LogStory(log, tenant=tenant).given(created()) for _ in range(5)]
        seen: list[SessionSummary] = []
        while page := log.sessions(
            tenant=tenant, limit=2, before=order_of(seen[-1]) if seen else None
        ):
            seen += page
        ours = {story.session_id for story in made}  # others may share the log
        paged = [row for row in seen if row.session_id in ours]
        at_once = log.sessions(tenant=tenant, limit=len(seen))
        assert paged == [row for row in at_once if row.session_id in ours]
        assert paged == sorted(paged, key=order_of, reverse=True)
        assert len(paged) == len(made)
        assert {row.session_id for row in paged} == ours
        log.close()


def _a_session(session_id: str) -> list[Append]:
    """Appends with refusals among them; the same ones each time but for their ids."""

    def append(event: KnownEvent, known_seq: int) -> Append:
        return make_append(session_id, event, known_seq=known_seq, turn_id=TURN)

    return [
        append(created(), 0),
        append(started(), 1),
        append(started(), 2),
        append(said("hello"), 2),
        append(ModelCallStarted(model_call_id="m1", provider="p", model="m"), 3),
        append(TurnEnded(outcome="ABORTED"), 4),
        append(TurnEnded(outcome="ABORTED"), 5),
    ]
