"""What a Codex rollout says beside the items: turns, configuration, tokens, compaction."""

from dataclasses import dataclass, field

from foldline.producers.codex_forks import Copied
from foldline.producers.codex_records import Record, counts_of, usage_of
from foldline.producers.codex_rollbacks import Prompts
from foldline.producers.json_fields import (
    Json,
    as_count,
    as_id,
    as_json,
    as_list,
    as_object,
    as_text,
    canonical_json,
)
from foldline.producers.openai_blocks import content_blocks, reasoning_block
from foldline.producers.openai_facts import (
    CONFIG,
    EXTRA,
    FOREIGN,
    INSTRUCTIONS,
    MAIN,
    MAPPED,
    NOTHING,
    PERSON,
    USAGE,
    Scribe,
)
from foldline.schemas.blocks import Block, Blocks, json_block, text_block
from foldline.schemas.events import (
    CancellationRequested,
    CompactionCompleted,
    ConfigChanged,
    GoalSet,
    HistoryRewound,
    InstructionsSet,
    ModelCallCompleted,
    ModelCallFailed,
    SubagentEnded,
    SubagentStarted,
    UsageCorrected,
)

COPY = "copy"
"""The record repeats one of the session that this one was forked from."""

STARTS: frozenset[str] = frozenset({"task_started", "turn_started"})
ENDS: frozenset[str] = frozenset({"task_complete", "turn_complete"})

_TOLD_ELSEWHERE: frozenset[str] = frozenset(
    {
        *("turn_id", "model", "approval_policy", "cwd", "workspace_roots"),
        *("current_date", "timezone", "user_instructions", "developer_instructions"),
    }
)
"""Fields of a turn's context that are told by others, or that say when it was."""

UNSEEN = "unseen:"
"""Begins the id of a model call that only its tokens tell of."""

OUTCOMES = {"completed": "COMPLETED", "errored": "FAILED", "shutdown": "CANCELLED"}


@dataclass(slots=True)
class Progress:
    """What the next records of a rollout need to know of those before."""

    copied: Copied
    config: ConfigChanged = field(default_factory=ConfigChanged)
    instructions: str = ""
    totals: dict[str, int] | None = None
    turn_id: str = ""
    """The turn that the records are of, also in a copied beginning."""
    prompts: Prompts = field(default_factory=Prompts)


# --- configuration -------------------------------------------------------------------


def map_turn_context(scribe: Scribe, record: Record, progress: Progress) -> str:
    """Configuration where it changes; nothing if it does not."""
    told = record.payload
    progress.turn_id = as_id(told.get("turn_id")) or progress.turn_id
    developer = as_text(told.get("developer_instructions"))
    if developer and developer != progress.instructions:
        progress.instructions = developer
        instruct(scribe, "developer", developer)
    now = _config_of(told)
    before = progress.config
    changed = ConfigChanged(
        **{
            name: value
            for name, value in now
            if value is not None and value != getattr(before, name)
        }
    )
    if changed != ConfigChanged():
        kept = {name: value for name, value in now if value is not None}
        progress.config = before.model_copy(update=kept)
        scribe.thread.model = now.model or scribe.thread.model
        scribe.write(CONFIG, changed, scribe.thread.harness)
    return MAPPED if scribe.facts else NOTHING


def _config_of(told: Json) -> ConfigChanged:
    sandbox = told.get("sandbox_policy")
    mode = as_object(sandbox)
    rest = {name: v for name, v in told.items() if name not in _TOLD_ELSEWHERE and v}
    settings = as_object(as_object(rest.get("collaboration_mode")).get("settings"))
    if "developer_instructions" in settings:  # a message of the developer says them
        kept = {n: v for n, v in settings.items() if n != "developer_instructions"}
        mode_of = as_object(rest["collaboration_mode"])
        rest["collaboration_mode"] = mode_of | {"settings": kept}
    return ConfigChanged(
        model=as_text(told.get("model")) or None,
        permission_mode=_named(told.get("approval_policy")),
        cwd=as_text(told.get("cwd")) or None,
        sandbox=as_text(mode.get("type", mode.get("mode"))) or as_text(sandbox) or None,
        parameters_json=canonical_json(rest) if rest else None,
    )


def _named(value: object) -> str | None:
    """A policy is a name, or an object of its own."""
    return as_text(value) or (canonical_json(value) if value else None)


def instruct(scribe: Scribe, role: str, text: str) -> None:
    """Instructions in force from here on."""
    event = InstructionsSet(role=role, blocks=(text_block(text),))
    scribe.write(INSTRUCTIONS, event, scribe.thread.harness)


# --- what the harness tells ----------------------------------------------------------


def map_event(scribe: Scribe, record: Record, progress: Progress) -> str:
    """An event of the harness; foreign if it says nothing that is known."""
    told = record.payload
    match record.subtype:
        case kind if kind in STARTS:
            progress.turn_id = as_id(told.get("turn_id")) or progress.turn_id
            scribe.start_turn(as_id(told.get("turn_id")), recorded=True)
        case kind if kind in ENDS:
            return MAPPED if scribe.end_turn("DONE", "", recorded=True) else FOREIGN
        case "turn_aborted":
            return _aborted(scribe, as_text(told.get("reason")))
        case "token_count":
            return _used(scribe, as_object(told.get("info")), progress)
        case "error" | "stream_error":
            _failed(scribe, record)
        case "thread_rolled_back":
            return _rolled_back(scribe, as_count(told.get("num_turns")) or 0, progress)
        case "thread_goal_updated":
            return _goal(scribe, as_text(as_object(told.get("goal")).get("objective")))
        case "collab_agent_spawn_end":
            return _spawned(scribe, told)
        case "collab_close_end":
            return _closed(scribe, told)
        case _:
            return FOREIGN
    return MAPPED


def _aborted(scribe: Scribe, reason: str) -> str:
    turn_id = scribe.thread.turn_id
    if not turn_id:
        return FOREIGN
    event = CancellationRequested(target="TURN", target_id=turn_id, reason=reason)
    scribe.write(MAIN, event, PERSON)
    scribe.end_turn("ABORTED", reason, recorded=True)
    return MAPPED


def _rolled_back(scribe: Scribe, turns: int, progress: Progress) -> str:
    to_seq = progress.prompts.before(turns)
    if to_seq is None:
        return FOREIGN
    scribe.thread.pause()
    scribe.write(MAIN, HistoryRewound(to_seq=to_seq), PERSON)
    return MAPPED


def _failed(scribe: Scribe, record: Record) -> None:
    named = record.payload.get("codex_error_info")
    said = as_text(record.payload.get("message"))
    event = ModelCallFailed(
        model_call_id=f"failed:{scribe.event_id(MAIN)}",
        error_type=as_text(named) or (as_json(named) if named else record.subtype),
        retryable=True if record.subtype == "stream_error" else None,
        blocks=(text_block(said),) if said else (),
    )
    scribe.write(MAIN, event, scribe.thread.harness)


def _goal(scribe: Scribe, objective: str) -> str:
    if not objective:
        return FOREIGN
    scribe.write(MAIN, GoalSet(blocks=(text_block(objective),)), PERSON)
    return MAPPED


def _spawned(scribe: Scribe, told: Json) -> str:
    child = as_id(told.get("new_thread_id"))
    if not child:
        return FOREIGN
    call_id = scribe.thread.calls.get(as_id(told.get("call_id")))
    event = SubagentStarted(child_session_id=child, call_id=call_id)
    scribe.write(MAIN, event, scribe.thread.harness)
    return MAPPED


def _closed(scribe: Scribe, told: Json) -> str:
    child = as_id(told.get("receiver_thread_id"))
    if not child:
        return FOREIGN
    status = told.get("status")
    name = as_text(status) or next(iter(as_object(status)), "")
    event = SubagentEnded(
        child_session_id=child, outcome=OUTCOMES.get(name, name.upper() or "UNKNOWN")
    )
    scribe.write(MAIN, event, scribe.thread.harness)
    return MAPPED


# --- tokens --------------------------------------------------------------------------


def _used(scribe: Scribe, info: Json, progress: Progress) -> str:
    """Tokens of the last model call, from totals that are told again and again.

    1. A total that did not change says nothing.
    2. What the parent used is not charged to its fork.
    3. The last usage is that of the call before; without one, of a call that is not
       shown (a compaction).
    4. Where the total grew by more, calls went by that are not shown either.
    """
    totals = counts_of(info.get("total_token_usage"))
    last = counts_of(info.get("last_token_usage"))
    before, progress.totals = progress.totals, totals or progress.totals
    if not (totals or last) or (totals and totals == before):
        return NOTHING
    call = scribe.thread.call
    pending = call is not None and not call.used
    if call is not None:
        call.used = True
    if progress.copied.takes(scribe.key, progress.turn_id):
        return COPY
    grown = _difference(totals, before)
    used = last or grown or totals
    if pending and call is not None:
        event = UsageCorrected(model_call_id=call.call_id, usage=usage_of(used))
        scribe.write(USAGE, event, scribe.thread.agent)
    else:
        _unseen(scribe, USAGE, used)
    missed = _difference(grown, used) if grown else None
    if missed and any(missed.values()):
        _unseen(scribe, EXTRA, missed)
    return MAPPED


def _difference(
    counts: dict[str, int], before: dict[str, int] | None
) -> dict[str, int] | None:
    """How much was counted since; None where that is not known, or nothing that adds up."""
    if before is None:
        return None
    grown = {name: count - before.get(name, 0) for name, count in counts.items()}
    return None if any(count < 0 for count in grown.values()) else grown


def _unseen(scribe: Scribe, slot: int, used: dict[str, int]) -> None:
    thread = scribe.thread
    event = ModelCallCompleted(
        model_call_id=f"{UNSEEN}{scribe.event_id(slot)}",
        model=thread.model or None,
        usage=usage_of(used),
    )
    scribe.write(slot, event, thread.agent)


# --- compaction ----------------------------------------------------------------------


def map_compacted(scribe: Scribe, record: Record, place: int) -> str:
    """Everything before is replaced by the history that the record holds.

    Args:
        scribe: writes the facts of the record.
        record: the compaction.
        place: the seq at which the record's fact stands.
    """
    scribe.thread.pause()
    before = max(place - 1, 1)
    event = CompactionCompleted(
        compaction_id=as_id(record.payload.get("window_id")) or scribe.event_id(MAIN),
        from_seq=1,
        to_seq=before,
        base_seq=before,
        strategy="codex",
        blocks=_replacement(record.payload, scribe.thread.model or None),
    )
    scribe.write(MAIN, event, scribe.thread.harness)
    return MAPPED


def _replacement(told: Json, model: str | None) -> Blocks:
    """The new history: its texts named by who said them, what is encrypted as it is."""
    history = [as_object(item) for item in as_list(told.get("replacement_history"))]
    blocks: list[Block] = []
    for item in history:
        blocks.extend(_replacing(item, model))
    message = as_text(told.get("message"))
    return tuple(blocks) or ((text_block(message),) if message else ())


def _replacing(item: Json, model: str | None) -> Blocks:
    if item.get("type") != "message":
        secret = as_text(item.get("encrypted_content"))
        return (reasoning_block(item, model) if secret else json_block(as_json(item)),)
    role = as_text(item.get("role")) or None
    said = content_blocks(item.get("content"))
    return tuple(block.model_copy(update={"name": role}) for block in said)
