"""Row 29: what writers must not do, against a worker and a real broker.

Hypothesis tells sessions in which anything follows anything. Every verdict of the worker
must be the memory log's, at the log time that the broker gave; `FOLDLINE_STORM_SEED` and
`-m storm` tell other and longer ones.
"""

import random
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from foldline.processors.memory_log import MemoryLog
from foldline.schemas.authority import CLAIMS, authority_of
from foldline.schemas.events import (
    KnownEvent,
    SessionCancelled,
    SessionCompleted,
    SessionReopened,
    SessionResumed,
    SessionSuspended,
    TurnStarted,
)
from foldline.schemas.state import SessionState
from foldline.schemas.verdicts import ACCEPTED, CLOSED, FENCED, ILLEGAL, LIMIT
from foldline.settings import Settings
from foldline.testing.log_story import make_append, new_id
from foldline.testing.samples import created, ticking
from foldline.topics import partition_for
from tests import happenings as happens
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import running_worker
from tests.kafka_checker import check
from tests.kafka_feed import Feed
from tests.storm_seed import by_name, storm_seed

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

calls = st.sampled_from(("m:0", "m:1"))
requests = st.sampled_from(("r", "q"))
attempts = st.integers(1, 2)

TOGETHER = 100
"""How many appends go out with one known_seq: fewer than the window remembers."""


class Abuse(RuleBasedStateMachine):
    """One session; the memory log follows, so that what is appended is often legal."""

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self.feed = feed
        self.name = new_id()
        self.model = MemoryLog(settings=Settings(), clock=ticking())

    @property
    def state(self) -> SessionState:
        """What it would be."""
        state = self.model.state(self.name)
        assert state is not None
        return state

    def tell(self, event: KnownEvent, *, behind: int = 0) -> None:
        """Append to both; by an owner that is so many epochs behind."""
        state = self.model.state(self.name)
        seq, epoch = (state.seq, state.epoch) if state else (0, 1)
        if type(event) in CLAIMS:
            epoch += 1 - behind
        elif authority_of(event) == "external":
            epoch = 0
        else:
            epoch = max(epoch - behind, 0)
        append = make_append(
            self.name,
            event,
            known_seq=seq,
            epoch=max(epoch, 0),
            expected_seq=seq if type(event) in CLAIMS else None,
            turn_id=f"turn {seq}" if isinstance(event, TurnStarted) else None,
        )
        self.model.append([append])
        self.feed.send(append)

    @initialize(
        mode=st.sampled_from(("OWNED", "OWNED", "OWNED", "MIRRORED")),
        far=st.integers(0, 3),
    )
    def begins(self, mode: str, far: int) -> None:
        """With nothing, a turn, a call in it, or one that was started."""
        append = make_append(
            self.name, created(mode), known_seq=0, epoch=int(mode == "OWNED")
        )
        self.model.append([append])
        self.feed.send(append)
        for event in (happens.turn(), happens.request(), happens.start())[:far]:
            self.tell(event)

    @rule(behind=st.integers(0, 1), ends=st.booleans())
    def turns(self, behind: int, ends: bool) -> None:  # noqa: FBT001 - drawn
        self.tell(happens.turn_ends() if ends else happens.turn(), behind=behind)

    @rule(call=calls)
    def a_call_is_requested(self, call: str) -> None:
        self.tell(happens.request(call))

    @rule(call=calls, attempt=attempts, behind=st.sampled_from((0, 0, 1)))
    def a_call_starts(self, call: str, attempt: int, behind: int) -> None:
        self.tell(happens.start(call, attempt), behind=behind)

    @rule(
        make=st.sampled_from(
            (happens.done, happens.failed, happens.cancelled, happens.unknown)
        ),
        call=calls,
        attempt=attempts,
        twice=st.booleans(),
    )
    def a_call_ends(
        self, make: Callable[..., Any], call: str, attempt: int, *, twice: bool
    ) -> None:
        for _ in range(1 + twice):
            self.tell(make(call, attempt))

    @rule(call=calls, request=requests)
    def permission_is_asked_for(self, call: str, request: str) -> None:
        self.tell(happens.ask(request, call))

    @rule(call=calls, request=requests | st.none(), make=st.integers(0, 2))
    def it_is_answered_asked_for_or_not(
        self, call: str, request: str | None, make: int
    ) -> None:
        if make:
            self.tell(happens.grant(request, call))
        else:
            self.tell(happens.deny(request))

    @rule(request=requests)
    def a_request_expires(self, request: str) -> None:
        self.tell(happens.expired(request))

    @rule(what=st.sampled_from(("TURN", "CALL", "SESSION")), call=calls)
    def somebody_cancels(self, what: str, call: str) -> None:
        self.tell(happens.cancel(what, call if what == "CALL" else None))

    @rule(mode=st.sampled_from(("INTERRUPT", "ON_IDLE", "NEVER")))
    def somebody_steers(self, mode: str) -> None:
        self.tell(happens.steer(mode))

    @rule(known=st.booleans())
    def steering_is_applied_known_or_not(self, *, known: bool) -> None:
        pending = list(self.state.steering) if known else []
        self.tell(happens.steering_applied(pending[0] if pending else new_id()))

    @rule(ends=st.booleans())
    def the_model_is_called(self, *, ends: bool) -> None:
        self.tell(happens.model_completes() if ends else happens.model_starts())

    @rule(asks=st.booleans())
    def input_is_asked_for(self, *, asks: bool) -> None:
        self.tell(happens.question() if asks else happens.answer())

    @rule(behind=st.integers(0, 2))
    def somebody_takes_over(self, behind: int) -> None:
        self.tell(SessionResumed(reason="a new owner"), behind=behind)

    @rule(how=st.sampled_from((SessionCompleted, SessionCancelled, SessionSuspended)))
    def the_session_ends(self, how: Callable[..., KnownEvent]) -> None:
        self.tell(how() if how is SessionCompleted else how(reason="it is time"))

    @rule()
    def it_is_opened_again(self) -> None:
        self.tell(SessionReopened(reason="not yet"))


def tell_all(feed: Feed, *, examples: int, steps: int, by: int) -> None:
    """Tell so many sessions; the same for the same number `by`."""
    told = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=tuple(cast("Any", HealthCheck)),
    )
    machine: Any = seed(by)(lambda: Abuse(feed))
    run_state_machine_as_test(machine, settings=told)


def check_verdicts(feed: Feed) -> set[str]:
    """Every verdict, of resends too, is the memory log's; gives the kinds and rules."""
    checked = check(feed.log, feed.answers)
    said: set[str] = set()
    for verdicts in feed.verdicts.values():
        for verdict in verdicts:
            place = partition_for(verdict.session_id, feed.log.partitions)
            expected = checked.verdicts[place].get(verdict.append_offset)
            assert verdict.model_copy(update={"append_offset": -1}) == expected, verdict
            said |= {verdict.kind, verdict.rule}
    return said


def test_whatever_writers_do_a_worker_answers_as_the_memory_log(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=2, snapshot_lag_events=50)
    feed = Feed(log)
    with running_worker(log) as worker:
        tell_all(feed, examples=25, steps=40, by=29)
        feed.settle()
        assert worker.terminate() == 0
    said = check_verdicts(feed)
    rules = {"status", "no_pending_request", "no_such_steering"}
    assert {ACCEPTED, ILLEGAL, FENCED, CLOSED} | rules <= said
    assert len(said) > 10


def test_of_a_thousand_calls_at_once_as_many_are_taken_as_may_be_open(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=1)
    feed = Feed(log)
    with running_worker(log) as worker:
        feed.append("s", created())
        feed.append("s", happens.turn(), epoch=1, turn_id="t")
        feed.settle()
        kinds: list[str] = []
        for first in range(0, 1_000, TOGETHER):
            sent = [
                feed.append("s", happens.request(f"m:{first + n}"), epoch=1)
                for n in range(TOGETHER)
            ]
            answers = feed.settle()
            kinds += [answers[append.envelope.event_id].kind for append in sent]
        assert worker.terminate() == 0
    assert kinds.count(LIMIT) == 1_000 - 256
    assert set(kinds[:256]) <= {ACCEPTED, "DUPLICATE"}
    check_verdicts(feed)


@pytest.mark.storm
@by_name
def test_long_abuse_of_a_seed(make_fresh_log: MakeLog) -> None:
    chance = random.Random(storm_seed())
    log = make_fresh_log(partitions=4, snapshot_lag_events=100)
    feed = Feed(log)
    with running_worker(log) as worker:
        for _ in range(10):
            tell_all(feed, examples=50, steps=80, by=chance.randrange(2**32))
            feed.settle()
        assert worker.terminate() == 0
    check_verdicts(feed)
