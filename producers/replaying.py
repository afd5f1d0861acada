"""Execution replay: a harness run again on what was recorded, with no effect possible.

    async def replayed(session: OwnedSession, inputs: Inputs) -> None:
        await inputs.set_up(session, instructions=INSTRUCTIONS, tools=TOOLS)
        for opening in inputs.turns():
            async with session.turn(opening.blocks, trigger=opening.trigger) as turn:
                await drive(turn, inputs.model(ask_model), TOOLS)

    report = await replay(log, session_id, replayed)

1. The session's events are read, with those of its ancestors where it is a fork.
2. A throw-away log is made in memory, and the session in it, by its recorded creation.
3. The harness is called with that session. What persons said is said again in its place;
   the model's answers and the tools' outcomes come from the record.
4. The first step that differs ends it, as does the end of the record: the harness's task
   is cancelled. So it does for every later step; none of them would mean anything.

`continue_live` does this up to a seq, forks there in the real log, and calls the harness
once more, with the fork, its own model and its own tools.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from foldline.errors import RecordedFailureError, ReplayError, SessionNotFoundError
from foldline.processors.lineage import joined_events, lineage_of
from foldline.processors.log import Log
from foldline.producers.appender import raise_refused
from foldline.producers.client import Client
from foldline.producers.link import Stamp
from foldline.producers.model import ModelResponse
from foldline.producers.owned import OwnedSession
from foldline.producers.prepare import blocks_of
from foldline.producers.redaction import Redactor, key_of_log
from foldline.producers.replay_log import ReplayLog
from foldline.producers.replay_script import NotGiven, RecordedTime, Script
from foldline.producers.replayed import ReplayedSession
from foldline.producers.session import Said
from foldline.producers.tools import Toolbox
from foldline.projections.context import Context, text_blobs
from foldline.projections.recording import RecordedTurn, Recording, recording_of
from foldline.projections.replay import (
    ENVIRONMENT,
    HARNESS,
    Divergence,
    kind_of,
    tools_difference,
)
from foldline.schemas.blocks import Blocks, text_of
from foldline.schemas.events import SessionCreated
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import MIRRORED, SessionState
from foldline.settings import Settings

STOP_GRACE_S = 5.0
"""How long a harness that was cancelled has to end; then it is left behind."""

FORKED = "FORK"
"""The trigger of the first turn of a fork that begins within a turn."""

Ask = Callable[[Context], Awaitable[ModelResponse]]
"""Asks a model: a context in, its answer out."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What opened a turn: a trigger, and what somebody said, if anything."""

    trigger: str
    blocks: Blocks = ()


class Inputs(Protocol):
    """What a harness is given beside its session, in a replay and live."""

    @property
    def live(self) -> bool:
        """Whether models and tools are really asked and run."""
        ...

    async def set_up(
        self,
        session: OwnedSession,
        *,
        instructions: Said = (),
        tools: Toolbox | None = None,
        environment_json: str | None = None,
    ) -> None:
        """Set the session up as the harness would: once, before its first turn."""
        ...

    def turns(self) -> Iterator[Opening]:
        """What opens each turn, in their order."""
        ...

    def model(self, ask: Ask) -> Ask:
        """What answers instead of the harness's own model; live, that model itself."""
        ...


Harness = Callable[[OwnedSession, Inputs], Awaitable[None]]
"""What is replayed: a function that drives a session from its first turn to its last."""


class ReplayedInputs:
    """Inputs of a replay: all of it is the record's."""

    live = False

    def __init__(self, script: Script) -> None:
        self._script = script

    async def set_up(
        self,
        session: OwnedSession,
        *,
        instructions: Said = (),
        tools: Toolbox | None = None,
        environment_json: str | None = None,
    ) -> None:
        """Set the session up, and compare with how it was."""
        recording = self._script.recording
        known = recording.environment_json
        if None not in (known, environment_json) and known != environment_json:
            detail = "another environment"
            divergence = Divergence(
                recording.first_seq,
                ENVIRONMENT,
                detail,
                known or "",
                environment_json or "",
            )
            await self._script.diverge(divergence)
        at_seq = recording.first_seq - 1
        await _set_up(session, recording, instructions, tools, at_seq=at_seq)

    def turns(self) -> Iterator[Opening]:
        """What opened each recorded turn."""
        return map(_opening, self._script.recording.turns)

    def model(self, ask: Ask) -> Ask:
        """What gives the recorded answers, in their order; `ask` is never called."""
        del ask
        return self._answer

    async def _answer(self, context: Context) -> ModelResponse:
        del context  # compared when the call begins
        return await self._script.answer()


class LiveInputs:
    """Inputs of a fork that goes on: its own model and tools, and what was said later."""

    live = True

    def __init__(self, recording: Recording, fork_seq: int, *, within_turn: bool) -> None:
        self._recording = recording
        self._fork_seq = fork_seq
        self._within_turn = within_turn

    async def set_up(
        self,
        session: OwnedSession,
        *,
        instructions: Said = (),
        tools: Toolbox | None = None,
        environment_json: str | None = None,
    ) -> None:
        """Set up what differs from what the fork goes on with."""
        del environment_json
        await _set_up(session, self._recording, instructions, tools, at_seq=self._fork_seq)

    def turns(self) -> Iterator[Opening]:
        """The rest of the turn that was open at the fork; then what was said later."""
        if self._within_turn:
            yield Opening(FORKED)
        for turn in self._recording.turns:
            if turn.seq > self._fork_seq:
                yield _opening(turn)

    def model(self, ask: Ask) -> Ask:
        """The harness's own model."""
        return ask


def _opening(turn: RecordedTurn) -> Opening:
    return Opening(turn.trigger, turn.message.blocks if turn.message else ())


async def _set_up(
    session: OwnedSession,
    known: Recording,
    instructions: Said,
    tools: Toolbox | None,
    *,
    at_seq: int,
) -> None:
    """Set what is not in force already, by a recording up to a seq."""
    said = text_of(blocks_of(instructions))
    told = known.instructions_at(at_seq, role="system")
    if said and said != (text_of(told.blocks) if told else ""):
        await session.instruct(instructions)
    declared = known.tools_at(at_seq)
    if tools is None:
        return
    if declared is None or tools_difference(at_seq, declared, tools.declarations()):
        await session.declare(tools)


# --- running it ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Value:
    """A recorded event and what it is to a replay (`foldline.projections.replay`)."""

    seq: int
    type: str
    kind: str


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What became of an execution replay.

    `divergence` is the first difference; None where everything was the same. `ended` says
    where the record itself ended before the harness did. `values` says of each recorded
    event what it is to a replay, `not_given` lists what could not be put back.
    """

    session_id: str
    upto_seq: int
    matched_seq: int
    turns: int
    model_calls: int
    model_calls_recorded: int
    tool_calls: int
    divergence: Divergence | None = None
    ended: str = ""
    given: int = 0
    values: tuple[Value, ...] = ()
    not_given: tuple[NotGiven, ...] = ()
    live_session_id: str = ""

    @property
    def ok(self) -> bool:
        """Whether the harness did what was recorded, as far as the record goes."""
        return self.divergence is None


async def replay(
    log: Log,
    session_id: str,
    harness: Harness,
    *,
    upto_seq: int | None = None,
    settings: Settings | None = None,
) -> ReplayReport:
    """Run a harness on what was recorded of a session, and say where it leaves it.

    Args:
        log: where the session is; it is only read.
        session_id: whose record is replayed.
        harness: drives the session from its first turn to its last.
        upto_seq: the last event that counts; the head where not given.
        settings: those of the throw-away log; from the environment where not given.

    Raises:
        SessionNotFoundError: no such session.
        ReplayError: it mirrors another harness, or has no event at `upto_seq`.
        LineageError: it is a fork, and an ancestor is not there as it was.
        LogError, DecodeError, BlobError: its events cannot be read.
    """
    recording = await asyncio.to_thread(load, log, session_id, upto_seq=upto_seq)
    clock = RecordedTime()
    script = Script(recording, clock)
    settings = settings or Settings()
    throw_away = ReplayLog(log, settings=settings, clock=clock)
    client = _ReplayClient(
        throw_away,
        settings=settings,
        redactor=Redactor(key_of_log(log.url)),  # equal secrets, equal placeholders
        actor=_created(recording).envelope.actor,
        tenant=_created(recording).envelope.tenant,
    )
    async with client:
        session = await client.replayed(script)
        await _run(harness, session, script)
    throw_away.close()
    return _report(script)


def load(log: Log, session_id: str, *, upto_seq: int | None = None) -> Recording:
    """Read a session for a replay: its events, its ancestors', and the texts in blobs.

    Raises:
        As `replay`.
    """
    state = log.state(session_id)
    if state is None:
        raise SessionNotFoundError(session_id, log.url)
    if state.mode == MIRRORED:
        reason = "it mirrors another harness, whose requests to the model nobody recorded"
        raise ReplayError(session_id, reason)
    first_seq = state.fork_seq + 1
    if upto_seq is not None and not first_seq <= upto_seq <= state.seq:
        reason = f"it has events {first_seq} to {state.seq}, none at {upto_seq}"
        raise ReplayError(session_id, reason)
    events = list(joined_events(log, lineage_of(log, session_id), upto_seq=upto_seq))
    last_seq = state.seq if upto_seq is None else upto_seq
    for seq, recorded in enumerate(events, start=1):
        if recorded.seq != seq:
            raise ReplayError(session_id, f"its event at seq {seq} is missing")
    if len(events) < last_seq:
        raise ReplayError(session_id, f"its event at seq {len(events) + 1} is missing")
    texts = {
        sha256: log.blobs.get(sha256).decode("utf-8", "replace")
        for sha256 in text_blobs(events)
    }
    return recording_of(session_id, events, first_seq=first_seq, texts=texts)


def _created(recording: Recording) -> Recorded:
    return next(r for r in recording.events if r.seq == recording.first_seq)


class _ReplayClient(Client):
    """A client of a replay's log."""

    _owned_type = ReplayedSession

    async def replayed(self, script: Script) -> ReplayedSession:
        """Make the session as it was made, and own it."""
        recording, link = script.recording, self._ready
        created = _created(recording)
        event = created.event
        if not isinstance(event, SessionCreated):
            raise ReplayError(recording.session_id, "its first event does not create it")
        envelope = created.envelope
        draft = link.draft(
            recording.session_id,
            event,
            Stamp(envelope.actor, epoch=1),
            event_id=envelope.event_id,
        )
        chained = draft.envelope.model_copy(update={"prev_hash": envelope.prev_hash})
        draft = replace(draft, envelope=chained, sent_before=False)
        appender = link.appender(recording.session_id, 0)
        answers = await asyncio.shield(appender.submit([draft]))
        raise_refused(answers)
        state = SessionState(
            recording.session_id,
            agent=event.agent,
            fork_seq=event.fork_seq or 0,
            parent_session_id=event.parent_session_id or "",
            seq=answers[0].verdict.seq,
        )
        session = await self._owned(state, answers[0])
        assert isinstance(session, ReplayedSession)  # noqa: S101 - it is the type above
        session.follow_record(script)
        return session


async def _run(harness: Harness, session: OwnedSession, script: Script) -> None:
    """Run the harness to its end, or to where it leaves the record."""
    inputs = ReplayedInputs(script)
    running = asyncio.ensure_future(_call(harness, session, inputs))
    stopping = asyncio.ensure_future(script.stopped.wait())
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not script.stopped.is_set():
            await _finished(running, script)
            return
        running.cancel()
        await asyncio.wait({running}, timeout=STOP_GRACE_S)
        if running.done() and not running.cancelled():
            running.exception()  # a consequence of the stop, and nothing to be told
    finally:
        stopping.cancel()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await stopping


async def _call(harness: Harness, session: OwnedSession, inputs: Inputs) -> None:
    """Call it within its task: what it raises before its first step is its error, too."""
    await harness(session, inputs)


async def _finished(running: asyncio.Future[None], script: Script) -> None:
    """The harness came to its end: by an error, too early, or where the record has it."""
    error = running.exception()
    if error is None or isinstance(error, RecordedFailureError):
        script.finish()
        return
    said = f"the harness raised {type(error).__name__}: {error}"
    script.divergence = Divergence(script.progress.matched_seq, HARNESS, said)


def _report(script: Script) -> ReplayReport:
    progress, recording = script.progress, script.recording
    own = [r for r in recording.events if r.seq >= recording.first_seq]
    return ReplayReport(
        session_id=recording.session_id,
        upto_seq=recording.last_seq,
        matched_seq=progress.matched_seq,
        turns=min(progress.turns, len(recording.turns)),
        model_calls=progress.model_calls,
        model_calls_recorded=len(recording.calls),
        tool_calls=len(progress.tool_calls),
        divergence=script.divergence,
        ended=script.ended,
        given=progress.given,
        values=tuple(Value(r.seq, r.type, kind_of(r.event)) for r in own),
        not_given=tuple(progress.not_given),
    )


# --- and live from there -------------------------------------------------------------


async def continue_live(
    client: Client, session_id: str, harness: Harness, *, from_seq: int
) -> ReplayReport:
    """Replay a harness up to a seq; then fork there, and let it go on with real tools.

    The fork is a session of the client's log, owned by the client; the replayed session
    is not touched. Where the harness leaves the record before, nothing is forked.

    Args:
        client: an open client of the log.
        session_id: whose record it is.
        harness: drives the session, and then the fork.
        from_seq: the last event that both have.

    Raises:
        As `replay`, and whatever the harness raises live.
    """
    report = await replay(client.log, session_id, harness, upto_seq=from_seq)
    if not report.ok:
        return report
    whole = await asyncio.to_thread(load, client.log, session_id)
    state = await (await client.open(session_id)).state(from_seq)
    fork = await client.fork(session_id, from_seq)
    inputs = LiveInputs(whole, from_seq, within_turn=state.turn is not None)
    await harness(fork, inputs)
    return replace(report, live_session_id=fork.session_id)
