"""Recovery of many sessions: those without an owner are settled, once, and brought on."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from foldline.errors import DecodeError, LiveOwnerError, LogUnavailableError
from foldline.processors.log import ListPlace, SessionSummary
from foldline.producers.client import Client, connect
from foldline.producers.model import ToolRequest
from foldline.producers.recovering import RecoveryWorker
from foldline.producers.recovery_actions import (
    ASKED,
    MARKED_UNKNOWN,
    PARKED_ACTION,
    REOPENED,
    RESOLVED,
    RESUME_FAILED,
    RESUME_WANTED,
    RESUMED,
    STUCK,
    TAKEN,
    Sweep,
)
from foldline.producers.session import OwnedSession
from foldline.producers.tools import Reconciled, Tool, Toolbox, ToolContext
from foldline.projections.planned import planned
from foldline.projections.recovery import Reconcile, RecoveryPolicy
from foldline.projections.resuming import ResumePolicy
from foldline.projections.stalled import (
    ANSWERED,
    PARKED,
    Silence,
    park_question,
    stalled_sessions,
    standing_still,
)
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    InputRequested,
    ToolExecutionStarted,
    ToolOutcomeResolved,
)
from foldline.schemas.state import CANCELLED, COMPLETED, RUNNING, SUSPENDED, SessionState
from foldline.settings import Settings
from tests.harness import FaultyLog, memory, model_says

SHORT = Settings(start_by_ms=100, lease_ttl_ms=60_000)
AT_ONCE = ResumePolicy(pause_ms=0)


class Mail:
    """A tool whose effect can be looked up, and counted."""

    def __init__(self, effect: Any = "RECONCILABLE", *, sent: bool | None = True) -> None:
        self.effect = effect
        self.sent = sent
        self.asked = 0
        self.runs = 0
        reconcile = self.reconcile if effect == "RECONCILABLE" else None
        self.box = Toolbox(Tool(self.run, name="mail", effect=effect, reconcile=reconcile))

    def run(self, _arguments: dict[str, Any], _context: ToolContext) -> str:
        """Send it."""
        self.runs += 1
        return "sent"

    def reconcile(self, _arguments: dict[str, Any], _context: ToolContext) -> Reconciled:
        """Look it up."""
        self.asked += 1
        return Reconciled(self.sent, "sent", "the outbox")


async def leave_open(client: Client, session_id: str, mail: Mail) -> None:
    """A session whose owner goes in the middle of a call."""
    owned = await client.create(agent="a", session_id=session_id)
    turn = owned.turn("go")
    await turn.__aenter__()
    (call,) = await model_says(turn, ToolRequest("mail", "{}", "p"))
    start = ToolExecutionStarted(
        call_id=call.call_id,
        effect=mail.effect,
        operation_id=f"op-{session_id}",
        start_by_ms=SHORT.start_by_ms,
    )
    await owned.append(start)


async def left_open(mail: Mail, *session_ids: str) -> FaultyLog:
    """A log with such sessions, and nobody there any more."""
    log = memory()
    async with connect(log, settings=SHORT) as client:
        for session_id in session_ids:
            await leave_open(client, session_id, mail)
    return log


def worker(client: Client, mail: Mail, **options: Any) -> RecoveryWorker:
    """A recovery worker that does not wait between its tries."""
    return RecoveryWorker(client, toolbox=mail.box, pauses=AT_ONCE, **options)


def actions(sweep: Sweep) -> Sequence[str]:
    """What a sweep did."""
    return [action.action for action in sweep.actions]


async def finish(_client: Client, owned: OwnedSession) -> None:
    """A harness that has nothing left to do."""
    async with await owned.resume_turn() as turn:
        assert await turn.open_calls() == []
    await owned.complete()


async def test_a_session_whose_owner_is_gone_is_settled_and_given_to_the_harness() -> None:
    mail = Mail()
    log = await left_open(mail, "s")
    async with connect(log, settings=SHORT) as client:
        sweep = await worker(client, mail, resume=finish).sweep()
        assert actions(sweep) == [TAKEN, RESOLVED, RESUMED]
        assert (await client.open("s")).session_id == "s"
        state = await (await client.open("s")).state()
    assert state.status == COMPLETED
    assert (mail.asked, mail.runs) == (1, 0)
    assert {action.epoch for action in sweep.actions} == {2}


async def test_a_session_of_another_tenant_is_recovered_as_its_tenants() -> None:
    """Whoever recovers belongs to no tenant in particular."""
    mail, log = Mail(), memory()
    async with connect(log, settings=SHORT, tenant="acme") as client:
        await leave_open(client, "s1", mail)
    async with connect(log, settings=SHORT) as client:
        sweep = await worker(client, mail, resume=finish).sweep()
        assert actions(sweep) == [TAKEN, RESOLVED, RESUMED]
        view = await client.open("s1")
        fork = await view.fork(at_seq=2)
        await view.label(seen="yes")
    state = log.state("s1")
    assert state is not None
    assert (state.status, state.tenant) == (COMPLETED, "acme")
    forked = log.state(fork.session_id)
    assert forked is not None
    assert forked.tenant == "acme"
    assert {recorded.envelope.tenant for recorded in log.events("s1")} == {"acme"}


async def test_a_session_with_a_living_owner_is_left_alone() -> None:
    mail = Mail()
    log = memory()
    async with connect(log, settings=SHORT) as own, connect(log, settings=SHORT) as other:
        await leave_open(own, "s", mail)
        sweep = await worker(other, mail, resume=finish).sweep()
        assert (sweep.stalled, sweep.actions) == (0, [])
        with pytest.raises(LiveOwnerError):
            await other.take("s")


async def test_a_living_owner_that_records_nothing_for_long_is_told_of_once() -> None:
    mail = Mail()
    log = memory()
    async with connect(log, settings=SHORT) as own, connect(log, settings=SHORT) as other:
        await leave_open(own, "s", mail)
        recovering = worker(other, mail, resume=finish, stuck_ms=0)
        (action,) = (await recovering.sweep()).actions
        assert (action.action, action.session_id, action.epoch) == (STUCK, "s", 0)
        assert (await recovering.sweep()).actions == []
        await (await other.open("s")).steer("are you there?")
        assert actions(await recovering.sweep()) == [STUCK]
        patient = worker(other, mail, resume=finish)
        assert (await patient.sweep()).actions == []


def test_silence_is_as_long_as_nothing_is_recorded() -> None:
    def summary(name: str, seq: int) -> SessionSummary:
        return SessionSummary(name, "t", "a", "OWNED", RUNNING, seq, 1, "w", "", 0, 0)

    silence = Silence(after_ms=10_000)

    def heard(*living: SessionSummary, now_s: float) -> list[str]:
        return [one.session_id for one in silence.broken_by(living, now_s=now_s)]

    assert heard(summary("a", 1), summary("b", 1), now_s=0) == []
    assert heard(summary("a", 1), summary("b", 2), now_s=9) == []
    assert heard(summary("a", 1), summary("b", 2), now_s=10) == ["a"]
    assert heard(summary("a", 1), summary("b", 2), now_s=19) == ["b"]
    assert heard(summary("b", 2), now_s=30) == []
    assert heard(summary("a", 1), summary("b", 3), now_s=40) == []
    assert heard(summary("a", 1), summary("b", 3), now_s=50) == ["a", "b"]


async def test_an_idle_session_is_not_dead() -> None:
    mail = Mail()
    log = memory()
    async with connect(log, settings=SHORT) as client:
        owned = await client.create(agent="a", session_id="s")
        async with owned.turn("hello"):
            pass
    assert list(stalled_sessions(log)) == []
    async with connect(log, settings=SHORT) as client:
        assert (await worker(client, mail).sweep()).stalled == 0


async def test_recovery_workers_beside_each_other_settle_each_session_once() -> None:
    mail = Mail()
    names = [f"s{number}" for number in range(8)]
    log = await left_open(mail, *names)
    async with (
        connect(log, settings=SHORT) as one,
        connect(log, settings=SHORT) as two,
        connect(log, settings=SHORT) as three,
    ):
        workers = [worker(client, mail, resume=finish) for client in (one, two, three)]
        sweeps = await asyncio.gather(*(each.sweep() for each in workers))
        done = [a for sweep in sweeps for a in sweep.actions if a.action == RESUMED]
        assert sorted(action.session_id for action in done) == names
    for name in names:
        resolved = [
            recorded
            for recorded in log.events(name)
            if isinstance(recorded.event, ToolOutcomeResolved)
        ]
        assert len(resolved) == 1


async def test_what_cannot_be_found_out_is_asked_once_and_then_waited_for() -> None:
    mail = Mail("UNSAFE")
    log = await left_open(mail, "s")
    async with connect(log, settings=SHORT) as client:
        recovering = worker(client, mail, resume=finish)
        assert actions(await recovering.sweep()) == [TAKEN, MARKED_UNKNOWN, ASKED]
        for _ in range(3):
            sweep = await recovering.sweep()
            assert (sweep.actions, sweep.waiting) == ([], 1)
        view = await client.open("s")
        (call_id,) = (await view.state()).calls
        await view.resolve(call_id, "COMPLETED", evidence="row 17")
        assert actions(await recovering.sweep()) == [TAKEN, RESUMED]
        assert (await view.state()).status == COMPLETED
    assert mail.runs == 0


async def test_without_a_harness_it_is_said_that_a_session_wants_one() -> None:
    mail = Mail()
    log = await left_open(mail, "s")
    async with connect(log, settings=SHORT) as client:
        recovering = worker(client, mail)
        assert actions(await recovering.sweep()) == [TAKEN, RESOLVED, RESUME_WANTED]
        assert actions(await recovering.sweep()) == [RESUME_WANTED]
        owned = await client.take("s")
        assert (await recovering.sweep()).stalled == 0
        await finish(client, owned)
        assert (await recovering.sweep()).stalled == 0


async def test_a_tool_that_may_be_repeated_is_left_to_who_has_it() -> None:
    mail = Mail("IDEMPOTENT")
    log = await left_open(mail, "s")
    elsewhere = Mail()
    async with connect(log, settings=SHORT) as client:
        recovering = RecoveryWorker(client, toolbox=Toolbox(), pauses=AT_ONCE)
        assert actions(await recovering.sweep()) == [RESUME_WANTED]
        assert log.state("s") is not None
        report = await (await client.take("s")).recover(mail.box)
    assert report.retried == 1
    assert (mail.runs, elsewhere.runs) == (1, 0)


async def test_a_tool_that_can_be_asked_is_left_to_who_has_it_until_that_is_too_often() -> (
    None
):
    mail = Mail("RECONCILABLE")
    log = await left_open(mail, "s")
    async with connect(log, settings=SHORT) as client:
        policy = RecoveryPolicy(resumes_max=2)
        recovering = RecoveryWorker(
            client, toolbox=Toolbox(), pauses=AT_ONCE, policy=policy
        )
        assert actions(await recovering.sweep()) == [RESUME_WANTED]
        assert actions(await recovering.sweep()) == [RESUME_WANTED]
        assert actions(await recovering.sweep())[:3] == [TAKEN, MARKED_UNKNOWN, ASKED]
        owned = await client.take("s")
        report = await owned.recover(mail.box)
    assert (report.resolved, mail.asked, mail.runs) == (1, 1, 0)


async def test_a_turn_that_does_not_get_on_is_parked_with_a_question() -> None:
    """Case B05: not the same resume again for ever."""

    async def dies(_client: Client, _owned: OwnedSession) -> None:
        raise RuntimeError("the model is away")

    mail = Mail()
    log = await left_open(mail, "s")
    async with connect(log, settings=SHORT) as client:
        policy = RecoveryPolicy(resumes_max=3)
        recovering = worker(client, mail, resume=dies, policy=policy)
        seen: list[str] = []
        for _ in range(8):
            seen += actions(await recovering.sweep())
        assert seen.count(RESUME_FAILED) == 3
        assert seen.count(PARKED_ACTION) == 1
        view = await client.open("s")
        state = await view.state()
        assert (state.status, state.reason.startswith(PARKED)) == (SUSPENDED, True)
        ((request_id, request),) = state.requests.items()
        assert request.kind == "INPUT"
        recovering = worker(client, mail, resume=finish, policy=policy)
        assert (await recovering.sweep()).actions == []

        await view.answer(request_id, "RESUME")
        (shown,) = standing_still(log)
        assert (shown.session_id, shown.why) == ("s", ANSWERED)
        seen = [*actions(await recovering.sweep()), *actions(await recovering.sweep())]
        assert seen == [REOPENED, TAKEN, RESUMED]
        assert (await view.state()).status == COMPLETED


async def test_a_person_may_end_what_was_parked() -> None:
    async def dies(_client: Client, _owned: OwnedSession) -> None:
        raise RuntimeError("no")

    mail = Mail()
    log = await left_open(mail, "s")
    async with connect(log, settings=SHORT) as client:
        policy = RecoveryPolicy(resumes_max=1)
        recovering = worker(client, mail, resume=dies, policy=policy)
        for _ in range(3):
            await recovering.sweep()
        view = await client.open("s")
        (request_id,) = (await view.state()).requests
        await view.answer(request_id, '"cancel"')
        assert actions(await recovering.sweep()) == [REOPENED]
        assert (await view.state()).status == CANCELLED


async def test_an_answer_counts_though_the_one_who_asked_died_before_it_suspended() -> None:
    """The question is in the log, the suspension is not: CANCEL ends the session."""
    mail = Mail()
    log = await left_open(mail, "s")
    async with connect(log, settings=SHORT) as client:
        owned = await client.take("s")
        await owned.recover(mail.box)
        question = park_question(owned.epoch)
        await owned.append(InputRequested(request_id=question, prompt=(text_block("?"),)))
        await owned.close()
        recovering = worker(client, mail, resume=finish)
        sweep = await recovering.sweep()
        assert (sweep.actions, sweep.waiting) == ([], 1)
        view = await client.open("s")
        await view.answer(question, "CANCEL")
        assert actions(await recovering.sweep()) == [REOPENED]
        assert (await view.state()).status == CANCELLED


async def test_a_parked_session_without_a_harness_begins_anew_once_it_is_answered() -> None:
    """How often a harness was wanted before is no reason to park it again at once."""
    mail = Mail()
    log = await left_open(mail, "s")
    async with connect(log, settings=SHORT) as client:
        recovering = worker(client, mail, policy=RecoveryPolicy(resumes_max=2))
        seen: list[str] = []
        while PARKED_ACTION not in seen:
            seen += actions(await recovering.sweep())
        view = await client.open("s")
        (question,) = (await view.state()).requests
        await view.answer(question, "RESUME")
        seen = [*actions(await recovering.sweep()), *actions(await recovering.sweep())]
        assert seen == [REOPENED, RESUME_WANTED]


async def test_a_busy_harness_keeps_no_other_session_waiting() -> None:
    mail = Mail()
    log = await left_open(mail, "long")
    begun, done = asyncio.Event(), asyncio.Event()

    async def works(client: Client, owned: OwnedSession) -> None:
        begun.set()
        if owned.session_id == "long":
            await done.wait()
        await finish(client, owned)

    async with connect(log, settings=SHORT) as client, asyncio.timeout(30):
        stop = asyncio.Event()
        recovering = worker(client, mail, resume=works)
        running = asyncio.create_task(recovering.run(stop, every_ms=10))
        await begun.wait()
        async with connect(log, settings=SHORT) as other:
            await leave_open(other, "later", mail)
        async for recorded in (await client.open("later")).follow():
            if recorded.type == "SessionCompleted":
                break
        done.set()
        async for recorded in (await client.open("long")).follow():
            if recorded.type == "SessionCompleted":
                break
        stop.set()
        await running


class Unreadable(FaultyLog):
    """A log one of whose sessions cannot be read."""

    def state(self, session_id: str, *, at_seq: int | None = None) -> SessionState | None:
        """Read the state, or not."""
        if session_id == "broken":
            raise DecodeError("bytes of another world")
        return super().state(session_id, at_seq=at_seq)


async def test_a_session_that_cannot_be_read_keeps_no_other_one_waiting() -> None:
    mail = Mail()
    log = Unreadable(await left_open(mail, "a", "broken", "z"))
    async with connect(log, settings=SHORT) as client:
        sweep = await worker(client, mail, resume=finish).sweep()
    resumed = {a.session_id for a in sweep.actions if a.action == RESUMED}
    assert resumed == {"a", "z"}


async def test_people_who_talk_meanwhile_do_not_put_recovery_off() -> None:
    """The pause is since nobody has had the session, not since somebody spoke."""
    mail = Mail()
    log = await left_open(mail, "s")
    async with connect(log, settings=SHORT) as client:
        await (await client.take("s")).close()
        pauses = ResumePolicy(pause_ms=200)
        recovering = RecoveryWorker(client, toolbox=mail.box, resume=finish, pauses=pauses)
        view = await client.open("s")
        seen: list[str] = []
        async with asyncio.timeout(30):
            while RESUMED not in seen:
                await view.message("and?")
                seen += actions(await recovering.sweep())
                await asyncio.sleep(0.02)


async def test_between_the_tries_the_pause_doubles() -> None:
    policy = ResumePolicy(pause_ms=100, pause_max_ms=1_000)
    assert [policy.pause_after(n) for n in range(7)] == [0, 100, 200, 400, 800, 1000, 1000]
    mail = Mail("UNSAFE")
    log = await left_open(mail, "s")
    async with connect(log, settings=SHORT) as client:
        owned = await client.take("s")
        await owned.close()
        recovering = RecoveryWorker(
            client, toolbox=mail.box, pauses=ResumePolicy(pause_ms=60_000)
        )
        sweep = await recovering.sweep()
        assert (sweep.stalled, sweep.actions) == (1, [])


class AwayOnce(FaultyLog):
    """A log that gives no answer to the first listing."""

    away = True

    def sessions(
        self,
        *,
        tenant: str | None = None,
        status: str | None = None,
        limit: int = 100,
        before: ListPlace | None = None,
    ) -> list[SessionSummary]:
        """List, or not."""
        if self.away:
            self.away = False
            raise LogUnavailableError(self.url, "away")
        return super().sessions(tenant=tenant, status=status, limit=limit, before=before)


async def test_a_log_that_is_away_is_waited_for() -> None:
    mail = Mail()
    log = AwayOnce(await left_open(mail, "s"))
    async with connect(log, settings=SHORT) as client:
        recovering = worker(client, mail, resume=finish)
        stop = asyncio.Event()
        swept: list[Sweep] = []

        def told(sweep: Sweep) -> None:
            swept.append(sweep)
            stop.set()

        await asyncio.wait_for(recovering.run(stop, every_ms=10, told=told), 30)
        assert actions(swept[0]) == [TAKEN, RESOLVED, RESUMED]


async def test_a_plan_is_shown_without_touching_anything() -> None:
    mail = Mail()
    log = await left_open(mail, "s")
    before = log.state("s")
    (action,) = planned(log, "s", RecoveryPolicy())
    assert isinstance(action, Reconcile)
    assert action.operation_id == "op-s"
    after = log.state("s")
    assert before is not None
    assert after is not None
    assert (before.seq, after.status) == (after.seq, RUNNING)


@pytest.mark.parametrize(
    "raised", [SystemExit(5), KeyboardInterrupt(), asyncio.CancelledError(), OSError("no")]
)
async def test_whatever_a_harness_raises_is_its_own_failure(raised: BaseException) -> None:
    async def ends(_client: Client, _owned: OwnedSession) -> None:
        raise raised

    mail = Mail()
    log = await left_open(mail, "s", "t")
    async with connect(log, settings=SHORT) as client:
        sweep = await worker(client, mail, resume=ends).sweep()
        assert actions(sweep).count(RESUME_FAILED) == 2
        assert (
            actions(await worker(client, mail, resume=finish).sweep()).count(RESUMED) == 2
        )


async def test_a_harness_that_breaks_the_client_ends_no_look() -> None:
    async def breaks(client: Client, _owned: OwnedSession) -> None:
        await client.close()

    mail = Mail()
    log = await left_open(mail, "s")
    async with connect(log, settings=SHORT) as client:
        await worker(client, mail, resume=breaks).sweep()
    async with connect(log, settings=SHORT) as client:
        assert RESUMED in actions(await worker(client, mail, resume=finish).sweep())
