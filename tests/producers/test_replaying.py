"""Execution replay: nothing happens, and the first difference is named with its cause."""

import asyncio
import json
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from foldline.errors import (
    LogError,
    RecordedFailureError,
    ReplayError,
    SessionNotFoundError,
    SubagentEndedError,
)
from foldline.processors.open_log import open_log
from foldline.producers.client import Client, connect
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.replay_inputs import Inputs
from foldline.producers.replaying import continue_live, load, replay
from foldline.producers.session import OwnedSession
from foldline.producers.tools import Tool, ToolError
from foldline.projections.replay import (
    DECISION,
    ENVIRONMENT,
    HARNESS,
    INPUT,
    KINDS,
    MODEL,
    OBSERVATION,
    OUTSIDE,
    PROMPT,
    TOOL_SCHEMA,
    TOOL_SET,
    kind_of,
)
from foldline.projections.replay import EXTERNAL as EXTERNAL_KIND
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    EVENT_TYPES,
    PlanItem,
    PlanUpdated,
    SystemObservation,
    ToolExecutionStarted,
    UnknownEvent,
)
from foldline.settings import Settings
from tests.harness import FaultyLog, client, memory
from tests.replaying import ANSWERS, INSTRUCTIONS, Agent, recorded

SECRET = "ghp_" + "aB3dE5gH7jK9" * 3


@pytest.fixture
def log() -> FaultyLog:
    return memory()


async def same(log: FaultyLog, session_id: str, agent: Agent) -> None:
    """The agent, in another world, does what was recorded, and nothing happens."""
    again = agent.elsewhere()
    report = await replay(log, session_id, again.run)
    assert report.divergence is None, report.divergence
    assert report.model_calls == report.model_calls_recorded
    assert not report.not_given
    assert again.world.touched == 0


# --- the same harness ----------------------------------------------------------------


async def test_a_replay_of_the_same_harness_matches_and_touches_nothing(
    log: FaultyLog,
) -> None:
    agent = Agent()
    session_id = await recorded(log, agent, "Tell Ada.", "Again.")
    before = log.state(session_id)
    again = agent.elsewhere()
    report = await replay(log, session_id, again.run)
    assert report.divergence is None, report
    assert (report.model_calls, report.model_calls_recorded) == (6, 6)
    assert (report.turns, report.tool_calls) == (2, 4)
    assert not report.not_given
    assert again.world.touched == 0
    assert log.state(session_id) == before


async def test_every_recorded_value_is_tagged(log: FaultyLog) -> None:
    session_id = await recorded(log)
    report = await replay(log, session_id, Agent().run)
    state = log.state(session_id)
    assert state is not None
    assert len(report.values) == state.seq
    kinds = {value.type: value.kind for value in report.values}
    assert kinds["UserMessage"] == INPUT
    assert kinds["AssistantMessage"] == kinds["ToolExecutionCompleted"] == OBSERVATION
    assert kinds["TurnStarted"] == DECISION


def test_every_event_type_has_a_kind() -> None:
    assert KINDS.keys() == EVENT_TYPES.keys()
    assert set(KINDS.values()) == {INPUT, OBSERVATION, EXTERNAL_KIND, DECISION}
    assert kind_of(UnknownEvent("Later", {})) == EXTERNAL_KIND


async def test_a_grant_a_steering_and_a_late_message_come_in_their_place(
    log: FaultyLog,
) -> None:
    agent = Agent(approval="always")
    async with client(log) as opened:
        owned = await opened.create(
            agent="postman", instructions=INSTRUCTIONS, tools=agent.toolbox()
        )
        asking = asyncio.create_task(answer_all(opened, owned))
        async with owned.turn("Tell Ada.") as turn:
            await agent.drive(turn, agent.answer)
        await owned.steer("The next one by letter.", mode="NEXT_TURN")
        await owned.message("And be quick.")
        async with owned.turn("Tell Bob.") as turn:
            await agent.drive(turn, agent.answer)
        asking.cancel()
        await owned.complete()
    assert len(agent.world.notes) == 2
    await same(log, owned.session_id, agent)


async def answer_all(opened: Client, owned: OwnedSession) -> None:
    """Grant every request, with other arguments than the model's."""
    view = await opened.open(owned.session_id)
    async for followed in view.follow():
        if followed.type == "PermissionRequested":
            request: Any = followed.event
            await view.grant(request.request_id, edited_arguments='{"text": "edited"}')


async def test_a_denied_call_and_one_that_failed_are_answered_by_the_record(
    log: FaultyLog,
) -> None:
    agent = Agent(more_tools=(Tool(failing, name="fail"),), answers=FAILING)
    session_id = await recorded(log, agent, "Try.")
    await same(log, session_id, agent)


def failing(_arguments: dict[str, Any], _context: Any) -> str:
    """A tool that fails, and knows that nothing happened."""
    raise ToolError("no stamps", executed="NO")


FAILING = (
    ModelResponse.of("", ToolRequest("fail"), ToolRequest("nobody's"), ToolRequest("fail")),
    ModelResponse.of("", ToolRequest("send", "no JSON")),
    ModelResponse.of("I give up."),
)


async def test_a_large_body_is_read_from_where_it_was_stored(log: FaultyLog) -> None:
    large = "x" * 300_000
    agent = Agent(
        answers=(
            ModelResponse.of(large, ToolRequest("send", f'{{"to": "{large}"}}')),
            ModelResponse.of("Done."),
        )
    )
    session_id = await recorded(log, agent, large)
    await same(log, session_id, agent)


async def test_secrets_have_the_same_placeholders_in_a_replay(tmp_path: Any) -> None:
    secret = "ghp_" + "a1B2" * 9
    agent = Agent(
        instructions=f"Use the token {secret}.",
        answers=(ModelResponse.of(f"I use {secret}."),),
    )
    log = open_log(f"sqlite:///{tmp_path}/sessions.db")
    async with client(log) as opened:
        owned = await agent.record(opened, f"Here is {secret}.")
    again = agent.elsewhere(asks_itself=True)
    report = await replay(log, owned.session_id, again.run)
    assert report.divergence is None, report.divergence
    log.close()


OWN_RULES = """
[[rule]]
name = "acme-token"
anchors = ["acme_"]
pattern = "acme_[a-z0-9]{8,40}"
"""


async def test_a_file_of_rules_holds_in_a_replay_and_in_its_fork(tmp_path: Any) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(OWN_RULES)
    settings = Settings(redaction_rules=rules)
    agent = Agent(
        environment='{"token": "acme_1a2b3c4d"}',
        answers=(ModelResponse.of("I use acme_1a2b3c4d."),),
    )
    log = open_log(f"sqlite:///{tmp_path}/sessions.db")
    async with connect(log, settings=settings) as opened:
        owned = await agent.record(opened, "Here is acme_1a2b3c4d.", "Once more.")
        again = agent.elsewhere(asks_itself=True)
        report = await replay(log, owned.session_id, again.run, settings=settings)
        assert report.divergence is None, report.divergence
        from_seq = next(
            r.seq for r in log.events(owned.session_id) if r.type == "TurnEnded"
        )
        live = await continue_live(opened, owned.session_id, again.run, from_seq=from_seq)
        assert live.divergence is None, live.divergence
        said = [str(r.event) for r in log.events(live.live_session_id)]
    assert not any("acme_1a2b3c4d" in words for words in said)
    log.close()


class OverloadedError(Exception):
    """What a provider's client raises."""


async def retrying(session: OwnedSession, inputs: Inputs) -> None:
    """A harness that asks again when the model fails."""
    await inputs.set_up(session, instructions=INSTRUCTIONS)
    for opening in inputs.turns():
        async with session.turn(opening.blocks, trigger=opening.trigger) as turn:
            await ask_twice(turn, inputs.model(overloaded_once()))


def overloaded_once() -> Any:
    """A model that fails when it is asked for the first time."""
    tries: list[int] = []

    async def ask(_context: Any) -> ModelResponse:
        tries.append(1)
        if len(tries) == 1:
            raise OverloadedError("later")
        return ModelResponse.of("Now.")

    return ask


async def ask_twice(turn: Any, ask: Any) -> None:
    context = await turn.context()
    try:
        async with turn.model_call(context, model="m", provider="p") as call:
            await call.complete(await ask(context))
    except (OverloadedError, RecordedFailureError):
        async with turn.model_call(context, model="m", provider="p") as call:
            await call.complete(await ask(context))


async def test_a_model_that_failed_fails_in_the_replay(log: FaultyLog) -> None:
    async with client(log) as opened:
        owned = await opened.create(agent="a", instructions=INSTRUCTIONS)
        async with owned.turn("Now?") as turn:
            await ask_twice(turn, overloaded_once())
    report = await replay(log, owned.session_id, retrying)
    assert report.divergence is None, report.divergence
    assert report.model_calls == 2


# --- what differs --------------------------------------------------------------------


def extra(_arguments: dict[str, Any], _context: Any) -> str:
    """A tool that nobody declared."""
    return ""


OTHER_ANSWER = (ANSWERS[0], ModelResponse.of("I do not note it."))


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"instructions": "You send letters."}, PROMPT),
        ({"send_schema": {"type": "object", "required": ["to"]}}, TOOL_SCHEMA),
        ({"more_tools": [Tool(extra)]}, TOOL_SET),
        ({"answers": OTHER_ANSWER, "asks_itself": True}, MODEL),
        ({"model_name": "other"}, MODEL),
        ({"environment": '{"image": "2"}'}, ENVIRONMENT),
    ],
)
async def test_what_was_changed_is_the_cause_of_the_first_difference(
    log: FaultyLog, changed: dict[str, Any], cause: str
) -> None:
    agent = Agent(environment='{"image": "1"}')
    session_id = await recorded(log, agent)
    again = agent.elsewhere(**changed)
    report = await replay(log, session_id, again.run)
    assert report.divergence is not None
    assert report.divergence.cause == cause, report.divergence
    assert report.divergence.recorded != report.divergence.replayed
    assert not again.world.sent
    assert not again.world.notes
    assert not again.world.reconciled


async def test_a_schema_that_only_run_tools_sees_is_noticed_before_a_tool_would_run(
    log: FaultyLog,
) -> None:
    """A harness that sets up nothing goes on with the recorded set-up."""
    agent = Agent()
    session_id = await recorded(log, agent)
    again = agent.elsewhere(send_schema={"type": "string"})
    report = await replay(log, session_id, bare(again))
    assert report.divergence is not None
    assert report.divergence.cause == TOOL_SCHEMA
    assert report.divergence.detail == "input_schema of send"
    assert report.model_calls == 1
    assert again.world.touched == 0
    report = await replay(log, session_id, bare(agent.elsewhere()))
    assert report.divergence is None


def bare(agent: Agent) -> Any:
    """A harness that only drives turns."""

    async def run(session: OwnedSession, inputs: Inputs) -> None:
        for opening in inputs.turns():
            async with session.turn(opening.blocks, trigger=opening.trigger) as turn:
                await agent.drive(turn, inputs.model(agent.answer))

    return run


async def test_a_harness_that_stops_early_or_goes_on_is_told_from_its_record(
    log: FaultyLog,
) -> None:
    session_id = await recorded(log, Agent(), "One.", "Two.")

    async def one_turn(session: OwnedSession, inputs: Inputs) -> None:
        agent = Agent()
        await inputs.set_up(session, instructions=INSTRUCTIONS, tools=agent.toolbox())
        opening = next(iter(inputs.turns()))
        async with session.turn(opening.blocks) as turn:
            await agent.drive(turn, inputs.model(agent.answer))

    report = await replay(log, session_id, one_turn)
    assert report.divergence is not None
    assert report.divergence.cause == HARNESS
    assert (report.turns, report.model_calls) == (1, 3)

    async def a_third(session: OwnedSession, inputs: Inputs) -> None:
        agent = Agent()
        for opening in (*inputs.turns(), None):
            async with session.turn(opening.blocks if opening else "Three.") as turn:
                await agent.drive(turn, inputs.model(agent.answer))

    report = await replay(log, session_id, a_third)
    assert report.divergence is not None
    assert report.divergence.cause == HARNESS
    assert report.divergence.detail == "the model was asked once more, beyond the last turn"


async def test_what_a_harness_observes_outside_is_an_external_cause(
    log: FaultyLog,
) -> None:
    clock = iter(range(9))
    agent = Agent(answers=(ModelResponse.of("It is late."),))

    async def watching(session: OwnedSession, inputs: Inputs) -> None:
        for opening in inputs.turns():
            async with session.turn(opening.blocks) as turn:
                await turn.append(observed(next(clock)))
                await agent.drive(turn, inputs.model(agent.answer))

    async with client(log) as opened:
        owned = await opened.create(agent="a")
        async with owned.turn("What time is it?") as turn:
            await turn.append(observed(next(clock)))
            await agent.drive(turn, agent.answer)
    report = await replay(log, owned.session_id, watching)
    assert report.divergence is not None
    assert report.divergence.cause == OUTSIDE
    assert (report.divergence.recorded, report.divergence.replayed) == ("at 0", "at 1")


def observed(time: int) -> SystemObservation:
    return SystemObservation(origin="clock", blocks=(text_block(f"at {time}"),))


async def test_a_harness_that_swallows_every_error_is_stopped_all_the_same(
    log: FaultyLog,
) -> None:
    session_id = await recorded(log)
    tries: list[int] = []

    async def stubborn(session: OwnedSession, _inputs: Inputs) -> None:
        async with session.turn("Something else.") as turn:
            while True:
                tries.append(1)
                try:
                    async with turn.model_call(
                        await turn.context(), model="m", provider="p"
                    ) as call:
                        await call.complete(ModelResponse.of("x"))
                except Exception:  # noqa: BLE001, S112 - what a bad harness does
                    continue

    report = await replay(log, session_id, stubborn)
    assert report.divergence is not None
    assert report.divergence.cause == PROMPT
    assert len(tries) == 1


async def test_an_error_of_the_harness_is_named(log: FaultyLog) -> None:
    session_id = await recorded(log)

    async def broken(_session: OwnedSession, _inputs: Inputs) -> None:
        raise ZeroDivisionError("division by zero")

    report = await replay(log, session_id, broken)
    assert report.divergence is not None
    assert report.divergence.cause == HARNESS
    assert "ZeroDivisionError" in report.divergence.detail


async def test_plans_and_other_decisions_of_the_harness_are_its_own(
    log: FaultyLog,
) -> None:
    item = PlanItem(item_id="1", status="PENDING", blocks=(text_block("look"),))
    agent = Agent(answers=(ModelResponse.of("Planned."),))

    async def planning(session: OwnedSession, inputs: Inputs) -> None:
        for opening in inputs.turns():
            async with session.turn(opening.blocks) as turn:
                await turn.append(PlanUpdated(items=(item,)))
                await agent.drive(turn, inputs.model(agent.answer))
            await session.checkpoint()

    async with client(log) as opened:
        owned = await opened.create(agent="a", goal="Plan.")
        async with owned.turn("Plan.") as turn:
            await turn.append(PlanUpdated(items=(item,)))
            await agent.drive(turn, agent.answer)
        await owned.checkpoint()
    report = await replay(log, owned.session_id, planning)
    assert report.divergence is None, report.divergence


# --- crashes, resumes, forks, what is broken -----------------------------------------


async def test_a_session_that_stopped_within_a_tool_ends_there_and_runs_nothing(
    log: FaultyLog,
) -> None:
    agent = Agent()
    session_id = await crashed_in_a_tool(log, agent)
    again = agent.elsewhere()
    report = await replay(log, session_id, again.run)
    assert report.divergence is None, report.divergence
    assert "its outcome is unknown" in report.ended
    assert again.world.touched == 0


async def crashed_in_a_tool(log: FaultyLog, agent: Agent) -> str:
    """A session whose owner died between a tool's start and its outcome."""
    async with client(log) as opened:
        owned = await opened.create(
            agent="postman", instructions=INSTRUCTIONS, tools=agent.toolbox()
        )
        turn = owned.turn("Tell Ada.")
        async with turn:
            async with turn.model_call(
                await turn.context(), model="m", provider="p"
            ) as call:
                (asked,) = await call.complete(ANSWERS[0])
            started = ToolExecutionStarted(
                call_id=asked.call_id,
                effect="RECONCILABLE",
                operation_id="operation",
                start_by_ms=1,
            )
            await turn.append(started)
            turn.leave()
        return owned.session_id


@pytest.mark.parametrize("found", ["COMPLETED", "NOT_EXECUTED", "UNKNOWN"])
async def test_a_session_that_was_taken_over_and_recovered_replays_as_one(
    log: FaultyLog, found: str
) -> None:
    """Whatever recovery found out, or asked a person, is in the record."""
    agent = Agent()
    session_id = await crashed_in_a_tool(log, agent)
    if found == "COMPLETED":
        agent.world.sent.append("operation")
    async with client(log) as opened:
        owned = await opened.take(session_id, steal=True)
        tools = agent.elsewhere(send_effect="UNSAFE") if found == "UNKNOWN" else agent
        await owned.recover(tools.toolbox())
        if found == "UNKNOWN":
            call_id = next(iter((await owned.state()).calls))
            await owned.resolve(call_id, "COMPLETED", output="sent to ada")
        turn = await owned.resume_turn()
        async with turn:
            await agent.drive(turn, agent.answer)
        await owned.complete()
    await same(log, session_id, agent)


async def test_b31_an_effect_before_an_approval_happens_once_in_any_number_of_resumes(
    log: FaultyLog,
) -> None:
    """Resumed at each of two interrupts again and again, then replayed as often."""
    agent = Agent(approval="always", answers=TWO_APPROVALS)
    async with client(log) as opened:
        owned = await opened.create(
            agent="postman", instructions=INSTRUCTIONS, tools=agent.toolbox()
        )
        session_id = owned.session_id
        turn = owned.turn("Tell Ada.")
        async with turn:
            await until_it_waits(turn, agent)
            turn.leave()
        await owned.suspend("waiting for a person")
    for answered in range(3):
        for _ in range(3):
            await resume(log, session_id, agent)
            assert len(agent.world.sent) == 1
            assert len(agent.world.notes) == answered
        async with client(log) as opened:
            view = await opened.open(session_id)
            for request_id in (await view.state()).requests:
                await view.grant(request_id)
    assert len(agent.world.sent) == 1
    assert len(agent.world.notes) == 2
    for _ in range(3):
        await same(log, session_id, agent)
    assert (len(agent.world.sent), len(agent.world.notes)) == (1, 2)


TWO_APPROVALS = (
    ANSWERS[0],
    ModelResponse.of("", ToolRequest("note", '{"text": "one"}')),
    ModelResponse.of("", ToolRequest("note", '{"text": "two"}')),
    ModelResponse.of("Done."),
)


async def until_it_waits(turn: Any, agent: Agent) -> bool:
    """Drive a turn until a call waits for a person; True if it came to its end."""
    calls = await turn.open_calls()
    while True:
        results = await turn.run_tools(calls, agent.toolbox(), approval_wait_ms=0)
        if any(type(result).__name__ == "Waiting" for result in results):
            return False
        context = await turn.context()
        async with turn.model_call(context, model="m", provider="p") as call:
            calls = await call.complete(await agent.answer(context))
        if not calls:
            return True


async def resume(log: FaultyLog, session_id: str, agent: Agent) -> None:
    async with client(log) as opened:
        owned = await opened.take(session_id, steal=True)
        await owned.recover(agent.toolbox())
        if (await owned.state()).turn is None:
            return
        turn = await owned.resume_turn()
        async with turn:
            if not await until_it_waits(turn, agent):
                turn.leave()


async def delegating(session: OwnedSession, inputs: Inputs) -> None:
    """A harness that has another agent work on a call."""
    for opening in inputs.turns():
        async with session.turn(opening.blocks) as turn:
            await delegate(session, turn, inputs.model(in_two_steps))
    await session.complete()


async def in_two_steps(context: Any) -> ModelResponse:
    if any(message.role == "tool" for message in context.messages):
        return ModelResponse.of("It was found.")
    return ModelResponse.of("", ToolRequest("look"))


async def delegate(session: OwnedSession, turn: Any, ask: Any) -> None:
    while True:
        context = await turn.context()
        async with turn.model_call(context, model="m", provider="p") as call:
            calls = await call.complete(await ask(context))
        if not calls:
            return
        for asked in calls:
            with suppress(SubagentEndedError):
                child = await session.subagent(asked, agent="looker", goal="Look.")
                async with child.turn("Look.") as inner:
                    await ask_twice(inner, overloaded_once())
                await child.complete(said="found")
            await session.subagent_result(asked)


async def test_a_subagent_is_not_made_again_and_its_own_session_replays(
    log: FaultyLog,
) -> None:
    async with client(log) as opened:
        owned = await opened.create(agent="a")
        async with owned.turn("Find it.") as turn:
            await delegate(owned, turn, in_two_steps)
        await owned.complete()
    sessions = {summary.session_id for summary in log.sessions()}
    report = await replay(log, owned.session_id, delegating)
    assert report.divergence is None, report.divergence
    assert (report.model_calls, report.not_given) == (2, ())
    (child_id,) = sessions - {owned.session_id}
    report = await replay(log, child_id, retrying)
    assert report.divergence is not None
    assert report.divergence.cause == PROMPT
    assert {summary.session_id for summary in log.sessions()} == sessions


async def test_a_fork_replays_from_its_fork_point(log: FaultyLog) -> None:
    agent = Agent()
    session_id = await recorded(log, agent, "Tell Ada.")
    for at_seq in (3, 8, 14, 20):
        async with client(log) as opened:
            fork = await opened.fork(session_id, at_seq)
            async with fork.turn("Once more.") as turn:
                await agent.drive(turn, agent.answer)
            second = await opened.fork(fork.session_id, at_seq + 9)
            async with second.turn("And again.") as turn:
                await agent.drive(turn, agent.answer)
        for forked in (fork.session_id, second.session_id):
            again = agent.elsewhere()
            report = await replay(log, forked, again.run)
            assert report.divergence is None, (at_seq, report.divergence)
            assert report.model_calls == 3
            assert again.world.touched == 0


async def test_a_replay_goes_on_live_in_a_fork(log: FaultyLog) -> None:
    agent = Agent()
    session_id = await recorded(log, agent, "Tell Ada.", "Again.")
    whole = load(log, session_id)
    second_turn = whole.turns[1].seq
    parent = log.state(session_id)
    for from_seq in (3, second_turn - 1, second_turn + 4, whole.calls[1].end_seq):
        again = agent.elsewhere()
        async with client(log) as opened:
            report = await continue_live(opened, session_id, again.run, from_seq=from_seq)
        assert report.divergence is None, (from_seq, report.divergence)
        state = log.state(report.live_session_id)
        assert state is not None
        assert (state.status, state.fork_seq) == ("COMPLETED", from_seq)
        assert again.world.touched
    assert log.state(session_id) == parent


async def test_a_harness_that_differs_before_the_fork_point_does_not_go_live(
    log: FaultyLog,
) -> None:
    agent = Agent()
    session_id = await recorded(log, agent, "Tell Ada.", "Again.")
    again = agent.elsewhere(instructions="Other.")
    async with client(log) as opened:
        report = await continue_live(opened, session_id, again.run, from_seq=12)
    assert report.divergence is not None
    assert not report.live_session_id
    assert len(log.sessions()) == 1
    assert again.world.touched == 0


async def test_a_harness_that_forks_its_session_is_told_that_a_replay_cannot(
    log: FaultyLog,
) -> None:
    """And goes on where it asks first; live, it has its fork."""
    agent = Agent()
    session_id = await recorded(log, agent)
    forks: list[str] = []

    async def forking(session: OwnedSession, inputs: Inputs) -> None:
        forks.append((await session.fork(1)).session_id)
        await agent.run(session, inputs)

    async def asking_first(session: OwnedSession, inputs: Inputs) -> None:
        if inputs.live:
            forks.append((await session.fork(1)).session_id)
        await agent.elsewhere().run(session, inputs)

    with pytest.raises(ReplayError, match="a fork has a record of its own"):
        await replay(log, session_id, forking)
    assert len(log.sessions()) == 1
    assert not forks
    async with client(log) as opened:
        report = await continue_live(opened, session_id, asking_first, from_seq=9)
    assert report.divergence is None
    assert [log.state(name) is not None for name in forks] == [True]


HERE = json.dumps({"commit": "1f", "image": "a", "remote": f"https://{SECRET}@host/r"})


@pytest.mark.parametrize(
    ("now", "detail"),
    [
        (HERE.replace("1f", "2e"), "another environment: commit"),
        ('{"image": "a", "os": "b"}', "another environment: commit, os, remote"),
        ("unknown", "another environment"),
    ],
)
@pytest.mark.parametrize("only_live", [False, True])
async def test_another_environment_is_told_and_nothing_goes_on_in_it(
    log: FaultyLog,
    now: str,
    detail: str,
    only_live: bool,  # noqa: FBT001 - a table
) -> None:
    """Also where the harness finds itself elsewhere only once it is live."""
    agent = Agent(environment=HERE)
    session_id = await recorded(log, agent, "Tell Ada.", "Again.")
    again = agent.elsewhere(environment=now)

    async def run(session: OwnedSession, inputs: Inputs) -> None:
        told = again if inputs.live or not only_live else agent
        await told.run(session, inputs)

    async with client(log) as opened:
        report = await continue_live(opened, session_id, run, from_seq=9)
    assert report.divergence is not None
    assert (report.divergence.seq, report.divergence.cause) == (1, ENVIRONMENT)
    assert report.divergence.detail == detail
    assert SECRET not in str(report)
    assert bool(report.live_session_id) == only_live
    assert again.world.touched == 0


async def test_the_same_environment_said_otherwise_is_the_same(log: FaultyLog) -> None:
    """In another order, with a secret that the record does not have; also in a fork."""
    agent = Agent(environment=HERE)
    session_id = await recorded(log, agent, "Tell Ada.", "Again.")
    fields = json.loads(HERE)
    otherwise = json.dumps(dict(reversed(fields.items())), indent=1)
    again = agent.elsewhere(environment=otherwise)
    async with client(log) as opened:
        report = await continue_live(opened, session_id, again.run, from_seq=9)
    assert report.divergence is None, report.divergence
    moved = agent.elsewhere(environment='{"commit": "2e"}')
    report = await replay(log, report.live_session_id, moved.run)
    assert report.divergence is not None
    assert report.divergence.cause == ENVIRONMENT


async def test_what_cannot_be_replayed_is_refused(log: FaultyLog) -> None:
    with pytest.raises(SessionNotFoundError):
        await replay(log, "nobody's", Agent().run)
    session_id = await recorded(log)
    with pytest.raises(ReplayError, match="none at 999"):
        await replay(log, session_id, Agent().run, upto_seq=999)
    async with client(log) as opened:
        mirrored = await opened.mirror(system="other", stream="s")
    with pytest.raises(ReplayError, match="mirrors another harness"):
        await replay(log, mirrored.session_id, Agent().run)


@pytest.mark.parametrize("gone", ["= 9", "> 9", "= 1"])
async def test_a_truncated_record_is_refused_and_never_replayed_in_part(
    tmp_path: Path, gone: str
) -> None:
    """A hole, a missing end, a missing beginning: what is there is not what happened."""
    url = f"sqlite:///{tmp_path}/sessions.db"
    log = open_log(url)
    async with client(log) as opened:
        owned = await Agent().record(opened, "Tell Ada.")
    log.close()
    with sqlite3.connect(tmp_path / "sessions.db") as database:
        database.execute(f"DELETE FROM events WHERE position & 0xFFFFFFFF {gone}")  # noqa: S608 - our own text
    database.close()
    log = open_log(url)
    again = Agent()
    with pytest.raises((ReplayError, LogError)):
        await replay(log, owned.session_id, again.run)
    assert again.world.touched == 0
    log.close()
