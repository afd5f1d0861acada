"""What every log must answer: verdicts, in their order, to one writer and to many."""

import threading
from collections import Counter
from collections.abc import Callable

from foldline.processors.listing import LIMITS
from foldline.processors.log import Log
from foldline.schemas.events import (
    SessionCompleted,
    SessionResumed,
    TurnEnded,
    UserMessage,
)
from foldline.schemas.snapshots import encode_snapshot
from foldline.schemas.state import MIRRORED, WINDOW
from foldline.schemas.verdicts import (
    ACCEPTED,
    CLOSED,
    CONFLICT,
    DUPLICATE,
    EXISTS,
    FENCED,
    ILLEGAL,
    LIMIT,
    NO_SESSION,
    TOO_LARGE,
    TOO_OLD,
    UNDECODABLE,
)
from foldline.testing.log_story import LogStory, new_id
from foldline.testing.samples import created, said, started, steering

MakeLog = Callable[..., Log]
"""Opens a log; keyword `clock`."""

SNAPSHOT_BYTES = 16_000
"""More than any state here needs: a few KB, whatever the session's length."""

ONE_SHOT_WRITERS = 10_000
"""How many writers come, steer once and go."""


class VerdictContract:
    """The first part of `LogContract`."""

    one_shot_writers = ONE_SHOT_WRITERS
    """Fewer do for a log far away: some windows full of them."""

    def test_the_first_event_creates_the_session(self, log: Log) -> None:
        story = LogStory(log)
        story.when(started()).then(NO_SESSION)
        story.when(created()).then(ACCEPTED, seq=1)
        story.when(created()).then(EXISTS)

    def test_seqs_are_dense_and_log_time_never_goes_back(self, make_log: MakeLog) -> None:
        times = iter([5_000_000, 3_000_000, 4_000_000, 9_000_000])
        log = make_log(clock=lambda: next(times, 9_000_000))
        story = LogStory(log).given(created(), started(), said(), said())
        envelopes = [recorded.envelope for recorded in log.events(story.session_id)]
        log.close()
        assert [envelope.seq for envelope in envelopes] == [1, 2, 3, 4]
        recorded_at = [envelope.recorded_at for envelope in envelopes]
        assert recorded_at == sorted(recorded_at)

    def test_a_resend_is_a_duplicate_and_adds_nothing(self, story: LogStory) -> None:
        append = story.append(said())
        seq = story.send([append]).then(ACCEPTED).seq
        story.given(started())
        story.send([append]).then(DUPLICATE, seq=seq)
        story.send([append, append]).then(DUPLICATE, seq=seq)
        assert len(list(story.log.events(story.session_id))) == seq + 1

    def test_a_resend_in_the_same_batch_is_a_duplicate(self, story: LogStory) -> None:
        append = story.append(said())
        kinds = [v.kind for v in story.send([append, append]).verdicts]
        assert kinds == [ACCEPTED, DUPLICATE]

    def test_a_writer_who_has_not_looked_for_too_long_is_told_so(
        self, story: LogStory
    ) -> None:
        first = story.append(said("first"))
        story.send([first]).then(ACCEPTED)
        story.given(*[said(str(n)) for n in range(WINDOW)])
        story.send([first]).then(TOO_OLD)
        story.when(said(), known_seq=story.seq - WINDOW).then(ACCEPTED)
        story.when(said(), known_seq=story.seq - WINDOW - 1).then(TOO_OLD)
        story.when(said(), known_seq=story.seq + 1).then(ILLEGAL, rule="known_seq")

    def test_an_expected_seq_that_has_passed_is_a_conflict(self, story: LogStory) -> None:
        story.given(started())
        verdict = story.when(said(), expected_seq=1).then(CONFLICT)
        assert verdict.current_seq == 2
        story.when(said(), expected_seq=2).then(ACCEPTED, seq=3)

    def test_only_the_owner_decides_and_a_new_owner_fences_the_old(
        self, story: LogStory
    ) -> None:
        story.when(started(), writer="stranger", epoch=0).then(FENCED)
        claim = SessionResumed(reason="CRASH")
        story.when(claim, writer="second", epoch=2, expected_seq=1).then(ACCEPTED)
        story.when(started()).then(FENCED)
        story.when(started(), writer="second", epoch=2).then(ACCEPTED)
        assert (story.state.epoch, story.state.owner) == (2, "second")

    def test_an_ended_session_takes_no_more_turns(self, story: LogStory) -> None:
        story.given(started(), TurnEnded(outcome="DONE"))
        story.given(SessionCompleted(outcome="DONE"))
        story.when(started()).then(CLOSED)

    def test_a_refusal_in_the_middle_undoes_nothing(self, story: LogStory) -> None:
        first, last = story.append(started()), story.append(said())
        illegal = story.append(started())
        story.send([first, illegal, last])
        kinds = [verdict.kind for verdict in story.verdicts]
        assert kinds == [ACCEPTED, ILLEGAL, ACCEPTED]
        assert [v.seq for v in story.verdicts] == [2, 0, 3]

    def test_what_requires_a_refused_append_is_refused(self, story: LogStory) -> None:
        refused = story.append(said(), expected_seq=99)
        dependent = story.append(said(), requires=(refused.envelope.event_id,), known_seq=1)
        story.send([refused, dependent]).then(ILLEGAL, rule="requires")
        good = story.append(said())
        story.send([good, story.append(said(), requires=(good.envelope.event_id,))])
        assert [v.kind for v in story.verdicts] == [ACCEPTED, ACCEPTED]

    def test_one_batch_may_tell_several_sessions(self, log: Log) -> None:
        stories = [LogStory(log) for _ in range(3)]
        log.append([s.append(created()) for s in stories] * 2)
        assert [s.seq for s in stories] == [1, 1, 1]

    def test_a_batch_of_nothing_is_answered_by_nothing(self, log: Log) -> None:
        assert log.append([]) == []

    def test_an_event_id_that_is_none_is_undecodable(self, story: LogStory) -> None:
        good = story.append(said())
        envelope = good.envelope.model_copy(update={"event_id": "7"})
        story.send([good._replace(envelope=envelope)]).then(UNDECODABLE)

    def test_an_event_above_the_limit_is_too_large_and_nothing_else(
        self, story: LogStory
    ) -> None:
        story.when(said("x" * 1_000_000)).then(TOO_LARGE)
        story.when(said("x" * 900_000)).then(ACCEPTED)
        (recorded,) = story.log.events(story.session_id, after_seq=1)
        assert isinstance(recorded.event, UserMessage)
        assert recorded.event.blocks[0].body == "x" * 900_000

    def test_a_schema_that_nobody_knows_is_undecodable(self, story: LogStory) -> None:
        known = story.append(said())
        strange = known._replace(schema_name="FromTheFuture")
        story.send([strange]).then(UNDECODABLE)
        story.send([known]).then(ACCEPTED)

    def test_what_another_harness_did_is_accepted_as_it_is(self, log: Log) -> None:
        story = LogStory(log).given(created(MIRRORED))
        story.given(started(), started(), TurnEnded(outcome="DONE"))
        assert story.state.anomalies == {"turn_in_turn": 1}

    def test_of_threads_that_race_one_seq_exactly_one_wins(self, story: LogStory) -> None:
        rounds, writers = 25, 4
        barrier = threading.Barrier(writers)
        kinds: list[str] = []

        def race(name: str) -> None:
            for seq in range(1, rounds + 1):
                barrier.wait()
                append = story.append(
                    said(), writer=name, epoch=0, known_seq=seq, expected_seq=seq
                )
                kinds.append(story.log.append([append])[0].kind)

        threads = [threading.Thread(target=race, args=(f"w{n}",)) for n in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert kinds.count(ACCEPTED) == rounds
        assert kinds.count(CONFLICT) == rounds * (writers - 1)
        assert story.seq == rounds + 1

    def test_one_shot_writers_leave_the_state_small(self, story: LogStory) -> None:
        story.given(started(), TurnEnded(outcome="DONE"))
        idle_since = story.seq
        kinds: Counter[str] = Counter()
        for _ in range(0, self.one_shot_writers, WINDOW):
            known_seq = story.seq
            story.send(
                [
                    story.append(
                        said() if n % 2 else steering(),
                        writer=new_id(),
                        epoch=0,
                        known_seq=known_seq,
                    )
                    for n in range(WINDOW)
                ]
            )
            kinds.update(verdict.kind for verdict in story.verdicts)
        assert set(kinds) == {ACCEPTED, LIMIT}
        assert len(story.state.steering) == LIMITS["steering"]
        assert len(encode_snapshot(story.state)) < SNAPSHOT_BYTES
        story.when(started(), known_seq=idle_since).then(TOO_OLD)
        story.when(started()).then(ACCEPTED)
