"""Claude Code's records, made again from the facts of a mirrored session.

The inverse of `claude_code_mapping`: the facts of one record give one record, in order.
What the import left out (noise, copies) is not there; where the chain of parents goes
through such a record, a stub without content stands for it.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from foldline.producers.claude_code_mapping import AGENT_SESSION
from foldline.producers.claude_code_messages import SAID_BY_HARNESS, SYNTHETIC
from foldline.producers.claude_code_names import FAILED, Names, is_missing
from foldline.producers.claude_code_rebuilt import (
    RESULTS,
    api_block,
    api_content,
    api_usage,
    result_block,
    said_by,
    twin_of,
)
from foldline.producers.claude_code_records import SYSTEM
from foldline.producers.identity import derived_id
from foldline.producers.json_fields import Json, as_object, as_text
from foldline.producers.source_bodies import Bodies, UnbuildableError, parsed, written_by
from foldline.producers.source_groups import Group, Grouped
from foldline.producers.source_lines import Line, line_of, verbatim
from foldline.schemas.events import (
    AssistantMessage,
    BackgroundEnded,
    CancellationRequested,
    CompactionCompleted,
    ConfigChanged,
    ContextPruned,
    ForeignRecord,
    HookRan,
    KnownEvent,
    ModelCallCompleted,
    ModelCallFailed,
    RetryScheduled,
    SessionCreated,
    SteeringApplied,
    SteeringExpired,
    SteeringReceived,
    SummaryCreated,
    SystemObservation,
    ToolCallRequested,
    ToolResultProjected,
    TurnEnded,
    TurnStarted,
    UsageCorrected,
    UserMessage,
)

UNKNOWN_CALL = "unknown:"
ATTACHMENT = "attachment/"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class _Message:
    """What every record of a message of the model repeats."""

    model: str
    usage: Json | None
    request_id: str | None


@dataclass(slots=True)
class _Told:
    """What the records so far said, which those behind them repeat or refer to."""

    cwd: str = ""
    model: str = ""
    permission_mode: str = ""
    messages: dict[str, _Message] = field(default_factory=dict[str, _Message])
    calls: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """By call id: the provider's id, and the uuid of the record that asked for it."""
    queue: deque[str] = field(default_factory=deque[str])
    steering: dict[str, str] = field(default_factory=dict[str, str])
    """The texts of steering, by their event ids."""


def records(grouped: Grouped, bodies: Bodies) -> Iterator[Line]:
    """The lines of a transcript that tells a session."""
    return _Export(grouped, bodies).lines()


class _Export:
    def __init__(self, grouped: Grouped, bodies: Bodies) -> None:
        self._grouped = grouped
        self._bodies = bodies
        self._names = Names(grouped)
        self._told = _Told()
        self._environment = _environment(grouped.created)
        self._told.cwd = as_text(self._environment.get("cwd"))
        self._stubs: set[str] = set()

    def lines(self) -> Iterator[Line]:
        """One line for each record, and stubs between them."""
        for index, group in enumerate(self._grouped.groups):
            foreign = group.one(ForeignRecord)
            if foreign is not None:
                yield from self._foreign_parent(group, foreign)
                yield verbatim(index, self._bodies.raw(foreign.blocks[0]))
                continue
            yield from self._branch_root(group)
            try:
                record = self._record(index, group)
            except UnbuildableError:
                yield Line(index, None)
                continue
            yield line_of(index, record)
            if record.get("operation") == "enqueue" and not group.one(SteeringReceived):
                yield line_of(None, self._bare(group, "queue-operation", "remove"))

    # --- what a record stands in -----------------------------------------------------

    def _record(self, index: int, group: Group) -> Json:
        """The record of a group.

        Raises:
            UnbuildableError: none says what its facts say.
        """
        config = group.one(ConfigChanged)
        if config is not None:
            told = self._told
            told.cwd = config.cwd or told.cwd
            told.model = config.model or told.model
            told.permission_mode = config.permission_mode or told.permission_mode
        bare = self._bare_record(index, group)
        if bare is not None:
            return bare
        said = self._said(index, group)
        frame = self._frame(group)
        uuid = self._names.of(index)
        record = {**frame, **said, **({"uuid": uuid} if uuid else {})}
        if said.get("subtype") == "compact_boundary":
            record["logicalParentUuid"], record["parentUuid"] = record["parentUuid"], None
        return record | self._when(group)

    def _frame(self, group: Group) -> Json:
        envelope = group.first.envelope
        child = self._agent()
        frame: Json = {
            "parentUuid": self._parent(group),
            "isSidechain": envelope.branch is not None or bool(child),
            "userType": "external",
        }
        frame |= {"cwd": self._told.cwd} if self._told.cwd else {}
        frame |= self._session() | self._environment_of(group)
        forked = self._forked_from(group)
        return frame | ({"forkedFrom": {"sessionId": forked}} if forked else {})

    def _parent(self, group: Group) -> str | None:
        """The uuid of the record before; one that is nowhere keeps a name of its own."""
        event_id = group.first.envelope.parent_event_id
        if event_id is None:
            branch = group.first.envelope.branch
            return branch if branch in self._stubs else None
        if is_missing(event_id):
            return derived_id(SYSTEM, "missing", group.first.envelope.event_id)
        known = self._names.of_fact(event_id)
        return event_id if known is None else known or None

    def _agent(self) -> str:
        """The subagent whose session it is, or an empty string."""
        own = self._grouped.session_id.rpartition("/")[2]
        return own.removeprefix(AGENT_SESSION) if own.startswith(AGENT_SESSION) else ""

    def _session(self) -> Json:
        session_id = self._grouped.session_id
        agent = self._agent()
        if not agent:
            return {"sessionId": session_id}
        created = self._grouped.created
        parent = created.parent_session_id if created else None
        return {"sessionId": parent or session_id, "agentId": agent}

    def _environment_of(self, group: Group) -> Json:
        """Version and branch, which every record repeats."""
        names = {"version": "version", "git_branch": "gitBranch"}
        told = {n: self._environment[k] for k, n in names.items() if k in self._environment}
        if group.created is not None and "entrypoint" in self._environment:
            told["entrypoint"] = self._environment["entrypoint"]
        return told

    def _forked_from(self, group: Group) -> str | None:
        created = group.created and self._grouped.created
        if not created or created.relation != "CONTINUATION":
            return None
        return created.parent_session_id

    def _when(self, group: Group) -> Json:
        micros = group.first.envelope.occurred_at
        if micros is None:
            return {}
        moment = _EPOCH + timedelta(microseconds=micros)
        unit = "microseconds" if micros % 1_000 else "milliseconds"
        said = moment.isoformat(timespec=unit).replace("+00:00", "Z")
        return {"timestamp": said}

    # --- stubs -----------------------------------------------------------------------

    def _foreign_parent(self, group: Group, foreign: ForeignRecord) -> Iterator[Line]:
        """A stub for the parent that a record names and that was not recorded."""
        parent = foreign.parent_record_id
        event_id = group.first.envelope.parent_event_id
        if not parent or is_missing(event_id):
            return
        known = None if event_id is None else self._names.of_fact(event_id)
        if parent != known and (event_id is None or known is not None):
            yield from self._stub(group, parent, known)

    def _branch_root(self, group: Group) -> Iterator[Line]:
        """A stub for the first record of a branch, where that was not recorded."""
        envelope = group.first.envelope
        branch = envelope.branch
        if branch and envelope.parent_event_id is None:
            index = self._names.of_fact(envelope.event_id)
            if index != branch:
                yield from self._stub(group, branch, None)

    def _stub(self, group: Group, uuid: str, parent: str | None) -> Iterator[Line]:
        if uuid in self._stubs:
            return
        self._stubs.add(uuid)
        frame = {**self._frame(group), "parentUuid": parent, "type": "progress"}
        stub = {"data": {"type": "hook_progress"}, "uuid": uuid}
        yield line_of(None, frame | stub | self._when(group))

    # --- records outside the chain ---------------------------------------------------

    def _bare_record(self, index: int, group: Group) -> Json | None:
        """A record of the queue, or of the mode: they have no uuid and no parent."""
        if group.are(ConfigChanged):
            mode = {"permissionMode": self._told.permission_mode}
            return self._bare(group, "permission-mode") | mode
        if self._names.of(index):
            return None
        told = self._told
        match group.events:
            case [SteeringReceived(blocks=blocks)]:
                told.queue.append(group.facts[0].envelope.event_id)
                text = self._steered(group)
                content = {"content": text} if blocks else {}
                return self._bare(group, "queue-operation", "enqueue") | content
            case [SteeringApplied(steering_event_id=steering)]:
                if not told.queue or told.queue.popleft() != steering:
                    raise UnbuildableError
                return self._bare(group, "queue-operation", "dequeue")
            case [SteeringExpired(), *_]:
                told.queue.clear()
                return self._bare(group, "queue-operation", "popAll")
            case [BackgroundEnded(output=blocks)] if not told.queue:
                content = {"content": self._bodies.one_text(blocks)}
                return self._bare(group, "queue-operation", "enqueue") | content
            case [SystemObservation(origin="notification", blocks=b)] if not told.queue:
                content = {"content": self._bodies.one_text(b)}
                return self._bare(group, "queue-operation", "enqueue") | content
            case _:
                return None

    def _bare(self, group: Group, kind: str, operation: str = "") -> Json:
        record: Json = {"type": kind}
        record |= {"operation": operation} if operation else {}
        record |= self._when(group) | self._session()
        if group.created is not None:
            record |= {"cwd": self._told.cwd} if self._told.cwd else {}
            record |= self._environment_of(group)
        return record

    def _steered(self, group: Group) -> str:
        """The text of steering, which is remembered for its application."""
        received = group.one(SteeringReceived)
        blocks = received.blocks if received else ()
        content = api_content(blocks, self._bodies)
        text = said_by(content)
        self._told.steering[group.facts[0].envelope.event_id] = text
        return text

    # --- what a record says ----------------------------------------------------------

    def _said(self, index: int, group: Group) -> Json:
        message = group.one(AssistantMessage)
        if message is not None:
            return self._assistant(index, group, message)
        if isinstance(group.events[0], RESULTS):
            return self._user(group)
        for kind in _HARNESS:
            event = group.one(kind)
            if event is not None:
                return self._harness(group, event)
        return self._user(group)

    def _assistant(self, index: int, group: Group, said: AssistantMessage) -> Json:
        told, bodies = self._told, self._bodies
        completed = group.one(ModelCallCompleted)
        corrected = group.one(UsageCorrected)
        known = told.messages.get(said.message_id)
        if known is None or completed is not None:
            usage = api_usage(completed.usage if completed else None)
            response_id = completed.response_id if completed else None
            model = (completed and completed.model) or told.model
            known = told.messages[said.message_id] = _Message(model, usage, response_id)
        if corrected is not None:
            known.usage = api_usage(corrected.usage)
        config = group.one(ConfigChanged)
        model = (config and config.model) or known.model
        asked = {one.call_id: one for one in group.every(ToolCallRequested)}
        for one in asked.values():
            told.calls[one.call_id] = one.provider_call_id, self._names.of(index)
        content = [
            self._tool_use(asked, block.call_id)
            if block.kind == "tool_call"
            else api_block(block, bodies)
            for block in said.blocks
        ]
        own = {fact.envelope.event_id for fact in group.facts}
        message: Json = {"model": model}
        message |= {} if said.message_id in own else {"id": said.message_id}
        message |= {"type": "message", "role": "assistant", "content": content}
        message["stop_reason"] = completed.finish_reason if completed else None
        message |= {"usage": known.usage} if known.usage is not None else {}
        request = {"requestId": known.request_id} if known.request_id else {}
        return {"message": message, "type": "assistant", **request, **self._mode()}

    def _mode(self) -> Json:
        mode = self._told.permission_mode
        return {"permissionMode": mode} if mode else {}

    def _tool_use(self, asked: dict[str, ToolCallRequested], call_id: str | None) -> Json:
        call = asked.get(call_id or "")
        if call is None:
            raise UnbuildableError
        named = {"id": call.provider_call_id} if call.provider_call_id else {}
        arguments = written_by(self._bodies.raw(call.arguments[0]))
        return {"type": "tool_use", **named, "name": call.tool, "input": arguments}

    # --- the user --------------------------------------------------------------------

    def _user(self, group: Group) -> Json:
        results = _results_of(group)
        content: list[Json] = []
        beside: Json = {}
        for events in results:
            call_id: str = events[0].__dict__["call_id"]
            provider_call_id, asked_by = self._call(call_id)
            block = result_block(provider_call_id, events, self._bodies)
            twin = twin_of(events, block["content"])
            beside |= {"sourceToolAssistantUUID": asked_by} if asked_by else {}
            if twin is not None:
                beside["toolUseResult"] = twin
            content.append(block)
        rest = [e for e in group.events if all(e is not r for one in results for r in one)]
        said, marks = self._spoken([e for e in rest if not isinstance(e, _BESIDE)])
        if not results:
            whole: Any = said
        else:
            texts = [{"type": "text", "text": said}] if isinstance(said, str) else said
            whole = [*content, *texts]
        message = {"role": "user", "content": whole}
        return {"type": "user", "message": message, **beside, **marks, **self._mode()}

    def _call(self, call_id: str) -> tuple[str, str]:
        """The provider's id of a call, and the record that asked for it."""
        if call_id in self._told.calls:
            return self._told.calls[call_id]
        if not call_id.startswith(UNKNOWN_CALL):
            raise UnbuildableError
        return call_id.removeprefix(UNKNOWN_CALL), ""

    def _spoken(self, events: list[KnownEvent]) -> tuple[Any, Json]:
        """What stands in a user record beside results, and the marks that say whose it is.

        Raises:
            UnbuildableError: it is nothing that a user record holds.
        """
        bodies = self._bodies
        match events:
            case []:
                return [], {}
            case [UserMessage(blocks=blocks)] | [BackgroundEnded(output=blocks)]:
                return api_content(blocks, bodies), {}
            case [SummaryCreated(blocks=blocks)]:
                marks = {"isVisibleInTranscriptOnly": True, "isCompactSummary": True}
                return api_content(blocks, bodies), marks
            case [CancellationRequested(target="TURN", reason=reason)]:
                return [{"type": "text", "text": reason}], {}
            case [SystemObservation(origin=origin, blocks=blocks)]:
                return api_content(blocks, bodies), _marks_of(origin)
            case _:
                raise UnbuildableError

    # --- the harness -----------------------------------------------------------------

    def _harness(self, group: Group, event: KnownEvent) -> Json:
        """What the harness itself wrote.

        Raises:
            UnbuildableError: it is nothing that it writes.
        """
        bodies = self._bodies
        match event:
            case CompactionCompleted():
                return _boundary(event)
            case ContextPruned(rule="microcompact"):
                return self._pruned(event)
            case ModelCallFailed(model_call_id=call) if call.startswith(FAILED):
                return self._api_error(event, group.one(RetryScheduled))
            case ModelCallFailed():
                return self._error_message(group, event)
            case TurnEnded(outcome="DONE", reason="") if group.are(TurnEnded):
                return {"type": "system", "subtype": "turn_duration"}
            case HookRan():
                return self._hook(event)
            case SteeringReceived(blocks=blocks):
                self._steered(group)
                prompt = api_content(blocks, bodies)
                return _attachment({"type": "queued_command", "prompt": prompt})
            case SteeringApplied(steering_event_id=steering):
                text = self._told.steering.get(steering, "")
                if steering in self._told.queue:
                    self._told.queue.remove(steering)
                return _attachment({"type": "queued_command", "prompt": text})
            case SystemObservation(origin=origin) if origin.startswith(ATTACHMENT):
                return _attachment(bodies.value(event.blocks[0]))
            case SystemObservation(origin="synthetic", blocks=blocks):
                content = [api_block(block, bodies) for block in blocks]
                message = {"model": SYNTHETIC, "role": "assistant", "content": content}
                return {"type": "assistant", "message": message}
            case SystemObservation(origin="local-command", blocks=blocks):
                content = api_content(blocks, bodies)
                if said_by(content)[:200].lstrip().startswith(SAID_BY_HARNESS):
                    return self._user(group)
                return {"type": "system", "subtype": "local_command", "content": content}
            case _:
                return self._user(group)

    def _pruned(self, event: ContextPruned) -> Json:
        ids = [self._told.calls.get(target, (target, ""))[0] for target in event.targets]
        metadata = {"tokensSaved": event.tokens_saved, "compactedToolIds": ids}
        kind = {"type": "system", "subtype": "microcompact_boundary"}
        return kind | {"microcompactMetadata": metadata}

    def _api_error(self, event: ModelCallFailed, retry: RetryScheduled | None) -> Json:
        error = {"error": self._bodies.value(event.blocks[0])} if event.blocks else {}
        record: Json = {"type": "system", "subtype": "api_error", "level": "error", **error}
        if retry is None:
            return record
        attempt = retry.attempt - 1
        tried = {"retryAttempt": attempt, "maxRetries": attempt}
        return record | tried | {"retryInMs": retry.not_before_ms}

    def _error_message(self, group: Group, event: ModelCallFailed) -> Json:
        own = {fact.envelope.event_id for fact in group.facts}
        named = {} if event.model_call_id in own else {"id": event.model_call_id}
        content = [api_block(block, self._bodies) for block in event.blocks]
        message = {**named, "model": SYNTHETIC, "role": "assistant", "content": content}
        error = {} if event.error_type == "ApiError" else {"error": event.error_type}
        return {"type": "assistant", "message": message, "isApiErrorMessage": True, **error}

    def _hook(self, event: HookRan) -> Json:
        said = as_object(self._bodies.value(event.blocks[0])) if event.blocks else {}
        if as_text(said.get("type")).startswith("hook_"):
            return _attachment(said)
        blocked = {"preventedContinuation": True} if event.decision == "block" else {}
        return {"type": "system", "subtype": "stop_hook_summary", **said, **blocked}


_HARNESS = (
    CompactionCompleted,
    ContextPruned,
    ModelCallFailed,
    HookRan,
    SteeringReceived,
    SteeringApplied,
    SystemObservation,
    TurnEnded,
)
_BESIDE = (TurnStarted, TurnEnded, ConfigChanged)


def _environment(created: SessionCreated | None) -> Json:
    return as_object(parsed((created and created.environment_json) or "{}"))


def _results_of(group: Group) -> list[list[KnownEvent]]:
    """The facts of each result of a record."""
    results: list[list[KnownEvent]] = []
    for event in group.events:
        if isinstance(event, RESULTS):
            results.append([event])
        elif isinstance(event, ToolResultProjected | BackgroundEnded) and results:
            if isinstance(event, BackgroundEnded) and event.output:
                break  # a notification beside the results
            results[-1].append(event)
    return results


def _marks_of(origin: str) -> Json:
    """What tells that no person said it; nothing where the text does."""
    if origin == "meta":
        return {"isMeta": True}
    if origin in ("interrupt", "notification", "local-command"):
        return {}
    return {"origin": {"kind": origin}}


def _boundary(event: CompactionCompleted) -> Json:
    tokens = {"preTokens": event.token_before, "postTokens": event.token_after}
    metadata: Json = {name: count for name, count in tokens.items() if count is not None}
    trigger = {} if event.strategy == "unknown" else {"trigger": event.strategy}
    kind = {"type": "system", "subtype": "compact_boundary", "level": "info"}
    return kind | {
        "content": "Conversation compacted",
        "compactMetadata": trigger | metadata,
    }


def _attachment(said: Json) -> Json:
    return {"type": "attachment", "attachment": said}
