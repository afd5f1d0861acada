"""What everybody may do with a session: read, follow, say something, answer, steer.

The part of `SessionView` that needs no other session; `foldline.producers.session` has the
whole, which can be forked besides.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import islice

from foldline.errors import (
    AnswerRefusedError,
    AppendRefusedError,
    NotAPersonError,
    SessionNotFoundError,
)
from foldline.processors.lineage import (
    Lineage,
    joined_events,
    joined_state,
    lineage_of,
)
from foldline.processors.log import Log
from foldline.producers.appender import Answers, Appender, Sent, raise_refused
from foldline.producers.identity import derived_id, fresh_id
from foldline.producers.link import Link, Stamp
from foldline.producers.prepare import Draft, Said, blocks_of, check_edit
from foldline.producers.stopping import pass_on_stop, stop_as_asked, stop_children
from foldline.projections.answering import (
    PERSON,
    answer_problem,
    answered,
    answered_request,
    denied,
    edit_problem,
    granted,
)
from foldline.projections.operators import check_operator
from foldline.projections.reading import is_taken_back
from foldline.schemas.blocks import Blob
from foldline.schemas.choices import (
    CancelTarget,
    GrantScope,
    ResolvedOutcome,
    SteeringMode,
)
from foldline.schemas.derived import steering_id
from foldline.schemas.events import (
    CancellationRequested,
    GoalSet,
    KnownEvent,
    Label,
    LabelsSet,
    SteeringReceived,
    ToolOutcomeResolved,
    UserFeedback,
    UserMessage,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import PendingRequest, SessionState
from foldline.schemas.verdicts import CLOSED, Verdict

READ_EVENTS = 256
"""How many events one read of the log brings."""


class Viewing:
    """A part of `SessionView`. What it appends is on the log when it returns."""

    def __init__(
        self, link: Link, state: SessionState, *, appender: Appender | None = None
    ) -> None:
        self.session_id = state.session_id
        self.fork_seq = state.fork_seq
        """The seq up to which the history is that of ancestors; 0 if it is no fork."""
        self._lineage: Lineage | None = None
        self._link = link
        self._appender = appender or link.appender(state.session_id, state.seq)

    # --- reading ---------------------------------------------------------------------

    async def events(
        self, after_seq: int = 0, *, upto_seq: int | None = None
    ) -> AsyncIterator[Recorded]:
        """The events with after_seq < seq <= upto_seq, in order, up to the end.

        Those of a fork begin with its ancestors', up to the fork point (`fork_seq`); each
        says in its envelope whose it is.

        Raises:
            LineageError: an ancestor is not there as it was.
        """
        while True:
            lineage = await self._joins(after_seq)
            part = await self._link.read(
                _read, self._link.log, lineage or self.session_id, after_seq, upto_seq
            )
            for recorded in part:
                yield recorded
            if len(part) < READ_EVENTS:
                return
            after_seq = part[-1].seq

    async def state(self, at_seq: int | None = None) -> SessionState:
        """The state at the head, or as it was at a seq.

        Up to a fork point it is the state of the ancestor whose event that is.

        Raises:
            SessionNotFoundError: no such session, or no event of it at that seq.
            LineageError: an ancestor is not there as it was.
        """
        log = self._link.log
        lineage = None if at_seq is None else await self._joins(at_seq - 1)
        if lineage is None or at_seq is None:
            state = await self._link.read(log.state, self.session_id, at_seq=at_seq)
        else:
            state = await self._link.read(joined_state, log, lineage, at_seq)
        if state is None:
            raise SessionNotFoundError(self.session_id, log.url)
        self._appender.saw(state.seq)
        return state

    async def follow(self, after_seq: int = 0) -> AsyncIterator[Recorded]:
        """Every event after a seq, those that are still to come included; never ends."""
        if after_seq < self.fork_seq:
            async for recorded in self.events(after_seq, upto_seq=self.fork_seq):
                after_seq = recorded.seq
                yield recorded
        while True:
            for recorded in await self._link.follow(self.session_id, after_seq=after_seq):
                after_seq = recorded.seq
                yield recorded

    async def _joins(self, after_seq: int) -> Lineage | None:
        """The lineage, where a read from that seq on needs ancestors' events."""
        if after_seq >= self.fork_seq:
            return None
        if self._lineage is None:
            link = self._link
            self._lineage = await link.read(lineage_of, link.log, self.session_id)
        return self._lineage

    async def is_taken_back(self, seq: int) -> bool:
        """Whether what stands at a seq was retracted, replaced or rewound since."""
        return await self._link.read(is_taken_back, self._link.log, self.session_id, seq)

    async def blob(self, blob: Blob) -> bytes:
        """The bytes of a body that was too large for its event."""
        return await self._link.read(self._link.log.blobs.get, blob.sha256)

    async def store(self, data: bytes, *, media_type: str) -> Blob:
        """Keep bytes (an image, a file) and give what a block names them by."""
        sha256 = await self._link.read(self._link.log.blobs.put, data)
        return Blob(sha256=sha256, size=len(data), media_type=media_type)

    # --- saying something ------------------------------------------------------------

    async def append(
        self,
        event: KnownEvent,
        *,
        expected_seq: int | None = None,
        requires: tuple[str, ...] = (),
        event_id: str | None = None,
    ) -> Verdict:
        """Record one event of a type that anybody may append.

        Raises:
            AppendRefusedError: it is not recorded; `verdict` says why.
            AnswerRefusedError: it answers a request for a person, who has none of the
                roles that it is for (FOLDLINE_OPERATOR_ROLES), or edits a secret in.
            LogUnavailableError: the log gave no answer; the same again, with the same
                `event_id`, is recorded once.
        """
        await self._check_roles(event)
        check_edit(event, self._link.preparer.redactor)
        draft = self._external(
            event, expected_seq=expected_seq, requires=requires, event_id=event_id
        )
        return (await self._send([draft]))[0].verdict

    async def _check_roles(self, event: KnownEvent) -> None:
        """Of what answers a person's request only: nothing else is worth a thread."""
        link = self._link
        roles = link.settings.roles_of_operator
        if roles and answered_request(event):
            await link.read(check_operator, link.log, self.session_id, event, roles=roles)

    async def message(self, said: Said, *, idempotency_key: str | None = None) -> str:
        """A person says something to the agent. Gives the message's id."""
        event_id = self._keyed("message", idempotency_key)
        event = UserMessage(message_id=event_id, blocks=blocks_of(said))
        await self.append(event, event_id=event_id)
        return event_id

    async def steer(
        self,
        said: Said,
        *,
        mode: SteeringMode = "INTERRUPT",
        idempotency_key: str | None = None,
    ) -> str:
        """Steer the agent: INTERRUPT now, at the NEXT_TURN, or ON_IDLE.

        It stays pending until it was put before the model, also across a crash, or until
        it is said to have expired. The same key again is the same steering. Gives its
        event id.

        Raises:
            AppendRefusedError: CLOSED, the session ended first; LIMIT, too much is pending.
        """
        key = idempotency_key
        event_id = fresh_id() if key is None else steering_id(self.session_id, key)
        event = SteeringReceived(
            mode=mode, idempotency_key=idempotency_key, blocks=blocks_of(said)
        )
        await self.append(event, event_id=event_id)
        return event_id

    async def grant(
        self,
        request_id: str,
        *,
        args_hash: str | None = None,
        scope: GrantScope = "CALL",
        edited_arguments: str | None = None,
    ) -> Verdict:
        """Grant what was asked for: for this CALL, this TURN or the whole SESSION.

        Args:
            request_id: of a pending request (`state().requests`).
            args_hash: of the arguments that the person saw, where somebody showed them.
            scope: how far the grant goes, for calls of the same tool.
            edited_arguments: a JSON object to run this call with instead of the model's.

        Raises:
            NotAPersonError: this client's actor is none.
            AnswerRefusedError: it is for other arguments, or for other roles; or these
                cannot be edited in, as they hold a secret perhaps.
            AppendRefusedError: nothing waits under this id (any more), or it expired.
        """
        request = await self._asked(request_id)
        if args_hash is not None and args_hash != request.args_hash:
            seen = f"it is for arguments {request.args_hash!r}, not {args_hash!r}"
            raise AnswerRefusedError(request_id, seen, "look at it again")
        if edited_arguments is not None:
            problem = edit_problem(edited_arguments, scope=scope, request=request)
            if problem:
                raise AnswerRefusedError(request_id, problem, "edit them again")
        return await self.append(
            granted(request, grant_id=fresh_id(), scope=scope, edited=edited_arguments)
        )

    async def deny(
        self,
        request_id: str,
        feedback: Said = (),
        *,
        may_request_again: bool = False,
    ) -> Verdict:
        """Deny what was asked for; the model is told, with the feedback.

        Raises:
            NotAPersonError: this client's actor is none.
            AppendRefusedError: nothing waits under this id (any more), or it expired.
        """
        request = await self._asked(request_id)
        blocks = blocks_of(feedback)
        return await self.append(
            denied(request, feedback=blocks, may_request_again=may_request_again)
        )

    async def answer(self, request_id: str, said: Said) -> Verdict:
        """Answer what the agent asked a person, or recovery.

        Recovery's question how a call ended is answered by COMPLETED, FAILED or
        NOT_EXECUTED: it closes the call, as `resolve` does.

        Raises:
            NotAPersonError: this client's actor is none.
            AnswerRefusedError: it is no answer to this question.
            AppendRefusedError: nothing waits under this id (any more), or it expired.
        """
        request = await self._asked(request_id)
        blocks = blocks_of(said)
        if problem := answer_problem(request, blocks):
            raise AnswerRefusedError(request_id, problem, "answer with one of them")
        return await self.append(answered(request, blocks, person=self._link.actor.id))

    async def _asked(self, request_id: str) -> PendingRequest:
        """The request that a person answers here; what waits no more the log refuses."""
        self._check_person(request_id)
        request = (await self.state()).requests.get(request_id)
        return request or PendingRequest(request_id, "", "", "", "", 0)

    def _check_person(self, request_id: str) -> None:
        actor = self._link.actor
        if actor.kind != PERSON:
            raise NotAPersonError(request_id, actor.kind, actor.id)

    async def resolve(
        self,
        call_id: str,
        outcome: ResolvedOutcome,
        *,
        evidence: Said = (),
        output: Said = (),
    ) -> Verdict:
        """Say how a call ended that nobody saw end: COMPLETED, FAILED or NOT_EXECUTED.

        A question that recovery asked about it is answered with it.
        """
        state = await self.state()
        call = state.calls.get(call_id)
        attempt = call.attempt if call else 1
        resolved = ToolOutcomeResolved(
            call_id=call_id,
            attempt=attempt,
            outcome=outcome,
            resolver=f"{self._link.actor.kind}:{self._link.actor.id}",
            evidence=blocks_of(evidence),
            output=blocks_of(output),
        )
        return (await self._send([self._external(resolved)]))[0].verdict

    async def feedback(
        self, target: str, said: Said = (), *, score: float | None = None
    ) -> Verdict:
        """Judge something: an event, a message or a call, by its id."""
        event = UserFeedback(target=target, score=score, blocks=blocks_of(said))
        return await self.append(event)

    async def set_goal(self, said: Said) -> Verdict:
        """Say what the session is to reach."""
        return await self.append(GoalSet(blocks=blocks_of(said)))

    async def label(self, **labels: str) -> Verdict:
        """Set the session's labels: the whole set."""
        pairs = tuple(Label(key=key, value=labels[key]) for key in sorted(labels))
        return await self.append(LabelsSet(labels=pairs))

    async def cancel(
        self,
        reason: str = "",
        *,
        target: CancelTarget = "SESSION",
        target_id: str | None = None,
        event_id: str | None = None,
    ) -> Verdict:
        """Ask the owner to stop: the SESSION, the open TURN, or one CALL.

        Subagents that it is about, and theirs, are asked as well, wherever they run. The
        same again, with the same `event_id`, is recorded once.

        Raises:
            AppendRefusedError: CLOSED, the session ended before. Subagents that it has
                left behind are asked all the same.
        """
        event = CancellationRequested(target=target, target_id=target_id, reason=reason)
        try:
            verdict = await self.append(event, event_id=event_id)
        except AppendRefusedError as error:
            if error.verdict.kind == CLOSED and target == "SESSION":
                await stop_children(self._link, self._link.actor, await self.state())
            raise
        await stop_as_asked(self._link, self._link.actor, await self.state())
        return verdict

    async def pass_on_stop(self) -> None:
        """Ask this subagent to stop where a session above it was asked to, or has ended.

        For whoever finds that the one who should have told it is gone.
        """
        await pass_on_stop(self._link, self._link.actor, self.session_id)

    async def close(self) -> None:
        """Wait for what is under way."""
        await self._appender.drained()

    # --- how it is sent --------------------------------------------------------------

    def _external(
        self,
        event: KnownEvent,
        *,
        turn_id: str | None = None,
        event_id: str | None = None,
        expected_seq: int | None = None,
        requires: tuple[str, ...] = (),
    ) -> Draft:
        return self._link.draft(
            self.session_id,
            event,
            Stamp(self._link.actor, turn_id=turn_id),
            event_id=event_id,
            expected_seq=expected_seq,
            requires=requires,
        )

    def _keyed(self, kind: str, key: str | None) -> str:
        """An event id that follows from a key, so that a repeat is a duplicate."""
        return fresh_id() if key is None else derived_id(kind, self.session_id, key)

    async def _send(self, drafts: Sequence[Draft]) -> tuple[Sent, ...]:
        answers: Answers = await asyncio.shield(self._appender.submit(drafts))
        raise_refused(answers)
        return answers


def _read(
    log: Log, whose: Lineage | str, after_seq: int, upto_seq: int | None
) -> list[Recorded]:
    if isinstance(whose, Lineage):
        events = joined_events(log, whose, after_seq=after_seq, upto_seq=upto_seq)
    else:
        events = log.events(whose, after_seq=after_seq, upto_seq=upto_seq)
    return list(islice(events, READ_EVENTS))
