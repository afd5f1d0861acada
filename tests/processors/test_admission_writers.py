"""Several writers at once: losses, resends, zombies and takeovers, step by step."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from foldline.processors.fold import initial, replay
from foldline.schemas.authority import authority_of
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    KnownEvent,
    ModelCallCompleted,
    ModelCallStarted,
    PlanUpdated,
    SessionCompleted,
    SessionCreated,
    SessionReopened,
    SessionResumed,
    ToolCallRequested,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionStarted,
    ToolExecutionTimedOut,
    ToolOutcomeResolved,
    ToolOutcomeUnknown,
    TurnEnded,
    TurnStarted,
    UserMessage,
)
from foldline.schemas.recorded import Append
from foldline.schemas.snapshots import decode_snapshot, encode_snapshot
from foldline.schemas.verdicts import ACCEPTED, CONFLICT, FENCED, ILLEGAL, Verdict
from tests.story import Story, Writer

CALLS = st.sampled_from(("m:0", "m:1"))
ATTEMPTS = st.integers(min_value=1, max_value=3)
OUTCOMES = (
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionCancelled,
    ToolExecutionTimedOut,
)


def outcomes(call_id: str, attempt: int) -> list[KnownEvent]:
    """Every end an attempt may be said to have had."""
    a: dict[str, object] = {"call_id": call_id, "attempt": attempt}
    return [
        ToolExecutionCompleted.model_validate(a | {"output": ()}),
        ToolExecutionFailed.model_validate(
            a | {"layer": "TOOL", "error_type": "E", "executed": "NO"}
        ),
        ToolExecutionFailed.model_validate(a | {"layer": "TOOL", "error_type": "E"}),
        ToolExecutionTimedOut.model_validate(a | {"stop_confirmed": False}),
        ToolExecutionCancelled.model_validate(a | {"stop_confirmed": True, "reason": "r"}),
        ToolOutcomeUnknown.model_validate(a | {"reason": "r"}),
        ToolOutcomeResolved.model_validate(
            a | {"outcome": "NOT_EXECUTED", "resolver": "r"}
        ),
        ToolOutcomeResolved.model_validate(a | {"outcome": "COMPLETED", "resolver": "r"}),
    ]


class Writers(RuleBasedStateMachine):
    """Writers that believe what they last read; the network loses and repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.story = Story()
        self.writers = [Writer("w0", 1)]
        self.lost: list[Append] = []
        self.acknowledged: set[str] = set()

    @initialize()
    def create(self) -> None:
        """The first writer creates the session and owns it."""
        self.story.owner = self.writers[0]
        self.story.given(SessionCreated(agent="a"))

    def say(self, who: int, event: KnownEvent, behind: int = 0) -> Verdict:
        """Any writer, dead owners included, appends something."""
        by = self.writers[who % len(self.writers)]
        known_seq = max(self.story.seq - behind, 0)
        verdict = self.story.when(event, by=by, known_seq=known_seq)
        self.check(self.story.appends[-1], verdict)
        return verdict

    def check(self, append: Append, verdict: Verdict) -> None:
        """Acknowledged is in the log; a decision is the owner's."""
        if verdict.recorded:
            self.acknowledged.add(verdict.event_id)
        if verdict.kind == ACCEPTED and authority_of(append.event) == "decision":
            state = self.story.state
            assert (append.envelope.writer, append.envelope.epoch) == (
                state.owner,
                state.epoch,
            )

    @rule(who=st.integers(0, 3), behind=st.integers(0, 3))
    def start_turn(self, who: int, behind: int) -> None:
        """A turn begins, if it may."""
        self.say(who, TurnStarted(trigger="USER"), behind)

    @rule(who=st.integers(0, 3), outcome=st.sampled_from(("DONE", "ABORTED")))
    def end_turn(self, who: int, outcome: str) -> None:
        """A turn ends, if it may."""
        self.say(who, TurnEnded(outcome=outcome))

    @rule(who=st.integers(0, 3), call_id=CALLS)
    def request(self, who: int, call_id: str) -> None:
        """The model asks for a tool."""
        self.say(
            who,
            ToolCallRequested(
                call_id=call_id,
                tool="t",
                args_hash=call_id,
                message_id="m",
                position=0,
                arguments=(),
            ),
        )

    @rule(
        who=st.integers(0, 3),
        call_id=CALLS,
        attempt=ATTEMPTS,
        effect=st.sampled_from(("READ_ONLY", "UNSAFE")),
    )
    def start(self, who: int, call_id: str, attempt: int, effect: str) -> None:
        """An effect may begin."""
        self.say(
            who,
            ToolExecutionStarted(
                call_id=call_id,
                attempt=attempt,
                effect=effect,
                operation_id="op",
                start_by_ms=5,
            ),
        )

    @rule(
        who=st.integers(0, 3),
        call_id=CALLS,
        attempt=ATTEMPTS,
        which=st.integers(0, 7),
    )
    def end(self, who: int, call_id: str, attempt: int, which: int) -> None:
        """An outcome, by whoever thinks to know it."""
        self.say(who, outcomes(call_id, attempt)[which])

    @rule(who=st.integers(0, 3))
    def talk(self, who: int) -> None:
        """Anyone may say something, the owner plans and calls models."""
        self.say(who, UserMessage(message_id="u", blocks=(text_block("hi"),)))
        self.say(who, PlanUpdated(items=()))
        self.say(who, ModelCallStarted(model_call_id="m", provider="p", model="x"))
        self.say(who, ModelCallCompleted(model_call_id="m"))

    @rule(who=st.integers(0, 3), stale=st.integers(0, 1), reopen=st.booleans())
    def take_over(self, who: int, stale: int, reopen: bool) -> None:  # noqa: FBT001
        """A new writer claims the session; one that read too early does not get it."""
        state = self.story.state
        by = Writer(f"w{len(self.writers)}", state.epoch + 1)
        event = SessionReopened(reason="r") if reopen else SessionResumed(reason="r")
        expected = state.seq - stale
        verdict = self.story.when(event, by=by, expected_seq=expected)
        if state.ended == reopen:
            assert verdict.kind == (CONFLICT if stale else ACCEPTED)
        if verdict.kind == ACCEPTED:
            self.writers.append(by)
            self.writers = self.writers[-4:]
            self.acknowledged.add(verdict.event_id)
        del who

    @rule(who=st.integers(0, 3))
    def complete(self, who: int) -> None:
        """The session ends, if it may."""
        self.say(who, SessionCompleted())

    @rule(who=st.integers(0, 3))
    def lose(self, who: int) -> None:
        """An append is under way; nobody knows whether it arrived."""
        draft = Story(session_id=self.story.session_id, _state=self.story.state)
        by = self.writers[who % len(self.writers)]
        lost = UserMessage(message_id="l", blocks=())
        draft.when(lost, by=by, event_id=self.story.fresh_id())
        self.lost.append(draft.appends[-1])

    @precondition(lambda self: self.lost)
    @rule(which=st.integers(0, 20))
    def arrive(self, which: int) -> None:
        """What was lost arrives late, perhaps more than once."""
        append = self.lost[which % len(self.lost)]
        self.check(append, self.story.send(append))

    @precondition(lambda self: self.story.appends)
    @rule(which=st.integers(0, 200))
    def resend(self, which: int) -> None:
        """Anything may be sent again: it has the seq it had, or may be answered anew."""
        append = self.story.appends[which % len(self.story.appends)]
        recorded = {e.envelope.event_id: e.seq for e in self.story.events}
        verdict = self.story.send(append)
        if (seq := recorded.get(append.envelope.event_id)) is not None:
            assert (verdict.kind, verdict.seq) in {
                ("DUPLICATE", seq),
                ("TOO_OLD", 0),
            }
        self.check(append, verdict)

    @rule(passed_ms=st.sampled_from((1, 20)))
    def wait(self, passed_ms: int) -> None:
        """Log time passes."""
        self.story.wait_ms(passed_ms)

    @invariant()
    def seqs_are_dense_and_ids_unique(self) -> None:
        """No seq twice, none left out, no event twice."""
        events = self.story.events
        assert [e.seq for e in events] == list(range(1, len(events) + 1))
        ids = {e.envelope.event_id for e in events}
        assert len(ids) == len(events)
        assert self.acknowledged <= ids

    @invariant()
    def at_most_one_confirmed_outcome_per_attempt(self) -> None:
        """The real ends: `late` or not, each (call, attempt) has one at the most."""
        ends = Counter(
            (e.event.call_id, e.event.attempt)
            for e in self.story.events
            if isinstance(e.event, OUTCOMES) and getattr(e.event, "stop_confirmed", True)
        )
        assert all(count == 1 for count in ends.values())

    @invariant()
    def an_unsafe_effect_is_repeated_only_on_evidence(self) -> None:
        """Between two starts of an unsafe call somebody said: it did not happen."""
        said_no: dict[str, bool] = {}
        for recorded in self.story.events:
            event = recorded.event
            if isinstance(event, ToolExecutionStarted):
                unsafe = event.effect == "UNSAFE" and event.attempt > 1
                assert not unsafe or said_no.get(event.call_id, False)
                said_no[event.call_id] = False
            elif isinstance(event, ToolExecutionFailed | ToolOutcomeResolved):
                no = (
                    event.executed
                    if isinstance(event, ToolExecutionFailed)
                    else event.outcome
                )
                said_no[event.call_id] = no in ("NO", "NOT_EXECUTED")
            elif isinstance(event, ToolExecutionCompleted):
                said_no[event.call_id] = False

    def teardown(self) -> None:
        """Refolded from bytes and through a snapshot, it is the same state."""
        codec = self.story.codec
        recorded = [codec.decode_structure(e.schema_id, e.body) for e in self.story.events]
        assert replay(initial("session"), recorded) == self.story.state
        decoded = decode_snapshot(encode_snapshot(self.story.state))
        assert decoded == self.story.state


TestWriters = Writers.TestCase
TestWriters.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_a_zombie_decides_nothing_after_its_successor_has_claimed_the_session() -> None:
    """Old epoch, same name or another's epoch: FENCED."""
    story = Story().given(SessionCreated(agent="a"))
    zombie = story.owner
    assert story.take("next", SessionResumed(reason="r")).kind == ACCEPTED
    for by in (zombie, Writer("owner", 2), Writer("next", 1)):
        verdict = story.when(PlanUpdated(items=()), by=by)
        assert (verdict.kind, verdict.epoch) == (FENCED, 2)


def test_a_claim_is_planned_from_exactly_the_state_that_it_takes() -> None:
    """Wrong epoch: FENCED. Wrong seq: CONFLICT. None: ILLEGAL."""
    story = Story().given(SessionCreated(agent="a"), TurnStarted(trigger="USER"))
    claim = SessionResumed(reason="r")
    for epoch in (0, 1, 3):
        verdict = story.when(claim, by=Writer("next", epoch), expected_seq=2)
        assert verdict.kind == FENCED
    next_ = Writer("next", 2)
    for seq in (1, 3):
        assert story.when(claim, by=next_, expected_seq=seq).kind == CONFLICT
    verdict = story.when(claim, by=next_)
    assert (verdict.kind, verdict.rule) == (ILLEGAL, "claim_without_expected_seq")
    assert story.when(claim, by=next_, expected_seq=2).epoch == 2


def test_of_two_claims_of_one_state_exactly_one_wins() -> None:
    """The second names an epoch that is taken."""
    story = Story().given(SessionCreated(agent="a"))
    claim = SessionResumed(reason="r")
    verdicts = [
        story.when(claim, by=Writer(name, 2), expected_seq=1) for name in ("b", "c")
    ]
    assert [v.kind for v in verdicts] == [ACCEPTED, FENCED]


def test_a_resend_is_recognised_as_long_as_the_window_reaches() -> None:
    """128 events back it is a DUPLICATE; beyond, TOO_OLD tells the writer to look."""
    story = Story().given(SessionCreated(agent="a"))
    hello = UserMessage(message_id="u", blocks=())
    story.given(hello)
    first = story.appends[-1]
    story.given(*[hello] * 127)
    assert story.send(first).kind == "DUPLICATE"
    assert story.send(first).seq == 2
    story.given(hello)
    assert story.send(first).kind == "TOO_OLD"
    unseen = first._replace(
        envelope=first.envelope.model_copy(update={"event_id": story.fresh_id()}),
    )
    assert story.send(unseen).kind == "TOO_OLD"
