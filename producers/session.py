"""A session as its owner has it: turns, recovery, checkpoints, its end.

`Client.create` and `Client.take` give one. Only one owner at a time decides for a
session; whoever takes it over fences this one, whose next decision raises FencedError.
"""

from collections.abc import Mapping
from typing import Protocol

from foldline.errors import SettingsError
from foldline.producers.appender import Appender
from foldline.producers.deciding import Deciding
from foldline.producers.ending import End, end_session
from foldline.producers.handing_off import hand_off
from foldline.producers.history import History
from foldline.producers.identity import elapsed_clock_s, fresh_id
from foldline.producers.link import Link
from foldline.producers.ownership import Ownership
from foldline.producers.prepare import Said, blocks_of
from foldline.producers.recover import Recovery
from foldline.producers.recovery_actions import RecoveryReport
from foldline.producers.shaping import NamedPolicy, Shaping
from foldline.producers.stopping import pass_on_stop
from foldline.producers.subagents import (
    Assignment,
    Children,
    begin_subagent,
    result_of_subagent,
    settle_subagents,
)
from foldline.producers.summarisers import Summariser
from foldline.producers.tools import PendingCall, Toolbox, ToolResult
from foldline.producers.turn import Turn
from foldline.producers.viewing import Viewing
from foldline.projections.policy import ContextPolicy
from foldline.projections.recovery import RecoveryPolicy
from foldline.projections.steering import wants_turn
from foldline.schemas.events import (
    SessionCancelled,
    SessionCompleted,
    SessionFailed,
    SessionSuspended,
    TurnStarted,
    UserMessage,
)
from foldline.schemas.state import SessionState
from foldline.schemas.verdicts import Verdict

CLOSE_GRACE_S = 2.0
"""How long closing a session waits for tools that were told to stop."""

STEERING = "STEERING"
"""The trigger of a turn that steering began."""


class Forks(Protocol):
    """Forks a session for the client that keeps the fork: `Client.fork`."""

    async def __call__(
        self,
        session_id: str,
        at_seq: int,
        *,
        agent: str | None = None,
        fork_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        policy: NamedPolicy = None,
        tenant: str | None = None,
    ) -> "OwnedSession":
        """Make a session that goes on from `at_seq` of this one's history, and own it."""
        ...


class SessionView(Viewing):
    """A view of a session, which can be forked. Claims nothing."""

    def __init__(
        self,
        link: Link,
        state: SessionState,
        *,
        forks: Forks,
        appender: Appender | None = None,
    ) -> None:
        super().__init__(link, state, appender=appender)
        self._forks = forks

    async def fork(
        self,
        at_seq: int,
        *,
        agent: str | None = None,
        fork_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        policy: NamedPolicy = None,
    ) -> "OwnedSession":
        """Make a session that goes on from `at_seq` of this history, and own it.

        This session is not touched. See `Client.fork` for what goes on and what does not.

        Args:
            at_seq: the seq of the last event that both have, from 1: never a place in
                a list that is shown.
            agent: the fork's agent; this session's where not given.
            fork_id: the fork's session id.
            labels: labels of the fork.
            policy: how small its contexts are kept; as this session's, where not given.

        Raises:
            ForkPointError: the history has no event at that seq.
            LineageError: this is a fork, and an ancestor is not there as it was.
            SessionExistsError: a session of the id `fork_id` is there.
        """
        return await self._forks(
            self.session_id,
            at_seq,
            agent=agent,
            fork_id=fork_id,
            labels=labels,
            policy=self._policy_of_fork(policy),
            tenant=self._link.tenant,
        )

    def _policy_of_fork(self, policy: NamedPolicy) -> NamedPolicy:
        """The policy to give a fork; where none is, its history says it."""
        return policy


class OwnedSession(Deciding, SessionView):
    """A session that this client owns, until it is closed or fenced."""

    def __init__(
        self,
        link: Link,
        state: SessionState,
        *,
        forks: Forks,
        children: "Children[OwnedSession]",
        appender: Appender,
        claim: Verdict,
        policy: NamedPolicy = None,
    ) -> None:
        SessionView.__init__(self, link, state, forks=forks, appender=appender)
        self._children = children
        self._owner = Ownership(
            link,
            state.session_id,
            agent=state.agent,
            appender=appender,
            claim=claim,
        )
        self._shaping = Shaping(self._owner, History(self._owner), policy=policy)
        self._closed = False

    @property
    def is_over(self) -> bool:
        """Whether this client decides nothing any more here: suspended, ended, closed."""
        return self._closed or self._owner.over

    @property
    def context_policy(self) -> ContextPolicy:
        """How small contexts are kept in this session, where a turn says nothing else."""
        return self._shaping.policy

    @property
    def over_budget_tokens(self) -> int:
        """How far the last context was above its budget, and could not be made smaller."""
        return self._shaping.over_tokens

    def _policy_of_fork(self, policy: NamedPolicy) -> NamedPolicy:
        return self._shaping.given if policy is None else policy

    def summarise_by(self, summariser: Summariser) -> None:
        """Who makes the summaries of this session from here on, in this process."""
        self._shaping.summariser = summariser

    # --- turns -----------------------------------------------------------------------

    def turn(self, said: Said = (), *, trigger: str = "") -> Turn:
        """Begin a turn with what a person said, or with another trigger (SCHEDULE, ...)."""
        turn_id = fresh_id()
        blocks = blocks_of(said)
        started = TurnStarted(trigger=trigger or ("USER" if blocks else "HARNESS"))
        opening = [self._owner.draft(started, turn_id=turn_id)]
        if blocks:
            message = UserMessage(message_id=fresh_id(), blocks=blocks)
            opening.append(self._external(message, turn_id=turn_id))
        return Turn(
            self._owner,
            self._shaping,
            turn_id=turn_id,
            opening=opening,
        )

    async def steered_turn(self, *, wait_s: float = 0.0) -> Turn | None:
        """Begin the turn that somebody's steering asks for, where none is open.

        INTERRUPT and ON_IDLE begin one; NEXT_TURN waits for one that something else
        begins. To be entered; its first context shows what is pending.

        Args:
            wait_s: how long to wait for some; an agent that is idle waits here.
        """
        until_s = elapsed_clock_s() + wait_s
        while True:
            state = await self._owner.state()
            if wants_turn(state):
                return self.turn(trigger=STEERING)
            if elapsed_clock_s() >= until_s or state.turn is not None or state.ended:
                return None
            await self._link.follow(self.session_id, after_seq=state.seq)

    async def resume_turn(self) -> Turn:
        """Go on with the turn that is open: after `take` and `recover`.

        Raises:
            SettingsError: no turn is open; begin one.
        """
        state = await self._owner.state()
        if state.turn is None:
            raise SettingsError("resume_turn", self.session_id, "no turn is open")
        return Turn(
            self._owner,
            self._shaping,
            turn_id=state.turn.turn_id,
        )

    async def recover(
        self,
        toolbox: Toolbox,
        *,
        policy: RecoveryPolicy | None = None,
        leave_tools: bool = False,
    ) -> RecoveryReport:
        """Settle what the last owner left open, and say what is left to do.

        From the leaves up: calls of subagents that have ended are completed first. A
        subagent whose parent has ended meanwhile is itself asked to stop.

        Args:
            toolbox: the tools of this process.
            policy: how often to go on without a person.
            leave_tools: leave what may be repeated, or asked about, to a process that
                has the tool, if this one has not; otherwise its outcome is unknown.
        """
        await pass_on_stop(self._link, self._owner.actor, self.session_id)
        await settle_subagents(self._owner)
        recovery = Recovery(
            self._owner, toolbox, policy or RecoveryPolicy(), leave_tools=leave_tools
        )
        return await recovery.run()

    # --- the plain verbs -------------------------------------------------------------

    async def suspend(self, reason: str = "") -> Verdict:
        """Rest until somebody takes the session; an open turn stays open."""
        verdict = await self.append(SessionSuspended(reason=reason))
        await self._let_go()
        return verdict

    async def subagent(
        self,
        call: PendingCall,
        *,
        agent: str,
        goal: Said = (),
        instructions: Said = (),
        tools: Toolbox | None = None,
        labels: Mapping[str, str] | None = None,
        policy: NamedPolicy = None,
    ) -> "OwnedSession":
        """Begin, or go on with, a session of another agent that works on a call.

        It is this client's to run: turns, tools, `complete` with the answer. Its id
        follows from the call, so that the same again after a crash is the same child.
        `subagent_result` then gives what the call came to. It may outlive the turn.

        Args:
            call: that the model asked for, and that has not run.
            agent: the child's agent.
            goal: what it is to reach.
            instructions: its instructions.
            tools: its tools.
            labels: its labels.
            policy: how small its contexts are kept; as this session's, where not given.

        Raises:
            SubagentEndedError: it was begun before, and has ended.
            LiveOwnerError: it was begun before, and is at work in some process.
            AppendRefusedError: the call may not begin: it waits for permission, say.
        """
        kept_by = await self._shaping.chosen() if policy is None else policy
        assignment = Assignment(agent, goal, instructions, tools, labels, kept_by)
        return await begin_subagent(self._owner, self._children, call, assignment)

    async def subagent_result(self, call: PendingCall) -> ToolResult:
        """Wait for the end of the child that works on a call, in whatever process.

        A stop of the call, the turn or the session is handed on to it. Steering that
        interrupts ends the waiting, not the child: the call is then `Backgrounded`.

        Raises:
            SessionNotFoundError: no child works on it.
            FencedError: another owner has this session.
        """
        return await result_of_subagent(self._owner, call)

    async def settle_subagents(self) -> list[str]:
        """Complete the calls of subagents that have ended; gives the ids of the others."""
        return await settle_subagents(self._owner)

    async def hand_off(
        self,
        to_agent: str,
        *,
        call_id: str | None = None,
        instructions: Said = (),
        tools: Toolbox | None = None,
        said: Said = (),
    ) -> Verdict:
        """Have another agent go on with this session; the owner stays the same.

        One batch: HandedOff, and the instructions and tools of who takes over. With a
        `call_id` the same again is recorded once.

        Args:
            to_agent: who goes on.
            call_id: the call that asked for it; its result is recorded as any other.
            instructions: in force from here on.
            tools: in force from here on; those of before where not given.
            said: why, or what is to be done, for who reads the log.
        """
        return await hand_off(
            self._owner,
            to_agent,
            call_id=call_id,
            instructions=instructions,
            tools=tools,
            said=said,
        )

    async def complete(
        self, outcome: str = "DONE", said: Said = (), *, expire_steering: str = ""
    ) -> Verdict:
        """The session reached its end, and has taken in all that was said to it.

        Args:
            outcome: how it ended.
            said: its answer.
            expire_steering: why steering that is pending will not be applied.

        Raises:
            PendingSteeringError: some is, and no reason is given: it came in time, and
                is to be taken up (`steered_turn`; where it is all for the NEXT_TURN that
                gives None: begin one). What comes later is told CLOSED.
        """
        ended = SessionCompleted(outcome=outcome, blocks=blocks_of(said))
        return await self._end(ended, expire=expire_steering)

    async def fail(self, error_type: str, said: Said = ()) -> Verdict:
        """The session ended in an error; steering that is pending expires by it."""
        failed = SessionFailed(error_type=error_type, blocks=blocks_of(said))
        return await self._end(failed, expire=f"the session failed: {error_type}")

    async def end_cancelled(
        self, reason: str = "", *, event_id: str | None = None
    ) -> Verdict:
        """End the session as cancelled; `cancel` only asks for that, as anybody may."""
        ended = SessionCancelled(reason=reason)
        expire = "the session was cancelled"
        return await self._end(ended, expire=expire, event_id=event_id)

    async def close(self) -> None:
        """Stop what can be stopped, record what came of it, and give the lease up."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._owner.settle(timeout_s=CLOSE_GRACE_S)
        finally:
            await self._link.read(self._link.keeper.release, self.session_id)

    # --- what these share ------------------------------------------------------------

    async def _end(self, end: End, *, expire: str, event_id: str | None = None) -> Verdict:
        verdict = await end_session(self._owner, end, expire=expire, event_id=event_id)
        await self._let_go()
        return verdict

    async def _let_go(self) -> None:
        """What ended or suspended the session leaves it to whoever claims it next."""
        await self._owner.rest()
