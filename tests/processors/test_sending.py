"""What a client may tell its caller, with resends, lost records and lost verdicts.

The world here is one partition of `appends` as a list, and the log in memory as its
worker. Which records and verdicts are lost, and when a worker looks, is drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.processors.clock import wall_clock
from foldline.processors.kafka_records import Outgoing
from foldline.processors.memory_log import MemoryLog
from foldline.processors.sending import JITTER, PATIENCE, Lane, Limits, Pace, Sending
from foldline.schemas.recorded import Append
from foldline.schemas.verdicts import (
    ACCEPTED,
    CONFLICT,
    DUPLICATE,
    ILLEGAL,
    TOO_LARGE,
    Verdict,
)
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.samples import created, said, started

LIMITS = Limits(inflight_max=4, resend_max=1_000, resend_after_ms=1_000, timeout_ms=15_000)
STEPS_MAX = 2_000
STEP_S = 0.5

TAKEN, TAKEN_UNHEARD, LOST, LATE = "taken", "taken, unheard", "lost", "late"
"""What becomes of a record: acknowledged; stored but reported as lost; lost; stored,
and acknowledged one step later."""


@dataclass
class World:
    """A partition, its worker, and a lane in front of it."""

    limits: Limits = LIMITS
    fates: list[str] = field(default_factory=list[str])
    deaf: list[bool] = field(default_factory=list[bool])
    pauses: list[bool] = field(default_factory=list[bool])
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.log = MemoryLog(settings=Settings(), clock=wall_clock)
        self.story = LogStory(self.log).given(created())
        self.lane = Lane(self.limits, chance=lambda: 0.0)
        self.appends: dict[str, Append] = {}
        self.partition: list[str] = []
        self.worked = 0
        self.unheard: list[tuple[Sending, int]] = []
        self.final: list[Sending] = []

    def add(self, appends: Sequence[Append]) -> list[Sending]:
        sendings = [sending_of(append) for append in appends]
        for append, sending in zip(appends, sendings, strict=True):
            self.appends[append.envelope.event_id] = append
            self.lane.add(sending)
        return sendings

    def step(self) -> None:
        """What is due is sent, what was late is acknowledged, the worker looks."""
        self.now_s += STEP_S
        late, self.unheard = self.unheard, []
        for sending in self.lane.due(self.now_s):
            self.lane.sent(sending, self.now_s)
            self.carry(sending, self.fates.pop() if self.fates else TAKEN)
        for sending, offset in late:
            self.lane.acknowledged(sending, offset)
        if not (self.pauses.pop() if self.pauses else False):
            self.work()
        self.final += self.lane.settle()

    def carry(self, sending: Sending, fate: str) -> None:
        if fate != LOST:
            self.partition.append(sending.event_id)
        offset = len(self.partition) - 1
        match fate:
            case "taken":
                self.lane.acknowledged(sending, offset)
            case "late":
                self.unheard.append((sending, offset))
            case _:
                self.lane.lost(sending, fate, self.now_s)

    def work(self) -> None:
        for offset in range(self.worked, len(self.partition)):
            (verdict,) = self.log.append([self.appends[self.partition[offset]]])
            if not (self.deaf.pop() if self.deaf else False):
                self.lane.heard(verdict.model_copy(update={"append_offset": offset}))
        self.worked = len(self.partition)

    def run(self, count: int) -> None:
        for _ in range(STEPS_MAX):
            if len(self.final) == count:
                return
            self.step()
        pytest.fail(f"{len(self.final)} of {count} are answered")

    @property
    def recorded(self) -> list[str]:
        return list(self.log.event_ids(self.story.session_id))[1:]


def sending_of(append: Append) -> Sending:
    envelope = append.envelope
    return Sending(envelope.event_id, Outgoing(0, envelope.session_id.encode(), b""))


def answer_of(sending: Sending) -> Verdict:
    assert sending.verdict is not None
    return sending.verdict


def chain(world: World, count: int) -> list[Append]:
    """Messages of which each one needs the one before it, and the seq that it made."""
    appends: list[Append] = []
    for n in range(count):
        before = (appends[-1].envelope.event_id,) if appends else ()
        appends.append(
            world.story.append(
                said(str(n)), known_seq=1, expected_seq=1 + n, requires=before
            )
        )
    return appends


drawn = st.builds(
    World,
    fates=st.lists(st.sampled_from((TAKEN, TAKEN_UNHEARD, LOST, LATE)), max_size=40),
    deaf=st.lists(st.booleans(), max_size=40),
    pauses=st.lists(st.booleans(), max_size=20),
)


@given(world=drawn, count=st.integers(min_value=1, max_value=12))
@settings(max_examples=300, deadline=None)
def test_a_chain_is_recorded_whole_and_in_order_whatever_is_lost(
    world: World, count: int
) -> None:
    appends = chain(world, count)
    sendings = world.add(appends)
    world.run(count)
    assert all(answer_of(s).kind in (ACCEPTED, DUPLICATE) for s in sendings)
    assert world.recorded == [append.envelope.event_id for append in appends]
    assert [answer_of(s).seq for s in sendings] == list(range(2, count + 2))


@given(world=drawn, plan=st.lists(st.sampled_from("smcx"), min_size=1, max_size=12))
@settings(max_examples=300, deadline=None)
def test_an_answer_is_true_of_the_log_once_all_is_quiet(world: World, plan: str) -> None:
    """Starts, messages, and messages that expect a seq: some are refused, some may be."""
    makers = {
        "s": lambda: world.story.append(started(), known_seq=1),
        "m": lambda: world.story.append(said(), known_seq=1),
        "c": lambda: world.story.append(said(), known_seq=1, expected_seq=3),
        "x": lambda: world.story.append(said(), known_seq=1, expected_seq=99),
    }
    sendings = world.add([makers[letter]() for letter in plan])
    world.run(len(plan))
    for _ in range(4):
        world.step()
    recorded = set(world.recorded)
    for sending in sendings:
        assert answer_of(sending).recorded == (sending.event_id in recorded)
    assert len(recorded) == len(world.recorded)


@given(
    world=st.builds(
        World,
        fates=st.lists(st.sampled_from((TAKEN, LATE)), max_size=40),
        deaf=st.lists(st.booleans(), max_size=40),
        pauses=st.lists(st.booleans(), max_size=20),
    ),
    count=st.integers(min_value=1, max_value=12),
)
@settings(max_examples=100, deadline=None)
def test_order_is_kept_while_no_record_is_lost(world: World, count: int) -> None:
    appends = [world.story.append(said(str(n)), known_seq=1) for n in range(count)]
    world.add(appends)
    world.run(count)
    assert world.recorded == [append.envelope.event_id for append in appends]


def test_no_more_than_the_limit_is_under_way() -> None:
    world = World(pauses=[True])
    world.add([world.story.append(said(), known_seq=1) for _ in range(9)])
    world.step()
    assert len(world.partition) == LIMITS.inflight_max
    world.run(9)
    assert len(world.partition) == 9


def test_the_same_append_twice_is_answered_twice() -> None:
    world = World()
    append = world.story.append(said(), known_seq=1)
    sendings = world.add([append, append])
    world.run(2)
    assert [answer_of(s).kind for s in sendings] == [ACCEPTED, DUPLICATE]


def test_a_refusal_waits_for_the_answer_to_every_copy() -> None:
    """Two copies, and between them what makes the second one right."""
    world = World(limits=Limits(4, 8, 100, 15_000), pauses=[True, True])
    append = world.story.append(said(), known_seq=1, expected_seq=2)
    (sending,) = world.add([append])
    world.step()
    world.step()
    assert world.partition == [append.envelope.event_id] * 2
    lane = world.lane
    (refusal,) = world.log.append([append])
    assert refusal.kind == CONFLICT
    lane.heard(refusal.model_copy(update={"append_offset": 0}))
    assert lane.settle() == []
    world.story.given(started())
    (taken,) = world.log.append([append])
    lane.heard(taken.model_copy(update={"append_offset": 1}))
    assert lane.settle() == [sending]
    assert answer_of(sending).kind == ACCEPTED


def test_a_refusal_waits_for_an_acknowledgement_that_is_outstanding() -> None:
    world = World(fates=[LATE])
    (sending,) = world.add([world.story.append(said(), known_seq=1, expected_seq=9)])
    world.step()
    assert world.final == []
    world.step()
    assert world.final == [sending]
    assert answer_of(sending).kind == CONFLICT


def test_a_refusal_because_an_earlier_record_was_lost_is_asked_again() -> None:
    world = World(fates=[TAKEN, LOST])
    first, second = world.add(chain(world, 2))
    world.step()
    assert second.verdict is not None
    assert second.verdict.kind == CONFLICT
    world.run(2)
    assert [answer_of(s).kind for s in (first, second)] == [ACCEPTED, ACCEPTED]
    assert world.recorded == [first.event_id, second.event_id]


def test_a_stale_refusal_of_an_earlier_call_is_not_an_answer() -> None:
    world = World(fates=[LATE])
    append = world.story.append(said(), known_seq=1)
    (sending,) = world.add([append])
    stale = Verdict(
        kind=ILLEGAL, session_id="s", event_id=sending.event_id, append_offset=-1
    )
    world.lane.heard(stale)
    world.step()
    world.step()
    assert answer_of(sending).kind == ACCEPTED


def test_copies_are_sent_ever_more_seldom_and_not_for_ever() -> None:
    world = World(limits=Limits(4, 3, 1_000, 600_000), pauses=[True] * 200)
    (sending,) = world.add([world.story.append(said(), known_seq=1)])
    sent_at: list[float] = []
    for _ in range(100):
        before = sending.copies
        world.step()
        if sending.copies > before:
            sent_at.append(world.now_s)
    assert sent_at == [0.5, 1.5, 3.5, 7.5]


def test_the_pause_between_copies_is_shortened_by_chance() -> None:
    lane = Lane(LIMITS, chance=lambda: 1.0)
    story = LogStory(MemoryLog(settings=Settings(), clock=wall_clock))
    sending = sending_of(story.append(created()))
    lane.add(sending)
    assert lane.due(0.0) == [sending]
    lane.sent(sending, 0.0)
    assert sending.resend_at_s == LIMITS.resend_after_ms / 1000 * (1 - JITTER)


def test_who_answers_slowly_is_not_asked_again_sooner() -> None:
    pace = Pace(LIMITS)
    story = LogStory(MemoryLog(settings=Settings(), clock=wall_clock))
    answered = sending_of(story.append(created()))
    assert pace.resend_after_ms == LIMITS.resend_after_ms
    for took_s in (11.0, 2.0, 3.0):
        pace.answered(answered, took_s)
    assert pace.resend_after_ms == PATIENCE * 2_000
    lane = Lane(LIMITS, chance=lambda: 0.0, pace=pace)
    later = sending_of(story.append(said("a")))
    lane.add(later)
    lane.due(10.0)
    lane.sent(later, 10.0)
    lane.acknowledged(later, 5)
    assert lane.due(15.0) == []
    assert lane.due(16.0) == [later]
    pace.answered(answered, 0.01)  # quick again
    assert pace.resend_after_ms == LIMITS.resend_after_ms


def test_an_append_without_an_answer_expires_counted_from_its_first_copy() -> None:
    lane = Lane(Limits(1, 8, 1_000, 2_000), chance=lambda: 0.0)
    story = LogStory(MemoryLog(settings=Settings(), clock=wall_clock))
    first, second = (sending_of(story.append(created())) for _ in range(2))
    lane.add(first)
    lane.add(second)
    assert lane.due(10.0) == [first]
    assert lane.expired(11.9) is None
    assert lane.expired(12.0) is first
    lane.withdraw({first})
    assert lane.due(12.0) == [second]
    assert lane.expired(13.9) is None
    lane.withdraw({second})
    assert lane.empty


def test_an_answer_known_without_a_worker_is_final() -> None:
    world = World(fates=[LOST])
    (sending,) = world.add([world.story.append(said(), known_seq=1)])
    world.step()
    refusal = Verdict(kind=TOO_LARGE, session_id="s", event_id=sending.event_id)
    world.lane.answer(sending, refusal)
    assert world.lane.settle() == [sending]
    assert world.lane.empty
