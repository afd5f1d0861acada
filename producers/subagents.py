"""Subagents: a child session that works on a call of its parent.

1. In the parent, one batch: SubagentStarted, the call's start, and that it goes on in the
   background, under the handle `subagent:CHILD`. The child's id follows from the session
   and the call, so that whoever does this again, after a crash, means the same child.
2. The child is made: SessionCreated with relation SUBAGENT, its instructions, tools and
   goal. Whoever comes here again takes it over where its last owner left it.
3. Whether the parent is to stop is looked at once more: a cancellation that came in
   between found no child to ask.
4. The child ends as any session does. Its end is the end of the parent's call, with what
   the child said; whoever owns the parent then records it, once. Neither the call nor the
   child is run again.

A turn may end, and the parent's owner be replaced, while a child goes on.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from foldline.errors import (
    AppendRefusedError,
    SessionExistsError,
    SessionNotFoundError,
    SubagentEndedError,
)
from foldline.faults import crash_point
from foldline.producers.appender import refusal_of
from foldline.producers.calls import result_in_log
from foldline.producers.forking import label_pairs
from foldline.producers.identity import derived_id, operation_id
from foldline.producers.ownership import Ownership
from foldline.producers.prepare import Said, blocks_of
from foldline.producers.stopping import stop_as_asked
from foldline.producers.tools import Backgrounded, PendingCall, Toolbox, ToolResult
from foldline.projections.policy import ContextPolicy
from foldline.projections.steering import is_interrupted
from foldline.projections.subagents import (
    SUBAGENT,
    end_of_child,
    handle_of,
    open_children,
    stops_of,
)
from foldline.schemas.blocks import Blocks, text_block
from foldline.schemas.events import (
    BackgroundEnded,
    GoalSet,
    InstructionsSet,
    KnownEvent,
    SessionCancelled,
    SessionCompleted,
    SessionCreated,
    SessionFailed,
    SubagentEnded,
    SubagentStarted,
    ToolBackgrounded,
    ToolExecutionStarted,
    ToolsDeclared,
)
from foldline.schemas.state import NOT_BEGUN, SessionState
from foldline.schemas.verdicts import Verdict

EFFECT = "UNSAFE"
"""What repeating a subagent's call does: nobody knows what all it did."""


class Child(Protocol):
    """A child session, as its parent needs it."""

    async def append_all(self, events: Sequence[KnownEvent]) -> list[Verdict]:
        """Record several events of its owner in one batch."""
        ...


Child_co = TypeVar("Child_co", bound=Child, covariant=True)


class Children(Protocol[Child_co]):
    """Makes sessions for the client that keeps them, or takes over what it made."""

    async def make(
        self,
        session_id: str,
        events: Sequence[KnownEvent],
        *,
        policy: ContextPolicy | str | None = None,
        tenant: str | None = None,
    ) -> Child_co:
        """Make a session that begins with these events, and own it."""
        ...

    async def take(
        self,
        session_id: str,
        *,
        steal: bool = False,
        reason: str = "",
        policy: ContextPolicy | str | None = None,
    ) -> Child_co:
        """Become the owner of a session that is there."""
        ...


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a child is made with."""

    agent: str
    goal: Said = ()
    instructions: Said = ()
    tools: Toolbox | None = None
    labels: Mapping[str, str] | None = None
    policy: ContextPolicy | str | None = None
    """How small its contexts are kept."""

    def set_up(self) -> list[KnownEvent]:
        """Its instructions, tools and goal, as far as there are some."""
        events: list[KnownEvent] = []
        if self.instructions:
            blocks = blocks_of(self.instructions)
            events.append(InstructionsSet(role="system", blocks=blocks))
        if self.tools is not None:
            events.append(ToolsDeclared(tools=self.tools.declarations()))
        if self.goal:
            events.append(GoalSet(blocks=blocks_of(self.goal)))
        return events


def child_id(session_id: str, call_id: str) -> str:
    """The id of the child that works on a call: it follows from session and call."""
    return derived_id("subagent", session_id, call_id)


async def begin_subagent(
    owner: Ownership,
    children: Children[Child_co],
    call: PendingCall,
    assignment: Assignment,
) -> Child_co:
    """Steps 1 to 3; the same again goes on with the same child.

    Raises:
        SubagentEndedError: it was begun before, and has ended.
        LiveOwnerError: it was begun before, and is at work in some process.
        AppendRefusedError: the call may not begin (`call_waiting`, `call_denied`).
        FencedError: another owner has the parent.
    """
    name = child_id(owner.session_id, call.call_id)
    state = await owner.state()
    await _announce(owner, call, name, state)
    crash_point("CP_SUBAGENT_AFTER_STARTED")
    child = await _made(owner, children, call, assignment, name)
    crash_point("CP_SUBAGENT_AFTER_CREATED")
    state = await owner.state()
    if stops_of(state):
        await stop_as_asked(owner.link, owner.actor, state)
    return child


async def _announce(
    owner: Ownership, call: PendingCall, name: str, state: SessionState
) -> None:
    """Step 1, or what is missing of it."""
    known = state.calls.get(call.call_id)
    if call.call_id in state.finished:
        return  # its end is known: taking the child says so
    events: list[KnownEvent] = []
    if name not in state.subagents:
        events.append(SubagentStarted(child_session_id=name, call_id=call.call_id))
    begun = known is not None and known.status not in NOT_BEGUN
    attempt = known.attempt if known is not None and begun else 1
    if not begun:
        events.append(
            ToolExecutionStarted(
                call_id=call.call_id,
                attempt=attempt,
                effect=EFFECT,
                operation_id=operation_id(owner.session_id, call.call_id),
                cancellable=True,
                start_by_ms=owner.link.settings.start_by_ms,
            )
        )
    handle = handle_of(name)
    if handle not in state.handles:
        events.append(
            ToolBackgrounded(call_id=call.call_id, attempt=attempt, handle=handle)
        )
    if events:
        turn_id = state.turn.turn_id if state.turn else None
        await owner.decide([owner.draft(event, turn_id=turn_id) for event in events])


async def _made(
    owner: Ownership,
    children: Children[Child_co],
    call: PendingCall,
    assignment: Assignment,
    name: str,
) -> Child_co:
    """Step 2: the child, made now or before; a set-up that was torn is made whole."""
    created = SessionCreated(
        agent=assignment.agent,
        relation=SUBAGENT,
        parent_session_id=owner.session_id,
        parent_call_id=call.call_id,
        labels=label_pairs(assignment.labels),
    )
    set_up = assignment.set_up()
    log = owner.link.log
    state = await owner.link.read(log.state, name)
    if state is None:
        try:
            return await children.make(
                name,
                [created, *set_up],
                policy=assignment.policy,
                tenant=owner.link.tenant,
            )
        except SessionExistsError:
            state = await owner.link.read(log.state, name)
    if state is None:
        raise SessionNotFoundError(name, log.url)
    if state.ended:
        raise SubagentEndedError(name, state.status)
    child = await children.take(
        name, reason="taken up by its parent", policy=assignment.policy
    )
    missing = [event for event in set_up if not _has(state, event)]
    if missing:
        await child.append_all(missing)
    return child


def _has(state: SessionState, event: KnownEvent) -> bool:
    match event:
        case InstructionsSet():
            return bool(state.instructions)
        case ToolsDeclared():
            return state.tools is not None
        case _:
            return state.goal is not None


# --- its end -------------------------------------------------------------------------


async def result_of_subagent(owner: Ownership, call: PendingCall) -> ToolResult:
    """Wait until the child of a call has ended, and complete the call from it.

    A cancellation that is about the child is handed on. Steering that interrupts gives
    the agent back at once: the child goes on, and the result is `Backgrounded`.

    Raises:
        SessionNotFoundError: nobody has made the child.
        FencedError: another owner has the parent.
        LogUnavailableError: the log is away. The same again waits on.
    """
    link, name = owner.link, child_id(owner.session_id, call.call_id)
    asked: set[int] = set()
    while True:
        child = await link.read(link.log.state, name)
        if child is None:
            raise SessionNotFoundError(name, link.log.url)
        state = await owner.state()
        if child.ended:
            await record_end(owner, child, state)
            state = await owner.state()
        if call.call_id not in state.calls:
            return await _known(owner, call, state)
        if owner.fenced is not None:
            raise owner.fenced
        if is_interrupted(state):
            return Backgrounded(call, handle_of(name))
        stops = {s.asked_seq for s in stops_of(state) if s.child_session_id == name}
        if stops - asked:
            await stop_as_asked(link, owner.actor, state)
            asked |= stops
        await asyncio.gather(
            link.follow(name, after_seq=child.seq),
            link.follow(owner.session_id, after_seq=state.seq),
        )


async def _known(owner: Ownership, call: PendingCall, state: SessionState) -> ToolResult:
    result = await result_in_log(owner, call, state)
    if result is None:
        raise SessionNotFoundError(call.call_id, owner.link.log.url)
    return result


async def settle_subagents(owner: Ownership) -> list[str]:
    """Complete the calls of the children that have ended; gives the others, still open."""
    link = owner.link
    state = await owner.state()
    still: list[str] = []
    for open_child in open_children(state):
        name = open_child.child_session_id
        child = await link.read(link.log.state, name)
        if child is None or not child.ended:
            still.append(name)
        else:
            await record_end(owner, child, await owner.state())
    return still


async def record_end(owner: Ownership, child: SessionState, state: SessionState) -> None:
    """Step 4: the call's end first, so that it has one before its child is forgotten."""
    name = child.session_id
    end = await owner.link.read(end_of_child, owner.link.log, child)
    events: list[KnownEvent] = []
    handle = handle_of(name)
    if handle in state.handles:
        outcome, output = _said(child, end)
        events.append(BackgroundEnded(handle=handle, outcome=outcome, output=output))
    if name in state.subagents and not state.ended:
        events.append(SubagentEnded(child_session_id=name, outcome=child.status))
    if not events:
        return
    crash_point("CP_SUBAGENT_BEFORE_ENDED")
    turn_id = state.turn.turn_id if state.turn else None
    answers = await owner.attempt([owner.draft(e, turn_id=turn_id) for e in events])
    for sent in answers:
        error = refusal_of(sent)
        if error is not None and not _settled_already(error):
            raise error


def _settled_already(error: Exception) -> bool:
    """Whether somebody else has recorded the same end meanwhile."""
    rules = ("unknown_handle", "no_such_subagent")
    return isinstance(error, AppendRefusedError) and error.verdict.rule in rules


def _said(
    child: SessionState, end: SessionCompleted | SessionFailed | SessionCancelled | None
) -> tuple[str, Blocks]:
    """How the call ended, and the child's answer."""
    match end:
        case SessionCompleted(blocks=blocks):
            return "COMPLETED", blocks
        case SessionFailed(error_type=error_type, blocks=blocks):
            return "FAILED", (text_block(f"{error_type} "), *blocks)
        case SessionCancelled(reason=reason):
            return "CANCELLED", (text_block(reason),) if reason else ()
        case None:
            return child.status, ()
