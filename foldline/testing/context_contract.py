"""How an owner keeps contexts small, on any log: tests to inherit, with a fixture `log`.

An owner prunes and compacts by events; a summary tells what matters; nothing loops; the
originals stay readable; and every context that comes of it is one that an API takes.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from foldline.errors import UncertainAppendError
from foldline.processors.log import Log
from foldline.producers.client import connect
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.owned import OwnedSession
from foldline.producers.policies import Deny
from foldline.producers.reading_tool import read_event_tool
from foldline.producers.summarisers import SummaryRequest
from foldline.producers.tools import (
    PendingCall,
    Tool,
    Toolbox,
    ToolContext,
    ToolError,
)
from foldline.producers.turn import Turn
from foldline.projections.context import Context
from foldline.projections.policy import ContextPolicy
from foldline.projections.render import FORMATS, render
from foldline.projections.render_rules import breaches
from foldline.schemas.blocks import Block, Blocks, text_block
from foldline.schemas.events import (
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    ContextPruned,
    HistoryRewound,
    KnownEvent,
    MessageRetracted,
    ModelCallStarted,
    PlanItem,
    PlanUpdated,
    RequestRef,
    ToolExecutionCompleted,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SUSPENDED, SessionState

TIGHT = ContextPolicy(
    "tight",
    version=7,
    budget_tokens=900,
    window_tokens=150,
    prune_step_tokens=300,
    compact_step_tokens=600,
    summary_tokens=400,
    prune_result_tokens=60,
)
"""So small that a few outputs bring it to every step that there is."""

COMPACTS = replace(TIGHT, prune_step_tokens=0)
"""The same, but nothing is pruned."""

LINES = 40
"""How long an output of `read` is: some 400 tokens."""


def read(arguments: dict[str, Any], _context: ToolContext) -> str:
    """A file, the same each time."""
    path = arguments["path"]
    return "\n".join(f"{path}:{line} says nothing new" for line in range(LINES))


def fail(arguments: dict[str, Any], _context: ToolContext) -> str:
    """Fails, the same way each time."""
    msg = f"no such target: {arguments}"
    raise ToolError(msg, executed="NO")


TOOLS = Toolbox(Tool(read, effect="READ_ONLY"), Tool(fail, effect="IDEMPOTENT"))


async def step(
    turn: Turn, *requests: tuple[str, str], words: str = "", tools: Toolbox = TOOLS
) -> Context:
    """One context, one answer of a model, its tools; gives the context."""
    context = await turn.context()
    check(context)
    if not turn.parked:
        asked = [ToolRequest(tool, arguments) for tool, arguments in requests]
        async with turn.model_call(context, model="m", provider="p") as call:
            calls = await call.complete(ModelResponse.of(words, *asked))
        await turn.run_tools(calls, tools)
    return context


def check(context: Context) -> None:
    """Every API takes it."""
    for form in FORMATS:
        request = render(context, form, model="m", provider="p", read_blob=None)
        assert breaches(request, form) == []


def text_of(context: Context) -> str:
    """All that a context says."""
    return context.as_bytes().decode()


async def recorded(owned: OwnedSession, *types: type[KnownEvent]) -> list[Recorded]:
    """The events of some types."""
    return [r async for r in owned.events() if isinstance(r.event, types)]


async def events_of(owned: OwnedSession, kind: type[KnownEvent]) -> Sequence[Any]:
    """The same without their envelopes."""
    return [r.event for r in await recorded(owned, kind)]


class Scripted:
    """A summariser that says, or raises, what it is told to; and what it was asked."""

    strategy = "scripted/1"

    def __init__(self, *said: str | Exception) -> None:
        self.said = list(said)
        self.asked: list[SummaryRequest] = []

    async def summarise(self, request: SummaryRequest) -> Blocks:
        """The next of its answers; the last one again and again."""
        self.asked.append(request)
        said = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        if isinstance(said, Exception):
            raise said
        return (text_block(said),) if said else ()


class ContextContract:
    """Inherit it and give the fixture `log`."""

    async def test_old_outputs_become_references_that_the_model_can_open(
        self, log: Log
    ) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=TIGHT)
            tools = Toolbox(*TOOLS, read_event_tool(owned))
            await owned.declare(tools)
            async with owned.turn("look around") as turn:
                for name in "abc":
                    await step(turn, ("read", f'{{"path": "src/{name}.py"}}'), tools=tools)
                context = await step(turn, words="done")
                (pruned, *_) = await recorded(owned, ContextPruned)
                assert isinstance(pruned.event, ContextPruned)
                assert pruned.event.rule == "reference/1"
                assert pruned.envelope.turn_id == turn.turn_id
                assert "src/a.py" in text_of(context)
                outcome = await recorded_end(owned)
                await step(turn, ("read_event", f'{{"seq": {outcome}}}'), tools=tools)
                assert f"src/a.py:{LINES - 1} says" in text_of(await turn.context())

    async def test_every_request_says_by_which_policy_its_context_was_made(
        self, log: Log
    ) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=TIGHT)
            async with owned.turn("go") as turn:
                await step(turn, words="one")
                context = await turn.context(policy="full")
                async with turn.model_call(context, model="m") as call:
                    await call.complete(ModelResponse.of("two"))
                context = await turn.context(policy="roomy", budget=5_000)
                async with turn.model_call(context, model="m") as call:
                    await call.complete(ModelResponse.of("three"))
            requests = [e.request for e in await events_of(owned, ModelCallStarted)]
            named = [
                (request.policy, request.policy_version)
                for request in requests
                if isinstance(request, RequestRef)
            ]
            assert named == [("tight", 7), ("full", 1), ("roomy@5000", 1)]

    async def test_goal_constraints_plan_task_and_failures_survive_compactions(
        self, log: Log
    ) -> None:
        """Case B22: what failed is told with how often, however often it is compacted."""
        async with connect(log) as client:
            owned = await client.create(agent="a", goal="THE GOAL", policy=COMPACTS)
            async with owned.turn("THE TASK: never touch prod") as turn:
                item = PlanItem(item_id="1", status="PENDING", blocks=(text_block("STEP"),))
                await turn.append(PlanUpdated(items=(item,)))
                for number in range(6):
                    await step(turn, ("fail", '{"target": "all"}'))
                    await step(turn, ("read", f'{{"path": "src/{number}.py"}}'))
                context = await step(turn, words="done")
            assert len(await events_of(owned, CompactionCompleted)) > 1
            shown = text_of(context)
            for told in ("THE GOAL", "THE TASK", "PENDING: STEP", "no such target"):
                assert told in shown
            counted = [n for n in range(4, 7) if f"{n} times" in shown]
            assert counted, shown

    async def test_a_stale_count_or_an_empty_turn_compacts_nothing_again(
        self, log: Log
    ) -> None:
        """Case B20: what counts is the context as it is, not what was used before."""
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            async with owned.turn("look around") as turn:
                for name in "abc":
                    await step(turn, ("read", f'{{"path": "src/{name}.py"}}'))
                await step(turn, words="done")
            count = len(await events_of(owned, CompactionStarted))
            assert count
            for _ in range(5):
                async with owned.turn("") as turn:
                    await turn.context()
                    await turn.context()
            assert len(await events_of(owned, CompactionStarted)) == count

    async def test_an_agent_that_goes_round_in_circles_is_stopped_and_a_person_asked(
        self, log: Log
    ) -> None:
        """Case B21: compact, read the same again, compact."""
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            async with owned.turn("a small task") as turn:
                for _ in range(40):
                    for name in "ab":
                        await step(turn, ("read", f'{{"path": "src/{name}.py"}}'))
                    if turn.parked:
                        break
                assert "3 times without progress" in turn.parked
            done = await events_of(owned, CompactionCompleted)
            assert COMPACTS.no_progress_max <= len(done) <= COMPACTS.no_progress_max + 2
            state = await owned.state()
            assert state.phase == SUSPENDED
            (request_id,) = state.requests
            await (await client.open(owned.session_id)).answer(request_id, "RESUME")
            again = await client.take(owned.session_id, policy=COMPACTS)
            turn = await again.resume_turn()
            async with turn:
                check(await turn.context())
                assert not turn.parked
            done_after = await events_of(again, CompactionCompleted)
            assert len(done_after) == len(done) + 1

    async def test_an_agent_that_gets_on_is_never_stopped(self, log: Log) -> None:
        """The other side of B21: each file is read once."""
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            async with owned.turn("a large task") as turn:
                for number in range(14):
                    await step(turn, ("read", f'{{"path": "src/{number}.py"}}'))
                assert not turn.parked
            done = await events_of(owned, CompactionCompleted)
            assert len(done) > COMPACTS.no_progress_max

    async def test_what_cannot_be_made_smaller_is_said_once_and_never_tried_in_a_loop(
        self, log: Log, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=TIGHT)
            async with owned.turn("word " * 3_000) as turn:
                for _ in range(4):
                    check(await turn.context())
                assert owned.over_budget_tokens > 1_000
            assert await recorded(owned, CompactionStarted, ContextPruned) == []
            said = [r for r in caplog.records if "above its budget" in r.getMessage()]
            assert len(said) == 1

    # --- summarisers -------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("said", "reason"),
        [
            (ValueError("no model here"), "ValueError: no model here"),
            ("", "the summary is empty"),
            ("far too long " * 2_000, "stands for"),
        ],
    )
    async def test_a_summariser_that_fails_is_recorded_and_extracts_are_taken(
        self, log: Log, said: str | Exception, reason: str
    ) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            owned.summarise_by(Scripted(said))
            async with owned.turn("look around") as turn:
                for name in "abc":
                    await step(turn, ("read", f'{{"path": "src/{name}.py"}}'))
                context = await step(turn, words="done")
            failed = (await events_of(owned, CompactionFailed))[0]
            assert reason in failed.reason
            begun = await events_of(owned, CompactionStarted)
            assert begun[1].reason == "budget: scripted/1 failed"
            (completed, *_) = await events_of(owned, CompactionCompleted)
            assert completed.strategy == "extractive/1"
            assert completed.token_after < completed.token_before
            assert "Summary of events" in text_of(context)

    async def test_facts_stand_behind_whatever_a_summariser_says(self, log: Log) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            scripted = Scripted("all went well")
            async with owned.turn("go") as turn:
                await step(turn, ("fail", "{}"))
                await step(turn, ("read", '{"path": "src/a.py"}'))
                await step(turn, words="done")
                assert await turn.compact(summariser=scripted)
                context = await turn.context()
            assert "1 times" in scripted.asked[0].facts
            shown = text_of(context)
            assert "all went well" in shown
            assert "no such target" in shown

    @pytest.mark.parametrize("taken_back", ["rewound", "retracted"])
    async def test_a_history_that_changes_meanwhile_is_planned_anew(
        self, log: Log, taken_back: str
    ) -> None:
        """What somebody takes back while a summary is made is not in it."""
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            async with owned.turn("go") as turn:
                await step(turn, ("read", '{"path": "src/a.py"}'))
                seq = (await owned.state()).seq
                message_id = await owned.message("FORGET THIS")
                await step(turn, ("read", '{"path": "src/b.py"}'))
                await step(turn, ("read", '{"path": "src/c.py"}'))
                event: KnownEvent = HistoryRewound(to_seq=seq)
                if taken_back == "retracted":
                    event = MessageRetracted(message_ids=(message_id,))
                summariser = Meanwhile(owned, event)
                await turn.compact(summariser=summariser)
                context = await turn.context()
            check(context)
            assert "FORGET THIS" not in text_of(context)
            (failed, *_) = await events_of(owned, CompactionFailed)
            assert "changed" in failed.reason
            assert (await owned.state()).open_compaction is None

    async def test_an_uncertain_end_is_closed_by_the_next_context(self, log: Log) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            async with owned.turn("go") as turn:
                await step(turn, ("read", '{"path": "src/a.py"}'))
                await step(turn, words="x")
                with pytest.raises(UncertainAppendError):
                    await turn.compact(
                        summariser=Scripted(UncertainAppendError(log.url, "lost"))
                    )
                assert (await owned.state()).open_compaction is not None
                assert await turn.compact()
            (failed,) = await events_of(owned, CompactionFailed)
            assert failed.reason == "left open"

    # --- every context is whole --------------------------------------------------------

    async def test_no_cut_parts_a_call_from_its_result(self, log: Log) -> None:
        """Cases B11, B12, B23: wherever somebody wants the cut, and whatever waits."""
        async with connect(log) as client:
            base = await client.create(agent="a", policy="full")
            async with base.turn("go") as turn:
                for name in "ab":
                    reads = [("read", f'{{"path": "{name}{n}"}}') for n in range(3)]
                    await step(turn, *reads, ("fail", "{}"), words=f"batch {name}")
                await base.steer("use nix")
                await step(turn, words="with nix")
                turn.leave()
            last = (await base.state()).seq
            for seq in range(1, last + 1, 2):
                fork = await base.fork(last, policy="full")
                async with fork.turn("on") as turn:
                    compacted = await turn.compact(to_seq=seq)
                    context = await turn.context()
                check(context)
                if compacted:
                    (done,) = await events_of(fork, CompactionCompleted)
                    assert 1 <= done.to_seq <= seq
                await fork.close()

    async def test_an_interruption_of_parallel_calls_leaves_a_context_that_is_whole(
        self, log: Log
    ) -> None:
        """Case B11: one of three had ended; then a compaction goes over them."""
        async with connect(log) as client:
            owned = await client.create(agent="a", policy="full")
            async with owned.turn("go") as turn:
                context = await turn.context()
                asked = [ToolRequest("read", f'{{"path": "{n}"}}') for n in "abc"]
                async with turn.model_call(context, model="m") as call:
                    calls = await call.complete(ModelResponse.of("", *asked))
                await turn.run_tools(calls[:1], TOOLS)
                await owned.steer("use nix")
                await turn.run_tools(calls, TOOLS)
                assert turn.interrupted
                context = await step(turn, words="with nix")
                (results,) = [m for m in context.messages if m.role == "tool"]
                ids = [part.call_id for part in results.parts]
                assert ids == [call.call_id for call in calls]
                assert await turn.compact(to_seq=context.upto_seq)
                check(await turn.context())

    async def test_an_unknown_outcome_is_told_through_compactions_until_it_is_known(
        self, log: Log
    ) -> None:
        """Case B32: nobody sends the mail again because it was forgotten."""

        delivered = asyncio.Event()

        async def send(_arguments: dict[str, Any], _context: ToolContext) -> str:
            await delivered.wait()
            return "DELIVERED AFTER ALL"

        tools = Toolbox(*TOOLS, Tool(send, effect="UNSAFE", timeout_s=0.01))
        unknown = "Nobody knows how these ended, verify first:\\n- [7] send"
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            async with owned.turn("mail Ada") as turn:
                await step(turn, ("send", '{"to": "ada"}'), tools=tools)
                for name in "abc":
                    await step(turn, ("read", f'{{"path": "src/{name}.py"}}'))
                context = await step(turn, words="hm")
                assert await events_of(owned, CompactionCompleted)
                assert unknown in text_of(context)
                delivered.set()
                async for found in owned.follow():
                    if found.type == "ToolExecutionCompleted" and "AFTER" in str(found):
                        break
                context = await step(turn, words="so it was sent")
                assert "DELIVERED AFTER ALL" in text_of(context)
                for name in "def":
                    await step(turn, ("read", f'{{"path": "src/{name}.py"}}'))
                context = await step(turn, words="done")
                assert unknown not in text_of(context)
                assert "AFTER ALL" in text_of(context)

    async def test_an_outcome_between_a_context_and_its_freezing_is_shown(
        self, log: Log
    ) -> None:
        async def hang(_arguments: dict[str, Any], context: ToolContext) -> str:
            await context.cancellation()
            return "ENDED AT ONCE"

        tools = Toolbox(Tool(hang, effect="UNSAFE", timeout_s=0.001))
        async with connect(log) as client:
            owned = await client.create(agent="a")
            async with owned.turn("go") as turn:
                for number in range(6):
                    await step(turn, ("hang", f'{{"n": {number}}}'), tools=tools)
                async for found in owned.follow():
                    if found.type == "ToolExecutionCompleted":
                        break
                context = await turn.context()
            ended = await events_of(owned, ToolExecutionCompleted)
            assert text_of(context).count("ENDED AT ONCE") == len(ended)

    async def test_a_denial_and_its_reason_are_told_through_compactions(
        self, log: Log
    ) -> None:
        """Case B34: a person's word is not forgotten; one denial ends nothing."""

        def deny(_call: PendingCall, tool: Tool, _state: SessionState) -> Deny | None:
            return Deny("mirrors", "USE THE MIRROR") if tool.name == "fail" else None

        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            async with owned.turn("fetch it") as turn:
                context = await turn.context()
                async with turn.model_call(context, model="m") as call:
                    request = ToolRequest("fail", '{"url": "x"}')
                    calls = await call.complete(ModelResponse.of("", request))
                await turn.run_tools(calls, TOOLS, policy=deny)
                for name in "abc":
                    await step(turn, ("read", f'{{"path": "src/{name}.py"}}'))
                context = await step(turn, words="with the mirror")
                assert not turn.parked
            assert await events_of(owned, CompactionCompleted)
            assert "USE THE MIRROR" in text_of(context)

    async def test_what_is_pinned_stays_through_compactions(self, log: Log) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a")
            async with owned.turn("PINNED WORDS stay " * 20) as turn:
                first = await turn.context(policy="full")
                (pinned,) = first.messages[0].event_ids
                policy, context = replace(COMPACTS, pinned=(pinned,)), first
                for number in range(6):
                    context = await turn.context(policy=policy)
                    check(context)
                    async with turn.model_call(context, model="m") as call:
                        request = ToolRequest("read", f'{{"path": "{number}.py"}}')
                        calls = await call.complete(ModelResponse.of("", request))
                    await turn.run_tools(calls, TOOLS)
            done = await events_of(owned, CompactionCompleted)
            assert len(done) > 1
            assert all(event.kept == (pinned,) for event in done)
            texts = [p.text for m in context.messages for p in m.parts]
            assert "PINNED WORDS stay " * 20 in texts

    async def test_empty_blocks_and_lone_surrogates_do_no_harm_through_compactions(
        self, log: Log
    ) -> None:
        """Cases B06 and B38: said, in arguments, in an output that is cut in an emoji."""

        def half(_arguments: dict[str, Any], _context: ToolContext) -> str:
            return "half of it \ud83d " * 200

        tools = Toolbox(Tool(half, effect="READ_ONLY"))
        async with connect(log) as client:
            owned = await client.create(agent="a", goal="\ud99c", policy=COMPACTS)
            async with owned.turn("say \ud83d") as turn:
                for number in range(3):
                    context = await turn.context()
                    check(context)
                    text_of(context)
                    async with turn.model_call(context, model="m") as call:
                        request = ToolRequest("half", f'{{"d": "현\ud99c{number}"}}')
                        parts = (text_block(""), Block(kind="text", body=" "), request)
                        calls = await call.complete(ModelResponse(parts=parts))
                    await turn.run_tools(calls, tools)
                context = await step(turn, words="\ud83d", tools=tools)
            assert await events_of(owned, CompactionCompleted)
            assert "\ufffd" in text_of(context)
            said = [p for m in context.messages for p in m.parts if p.kind == "text"]
            assert all(part.text.strip() for part in said)


async def recorded_end(owned: OwnedSession) -> int:
    """The event of the first outcome of a tool."""
    async for found in owned.events():
        if found.type == "ToolExecutionCompleted":
            return found.seq
    return 0


class Meanwhile:
    """A summariser during whose first work somebody takes something back."""

    strategy = "meanwhile/1"

    def __init__(self, owned: OwnedSession, event: KnownEvent) -> None:
        self._owned = owned
        self._event: KnownEvent | None = event

    async def summarise(self, request: SummaryRequest) -> Blocks:
        """What people said."""
        event, self._event = self._event, None
        if event is not None:
            await self._owned.append(event)
        said = [getattr(r.event, "blocks", ()) for r in request.originals.events]
        return tuple(b for blocks in said for b in blocks if b.kind == "text")[:3]
