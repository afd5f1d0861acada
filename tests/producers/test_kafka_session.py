"""Sessions on Kafka: the same stories as on one machine, with a worker that answers.

A killed owner's lease runs out by the broker's clock; these owners' are short.
"""

import asyncio
import signal
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from foldline.errors import LiveOwnerError
from foldline.processors.open_log import open_log
from foldline.producers.client import connect
from foldline.producers.model import ToolRequest
from foldline.producers.tools import Done, Effect, Tool, Toolbox, ToolContext
from foldline.schemas.blocks import Blob
from foldline.schemas.events import (
    PermissionRequested,
    SessionResumed,
    ToolExecutionCompleted,
    ToolExecutionStarted,
    ToolOutcomeUnknown,
)
from foldline.schemas.recorded import Append
from foldline.schemas.verdicts import ACCEPTED, CONFLICT, Verdict
from foldline.settings import Settings
from foldline.testing.log_story import new_id
from tests import charging
from tests.approving_run import Run as Approving
from tests.approving_run import check_killed_and_granted
from tests.charging_run import (
    START_BY_MS,
    Run,
    check_no_effect_past_its_start_by,
    frozen,
    take_from_the_silent,
    wake,
)
from tests.cluster.logs import FreshLog, Worker, running_worker
from tests.cluster.processes import wait_until
from tests.cluster.served import in_environment, served_log
from tests.cluster.shared import Broker
from tests.harness import FaultyLog, model_says, types_in

pytestmark = [pytest.mark.kafka, pytest.mark.crash]

BRIEF = {"LEASE_TTL_MS": "700", "LEASE_RENEW_MS": "150"}

LARGE = "x" * 200_000
"""More than an event holds inline."""

RECORDS_UP_TO_START = 10
"""How many records the first owner of `tests.charging` sends, its tool's start the last."""

NewRun = Callable[[Effect], Run]
Arguments = dict[str, Any]


@pytest.fixture(scope="module")
def served(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Generator[FreshLog]:
    """One log for all of these tests, and its worker."""
    with served_log(broker, tmp_path_factory.mktemp("kafka-sessions")) as log:
        yield log


def run_on(log: FreshLog, folder: Path, effect: Effect) -> Run:
    """A session that is yet to come."""
    return Run(log.cluster.url, folder, effect, new_id(), log.environment)


@pytest.fixture
def new_run(served: FreshLog, tmp_path: Path) -> NewRun:
    """A session that is yet to come, beside those of the other tests."""
    return lambda effect: run_on(served, tmp_path, effect)


# --- alive ---------------------------------------------------------------------------


async def test_a_session_is_created_worked_on_read_followed_and_completed(
    served: FreshLog,
) -> None:
    """One client owns it, another one looks, answers and steers."""

    def send(arguments: Arguments, context: ToolContext) -> str:
        return f"{LARGE}{arguments}{context.attempt}"

    tools = Toolbox(Tool(send, effect="UNSAFE", approval="always"))
    url = served.cluster.url
    async with connect(url) as one, connect(url) as other:
        owned = await one.create(agent="a", goal="send it", tools=tools)
        view = await other.open(owned.session_id)
        async with owned.turn("go") as turn:
            calls = await model_says(turn, ToolRequest("send", '{"to": "b"}', "p"))
            running = asyncio.create_task(turn.run_tools(calls, tools))
            async for recorded in view.follow():
                if isinstance(recorded.event, PermissionRequested):
                    await view.grant(recorded.event.request_id)
                if isinstance(recorded.event, ToolExecutionCompleted):
                    assert isinstance(recorded.event.output[0].body, Blob)
                    break
            (result,) = await running
            assert isinstance(result, Done)
            await view.steer("be brief")
            context = await turn.context()
            assert "be brief" in str(context.messages[-1])
        await owned.complete()
        assert (await view.state()).status == "COMPLETED"
        assert await types_in(owned) == [r.type async for r in view.events()]
        listed = {summary.session_id for summary in await other.sessions()}
        assert owned.session_id in listed


async def test_a_live_owner_keeps_its_session_and_one_that_left_does_not(
    served: FreshLog,
) -> None:
    """The lease is renewed while it lives, and given up when it goes."""
    settings = Settings(lease_ttl_ms=600, lease_renew_ms=100)
    url = served.cluster.url
    async with connect(url) as other:
        async with connect(url, settings=settings) as one:
            owned = await one.create(agent="a")
            await asyncio.sleep(2 * settings.lease_ttl_ms / 1000)
            with pytest.raises(LiveOwnerError):
                await other.take(owned.session_id)
        taken = await other.take(owned.session_id)
        assert (await taken.state()).epoch == 2


# --- killed --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effect", "point", "unknown", "effects"),
    [
        ("RECONCILABLE", "CP_TOOL_AFTER_EFFECT", 0, 1),
        ("UNSAFE", "CP_TOOL_AFTER_EFFECT", 1, 1),
        ("UNSAFE", "CP_TOOL_AFTER_START", 1, 0),
        ("IDEMPOTENT", "CP_TOOL_AFTER_EFFECT", 0, 2),
        ("UNSAFE", "CP_TOOL_BEFORE_START", 0, 1),
    ],
)
async def test_a_harness_killed_around_an_effect_is_finished_by_another(
    new_run: NewRun, effect: Effect, point: str, unknown: int, effects: int
) -> None:
    """Row 7: asked, left to a person, or repeated under the same id; never blindly."""
    run = new_run(effect)
    code, said = run.run("run", CRASH_AT=f"{point}:1", **BRIEF)
    assert code == -signal.SIGKILL
    await take_from_the_silent(run)
    run.check(*said)
    found = [r for r in run.events() if isinstance(r.event, ToolOutcomeUnknown)]
    assert (len(found), len(charging.ledger_of(run.ledger))) == (unknown, effects)


@pytest.mark.parametrize(
    "point",
    [
        "CP_APPEND_BEFORE_SEND:4",
        "CP_KAFKA_AFTER_SEND:4",
        "CP_KAFKA_AFTER_ACK:8",
        "CP_KAFKA_BEFORE_VERDICT:4",
        "CP_APPEND_AFTER_VERDICT:4",
    ],
)
async def test_a_harness_killed_around_an_append_loses_nothing_acknowledged(
    new_run: NewRun, point: str
) -> None:
    """Row 1: not acknowledged is there once or not at all."""
    run = new_run("RECONCILABLE")
    code, said = run.run("run", CRASH_AT=point, **BRIEF)
    assert code == -signal.SIGKILL
    await take_from_the_silent(run)
    run.check(*said)
    assert len(charging.ledger_of(run.ledger)) == 1


# --- frozen --------------------------------------------------------------------------


async def test_a_zombie_decides_nothing_and_its_outcome_is_still_a_fact(
    new_run: NewRun,
) -> None:
    """Row 5: it had run the tool when it froze; another owner has gone on since."""
    run = new_run("UNSAFE")
    with frozen(run, STOP_AT="CP_TOOL_AFTER_EFFECT:1", **BRIEF) as process:
        await take_from_the_silent(run)
        before = run.events()
        assert before[-1].type == "SessionCompleted"
        said = wake(process)
    assert said[-1] == "fenced"
    (late,) = run.events()[len(before) :]
    assert isinstance(late.event, ToolExecutionCompleted)
    assert late.envelope.epoch == 1
    assert len(charging.ledger_of(run.ledger)) == 1
    state = run.state()
    assert (state.epoch, state.anomalies) == (2, {"late": 1})
    assert not state.calls


async def test_a_zombie_that_had_not_started_its_tool_runs_nothing(
    new_run: NewRun,
) -> None:
    """Its start is refused, so its effect does not begin; the other's did."""
    run = new_run("UNSAFE")
    with frozen(run, STOP_AT="CP_TOOL_BEFORE_START:1", **BRIEF) as process:
        await take_from_the_silent(run)
        before = run.events()
        said = wake(process)
    assert "fenced" in said
    assert run.events() == before
    assert len(charging.ledger_of(run.ledger)) == 1


def test_an_effect_does_not_begin_after_a_freeze_past_its_start_by(
    new_run: NewRun,
) -> None:
    """Row 41: between the verdict of its start and the effect."""
    check_no_effect_past_its_start_by(new_run("UNSAFE"))


# --- behind a worker that stalls ------------------------------------------------------


class VerdictsSeen(FaultyLog):
    """A log that keeps the verdicts on claims."""

    def __init__(self, url: str) -> None:
        super().__init__(open_log(url))
        self.claims: list[str] = []

    def append(self, appends: Sequence[Append]) -> list[Verdict]:
        """Append, and look at the answers."""
        verdicts = super().append(appends)
        pairs = zip(appends, verdicts, strict=True)
        self.claims += [v.kind for a, v in pairs if isinstance(a.event, SessionResumed)]
        return verdicts


@pytest.fixture
def stalling(fresh_log: FreshLog) -> Generator[tuple[FreshLog, Worker]]:
    """A log of its own, and its worker, which the test may freeze."""
    with in_environment(fresh_log), running_worker(fresh_log) as worker:
        yield fresh_log, worker


async def test_a_start_queued_behind_a_stalled_worker_is_seen_by_who_takes_over(
    stalling: tuple[FreshLog, Worker], tmp_path: Path
) -> None:
    """Row 40: the claim names the state that it was planned on, and gets a CONFLICT."""
    fresh, worker = stalling
    run = run_on(fresh, tmp_path, "UNSAFE")
    crash_at = f"CP_KAFKA_AFTER_ACK:{RECORDS_UP_TO_START}"
    stop_at = "CP_TOOL_BEFORE_START:1"
    with frozen(run, STOP_AT=stop_at, CRASH_AT=crash_at, **BRIEF) as process:
        worker.stop()
        wake(process)
        assert process.returncode == -signal.SIGKILL
        log = VerdictsSeen(run.url)
        tools = charging.toolbox(run.ledger, run.effect)
        async with connect(log, settings=Settings(start_by_ms=START_BY_MS)) as client:
            taking = asyncio.create_task(_take(client, run.session_id))
            await asyncio.to_thread(_until_sent, log, SessionResumed)
            worker.wake()
            owned = await taking
            assert log.claims == [CONFLICT, ACCEPTED]
            assert (await owned.recover(tools)).unknown
            async with await owned.resume_turn() as turn:
                await charging.go_on(owned, turn, tools)
            await owned.complete()
        log.close()
    types = [type(recorded.event) for recorded in run.events()]
    assert types.index(ToolExecutionStarted) + 1 == types.index(SessionResumed)
    assert charging.ledger_of(run.ledger) == []


async def _take(client: Any, session_id: str) -> Any:
    while True:
        try:
            return await client.take(session_id)
        except LiveOwnerError as alive:
            await asyncio.sleep(alive.expires_in_ms / 1000)


def _until_sent(log: FaultyLog, event: type) -> None:
    wait_until(
        lambda: any(isinstance(a.event, event) for batch in log.batches for a in batch),
        timeout_s=30,
        what=lambda: f"a {event.__name__} that is sent",
    )


# --- killed between request, grant and start -----------------------------------------


@pytest.mark.parametrize(
    "crashes",
    [
        ("CP_PERMISSION_AFTER_REQUEST:1", "CP_PERMISSION_AFTER_ANSWER:1"),
        ("CP_PERMISSION_AFTER_REQUEST:1", "CP_TOOL_BEFORE_START:1"),
    ],
    ids=" ".join,
)
async def test_a_harness_killed_around_a_grant_runs_each_call_once(
    served: FreshLog, tmp_path: Path, crashes: tuple[str, ...]
) -> None:
    """Case B36: the request is offered again, the grant remembered."""
    url, environment = served.cluster.url, served.environment
    await check_killed_and_granted(
        Approving(url, tmp_path, new_id(), environment), *crashes
    )
