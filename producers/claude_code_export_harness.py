"""What the harness itself writes into a Claude Code transcript, made again from facts.

The inverse of `claude_code_harness`, and of what it writes as the model's.
"""

from foldline.producers.claude_code_export_messages import user_record
from foldline.producers.claude_code_messages import SAID_BY_HARNESS, SYNTHETIC
from foldline.producers.claude_code_rebuilt import api_block, api_content, said_by
from foldline.producers.claude_code_sessions import ATTACHMENT, FAILED_CALL
from foldline.producers.claude_code_told import Told
from foldline.producers.json_fields import Json, as_object, as_text
from foldline.producers.source_bodies import UnbuildableError
from foldline.producers.source_groups import Group
from foldline.schemas.blocks import Blocks
from foldline.schemas.events import (
    BackgroundEnded,
    CompactionCompleted,
    ContextPruned,
    HookRan,
    KnownEvent,
    ModelCallFailed,
    RetryScheduled,
    SteeringApplied,
    SteeringExpired,
    SteeringReceived,
    SystemObservation,
    TurnEnded,
)

TELLING = (
    CompactionCompleted,
    ContextPruned,
    ModelCallFailed,
    HookRan,
    SteeringReceived,
    SteeringApplied,
    SystemObservation,
    TurnEnded,
)
"""Facts by which a record of the harness is known."""


def harness_record(told: Told, group: Group, event: KnownEvent) -> Json:
    """What the harness wrote, if it was the harness; else a user's record.

    Raises:
        UnbuildableError: neither writes anything of the kind.
    """
    match event:
        case CompactionCompleted():
            return _boundary(event)
        case ContextPruned(rule="microcompact"):
            return _pruned(told, event)
        case ModelCallFailed(model_call_id=call) if call.startswith(FAILED_CALL):
            return _api_error(told, event, group.one(RetryScheduled))
        case ModelCallFailed():
            return _error_message(told, group, event)
        case TurnEnded(outcome="DONE", reason="") if group.are(TurnEnded):
            return _system("turn_duration")
        case HookRan():
            return _hook(told, event)
        case SteeringReceived(blocks=blocks):
            return _attachment(
                {"type": "queued_command", "prompt": _prompt(told, group, blocks)}
            )
        case SteeringApplied(steering_event_id=steering):
            return _dequeued(told, steering)
        case SystemObservation():
            return _observed(told, group, event)
        case _:
            return user_record(told, group)


def _system(subtype: str, **fields: object) -> Json:
    return {"type": "system", "subtype": subtype, **fields}


def _attachment(said: Json) -> Json:
    return {"type": "attachment", "attachment": said}


def _boundary(event: CompactionCompleted) -> Json:
    tokens = {"preTokens": event.token_before, "postTokens": event.token_after}
    metadata: Json = {name: count for name, count in tokens.items() if count is not None}
    trigger = {} if event.strategy == "unknown" else {"trigger": event.strategy}
    said = "Conversation compacted"
    return _system("compact_boundary", content=said, compactMetadata=trigger | metadata)


def _pruned(told: Told, event: ContextPruned) -> Json:
    ids = [told.calls.get(target, (target, ""))[0] for target in event.targets]
    metadata = {"tokensSaved": event.tokens_saved, "compactedToolIds": ids}
    return _system("microcompact_boundary", microcompactMetadata=metadata)


def _api_error(told: Told, event: ModelCallFailed, retry: RetryScheduled | None) -> Json:
    error = {"error": told.bodies.value(event.blocks[0])} if event.blocks else {}
    record = _system("api_error", level="error", **error)
    if retry is None:
        return record
    attempt = retry.attempt - 1
    tried = {"retryAttempt": attempt, "maxRetries": attempt}
    return record | tried | {"retryInMs": retry.not_before_ms}


def _error_message(told: Told, group: Group, event: ModelCallFailed) -> Json:
    named = {} if group.holds(event.model_call_id) else {"id": event.model_call_id}
    content = [api_block(block, told.bodies) for block in event.blocks]
    message = {**named, "model": SYNTHETIC, "role": "assistant", "content": content}
    error = {} if event.error_type == "ApiError" else {"error": event.error_type}
    return {"type": "assistant", "message": message, "isApiErrorMessage": True, **error}


def _hook(told: Told, event: HookRan) -> Json:
    said = as_object(told.bodies.value(event.blocks[0])) if event.blocks else {}
    if as_text(said.get("type")).startswith("hook_"):
        return _attachment(said)
    blocked = {"preventedContinuation": True} if event.decision == "block" else {}
    return _system("stop_hook_summary", **said, **blocked)


def _observed(told: Told, group: Group, event: SystemObservation) -> Json:
    bodies = told.bodies
    if event.origin.startswith(ATTACHMENT):
        return _attachment(bodies.value(event.blocks[0]))
    if event.origin == "synthetic":
        content = [api_block(block, bodies) for block in event.blocks]
        message = {"model": SYNTHETIC, "role": "assistant", "content": content}
        return {"type": "assistant", "message": message}
    if event.origin == "local-command":
        said = api_content(event.blocks, bodies)
        if not said_by(said)[:200].lstrip().startswith(SAID_BY_HARNESS):
            return _system("local_command", content=said)
    return user_record(told, group)


# --- the queue -----------------------------------------------------------------------


def remember(told: Told, group: Group) -> str:
    """The text of steering, which its application may repeat."""
    received = group.one(SteeringReceived)
    text = said_by(api_content(received.blocks if received else (), told.bodies))
    told.steering[group.facts[0].envelope.event_id] = text
    return text


def _prompt(told: Told, group: Group, blocks: Blocks) -> object:
    """What was steered, in another form than any text of the queue: it is none of them."""
    text = remember(told, group)
    prompt = api_content(blocks, told.bodies)
    waiting = {told.steering[event_id] for event_id in told.queue}
    if isinstance(prompt, str) and text in waiting | told.delivered:
        return [api_block(block, told.bodies) for block in blocks]
    return prompt


def _dequeued(told: Told, steering: str) -> Json:
    """Steering reached the model, as an attachment says."""
    if steering in told.queue:
        told.queue.remove(steering)
    text = told.steering.get(steering, "")
    return _attachment({"type": "queued_command", "prompt": text})


def queue_operation(told: Told, group: Group) -> Json | None:
    """An operation of the queue; None where the facts are of no such record.

    Raises:
        UnbuildableError: it took something else than what waited longest.
    """
    match group.events:
        case [SteeringReceived(blocks=blocks)]:
            told.queue.append(group.facts[0].envelope.event_id)
            text = remember(told, group)
            return {"operation": "enqueue"} | ({"content": text} if blocks else {})
        case [SteeringApplied(steering_event_id=steering)]:
            if not told.queue or told.queue.popleft() != steering:
                raise UnbuildableError
            told.delivered.add(told.steering[steering])
            return {"operation": "dequeue"}
        case [SteeringExpired(), *_]:
            told.queue.clear()
            return {"operation": "popAll"}
        case [BackgroundEnded(output=blocks)]:
            return _notification(told, blocks)
        case [SystemObservation(origin="notification", blocks=blocks)]:
            return _notification(told, blocks)
        case _:
            return None


def _notification(told: Told, blocks: Blocks) -> Json | None:
    """It is taken out of the queue at once, so nothing may wait before it."""
    if told.queue:
        return None
    text = told.bodies.one_text(blocks)
    told.delivered.add(text)
    return {"operation": "enqueue", "content": text}


def leaves_queue(group: Group) -> bool:
    """Whether what a record put into the queue is to be taken out again."""
    return group.one(SteeringReceived) is None
