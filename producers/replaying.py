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
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from foldline.errors import RecordedFailureError, ReplayError, SessionNotFoundError
from foldline.processors.lineage import joined_events, lineage_of
from foldline.processors.log import Log
from foldline.producers.appender import raise_refused
from foldline.producers.client import Client
from foldline.producers.link import Stamp
from foldline.producers.prepare import Redacts
from foldline.producers.redaction_file import redactor_for
from foldline.producers.replay_inputs import Inputs, LiveInputs, ReplayedInputs
from foldline.producers.replay_log import ReplayLog
from foldline.producers.replay_script import NotGiven, RecordedTime, Script
from foldline.producers.replayed import ReplayedSession
from foldline.producers.session import OwnedSession
from foldline.projections.context import text_blobs
from foldline.projections.recording import Recording, recording_of
from foldline.projections.replay import HARNESS, Divergence, kind_of
from foldline.schemas.events import SessionCreated
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import MIRRORED, SessionState
from foldline.settings import Settings

IDLE_S = 300.0
"""How long a harness may take no step; nothing outside is waited for in a replay."""

STOP_GRACE_S = 5.0
"""How long a harness that was cancelled has to end; then it is left behind."""

Harness = Callable[[OwnedSession, Inputs], Awaitable[None]]
"""What is replayed: a function that drives a session from its first turn to its last."""


# --- running it ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Value:
    """A recorded event and what it is to a replay: an input, an observation, ..."""

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
    idle_s: float = IDLE_S,
) -> ReplayReport:
    """Run a harness on what was recorded of a session, and say where it leaves it.

    Args:
        log: where the session is; it is only read.
        session_id: whose record is replayed.
        harness: drives the session from its first turn to its last.
        upto_seq: the last event that counts; the head where not given.
        settings: those of the throw-away log; from the environment where not given.
        idle_s: how long the harness may take no step.

    Raises:
        SessionNotFoundError: no such session.
        ReplayError: it mirrors another harness, or has no event at `upto_seq`; or the
            harness forks it, and a fork has a record of its own.
        LineageError: it is a fork, and an ancestor is not there as it was.
        LogError, DecodeError, BlobError: its events cannot be read.
        SettingsError, RedactionError: the rules or the key of redaction cannot be read.
    """
    settings = settings or Settings()
    redactor = redactor_for(log.url, settings.redaction_rules)
    return await _replay(
        log,
        session_id,
        harness,
        upto_seq=upto_seq,
        settings=settings,
        redactor=redactor,
        idle_s=idle_s,
    )


async def _replay(
    log: Log,
    session_id: str,
    harness: Harness,
    *,
    upto_seq: int | None,
    settings: Settings,
    redactor: Redacts,
    idle_s: float,
) -> ReplayReport:
    """Run it with the redactor of the record: equal secrets, equal placeholders."""
    recording = await asyncio.to_thread(load, log, session_id, upto_seq=upto_seq)
    clock = RecordedTime()
    script = Script(recording, clock)
    throw_away = ReplayLog(log, settings=settings, clock=clock)
    client = _ReplayClient(
        throw_away,
        settings=settings,
        redactor=redactor,
        actor=_created(recording).envelope.actor,
        tenant=_created(recording).envelope.tenant,
    )
    try:
        async with client:
            session = await client.replayed(script)
            inputs = ReplayedInputs(script, redactor=redactor)
            await _run(harness, session, inputs, script, idle_s=idle_s)
    finally:
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
            tenant=link.tenant,
            agent=event.agent,
            fork_seq=event.fork_seq or 0,
            parent_session_id=event.parent_session_id or "",
            seq=answers[0].verdict.seq,
        )
        session = await self._owned(state, answers[0])
        assert isinstance(session, ReplayedSession)  # noqa: S101 - it is the type above
        session.follow_record(script)
        return session


async def _run(
    harness: Harness,
    session: OwnedSession,
    inputs: Inputs,
    script: Script,
    *,
    idle_s: float,
) -> None:
    """Run the harness to its end, or to where it leaves the record."""
    running = asyncio.ensure_future(_call(harness, session, inputs))
    stopping = asyncio.ensure_future(script.stopped.wait())
    try:
        await _over(running, stopping, script, idle_s)
        if running.done() and not script.stopped.is_set():
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


async def _over(
    running: asyncio.Future[None],
    stopping: asyncio.Future[Any],
    script: Script,
    idle_s: float,
) -> None:
    """Wait for either; a harness that takes no step any more has left the record."""
    while True:
        steps = script.progress.steps
        ended, _ = await asyncio.wait(
            {running, stopping}, timeout=idle_s, return_when=asyncio.FIRST_COMPLETED
        )
        if ended:
            return
        if script.progress.steps == steps:
            said = f"the harness took no step for {idle_s:g} s"
            script.divergence = Divergence(script.progress.matched_seq, HARNESS, said)
            script.stopped.set()
            return


async def _call(harness: Harness, session: OwnedSession, inputs: Inputs) -> None:
    """Call it within its task: what it raises before its first step is its error, too."""
    await harness(session, inputs)


async def _finished(running: asyncio.Future[None], script: Script) -> None:
    """The harness came to its end: by an error, too early, or where the record has it.

    Raises:
        ReplayError: the harness wanted what no record has.
    """
    if running.cancelled():
        said = "the harness cancelled itself"
        script.divergence = Divergence(script.progress.matched_seq, HARNESS, said)
        return
    error = running.exception()
    if error is None or isinstance(error, RecordedFailureError):
        script.finish()
        return
    if isinstance(error, ReplayError):
        raise error  # it wanted what no record has: nothing can be said about it
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
    client: Client,
    session_id: str,
    harness: Harness,
    *,
    from_seq: int,
    told: Callable[[str], None] = lambda _: None,
) -> ReplayReport:
    """Replay a harness up to a seq; then fork there, and let it go on with real tools.

    The fork is a session of the client's log, owned by the client; the replayed session
    is not touched. Where the harness leaves the record before, nothing is forked. Where
    it says that it now runs in another environment, it is stopped, and nothing was run.

    Args:
        client: an open client of the log.
        session_id: whose record it is.
        harness: drives the session, and then the fork.
        from_seq: the last event that both have.
        told: is given the fork's id before the harness goes on with it.

    Raises:
        As `replay`, and whatever the harness raises live.
    """
    report = await _replay(
        client.log,
        session_id,
        harness,
        upto_seq=from_seq,
        settings=client.settings,
        redactor=client.redactor,
        idle_s=IDLE_S,
    )
    if not report.ok:
        return report
    whole = await asyncio.to_thread(load, client.log, session_id)
    state = await (await client.open(session_id)).state(from_seq)
    fork = await client.fork(session_id, from_seq)
    told(fork.session_id)
    inputs = LiveInputs(
        whole,
        from_seq,
        within_turn=state.turn is not None,
        redactor=client.redactor,
    )
    await _go_on(harness, fork, inputs)
    return replace(report, live_session_id=fork.session_id, divergence=inputs.divergence)


async def _go_on(harness: Harness, fork: OwnedSession, inputs: LiveInputs) -> None:
    """Let the harness go on, to its end, or to where it runs elsewhere than it ran."""
    running = asyncio.ensure_future(_call(harness, fork, inputs))
    leaving = asyncio.ensure_future(inputs.left.wait())
    try:
        await asyncio.wait({running, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not inputs.left.is_set():
            await running  # what it raises is the caller's
    finally:
        leaving.cancel()
        running.cancel()
        await asyncio.wait({running, leaving}, timeout=STOP_GRACE_S)
