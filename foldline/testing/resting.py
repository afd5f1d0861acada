"""Everything that a session may have open or in force when it comes to rest."""

from collections.abc import Awaitable, Callable

from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.session import OwnedSession
from foldline.producers.tools import PendingCall
from foldline.producers.turn import Turn
from foldline.schemas.blocks import text_block
from foldline.schemas.choices import CancelTarget, SteeringMode
from foldline.schemas.events import (
    BudgetSet,
    CompactionCompleted,
    ConfigChanged,
    ConstraintSet,
    HarnessStateSet,
    InputRequested,
    InstructionsSet,
    ModelCallStarted,
    PermissionGranted,
    PermissionRequested,
    PlanItem,
    PlanUpdated,
    RetryScheduled,
    SubagentStarted,
    ToolBackgrounded,
    ToolDeclaration,
    ToolExecutionCancelled,
    ToolExecutionStarted,
    ToolExecutionTimedOut,
    ToolOutcomeUnknown,
    ToolsDeclared,
    Usage,
)
from foldline.testing.log_story import new_id

Thing = Callable[[OwnedSession, Turn], Awaitable[object]]

CHANGED_BY_REST = frozenset(
    {
        "seq",
        "epoch",
        "owner",
        "claimed_seq",
        "phase",
        "suspended_from",
        "reason",
        "counts",
        "window",
        "recorded_at",
        "chain_head",
    }
)
"""What suspending and resuming is about; all else in a state stays."""

_WORDS = (text_block("words"),)


async def _call(turn: Turn) -> PendingCall:
    """A call that the model asked for."""
    async with turn.model_call(model="m", provider="p") as call:
        request = ToolRequest("send", '{"to": "b"}', new_id())
        answer = ModelResponse(parts=(request,), usage=Usage(input_tokens=7))
        (pending,) = await call.complete(answer)
    return pending


async def _started(owned: OwnedSession, turn: Turn) -> PendingCall:
    """A call that runs."""
    call = await _call(turn)
    start = ToolExecutionStarted(
        call_id=call.call_id,
        attempt=1,
        effect="UNSAFE",
        operation_id=new_id(),
        cancellable=True,
        start_by_ms=5_000,
        deadline_ms=60_000,
    )
    await owned.append(start)
    return call


async def _approval(owned: OwnedSession, turn: Turn) -> None:
    call = await _call(turn)
    await owned.append(
        PermissionRequested(
            request_id="r",
            call_id=call.call_id,
            args_hash=call.args_hash,
            expires_ms=3_600_000,
            display=_WORDS,
        )
    )


async def _question(owned: OwnedSession, turn: Turn) -> None:  # noqa: ARG001 - a Thing
    await owned.append(InputRequested(request_id="q", prompt=_WORDS))


async def _grant(owned: OwnedSession, turn: Turn) -> None:
    """A grant that a policy gave for the whole session; its call has yet to run."""
    call = await _call(turn)
    await owned.append(
        PermissionGranted(
            call_id=call.call_id,
            args_hash=call.args_hash,
            scope="SESSION",
            decided_by="POLICY",
            policy="trusted",
            grant_id=new_id(),
        )
    )


async def _unknown(owned: OwnedSession, turn: Turn) -> None:
    call = await _started(owned, turn)
    await owned.append(ToolOutcomeUnknown(call_id=call.call_id, reason="who knows"))


async def _timed_out(owned: OwnedSession, turn: Turn) -> None:
    call = await _started(owned, turn)
    await owned.append(
        ToolExecutionTimedOut(
            call_id=call.call_id, attempt=1, after_ms=10, stop_confirmed=False
        )
    )


async def _cancelling(owned: OwnedSession, turn: Turn) -> None:
    call = await _started(owned, turn)
    await owned.append(
        ToolExecutionCancelled(
            call_id=call.call_id, attempt=1, reason="stop", stop_confirmed=False
        )
    )


async def _background(owned: OwnedSession, turn: Turn) -> None:
    call = await _started(owned, turn)
    await owned.append(ToolBackgrounded(call_id=call.call_id, attempt=1, handle="job-1"))


async def _subagent(owned: OwnedSession, turn: Turn) -> None:
    await owned.append(
        SubagentStarted(child_session_id=new_id(), call_id=(await _call(turn)).call_id)
    )


async def _retry(owned: OwnedSession, turn: Turn) -> None:
    await owned.append(
        RetryScheduled(
            target=(await _call(turn)).call_id,
            attempt=1,
            not_before_ms=60_000,
            reason="busy",
        )
    )


async def _model_call(owned: OwnedSession, turn: Turn) -> None:  # noqa: ARG001 - a Thing
    await owned.append(
        ModelCallStarted(model_call_id=new_id(), provider="p", model="m", deadline_ms=9_000)
    )


async def _compaction(owned: OwnedSession, turn: Turn) -> None:
    await _call(turn)
    seq = (await owned.state()).seq
    await owned.append(
        CompactionCompleted(
            compaction_id="c",
            from_seq=1,
            to_seq=2,
            base_seq=seq,
            strategy="summary",
            blocks=_WORDS,
        )
    )


async def _set_up(owned: OwnedSession, turn: Turn) -> None:  # noqa: ARG001 - a Thing
    tool = ToolDeclaration(name="send", effect="UNSAFE", cancellable=False)
    await owned.set_goal("ship it")
    await owned.label(team="red")
    item = PlanItem(item_id="1", status="PENDING", blocks=_WORDS)
    for event in (
        PlanUpdated(items=(item,)),
        ConstraintSet(constraint_id="net", blocks=_WORDS),
        BudgetSet(limits_json='{"usd": 2}'),
        ConfigChanged(model="m"),
        InstructionsSet(role="system", blocks=_WORDS),
        ToolsDeclared(tools=(tool,)),
        HarnessStateSet(state_namespace="n", key="k", blocks=_WORDS),
    ):
        await owned.append(event)


def _steered(mode: SteeringMode) -> Thing:
    async def steered(owned: OwnedSession, turn: Turn) -> None:  # noqa: ARG001 - a Thing
        await owned.steer("look", mode=mode)

    return steered


def _cancelled(target: CancelTarget) -> Thing:
    async def cancelled(owned: OwnedSession, turn: Turn) -> None:
        call = await _started(owned, turn)
        target_id = call.call_id if target == "CALL" else None
        await owned.cancel("enough", target=target, target_id=target_id)

    return cancelled


async def _stop_wanted(owned: OwnedSession, turn: Turn) -> None:  # noqa: ARG001 - a Thing
    """Somebody outside wants the whole session stopped."""
    await owned.cancel("enough")


THINGS: dict[str, Thing] = {
    "a call that has yet to run": lambda owned, turn: _call(turn),  # noqa: ARG005
    "a pending approval": _approval,
    "a pending question": _question,
    "a grant": _grant,
    "a running call": _started,
    "an unknown call": _unknown,
    "a call that timed out": _timed_out,
    "a call that was told to stop": _cancelling,
    "a call in the background": _background,
    "a subagent": _subagent,
    "a scheduled retry": _retry,
    "an open model call": _model_call,
    "a compaction": _compaction,
    "goal, plan, constraints, budget and set-up": _set_up,
    "steering: INTERRUPT": _steered("INTERRUPT"),
    "steering: NEXT_TURN": _steered("NEXT_TURN"),
    "steering: ON_IDLE": _steered("ON_IDLE"),
    "a cancelled call": _cancelled("CALL"),
    "a cancelled turn": _cancelled("TURN"),
    "a cancelled session": _stop_wanted,
}
"""Each thing by what it is, with what brings it about in an open turn."""
