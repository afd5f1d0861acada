"""What the harness itself writes into a Claude Code transcript, as facts.

System records, its queue, attachments, notifications of background work. What a type
says is mapped where its meaning is known; the caller keeps the rest as it is.
"""

import re

from foldline.producers.claude_code_blocks import output_of
from foldline.producers.claude_code_sessions import (
    ATTACHMENT,
    EXTRA,
    FAILED_CALL,
    FOREIGN,
    HARNESS,
    MAIN,
    MAPPED,
    NOTHING,
    PERSON,
    Queued,
    Scribe,
)
from foldline.producers.json_fields import (
    as_count,
    as_id,
    as_json,
    as_list,
    as_object,
    as_text,
)
from foldline.schemas.blocks import Blocks, json_block, text_block
from foldline.schemas.events import (
    BackgroundEnded,
    CompactionCompleted,
    ConfigChanged,
    ContextPruned,
    HookRan,
    ModelCallFailed,
    RetryScheduled,
    SteeringApplied,
    SteeringExpired,
    SteeringReceived,
    SystemObservation,
)

REMINDERS: frozenset[str] = frozenset(
    {
        *("file", "edited_text_file", "compact_file_reference", "nested_memory"),
        *("read_truncation_notice", "plan_mode", "plan_mode_exit", "auto_mode"),
        *("todo_reminder", "task_reminder", "task_status", "date_change"),
        *("deferred_tools_delta", "agent_listing_delta", "mcp_instructions_delta"),
        *("skill_listing", "invoked_skills", "dynamic_skill", "command_permissions"),
        *("ultra_effort_enter", "ultra_effort_exit", "budget_usd"),
        *("total_tokens_reminder", "batching_reminder_sent", "silent_turn_reminder"),
    }
)
"""Attachments by which the harness tells the model something."""

OUTCOMES = {
    "completed": "COMPLETED",
    "success": "COMPLETED",
    "failed": "FAILED",
    "error": "FAILED",
    "killed": "CANCELLED",
    "stopped": "CANCELLED",
    "cancelled": "CANCELLED",
}

RETRY_MAX_MS = 24 * 60 * 60 * 1000

_HANDLE = re.compile(r"<(?:agent|task|shell)-id>([^<]{1,200})</")
_STATUS = re.compile(r"<status>([^<]{1,40})</")
_NOTIFICATION = re.compile(r"\s{0,8}<(?:agent|task)-notification>")


# --- system --------------------------------------------------------------------------


def map_system(scribe: Scribe, place: int) -> str:
    """A system record; foreign if its subtype says nothing that is known.

    Args:
        scribe: writes the facts of the record.
        place: the seq at which the record's first fact stands.
    """
    match scribe.record.subtype:
        case "compact_boundary":
            _compacted(scribe, place)
        case "microcompact_boundary":
            _pruned(scribe)
        case "api_error":
            _api_error(scribe)
        case "stop_hook_summary":
            _stop_hook(scribe)
        case "turn_duration":
            ended = scribe.branch is None and scribe.end_turn("DONE", "")
            return MAPPED if ended else FOREIGN
        case "local_command":
            said = output_of(scribe.record.fields.get("content"))
            event = SystemObservation(origin="local-command", blocks=said)
            scribe.write(MAIN, event, HARNESS)
        case _:
            return FOREIGN
    return MAPPED


def _compacted(scribe: Scribe, place: int) -> None:
    """Everything before the boundary is replaced by the summary that follows it."""
    metadata = as_object(scribe.record.fields.get("compactMetadata"))
    before = max(place - 1, 1)
    scribe.thread.compacted_seq = before
    event = CompactionCompleted(
        compaction_id=scribe.record.uuid or scribe.event_id(MAIN),
        from_seq=1,
        to_seq=before,
        base_seq=before,
        strategy=as_text(metadata.get("trigger")) or "unknown",
        token_before=as_count(metadata.get("preTokens")),
        token_after=as_count(metadata.get("postTokens")),
    )
    scribe.write(MAIN, event, HARNESS)


def _pruned(scribe: Scribe) -> None:
    fields = scribe.record.fields
    metadata = as_object(fields.get("microcompactMetadata")) or fields
    calls = scribe.thread.calls
    ids = [as_text(item) for item in as_list(metadata.get("compactedToolIds"))]
    event = ContextPruned(
        rule="microcompact",
        tokens_saved=as_count(metadata.get("tokensSaved")),
        targets=tuple(calls.get(item) or item for item in ids if item),
    )
    scribe.write(MAIN, event, HARNESS)


def _api_error(scribe: Scribe) -> None:
    """A request failed; where the record says that it is tried again, so do we."""
    fields = scribe.record.fields
    raw = fields.get("error")
    error = as_object(raw)
    model_call_id = f"{FAILED_CALL}{scribe.record.uuid or scribe.event_id(MAIN)}"
    attempt = as_count(fields.get("retryAttempt")) or 0
    retried = attempt > 0 and attempt <= (as_count(fields.get("maxRetries")) or 0)
    status = as_count(error.get("status"))
    named = as_text(error.get("type")) or (f"HTTP {status}" if status else "ApiError")
    failed = ModelCallFailed(
        model_call_id=model_call_id,
        error_type=named,
        retryable=retried,
        blocks=(json_block(as_json(raw)),) if raw else (),
    )
    scribe.write(MAIN, failed, HARNESS)
    if retried:
        wait = as_count(fields.get("retryInMs")) or 0
        retry = RetryScheduled(
            target=model_call_id,
            attempt=attempt + 1,
            not_before_ms=min(wait, RETRY_MAX_MS),
            reason=named,
        )
        scribe.write(EXTRA, retry, HARNESS)


def _stop_hook(scribe: Scribe) -> None:
    fields = scribe.record.fields
    kept = ("hookInfos", "hookErrors", "stopReason", "hookAdditionalContext")
    said = {name: fields[name] for name in kept if fields.get(name)}
    event = HookRan(
        hook="Stop",
        decision="block" if fields.get("preventedContinuation") is True else None,
        blocks=(json_block(as_json(said)),) if said else (),
    )
    scribe.write(MAIN, event, HARNESS)


# --- the queue -----------------------------------------------------------------------


def map_queue(scribe: Scribe) -> str:
    """A queue operation; nothing if it takes a notification, which was told already."""
    queue = scribe.thread.queue
    match scribe.record.subtype:
        case "enqueue":
            _queued(scribe)
            return MAPPED
        case "dequeue" | "remove" if queue:
            entry = queue.popleft()
            scribe.thread.delivered.append(entry.text)
            return MAPPED if _applied(scribe, entry) else NOTHING
        case "popAll" if queue:
            written = [_expired(scribe, at, entry) for at, entry in enumerate(queue)]
            queue.clear()
            return MAPPED if any(written) else NOTHING
        case _:
            return FOREIGN


def _queued(scribe: Scribe) -> None:
    content = scribe.record.fields.get("content")
    text = content if isinstance(content, str) else as_json(content) if content else ""
    if _NOTIFICATION.match(text):
        scribe.thread.queue.append(Queued(text))
        notified(scribe, text, (text_block(text),))
        return
    said = (text_block(text),) if text else ()
    event_id = scribe.write(MAIN, SteeringReceived(blocks=said), PERSON)
    scribe.thread.queue.append(Queued(text, event_id))


def _applied(scribe: Scribe, entry: Queued) -> bool:
    if not entry.steering_event_id:
        return False
    event = SteeringApplied(steering_event_id=entry.steering_event_id)
    scribe.write(MAIN, event, HARNESS)
    return True


def _expired(scribe: Scribe, at: int, entry: Queued) -> bool:
    if not entry.steering_event_id:
        return False
    event = SteeringExpired(
        steering_event_id=entry.steering_event_id, reason="taken back by the user"
    )
    scribe.write(MAIN + at * 100, event, HARNESS)
    return True


def notified(scribe: Scribe, text: str, said: Blocks) -> None:
    """A notification of background work: its end, once; else what the model was told."""
    thread = scribe.thread
    handle = _found(_HANDLE, text)
    if not handle or handle in thread.ended_handles:
        event = SystemObservation(origin="notification", blocks=said)
        scribe.write(MAIN, event, HARNESS)
        return
    thread.handles.discard(handle)
    thread.ended_handles.add(handle)
    outcome = OUTCOMES.get(_found(_STATUS, text).lower(), "UNKNOWN")
    ended = BackgroundEnded(handle=handle, outcome=outcome, output=said)
    scribe.write(MAIN, ended, HARNESS)


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text[:10_000])
    return match[1].strip() if match else ""


# --- attachments and modes -----------------------------------------------------------


def map_attachment(scribe: Scribe) -> str:
    """An attachment; nothing if it repeats what the queue said."""
    kind = scribe.record.subtype
    if kind == "queued_command":
        return _queued_command(scribe)
    said = (json_block(as_json(scribe.record.attachment)),)
    if kind.startswith("hook_"):
        _hook(scribe, kind, said)
        return MAPPED
    if kind in REMINDERS:
        event = SystemObservation(origin=f"{ATTACHMENT}{kind}", blocks=said)
        scribe.write(MAIN, event, HARNESS)
        return MAPPED
    return FOREIGN


def _queued_command(scribe: Scribe) -> str:
    """Something from the queue reached the model; older harnesses write only this."""
    thread = scribe.thread
    prompt = scribe.record.attachment.get("prompt")
    text = prompt if isinstance(prompt, str) else as_json(prompt) if prompt else ""
    said = output_of(prompt)
    for entry in thread.queue:
        if entry.text == text:
            thread.queue.remove(entry)
            return MAPPED if _applied(scribe, entry) else NOTHING
    if text in thread.delivered:
        thread.delivered.remove(text)
        return NOTHING
    if _NOTIFICATION.match(text):
        notified(scribe, text, said)
        return MAPPED
    event_id = scribe.write(MAIN, SteeringReceived(blocks=said), PERSON)
    applied = SteeringApplied(steering_event_id=event_id)
    scribe.write(EXTRA, applied, HARNESS)
    return MAPPED


def _hook(scribe: Scribe, kind: str, said: Blocks) -> None:
    attachment = scribe.record.attachment
    name = as_text(attachment.get("hookName")) or as_text(attachment.get("hookEvent"))
    call = as_id(attachment.get("toolUseID"))
    event = HookRan(
        hook=name or kind,
        call_id=scribe.thread.calls.get(call) if call else None,
        decision="block" if kind == "hook_blocking_error" else None,
        blocks=said,
    )
    scribe.write(MAIN, event, HARNESS)


def map_permission_mode(scribe: Scribe) -> str:
    """The harness changed how it asks for permission; nothing if it did not."""
    mode = as_text(scribe.record.fields.get("permissionMode"))
    if not mode or mode == scribe.thread.permission_mode:
        return NOTHING
    scribe.thread.permission_mode = mode
    scribe.write(MAIN, ConfigChanged(permission_mode=mode), HARNESS)
    return MAPPED
