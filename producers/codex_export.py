"""Codex's records, made again from the facts of a mirrored session.

The inverse of `codex_mapping`, in the current form of rollouts. What the import left out
(events that repeat items) is not there; totals of tokens are the sums of what was used.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from foldline.producers.codex_events import OUTCOMES, UNSEEN
from foldline.producers.codex_records import COUNTED_BY, Record, counts_of
from foldline.producers.codex_rollbacks import Prompts
from foldline.producers.importing import Piece
from foldline.producers.json_fields import Json, as_object
from foldline.producers.openai_items_rebuilt import Items
from foldline.producers.source_bodies import Bodies, UnbuildableError, parsed
from foldline.producers.source_groups import Group, Grouped
from foldline.producers.source_lines import Line, iso_of, line_of, verbatim
from foldline.schemas.blocks import Block, Blocks
from foldline.schemas.envelope import RECORDED
from foldline.schemas.events import (
    CancellationRequested,
    CompactionCompleted,
    ConfigChanged,
    ForeignRecord,
    GoalSet,
    HistoryRewound,
    InstructionsSet,
    ModelCallCompleted,
    ModelCallFailed,
    SessionCreated,
    SubagentEnded,
    SubagentStarted,
    TurnEnded,
    TurnStarted,
    Usage,
    UsageCorrected,
)

STATUS = {ours: theirs for theirs, ours in OUTCOMES.items()}

Told = tuple[str, Json]
"""The type of a record, and its payload."""


def records(grouped: Grouped, bodies: Bodies) -> Iterator[Line]:
    """The lines of a rollout that tells a session."""
    return _Export(grouped, bodies).lines()


def of_the_parent(grouped: Grouped, bodies: Bodies) -> Iterator[Line]:
    """The counts of tokens that a fork copied, in a rollout of its parent's."""
    created = grouped.created
    copied = [
        foreign
        for group in grouped.groups
        if (foreign := group.one(ForeignRecord)) and foreign.reason.startswith(COUNTED_BY)
    ]
    if created is None or not copied:
        return
    payload = {"id": created.parent_session_id}
    yield line_of(None, {"type": "session_meta", "payload": payload})
    for foreign in copied:
        yield verbatim(0, bodies.raw(foreign.blocks[0]))


class _Export:
    def __init__(self, grouped: Grouped, bodies: Bodies) -> None:
        self._grouped = grouped
        self._bodies = bodies
        self._items = Items(bodies)
        self._totals: Counter[str] = Counter()
        self._prompts = Prompts()

    def lines(self) -> Iterator[Line]:
        """One line for each record."""
        for index, group in enumerate(self._grouped.groups):
            foreign = group.one(ForeignRecord)
            if foreign is not None:
                raw = self._bodies.raw(foreign.blocks[0])
                self._note_totals(foreign, raw)
                yield verbatim(index, raw)
                continue
            try:
                kind, payload = self._told(group)
            except UnbuildableError:
                yield Line(index, None)
                continue
            self._note_prompts(group)
            when = iso_of(group.first.envelope.occurred_at)
            stamped = {} if when is None else {"timestamp": when}
            yield line_of(index, {**stamped, "type": kind, "payload": payload})

    def _told(self, group: Group) -> Told:
        """The record of a group.

        Raises:
            UnbuildableError: none says what its facts say.
        """
        if not group.facts or (group.created and group.are(InstructionsSet)):
            return "session_meta", self._meta(group)
        if group.one(ConfigChanged) or group.are(InstructionsSet):
            return self._context(group)
        compaction = group.one(CompactionCompleted)
        if compaction is not None:
            return "compacted", self._compacted(group, compaction)
        event = self._event(group)
        return ("response_item", self._items.of(group)) if event is None else event

    def _note_prompts(self, group: Group) -> None:
        for fact in group.facts:
            self._prompts.note(fact.event, fact.seq)

    # --- the session -----------------------------------------------------------------

    def _meta(self, group: Group) -> Json:
        created = self._grouped.created
        env = as_object(parsed((created and created.environment_json) or "{}"))
        names = {
            "cwd": "cwd",
            "version": "cli_version",
            "originator": "originator",
            "model_provider": "model_provider",
            "forked_from": "forked_from_id",
            "agent": "agent_nickname",
        }
        meta: Json = {"id": self._grouped.session_id}
        meta |= {named: env[name] for name, named in names.items() if name in env}
        git = {
            "branch": "git_branch",
            "commit_hash": "git_commit",
            "repository_url": "repository_url",
        }
        held = {named: env[name] for named, name in git.items() if name in env}
        meta |= {"git": held} if held else {}
        return meta | _origin(created) | self._instructions(group)

    def _instructions(self, group: Group) -> Json:
        told = group.one(InstructionsSet)
        if told is None:
            return {}
        text = self._bodies.one_text(told.blocks)
        if told.role == "system":
            return {"base_instructions": {"text": text}}
        return {"instructions": text}

    def _context(self, group: Group) -> Told:
        told = group.one(InstructionsSet)
        if told is not None and told.role != "developer":
            return "session_meta", self._meta(group)
        changed = group.one(ConfigChanged) or ConfigChanged()
        context: Json = {}
        context |= parsed(changed.parameters_json) if changed.parameters_json else {}
        context |= {"model": changed.model} if changed.model else {}
        context |= {"cwd": changed.cwd} if changed.cwd else {}
        mode = changed.permission_mode
        if mode:
            context["approval_policy"] = parsed(mode) if mode.startswith("{") else mode
        if changed.sandbox and "sandbox_policy" not in context:
            context["sandbox_policy"] = {"type": changed.sandbox}
        if told is not None:
            context["developer_instructions"] = self._bodies.one_text(told.blocks)
        turn_id = self._turn_of(group)
        return "turn_context", ({"turn_id": turn_id} if turn_id else {}) | context

    def _turn_of(self, group: Group) -> str:
        """The turn that the source names; empty for one that foldline named."""
        turn_id = group.facts[-1].envelope.turn_id or ""
        return "" if group.holds(turn_id) else turn_id

    # --- what the harness tells ------------------------------------------------------

    def _event(self, group: Group) -> Told | None:
        """An event of the harness; None for an item."""
        payload = self._turn(group) or self._used(group)
        for event in () if payload else group.events:
            match event:
                case ModelCallFailed():
                    payload = self._failed(event)
                case GoalSet(blocks=blocks):
                    goal = {"objective": self._bodies.one_text(blocks)}
                    payload = {"type": "thread_goal_updated", "goal": goal}
                case HistoryRewound(to_seq=to_seq):
                    turns = self._prompts.behind(to_seq)
                    payload = {"type": "thread_rolled_back", "num_turns": turns}
                case SubagentStarted(child_session_id=child, call_id=call_id):
                    payload = {"type": "collab_agent_spawn_end", "new_thread_id": child}
                    if call_id:
                        payload["call_id"] = self._items.provider_id(call_id)
                case SubagentEnded(child_session_id=child, outcome=outcome):
                    status = STATUS.get(outcome, outcome.lower())
                    payload = {"type": "collab_close_end", "receiver_thread_id": child}
                    payload |= {"status": status}
                case _:
                    pass
        return None if payload is None else ("event_msg", payload)

    def _turn(self, group: Group) -> Json | None:
        """The beginning or the end of a turn, where the source itself says it."""
        cancelled = group.one(CancellationRequested)
        if cancelled is not None:
            return {"type": "turn_aborted", "reason": cancelled.reason}
        last = group.facts[-1]
        if last.envelope.certainty != RECORDED:
            return None
        if isinstance(last.event, TurnStarted):
            turn_id = self._turn_of(group)
            named = {"turn_id": turn_id} if turn_id else {}
            return {"type": "task_started", **named}
        return {"type": "task_complete"} if group.are(TurnEnded) else None

    def _failed(self, event: ModelCallFailed) -> Json:
        kind = "stream_error" if event.retryable else "error"
        payload: Json = {"type": kind, "message": self._bodies.one_text(event.blocks)}
        named = event.error_type
        if named == kind:
            return payload
        return payload | {"codex_error_info": parsed(named) if named[:1] == "{" else named}

    # --- tokens ----------------------------------------------------------------------

    def _used(self, group: Group) -> Json | None:
        """What was used since the last count, and all until here."""
        usages = [
            event.usage
            for event in group.events
            if isinstance(event, UsageCorrected)
            or (
                isinstance(event, ModelCallCompleted)
                and event.model_call_id.startswith(UNSEEN)
            )
        ]
        counts = [_counts(usage) for usage in usages if usage is not None]
        if not counts:
            return None
        before = dict(self._totals)
        for count in counts:
            self._totals.update(count)
        info: Json = {"last_token_usage": counts[0]}
        if dict(self._totals) != before:
            info["total_token_usage"] = dict(self._totals)
        return {"type": "token_count", "info": info}

    def _note_totals(self, foreign: ForeignRecord, raw: str) -> None:
        """Go on from the totals of a count that was kept as it is: its parent's."""
        if foreign.record_type != "event_msg/token_count":
            return
        record = Record(Piece(0, 0, b"", raw), as_object(parsed(raw)))
        info = as_object(record.payload.get("info"))
        totals = counts_of(info.get("total_token_usage"))
        self._totals = Counter(totals) if totals else self._totals

    # --- compaction ------------------------------------------------------------------

    def _compacted(self, group: Group, event: CompactionCompleted) -> Json:
        held = group.holds(event.compaction_id)
        named = {} if held else {"window_id": event.compaction_id}
        blocks = event.blocks
        if len(blocks) == 1 and blocks[0].kind == "text" and blocks[0].name is None:
            return {"message": self._bodies.raw(blocks[0]), **named}
        history = list(self._history(blocks))
        return {"message": "", "replacement_history": history, **named}

    def _history(self, blocks: Blocks) -> Iterator[Any]:
        """The items of a new history: what one of them said stays together."""
        said: list[Block] = []
        for block in blocks:
            if said and (block.name != said[0].name or _is_item(block)):
                yield self._message(said)
                said = []
            if _is_item(block):
                yield self._item(block)
            else:
                said.append(block)
        if said:
            yield self._message(said)

    def _item(self, block: Block) -> Any:
        if block.kind == "reasoning":
            return self._items.reasoning(block)
        return self._bodies.value(block)

    def _message(self, said: list[Block]) -> Json:
        text_type = "output_text" if said[0].name == "assistant" else "input_text"
        content = self._items.pieces(tuple(said), text_type)
        named = {"role": said[0].name} if said[0].name else {}
        return {"type": "message", **named, "content": content}


def _is_item(block: Block) -> bool:
    """Whether a block is an item by itself, no part of a message."""
    return block.name is None and block.kind in ("reasoning", "json")


def _origin(created: SessionCreated | None) -> Json:
    parent = created.parent_session_id if created else None
    if created is None or not parent:
        return {"source": "cli"}
    if created.relation == "SUBAGENT":
        spawned = {"thread_spawn": {"parent_thread_id": parent}}
        return {"source": {"subagent": spawned}}
    return {"forked_from_id": parent}


def _counts(usage: Usage) -> dict[str, int]:
    """Tokens by the names that Codex gives them."""
    extra = as_object(parsed(usage.extra_json or "{}"))
    named = {
        "input_tokens": usage.input_tokens,
        "cached_input_tokens": usage.cache_read_input_tokens,
        "cache_write_input_tokens": usage.cache_write_input_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_output_tokens": usage.reasoning_output_tokens,
    }
    return {name: n for name, n in named.items() if n is not None} | extra
