"""The way in: a client of one log, and the sessions that it opens, creates and takes.

    async with foldline.connect() as client:
        owned = await client.create(agent="coder", goal="fix the flaky test")

Whoever leaves the block closes its sessions, and gives their leases up.
"""

import asyncio
import getpass
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self
from weakref import WeakSet

from foldline.errors import (
    SessionExistsError,
)
from foldline.processors.log import Log, SessionSummary
from foldline.processors.naming import check_session_id
from foldline.processors.open_log import open_log
from foldline.producers.appender import Sent, raise_refused
from foldline.producers.claiming import claim, state_of
from foldline.producers.forking import begin_fork, label_pairs
from foldline.producers.identity import derived_id, fresh_id, wall_clock
from foldline.producers.lease import LeaseKeeper
from foldline.producers.link import (
    FOLLOWERS_MAX,
    READERS_MAX,
    Link,
    Stamp,
    Threads,
)
from foldline.producers.mirrored import MirroredSession
from foldline.producers.prepare import Preparer, Redacts, Said, blocks_of
from foldline.producers.redaction_file import redactor_for
from foldline.producers.session import OwnedSession, SessionView
from foldline.producers.shaping import NamedPolicy
from foldline.producers.tools import Toolbox
from foldline.schemas.envelope import Actor
from foldline.schemas.events import (
    GoalSet,
    InstructionsSet,
    KnownEvent,
    SessionCreated,
    SessionReopened,
    SessionResumed,
    ToolsDeclared,
)
from foldline.schemas.state import MIRRORED, SessionState
from foldline.settings import Settings


def connect(
    url: str | Log | None = None,
    *,
    settings: Settings | None = None,
    redactor: Redacts | None = None,
    actor: Actor | None = None,
    tenant: str = "default",
) -> "Client":
    """A client of the log at `url`, to be entered with `async with`.

    Args:
        url: `sqlite:///path`, `jsonl:///path`, `memory:`, `kafka://host:port` or
            `https://service`; FOLDLINE_URL, or this user's own database, where not given.
            A log that is open already is used and not closed.
        settings: limits and times; from FOLDLINE_... where not given.
        redactor: what replaces secrets before anything is recorded; the default rules,
            with a key kept beside the log, where not given.
        actor: who grants, denies, steers; a PERSON, this system's user, where not given.
        tenant: whom the sessions made here belong to; what is appended to one that is
            there is its own tenant's.
    """
    return Client(
        url,
        settings=settings or Settings(),
        redactor=redactor,
        actor=actor or Actor(kind="PERSON", id=_user()),
        tenant=tenant,
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"  # a container without an entry for its user


class Client:
    """A client of one log. Each is a writer of its own: its id is fresh."""

    _owned_type: type[OwnedSession] = OwnedSession

    def __init__(
        self,
        url: str | Log | None,
        *,
        settings: Settings,
        redactor: Redacts | None,
        actor: Actor,
        tenant: str,
    ) -> None:
        self.writer = fresh_id()
        self._url = settings.url if url is None else url
        self._settings = settings
        self._redactor = redactor
        self._actor = actor
        self._tenant = tenant
        self._link: Link | None = None
        self._kept: list[OwnedSession] = []
        self._views: WeakSet[SessionView] = WeakSet()

    async def __aenter__(self) -> Self:
        self._link = await asyncio.to_thread(self._connected)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _connected(self) -> Link:
        log = self._url
        if isinstance(log, str):
            log = open_log(log, settings=self._settings)
        log.warm_up()
        settings = self._settings
        redactor = self._redactor or redactor_for(log.url, settings.redaction_rules)
        return Link(
            log=log,
            writer=self.writer,
            tenant=self._tenant,
            actor=self._actor,
            settings=settings,
            preparer=Preparer(redactor, log.blobs, settings.inline_max_bytes),
            keeper=LeaseKeeper(
                log.leases,
                ttl_ms=settings.lease_ttl_ms,
                renew_ms=settings.lease_renew_ms,
            ),
            clock=wall_clock,
            lane=Threads(1, thread_name_prefix="foldline-append"),
            readers=Threads(READERS_MAX, thread_name_prefix="foldline-read"),
            followers=Threads(FOLLOWERS_MAX, thread_name_prefix="foldline-follow"),
        )

    @property
    def log(self) -> Log:
        """The log that this client writes to."""
        return self._ready.log

    @property
    def settings(self) -> Settings:
        """The limits and times of this client."""
        return self._settings

    @property
    def redactor(self) -> Redacts:
        """What replaces secrets before this client records anything."""
        return self._ready.preparer.redactor

    @property
    def _ready(self) -> Link:
        if self._link is None:
            msg = "enter the client first: async with foldline.connect() as client"
            raise RuntimeError(msg)
        return self._link

    async def close(self) -> None:
        """Close every session, give up its lease, and let go of the log."""
        link = self._link
        if link is None:
            return
        self._link = None
        try:
            async with AsyncExitStack() as closing:
                for session in (*self._views, *self._kept):
                    closing.push_async_callback(session.close)
        finally:
            self._kept.clear()
            await asyncio.to_thread(self._disconnect, link)

    def _disconnect(self, link: Link) -> None:
        link.keeper.close()
        link.lane.shutdown()
        link.readers.shutdown()
        link.followers.shutdown()
        if isinstance(self._url, str):
            link.log.close()

    # --- sessions --------------------------------------------------------------------

    async def sessions(
        self, *, status: str | None = None, limit: int = 100
    ) -> list[SessionSummary]:
        """The sessions of this log, the most recently active first."""
        log = self._ready.log
        return await self._ready.read(log.sessions, status=status, limit=limit)

    async def open(self, session_id: str) -> SessionView:
        """A view of a session: read, follow, steer, answer. Claims nothing.

        Raises:
            SessionNotFoundError: no such session.
        """
        state = await state_of(self._ready, session_id)
        view = SessionView(self._ready.of(state.tenant), state, forks=self.fork)
        self._views.add(view)
        return view

    async def create(
        self,
        *,
        agent: str,
        goal: Said = (),
        instructions: Said = (),
        tools: Toolbox | None = None,
        session_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        environment_json: str | None = None,
        policy: NamedPolicy = None,
    ) -> OwnedSession:
        """Make a session and own it.

        Args:
            agent: who works in it.
            goal: what is to be reached.
            instructions: the system's.
            tools: the tools that the model has.
            session_id: its id; a fresh one where not given.
            labels: its labels.
            environment_json: what it runs in, as the harness says it.
            policy: how small its contexts are kept: a `ContextPolicy`, or "lean", "roomy"
                or "full"; FOLDLINE_CONTEXT_POLICY by default.

        Raises:
            SessionExistsError: a session of this id is there.
            SessionIdError: no session can be called that.
        """
        created = SessionCreated(
            agent=agent,
            labels=label_pairs(labels),
            environment_json=environment_json,
        )
        events: list[KnownEvent] = [created]
        if instructions:
            blocks = blocks_of(instructions)
            events.append(InstructionsSet(role="system", blocks=blocks))
        if tools is not None:
            events.append(ToolsDeclared(tools=tools.declarations()))
        if goal:
            events.append(GoalSet(blocks=blocks_of(goal)))
        name = fresh_id() if session_id is None else session_id
        return await self.make(name, events, policy=policy)

    async def make(
        self,
        session_id: str,
        events: Sequence[KnownEvent],
        *,
        policy: NamedPolicy = None,
        tenant: str | None = None,
    ) -> OwnedSession:
        """Make a session that begins with these events, SessionCreated first, and own it.

        Args:
            session_id: its id.
            events: what it begins with.
            policy: how small its contexts are kept, as in `create`.
            tenant: whom it belongs to; whom this client's do, where not given.

        Raises:
            SessionExistsError: a session of this id is there.
            SessionIdError: no session can be called that.
        """
        check_session_id(session_id)
        link = self._ready.of(tenant or self._tenant)
        agent = getattr(events[0], "agent", "")
        stamp = Stamp(Actor(kind="AGENT", id=agent), epoch=1)
        appender = link.appender(session_id, 0)
        first, *rest = [link.draft(session_id, event, stamp) for event in events]
        # Where the id is taken, the rest may not reach the session that is there.
        created_id = (first.envelope.event_id,)
        drafts = [first, *(replace(draft, requires=created_id) for draft in rest)]
        answers = await asyncio.shield(appender.submit(drafts))
        raise_refused(answers)
        seq = answers[-1].verdict.seq
        state = SessionState(session_id, tenant=link.tenant, agent=agent, seq=seq)
        return await self._owned(state, answers[0], policy)

    async def fork(
        self,
        session_id: str,
        at_seq: int,
        *,
        agent: str | None = None,
        fork_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        policy: NamedPolicy = None,
        tenant: str | None = None,
    ) -> OwnedSession:
        """Make a session that goes on from any event of another's history, and own it.

        No event is copied, and the other session is not touched. What was in force there
        (goal, plan, constraints, budget, instructions, tools) goes on; grants and open
        work stay where they are.

        Args:
            session_id: whose history goes on; it may mirror another harness, or have ended.
            at_seq: the seq of the last event that both have, from 1. One before the
                session's own fork point forks the ancestor that has it.
            agent: the fork's agent; its parent's where not given.
            fork_id: the fork's session id.
            labels: labels of the fork.
            policy: how small its contexts are kept, as in `create`; as its history was,
                where not given.
            tenant: whose the other session is, and the fork; whose this client's are,
                where not given.

        Raises:
            SessionNotFoundError: no such session.
            ForkPointError: its history has no event at that seq, or it is another tenant's.
            LineageError: it is a fork, and an ancestor is not there as it was.
            SessionExistsError: a session of the id `fork_id` is there.
            SessionIdError: no session can be called that.
        """
        link = self._ready.of(tenant or self._tenant)
        state, claim = await begin_fork(
            link, session_id, at_seq, agent=agent, fork_id=fork_id, labels=labels
        )
        return await self._owned(state, claim, policy)

    async def take(
        self,
        session_id: str,
        *,
        steal: bool = False,
        reason: str = "",
        policy: NamedPolicy = None,
        after_epoch: int | None = None,
    ) -> OwnedSession:
        """Become the owner of a session whose owner is dead, gone, or to be fenced.

        Args:
            session_id: of an owned session that has not ended.
            steal: take it from a live owner too, who is fenced by that.
            reason: why, for whoever reads the log; "taken" or "stolen" by default.
            policy: how small its contexts are kept, as in `create`; as they were so far,
                where not given.
            after_epoch: only if nobody has claimed it since this epoch of its state.

        Raises:
            LiveOwnerError: its owner is alive, or came after `after_epoch`, and `steal`
                was not asked for.
            SessionNotFoundError: no such session.
            MirroredSessionError: it mirrors another harness and has no owner.
            AppendRefusedError: it has ended (CLOSED): `reopen` it.
        """
        event = SessionResumed(reason=reason or ("stolen" if steal else "taken"))
        state, claimed = await claim(
            self._ready, session_id, event, steal=steal, after_epoch=after_epoch
        )
        return await self._owned(state, claimed, policy)

    async def reopen(
        self, session_id: str, *, reason: str, policy: NamedPolicy = None
    ) -> OwnedSession:
        """Become the owner of a session that had ended; it is then idle."""
        event = SessionReopened(reason=reason)
        state, claimed = await claim(self._ready, session_id, event, steal=False)
        return await self._owned(state, claimed, policy)

    async def mirror(
        self,
        *,
        system: str,
        stream: str,
        session_id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> MirroredSession:
        """Record what another harness does; the same source gives the same session.

        Args:
            system: the other harness, as in `claude-code`.
            stream: which of its streams: a path, a thread.
            session_id: the id in the log; one that follows from the source otherwise.
            labels: labels of a session that is made here.

        Raises:
            SessionExistsError: a session of this id is there and mirrors nothing.
            SessionIdError: no session can be called that.
        """
        link = self._ready
        if session_id is None:
            session_id = derived_id("mirror", system, stream)
        check_session_id(session_id)
        state = await link.read(link.log.state, session_id)
        if state is None:
            created = SessionCreated(
                agent=system, mode=MIRRORED, labels=label_pairs(labels)
            )
            draft = link.draft(
                session_id,
                created,
                Stamp(Actor(kind="HARNESS", id=system)),
                event_id=derived_id("created", system, session_id),
            )
            appender = link.appender(session_id, 0)
            raise_refused(await asyncio.shield(appender.submit([draft])))
            state = await state_of(self._ready, session_id)
        if state.mode != MIRRORED:
            raise SessionExistsError(session_id)
        mirrored = MirroredSession(link.of(state.tenant), state, forks=self.fork)
        self._views.add(mirrored)
        return mirrored

    # --- what these share ------------------------------------------------------------

    async def _owned(
        self, state: SessionState, claim: Sent, policy: NamedPolicy = None
    ) -> OwnedSession:
        link = self._ready.of(state.tenant)
        epoch = claim.verdict.epoch
        await link.read(link.keeper.hold, state.session_id, epoch=epoch, writer=link.writer)
        appender = link.appender(state.session_id, claim.verdict.current_seq)
        owned = self._owned_type(
            link,
            state,
            forks=self.fork,
            children=self,
            appender=appender,
            claim=claim.verdict,
            policy=policy,
        )
        # A client may see any number of sessions come and go.
        self._kept = [*(known for known in self._kept if not known.is_over), owned]
        return owned
