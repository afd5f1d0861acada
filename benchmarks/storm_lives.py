"""The lives of a storm's processes: a harness, a recovery, people, and the last peace.

Each is a coroutine that a forked process runs, from its connecting to its end, unless it
is killed before. What the log acknowledged, to whomever, is written down at once.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import cache

from storm_script import Script, toolbox

from foldline.errors import (
    AppendRefusedError,
    FencedError,
    LiveOwnerError,
    LogUnavailableError,
    PendingSteeringError,
    SessionExistsError,
    SessionNotFoundError,
)
from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.producers.client import Client, connect
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.recovering import RecoveryWorker
from foldline.producers.session import OwnedSession, SessionView
from foldline.producers.tools import PendingCall, Toolbox, Waiting
from foldline.producers.turn import Turn
from foldline.projections.context import Context
from foldline.projections.recovery import RecoveryPolicy, plan_recovery
from foldline.projections.resuming import ResumePolicy, waits_for_people
from foldline.projections.stalled import PARK_QUESTION
from foldline.schemas.recorded import Append
from foldline.schemas.state import (
    CREATED,
    ENDED,
    SUSPENDED,
    WAITING_APPROVAL,
    PendingRequest,
    SessionState,
)
from foldline.schemas.verdicts import CLOSED, Verdict
from foldline.settings import Settings

Answers = Sequence[Sequence[ToolRequest]]
"""What the model asks for, answer by answer."""

LEASE_TTL_MS = 350
LEASE_RENEW_MS = 70
START_BY_MS = 150
APPROVAL_WAIT_MS = 400
SWEEP_EVERY_MS = 80
PAUSES = ResumePolicy(pause_ms=20, pause_max_ms=200)
LIMITS = RecoveryPolicy(resumes_max=6, attempts_max=4)
"""Low enough that a few sessions are parked, high enough that most are not."""

PATIENT = RecoveryPolicy(resumes_max=1_000, attempts_max=1_000)
"""Of a harness: whether to ask a person about a turn is recovery's to say."""

ANSWERED = 0.5
"""How many of recovery's questions a person answers; the others stay as they are."""

DECIDED = 0.96
"""How many requests for permission a person decides about."""

LONG = 60
"""How many events there are before somebody has enough of a turn."""


@cache
def settings() -> Settings:
    """Those of every process: short leases, beside what the environment says."""
    return Settings(
        start_by_ms=START_BY_MS, lease_ttl_ms=LEASE_TTL_MS, lease_renew_ms=LEASE_RENEW_MS
    )


@asynccontextmanager
async def connected(url: str, script: Script) -> AsyncGenerator[Client]:
    """A client; what its log acknowledges is written down before it is told."""
    log = await asyncio.to_thread(open_log, url, settings=settings())
    _tell(log, script)
    try:
        async with connect(log, settings=settings(), tenant=script.tenant) as client:
            yield client
    finally:
        await asyncio.to_thread(log.close)


def _tell(log: Log, script: Script) -> None:
    append = log.append

    def telling(appends: Sequence[Append]) -> list[Verdict]:
        verdicts = append(appends)
        for sent, verdict in zip(appends, verdicts, strict=True):
            if verdict.recorded:
                line = f"{sent.envelope.session_id} {verdict.event_id} {sent.schema_name}"
                script.write("acknowledged", line)
        return verdicts

    vars(log)["append"] = telling  # this log's own, whatever its kind


# --- the harness ---------------------------------------------------------------------


async def harness(url: str, script: Script, session_id: str) -> None:
    """One owner, from its take to the session's end, or to where a person is asked."""
    async with connected(url, script) as client:
        await work(client, script, session_id)


async def work(client: Client, script: Script, session_id: str) -> None:
    """Create the session or take it, recover, and go on."""
    tools = toolbox(script)
    try:
        owned = await _owned(client, session_id, tools)
        if owned is None:
            return
        try:
            await owned.recover(tools, policy=PATIENT)
            await _bring_to_its_end(owned, tools, script)
        finally:
            await owned.close()  # its lease ends here, not with this process
    except (FencedError, LogUnavailableError):
        return  # somebody else goes on, or the next one does


async def _owned(client: Client, session_id: str, tools: Toolbox) -> OwnedSession | None:
    """The session, as soon as its last owner is gone; None if it has ended."""
    while True:
        try:
            return await client.take(session_id)
        except LiveOwnerError as alive:
            await asyncio.sleep(min(alive.expires_in_ms, 50) / 1000)
        except SessionNotFoundError:
            try:
                return await client.create(agent="a", session_id=session_id, tools=tools)
            except SessionExistsError:
                continue
        except AppendRefusedError as error:
            if error.verdict.kind == CLOSED:
                return None
            raise


async def _bring_to_its_end(owned: OwnedSession, tools: Toolbox, script: Script) -> None:
    state = await owned.state()
    if state.status in ENDED:
        return
    resumes = state.turn is not None
    goes_on = resumes or state.status == CREATED
    while True:
        if goes_on:
            turn = await owned.resume_turn() if resumes else owned.turn("go")
            async with turn:
                if await _is_parked(owned, turn, tools, script):
                    return
        try:
            await owned.complete()
        except PendingSteeringError:
            resumes, goes_on = False, True  # it came last: one more turn takes it up
        else:
            return


async def _is_parked(
    owned: OwnedSession, turn: Turn, tools: Toolbox, script: Script
) -> bool:
    """Go on with a turn to its end; or suspend the session, where a person is asked."""
    while True:
        await _go_on(turn, tools, script.answers(owned.session_id))
        if (await owned.state()).requests:
            await owned.suspend("a person is asked")
            return True
        if turn.cancelled or not await turn.open_calls():
            return False  # else somebody granted at the last moment


async def _go_on(turn: Turn, tools: Toolbox, answers: Answers) -> None:
    """The agent loop: as many answers as the context does not show yet."""
    calls = await turn.open_calls()
    while True:
        await turn.run_tools(calls, tools, approval_wait_ms=APPROVAL_WAIT_MS)
        context = await turn.context()
        check_context(context)
        if turn.cancelled:
            return
        said = sum(message.role == "assistant" for message in context.messages)
        requests = answers[said] if said < len(answers) else ()
        async with turn.model_call(context, model="scripted") as call:
            calls = await call.complete(ModelResponse.of(f"answer {said}", *requests))
        if not calls and not (calls := await turn.open_calls()):
            return
        if said >= len(answers) and await _waits(turn, tools, calls):
            return


async def _waits(turn: Turn, tools: Toolbox, calls: list[PendingCall]) -> bool:
    """Whether the calls that are left still wait for a person when they are run."""
    results = await turn.run_tools(calls, tools, approval_wait_ms=APPROVAL_WAIT_MS)
    return any(isinstance(result, Waiting) for result in results)


def check_context(context: Context) -> None:
    """Every call has exactly one result, in call order, right behind its message."""
    messages = context.messages
    for message, behind in zip(messages, (*messages[1:], None), strict=True):
        asked = [part.call_id for part in message.parts if part.kind == "call"]
        assert message.parts
        if asked:
            assert behind is not None
            assert behind.role == "tool"
            assert [part.call_id for part in behind.parts] == asked
        elif message.role == "tool":
            assert any(part.kind == "result" for part in message.parts)


# --- recovery ------------------------------------------------------------------------


def recovery_worker(client: Client, script: Script) -> RecoveryWorker:
    """As `foldline recovery run`, with this storm's tools and its harness."""
    tools = toolbox(script)

    async def resume(_client: Client, owned: OwnedSession) -> None:
        await _bring_to_its_end(owned, tools, script)

    return RecoveryWorker(
        client,
        toolbox=tools,
        resume=resume,
        policy=LIMITS,
        pauses=PAUSES,
        tenant=script.tenant,
    )


async def recovery(url: str, script: Script) -> None:
    """Look after all sessions until it is killed."""
    async with connected(url, script) as client:
        worker = recovery_worker(client, script)
        await worker.run(asyncio.Event(), every_ms=SWEEP_EVERY_MS)


async def peace(url: str, script: Script) -> None:
    """Nobody is killed any more: recovery and a harness, until nothing is left to do."""
    async with connected(url, script) as client:
        worker = recovery_worker(client, script)
        while True:
            await worker.sweep()
            if await at_rest(client, script):
                return
            states = [await _state(client, name) for name in script.sessions]
            for name, state in zip(script.sessions, states, strict=True):
                if state is None or _is_for_harness(state):
                    await work(client, script, name)
            await asyncio.sleep(SWEEP_EVERY_MS / 1000)


async def _state(client: Client, session_id: str) -> SessionState | None:
    return await asyncio.to_thread(client.log.state, session_id)


async def at_rest(client: Client, script: Script) -> bool:
    """Whether every session is settled, and nobody has one that has not ended.

    Between two steps of its owner a session may look as if it only waited: an attempt
    that did not happen is settled, the next has not begun.
    """
    for name in script.sessions:
        lease = await asyncio.to_thread(client.log.leases.get, name)
        state = await _state(client, name)
        if state is None or not is_settled(script, state):
            return False
        if state.status not in ENDED and lease is not None and lease.alive:
            return False
    return True


def is_settled(script: Script, state: SessionState) -> bool:
    """Whether it has ended, or waits for an answer that no person gives, and no more."""
    if state.status in ENDED:
        return True
    asked = state.requests.values()
    if not asked or any(answers(script, state, each) for each in asked):
        return False
    if state.status == SUSPENDED:
        return True
    plan = plan_recovery(state, state.recorded_at, LIMITS)
    return state.status == WAITING_APPROVAL and waits_for_people(state, plan)


def _is_for_harness(state: SessionState) -> bool:
    """Recovery brings on what stands in a turn; the rest is its harness's to take."""
    if state.status in ENDED or state.requests:
        return False
    return state.turn is None or state.phase == SUSPENDED


# --- people --------------------------------------------------------------------------


def answers(script: Script, state: SessionState, request: PendingRequest) -> bool:
    """Whether a person answers a request: the same today and tomorrow."""
    chance = random.Random(f"answer {script.seed} {request.request_id}").random()
    if request.kind != "INPUT":
        return chance < DECIDED
    if chance > ANSWERED:
        return False
    if request.request_id.startswith(PARK_QUESTION):
        return True
    # About an outcome a person says only what is certain: that it happened.
    call = state.calls.get(request.call_id)
    return call is not None and script.happened(call.operation_id)


async def people(url: str, script: Script) -> None:
    """Those who steer, grant, deny and settle, until they are killed."""
    chance = random.Random(f"people {script.seed}")
    async with connected(url, script) as client:
        while True:
            await asyncio.sleep(0.03 + chance.random() * 0.15)
            try:
                view = await client.open(chance.choice(script.sessions))
                await _say(view, script, chance)
            except (SessionNotFoundError, AppendRefusedError, LogUnavailableError):
                continue  # not there yet, not now; or somebody came first


async def _say(view: SessionView, script: Script, chance: random.Random) -> None:
    state = await view.state()
    for request in state.requests.values():
        if answers(script, state, request):
            await _answer(view, request, chance)
    match chance.randrange(14):
        case 0:
            await view.steer("use nix")
        case 1:
            await view.steer("later", mode=chance.choice(("NEXT_TURN", "ON_IDLE")))
        case 2:
            await view.message("hello")
        case 3 if state.calls:
            call_id = chance.choice(list(state.calls))
            await view.cancel("stop", target="CALL", target_id=call_id)
        case 4 if script.seed % 5 == 0 and state.seq > LONG:
            await view.cancel("enough", target="TURN")
        case _:
            pass


async def _answer(
    view: SessionView, request: PendingRequest, chance: random.Random
) -> None:
    if request.kind != "INPUT":
        decide = view.grant if chance.random() < 0.6 else view.deny
        await decide(request.request_id)
    elif request.request_id.startswith(PARK_QUESTION):
        await view.answer(request.request_id, "RESUME")
    else:
        await view.resolve(request.call_id, "COMPLETED", evidence="the ledger")
