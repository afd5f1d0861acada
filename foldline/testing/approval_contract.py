"""What every log must do so that people and policies decide: a part of `LogContract`.

A decision is bound to its request and arguments, outlives the process that asked, and is
counted. Its tests are coroutines: they need pytest-asyncio, in mode auto.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from foldline.errors import AnswerRefusedError, AppendRefusedError, NotAPersonError
from foldline.processors.log import Log
from foldline.producers.client import connect
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.policies import Allow, ApprovalLimits, Ask, Deny, Ruling
from foldline.producers.session import OwnedSession, SessionView
from foldline.producers.tools import (
    Denied,
    Done,
    PendingCall,
    Tool,
    Toolbox,
    ToolContext,
    ToolResult,
    Waiting,
)
from foldline.producers.turn import Turn
from foldline.projections.approvals import Inbox, pending_under, root_of
from foldline.schemas.blocks import text_of
from foldline.schemas.envelope import Actor
from foldline.schemas.events import (
    PermissionDenied,
    PermissionGranted,
    PermissionRequested,
    SessionCreated,
    SubagentStarted,
)
from foldline.schemas.state import SUSPENDED, SessionState
from foldline.testing.log_story import LogStory, new_id
from foldline.testing.samples import created, started

SHORT_MS = 20
"""How long a run waits whose request nobody is to answer meanwhile."""


class Told:
    """A tool that says which arguments it was run with, each time."""

    def __init__(self) -> None:
        self.ran: list[dict[str, Any]] = []
        self.tools = Toolbox(Tool(self._tell, name="tell", approval="always"))

    def _tell(self, arguments: dict[str, Any], ctx: ToolContext) -> str:  # noqa: ARG002 - a tool's
        self.ran.append(arguments)
        return f"told {arguments['n']}"


async def _asks(turn: Turn, *numbers: int) -> list[PendingCall]:
    """The model asks to tell these numbers."""
    wanted = [ToolRequest("tell", f'{{"n": {n}}}', new_id()) for n in numbers]
    async with turn.model_call(await turn.context(), model="m", provider="p") as call:
        return await call.complete(ModelResponse.of("", *wanted))


@asynccontextmanager
async def _turn(log: Log) -> AsyncGenerator[tuple[OwnedSession, Turn]]:
    """A session with an open turn, which nobody ends."""
    async with connect(log) as client:
        owned = await client.create(agent="teller")
        turn = owned.turn("go")
        await turn.__aenter__()
        yield owned, turn


async def _answered(
    log: Log,
    session_id: str,
    running: Awaitable[list[ToolResult]],
    answer: Callable[[SessionView, str], Awaitable[object]],
) -> list[ToolResult]:
    """Answer each request, as another client, until the run is over."""

    async def answer_all() -> None:
        async with connect(log) as person:
            view = await person.open(session_id)
            async for recorded in view.follow():
                event = recorded.event
                if not isinstance(event, PermissionRequested):
                    continue
                if event.request_id in (await view.state()).requests:
                    await answer(view, event.request_id)

    answering = asyncio.create_task(answer_all())
    try:
        return await running
    finally:
        answering.cancel()
        await asyncio.wait({answering})


async def _events(owned: OwnedSession, kind: type) -> list[Any]:
    return [r.event async for r in owned.events() if isinstance(r.event, kind)]


class ApprovalContract:
    """Tests of decisions, for `LogContract`."""

    async def test_a_request_outlives_who_asked_and_its_call_runs_once(
        self, log: Log
    ) -> None:
        """Case B36: two calls, each granted while nobody runs the session."""
        told = Told()
        async with _turn(log) as (owned, turn):
            calls = await _asks(turn, 1, 2)
            waiting = await turn.run_tools(calls, told.tools, approval_wait_ms=SHORT_MS)
        for place in range(2):
            async with connect(log) as person:
                result = waiting[place]
                assert isinstance(result, Waiting)
                await (await person.open(owned.session_id)).grant(result.request_id)
            async with connect(log) as client:
                taken = await client.take(owned.session_id)
                report = await taken.recover(told.tools)
                assert len(report.waiting) == 1 - place
                turn = await taken.resume_turn()
                await turn.run_tools(
                    await turn.open_calls(), told.tools, approval_wait_ms=SHORT_MS
                )
                asked = await _events(taken, PermissionRequested)
                assert len(asked) == 2
                turn.leave()
        assert told.ran == [{"n": 1}, {"n": 2}]

    async def test_edited_arguments_are_the_only_ones_that_run(self, log: Log) -> None:
        told = Told()

        async def edit(view: SessionView, request_id: str) -> None:
            await view.grant(request_id, edited_arguments='{"n": 7}')

        async with _turn(log) as (owned, turn):
            run = turn.run_tools(await _asks(turn, 1), told.tools)
            (result,) = await _answered(log, owned.session_id, run, edit)
            assert isinstance(result, Done)
            (granted,) = await _events(owned, PermissionGranted)
            assert granted.edited_args_hash not in (None, granted.args_hash)
        assert told.ran == [{"n": 7}]

    async def test_an_answer_is_bound_to_what_was_shown(self, log: Log) -> None:
        told = Told()
        async with _turn(log) as (owned, turn):
            calls = await _asks(turn, 1)
            (waiting,) = await turn.run_tools(calls, told.tools, approval_wait_ms=SHORT_MS)
            assert isinstance(waiting, Waiting)
            name = waiting.request_id
            with pytest.raises(AnswerRefusedError, match="it is for arguments"):
                await owned.grant(name, args_hash="0" * 64)
            with pytest.raises(AnswerRefusedError, match="scope is SESSION"):
                await owned.grant(name, scope="SESSION", edited_arguments="{}")
            with pytest.raises(AnswerRefusedError, match="no JSON object"):
                await owned.grant(name, edited_arguments="[]")
            secret = f'{{"token": "ghp_{"a1B2c3D4e5" * 4}"}}'
            with pytest.raises(AnswerRefusedError, match="hold a secret"):
                await owned.grant(name, edited_arguments=secret)
            await owned.grant(name, args_hash=calls[0].args_hash)
            with pytest.raises(AppendRefusedError, match="no_pending_request"):
                await owned.grant(name)

    async def test_an_agent_does_not_approve_itself(self, log: Log) -> None:
        told = Told()
        async with _turn(log) as (owned, turn):
            calls = await _asks(turn, 1)
            (waiting,) = await turn.run_tools(calls, told.tools, approval_wait_ms=SHORT_MS)
            assert isinstance(waiting, Waiting)
            async with connect(log, actor=Actor(kind="AGENT", id="teller")) as agent:
                view = await agent.open(owned.session_id)
                for answer in (view.grant, view.deny):
                    with pytest.raises(NotAPersonError, match="AGENT 'teller'"):
                        await answer(waiting.request_id)
                with pytest.raises(NotAPersonError):
                    await view.answer(waiting.request_id, "yes")
                forged = PermissionGranted(
                    request_id=waiting.request_id,
                    call_id=calls[0].call_id,
                    args_hash=calls[0].args_hash,
                    decided_by="PERSON",
                    grant_id=new_id(),
                )
                with pytest.raises(AppendRefusedError, match="not_a_person"):
                    await view.append(forged)
            assert not told.ran

    async def test_a_policy_decides_by_its_name_or_leaves_it_to_a_person(
        self, log: Log
    ) -> None:
        told = Told()

        def small(call: PendingCall, tool: Tool, state: SessionState) -> Ruling | None:
            assert (tool.name, state.agent) == ("tell", "teller")
            number = (call.arguments or {})["n"]
            if number < 10:
                return Allow("small")
            if number > 100:
                return Deny("small", "choose a smaller one")
            return Ask(("boss",)) if number > 50 else None

        async with _turn(log) as (owned, turn):
            calls = await _asks(turn, 1, 20, 60, 200)
            results = await turn.run_tools(
                calls, told.tools, policy=small, approval_wait_ms=SHORT_MS
            )
            kinds = [type(result) for result in results]
            assert kinds == [Done, Waiting, Waiting, Denied]
            (granted,) = await _events(owned, PermissionGranted)
            (denied,) = await _events(owned, PermissionDenied)
            for event in (granted, denied):
                assert (event.decided_by, event.policy) == ("POLICY", "small")
            assert text_of(denied.feedback) == "choose a smaller one"
            requests = await _events(owned, PermissionRequested)
            assert sorted(r.approvers for r in requests) == [(), ("boss",)]
            await owned.grant(requests[0].request_id)
        assert told.ran == [{"n": 1}]

    async def test_an_earlier_grant_decides_but_not_for_who_names_approvers(
        self, log: Log
    ) -> None:
        told = Told()

        async def for_the_session(view: SessionView, request_id: str) -> None:
            await view.grant(request_id, scope="SESSION")

        def strict(call: PendingCall, tool: Tool, state: SessionState) -> Ruling:
            assert (call.tool, tool.name, state.agent) == ("tell", "tell", "teller")
            return Ask(("boss",))

        async with _turn(log) as (owned, turn):
            run = turn.run_tools(await _asks(turn, 1), told.tools)
            await _answered(log, owned.session_id, run, for_the_session)
            (result,) = await turn.run_tools(await _asks(turn, 2), told.tools)
            assert isinstance(result, Done)
            (strictly,) = await turn.run_tools(
                await _asks(turn, 3), told.tools, policy=strict, approval_wait_ms=SHORT_MS
            )
            assert isinstance(strictly, Waiting)
            granted = await _events(owned, PermissionGranted)
            assert [g.decided_by for g in granted] == ["PERSON", "EARLIER_GRANT"]
            assert granted[1].grant_id == granted[0].grant_id
        assert told.ran == [{"n": 1}, {"n": 2}]

    async def test_one_grant_for_the_turn_lets_the_others_go_that_wait_with_it(
        self, log: Log
    ) -> None:
        told = Told()
        answered: list[str] = []

        async def for_the_turn(view: SessionView, request_id: str) -> None:
            if not answered:
                answered.append(request_id)
                await view.grant(request_id, scope="TURN")

        async with _turn(log) as (owned, turn):
            run = turn.run_tools(await _asks(turn, 1, 2, 3), told.tools)
            results = await _answered(log, owned.session_id, run, for_the_turn)
            assert [type(result) for result in results] == [Done] * 3
        assert len(told.ran) == 3

    async def test_a_denial_ends_no_run_and_its_feedback_reaches_the_model(
        self, log: Log
    ) -> None:
        """Case B34, second half."""
        told = Told()

        async def deny(view: SessionView, request_id: str) -> None:
            await view.deny(request_id, "say it in Latin")

        async with _turn(log) as (owned, turn):
            run = turn.run_tools(await _asks(turn, 1), told.tools)
            (result,) = await _answered(log, owned.session_id, run, deny)
            assert isinstance(result, Denied)
            shown = str((await turn.context()).messages[-1])
            assert "denied by user policy. Choose a safer alternative." in shown
            assert "say it in Latin" in shown
            assert not turn.parked
            await turn.end("DONE")
        assert told.ran == []

    async def test_the_same_call_denied_too_often_stops_and_asks(self, log: Log) -> None:
        """Case B34, first half: the session rests until a person has answered."""
        told = Told()

        async def deny(view: SessionView, request_id: str) -> None:
            await view.deny(request_id, "no")

        async with _turn(log) as (owned, turn):
            for _ in range(2):
                calls = await _asks(turn, 1)
                run = turn.run_tools(calls, told.tools)
                await _answered(log, owned.session_id, run, deny)
            calls = await _asks(turn, 1, 2)
            limits = ApprovalLimits(denials_max=2)
            again, other = await turn.run_tools(
                calls, told.tools, limits=limits, approval_wait_ms=SHORT_MS
            )
            assert isinstance(again, Waiting)
            assert isinstance(other, Waiting)
            assert "tell was denied 2 times" in turn.parked
        state = log.state(owned.session_id)
        assert state is not None
        assert (state.status, state.reason) == (SUSPENDED, turn.parked)
        assert set(state.requests) == {again.request_id, other.request_id}
        await self._goes_on_once_granted(log, owned.session_id, told, again)

    async def _goes_on_once_granted(
        self, log: Log, session_id: str, told: Told, asked: Waiting
    ) -> None:
        async with connect(log) as client:
            view = await client.open(session_id)
            await view.grant(asked.request_id)
            taken = await client.take(session_id)
            turn = await taken.resume_turn()
            calls = await turn.open_calls()
            await turn.run_tools(calls, told.tools, approval_wait_ms=SHORT_MS)
            turn.leave()
        assert told.ran == [{"n": 1}]

    async def test_a_policy_that_denies_the_same_too_often_has_a_person_asked(
        self, log: Log
    ) -> None:
        told = Told()

        def never(call: PendingCall, tool: Tool, state: SessionState) -> Ruling:
            return Deny(f"never {call.tool} {tool.name} {state.agent}")

        async with _turn(log) as (owned, turn):
            for _ in range(3):
                calls = await _asks(turn, 1)
                (result,) = await turn.run_tools(
                    calls, told.tools, policy=never, limits=ApprovalLimits(denials_max=2)
                )
                assert isinstance(result, Denied)
            assert turn.parked
        state = log.state(owned.session_id)
        assert state is not None
        (request,) = state.requests.values()
        assert (state.status, request.kind) == (SUSPENDED, "INPUT")
        assert not told.ran

    async def test_requests_that_nobody_answers_end_in_one_that_stays(
        self, log: Log
    ) -> None:
        """Case B35: not asked for ever, and still answerable."""
        told = Told()
        limits = ApprovalLimits(expiries_max=2)
        async with _turn(log) as (owned, turn):
            (call,) = await _asks(turn, 1)
            for expired in (True, True, False):
                (waiting,) = await turn.run_tools(
                    [call],
                    told.tools,
                    limits=limits,
                    approval_wait_ms=200,
                    approval_expires_ms=1,
                )
                assert isinstance(waiting, Waiting)
                assert waiting.expired == expired
            assert "2 times without an answer" in turn.parked
        state = log.state(owned.session_id)
        assert state is not None
        assert state.status == SUSPENDED
        assert [r.expires_at for r in state.requests.values()] == [0]
        await self._goes_on_once_granted(log, owned.session_id, told, waiting)

    async def test_a_subagents_request_is_shown_below_its_root(self, log: Log) -> None:
        root = LogStory(log).given(created(), started())
        child = LogStory(log).given(_subagent_of(root.session_id), started())
        child.given(PermissionRequested(request_id=new_id(), display=()))
        root.given(SubagentStarted(child_session_id=child.session_id))
        assert root_of(log, child.session_id) == root.session_id
        assert root_of(log, root.session_id) == root.session_id
        (pending,) = pending_under(log, root.state)
        assert pending.session_id == child.session_id
        assert pending.root_session_id == root.session_id
        listed = Inbox(log).look().requests
        assert pending in listed
        assert pending in Inbox(log).recent(within_ms=0).requests

    async def test_a_subagent_names_its_root_when_it_asks(self, log: Log) -> None:
        told = Told()
        root = LogStory(log).given(created(), started())
        child = LogStory(log).given(_subagent_of(root.session_id))
        async with connect(log) as client:
            owned = await client.take(child.session_id)
            turn = owned.turn("go")
            await turn.__aenter__()
            calls = await _asks(turn, 1)
            await turn.run_tools(calls, told.tools, approval_wait_ms=SHORT_MS)
            (asked,) = await _events(owned, PermissionRequested)
        assert asked.root_session_id == root.session_id


def _subagent_of(parent_id: str) -> SessionCreated:
    return SessionCreated(agent="teller", relation="SUBAGENT", parent_session_id=parent_id)
