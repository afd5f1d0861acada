"""What the model is shown: a projection of a session's events. Pure.

    base_of(state, compaction)   the seq behind which the events are needed
    build(Sources)               the messages

Here is the whole history since the last compaction, clearing or rewind, unpruned. What
holds of every build, at whatever event the history ends:

- every call has exactly one result, in call order, right behind its message;
- no result without its call, no empty message, no lone surrogate;
- what was shown stays as it was: an outcome that comes later is a note in its place;
- the same events give the same bytes, and more events only add behind.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import cast

from foldline.projections.calls import Tale, end_of, says, tales_of
from foldline.schemas.blocks import (
    Blob,
    Block,
    Blocks,
    Body,
    Sealed,
    clean_text,
    text_block,
)
from foldline.schemas.events import (
    AnyEvent,
    AssistantMessage,
    BackgroundEnded,
    CompactionCompleted,
    ConstraintLifted,
    ConstraintSet,
    ContextCleared,
    GoalSet,
    HistoryRewound,
    InputProvided,
    InstructionsSet,
    MessageRetracted,
    SteeringApplied,
    SteeringReceived,
    SystemObservation,
    ToolCallRequested,
    ToolDeclaration,
    ToolsDeclared,
    UserMessage,
)
from foldline.schemas.record import Record
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState

RENDERER = "foldline.context"
RENDERER_VERSION = 1
POLICY = "unpruned"


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a message: what a block said, a call, or the result of one.

    `text` is the whole text where it is known. A `call` has its arguments there, as the
    model wrote them; a `result` has parts of its own. `provider`, `model`, `signature`
    and `opaque` go back to the same provider and model only.
    """

    kind: str
    text: str = ""
    call_id: str = ""
    provider_call_id: str = ""
    tool: str = ""
    media_type: str | None = None
    blob: Blob | None = None
    provider: str | None = None
    model: str | None = None
    signature: str | None = None
    opaque: str | None = None
    error: bool = False
    parts: "tuple[Part, ...]" = ()


@dataclass(frozen=True, slots=True)
class Message:
    """A message to the model: role system, user, assistant or tool (all results)."""

    role: str
    parts: tuple[Part, ...]
    event_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """A stand-in that this context shows and nothing has frozen yet."""

    call_id: str
    form: str
    blocks: Blocks


@dataclass(frozen=True, slots=True)
class Context:
    """What the model is shown, up to `upto_seq`, and what it was made from."""

    messages: tuple[Message, ...]
    tools: tuple[ToolDeclaration, ...]
    base_seq: int
    upto_seq: int
    stand_ins: tuple[Shown, ...] = ()
    instructions_event_ids: tuple[str, ...] = ()
    tools_event_id: str | None = None

    def sha256(self) -> bytes:
        """The hash of what is shown: the same on every rebuild."""
        shown = [_plain(self.tools), _plain(self.messages)]
        text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).digest()


@dataclass(frozen=True, slots=True)
class Sources:
    """What a context is built from.

    `set_up` are the events that hold what was in force at `base_seq`; `events` those
    behind it. `texts` has the whole text of blobs, by their hash; of others the preview
    is shown.
    """

    events: Sequence[Recorded]
    base_seq: int = 0
    set_up: Sequence[Recorded] = ()
    texts: Mapping[bytes, str] = field(default_factory=dict[bytes, str])


def base_of(state: SessionState, compaction: CompactionCompleted | None) -> int:
    """The seq behind which the events of the context lie; 0: all are needed.

    A rewind to before a compaction or clearing undoes it. A compaction that keeps
    events, or leaves some before it, needs the whole history since the clearing.

    Args:
        state: the state at the head.
        compaction: the event of `state.compaction`, None where there is none.
    """
    cleared = state.cleared_seq
    if state.rewound_seq > cleared > state.rewound_to:
        return 0
    if compaction is None or state.compaction is None:
        return cleared
    if state.rewound_seq > state.compaction.seq > state.rewound_to:
        return cleared
    whole = compaction.from_seq <= cleared + 1 and not compaction.kept
    return compaction.to_seq if whole else cleared


def build(sources: Sources) -> Context:
    """The context of a history."""
    live = _live(sources.events)
    tales = tales_of(sources.events)
    walk = _Walk(sources, tales)
    for recorded in sources.set_up:
        walk.set_up(recorded)
    for recorded in live:
        walk.step(recorded)
    return walk.context()


def missing_steering(events: Sequence[Recorded]) -> bool:
    """Whether a steering was applied here whose text lies further back."""
    received = {
        recorded.envelope.event_id
        for recorded in events
        if isinstance(recorded.event, SteeringReceived)
    }
    return any(
        recorded.event.steering_event_id not in received
        for recorded in events
        if isinstance(recorded.event, SteeringApplied)
    )


def _live(events: Sequence[Recorded]) -> list[Recorded]:
    """The events that are still part of the conversation, after every rewind."""
    live: list[Recorded] = []
    for recorded in events:
        if isinstance(recorded.event, HistoryRewound):
            to_seq = recorded.event.to_seq
            live = [earlier for earlier in live if earlier.seq <= to_seq]
        else:
            live.append(recorded)
    return _unretracted(live)


def _unretracted(live: list[Recorded]) -> list[Recorded]:
    gone: set[str] = set()
    for recorded in live:
        match recorded.event:
            case MessageRetracted(message_ids=message_ids):
                gone.update(message_ids)
            case UserMessage(replaces=str() as replaced):
                gone.add(replaced)
            case _:
                pass
    return [
        recorded
        for recorded in live
        if getattr(recorded.event, "message_id", None) not in gone
    ]


@dataclass(slots=True)
class _Item:
    """A message in the making; the seq is where it stands."""

    seq: int
    role: str
    parts: list[Part] = field(default_factory=list[Part])
    event_ids: list[str] = field(default_factory=list[str])
    message_id: str = ""
    calls: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class _InForce:
    """Instructions, the goal or a constraint, as an event set it."""

    event_id: str
    label: str
    blocks: Blocks


class _Walk:
    """Goes through the events of a history once, in their order.

    What is in force when the conversation begins (or goes on after a compaction or
    clearing) is the system message; what is set later is a note in its place, so that
    nothing in front of it changes.
    """

    def __init__(self, sources: Sources, tales: Mapping[str, Tale]) -> None:
        self._sources = sources
        self._tales = tales
        self._late = {event_id for tale in tales.values() for event_id in tale.late()}
        self._items: list[_Item] = []
        self._messages: dict[str, _Item] = {}
        self._asked: dict[str, _Item] = {}
        self._in_force: dict[str, _InForce] = {}
        self._system: dict[str, _InForce] = {}
        self._tools: tuple[ToolDeclaration, ...] = ()
        self._tools_event_id: str | None = None
        self._steering: dict[str, Blocks] = {}

    def step(self, recorded: Recorded) -> None:
        """Take one more event in."""
        event_id = recorded.envelope.event_id
        match recorded.event:
            case UserMessage(blocks=blocks) | SystemObservation(blocks=blocks):
                self._say(recorded, blocks)
            case AssistantMessage() as message:
                self._assistant(recorded, message)
            case ToolCallRequested() as request:
                self._request(recorded, request)
            case SteeringReceived(blocks=blocks):
                self._steering[event_id] = blocks
            case SteeringApplied(steering_event_id=steering_id):
                self._say(recorded, self._steering.get(steering_id, ()))
            case InputProvided(blocks=blocks):
                self._say(recorded, (text_block("Answer: "), *blocks))
            case ContextCleared():
                self._restart([])
            case CompactionCompleted() as compaction:
                self._compact(recorded, compaction)
            case _ if end_of(recorded.event) is not None:
                self._end(recorded)
            case _:
                self.set_up(recorded)

    # --- the conversation ------------------------------------------------------------

    def _say(self, recorded: Recorded, blocks: Blocks) -> None:
        self._items.extend(self._said(recorded, blocks))

    def _said(self, recorded: Recorded, blocks: Blocks) -> list[_Item]:
        """Something that is said to the model, if it says anything."""
        if not says(blocks):
            return []
        item = _Item(recorded.seq, "user")
        item.event_ids.append(recorded.envelope.event_id)
        item.parts.extend(self._parts(blocks))
        return [item]

    def _assistant(self, recorded: Recorded, message: AssistantMessage) -> None:
        item = self._item_of(recorded, message.message_id)
        for block in message.blocks:
            if block.kind == "tool_call" and block.call_id:
                item.parts.append(Part("call", call_id=block.call_id))
            else:
                item.parts.extend(self._parts((block,)))

    def _request(self, recorded: Recorded, request: ToolCallRequested) -> None:
        item = self._item_of(recorded, request.message_id)
        if all(part.call_id != request.call_id for part in item.parts):
            item.parts.append(Part("call", call_id=request.call_id))
        self._asked[request.call_id] = item

    def _item_of(self, recorded: Recorded, message_id: str) -> _Item:
        """The message that parts of this id belong to; a new one where there is none."""
        item = self._messages.get(message_id)
        if item is None:
            item = _Item(recorded.seq, "assistant")
            self._messages[message_id] = item
            self._items.append(item)
        item.event_ids.append(recorded.envelope.event_id)
        return item

    def _end(self, recorded: Recorded) -> None:
        """An end that is not shown with its call: late, or of a call no longer here."""
        event = recorded.event
        late = recorded.envelope.event_id in self._late
        end = end_of(event)
        if end is not None and (late or self._call_of(event) not in self._asked):
            self._say(recorded, (text_block(_late_note(event)), *end.blocks))

    def _call_of(self, event: AnyEvent) -> str:
        if not isinstance(event, BackgroundEnded):
            return getattr(event, "call_id", None) or ""
        for call_id, tale in self._tales.items():
            if event.handle in tale.handles:
                return call_id
        return ""

    # --- what begins anew ------------------------------------------------------------

    def _restart(self, items: list[_Item]) -> None:
        """The conversation goes on from these items; all that is in force leads them."""
        self._items = items
        kept = {id(item) for item in items}
        self._messages = {k: i for k, i in self._messages.items() if id(i) in kept}
        self._asked = {k: i for k, i in self._asked.items() if id(i) in kept}
        self._system = dict(self._in_force)

    def _compact(self, recorded: Recorded, compaction: CompactionCompleted) -> None:
        first, last = compaction.from_seq, compaction.to_seq
        kept = set(compaction.kept)
        stays = [
            item
            for item in self._items
            if not first <= item.seq <= last or kept.intersection(item.event_ids)
        ]
        before = [item for item in stays if item.seq < first]
        behind = [item for item in stays if item.seq >= first]
        summary = self._said(recorded, compaction.blocks)
        self._restart([*before, *summary, *behind])

    # --- what is in force ------------------------------------------------------------

    def set_up(self, recorded: Recorded) -> None:
        """Take in an event that sets something up; others change nothing here."""
        match recorded.event:
            case GoalSet(blocks=blocks):
                self._put(recorded, "goal", "Goal", blocks)
            case InstructionsSet(role=role, blocks=blocks):
                self._put(recorded, f"instructions:{role}", "", blocks)
            case ConstraintSet(constraint_id=name, blocks=blocks):
                self._put(recorded, f"constraint:{name}", f"Constraint {name}", blocks)
            case ConstraintLifted(constraint_id=name):
                self._lift(recorded, name)
            case ToolsDeclared(tools=tools):
                self._tools = tools
                self._tools_event_id = recorded.envelope.event_id
            case _:
                pass

    def _put(self, recorded: Recorded, key: str, label: str, blocks: Blocks) -> None:
        said = _InForce(recorded.envelope.event_id, label, blocks)
        self._in_force[key] = said
        if self._items:
            note = f"{label or 'The instructions'}, from now on: "
            self._say(recorded, (text_block(note), *blocks))
        else:
            self._system[key] = said

    def _lift(self, recorded: Recorded, name: str) -> None:
        known = self._in_force.pop(f"constraint:{name}", None)
        if self._items and known is not None:
            self._say(recorded, (text_block(f"Constraint {name} no longer holds."),))
        elif not self._items:
            self._system.pop(f"constraint:{name}", None)

    # --- the messages ----------------------------------------------------------------

    def context(self) -> Context:
        """The messages of what was walked through."""
        messages = self._system_message()
        stand_ins: list[Shown] = []
        for item in self._items:
            messages.extend(self._messages_of(item, stand_ins))
        events = self._sources.events
        return Context(
            messages=tuple(messages),
            tools=self._tools,
            base_seq=self._sources.base_seq,
            upto_seq=events[-1].seq if events else self._sources.base_seq,
            stand_ins=tuple(stand_ins),
            instructions_event_ids=tuple(
                said.event_id
                for key, said in sorted(self._system.items())
                if key.startswith("instructions:")
            ),
            tools_event_id=self._tools_event_id,
        )

    def _system_message(self) -> list[Message]:
        parts: list[Part] = []
        event_ids: list[str] = []
        for kind in ("instructions", "goal", "constraint"):
            for key, said in sorted(self._system.items()):
                if key.partition(":")[0] == kind and says(said.blocks):
                    label = (text_block(f"{said.label}: "),) if said.label else ()
                    parts.extend(self._parts((*label, *said.blocks)))
                    event_ids.append(said.event_id)
        return [Message("system", tuple(parts), tuple(event_ids))] if parts else []

    def _messages_of(self, item: _Item, stand_ins: list[Shown]) -> list[Message]:
        """The message of an item, and behind it the results of its calls."""
        parts: list[Part] = []
        results: list[Part] = []
        for part in item.parts:
            tale = self._tales.get(part.call_id) if part.kind == "call" else None
            if part.kind != "call":
                parts.append(part)
            elif tale is not None and part.call_id in self._asked:
                parts.append(self._call(tale))
                results.append(self._result(tale, stand_ins))
        messages = [Message(item.role, tuple(parts), tuple(item.event_ids))]
        if results:
            messages.append(Message("tool", tuple(results), tuple(item.event_ids)))
        return messages if parts else []

    def _call(self, tale: Tale) -> Part:
        request = tale.request
        return Part(
            "call",
            text="".join(part.text for part in self._parts(request.arguments)),
            call_id=request.call_id,
            provider_call_id=request.provider_call_id,
            tool=request.tool,
        )

    def _result(self, tale: Tale, stand_ins: list[Shown]) -> Part:
        result = tale.result()
        if result.stands_in:
            call_id = tale.request.call_id
            stand_ins.append(Shown(call_id, result.form, result.blocks))
        return Part(
            "result",
            call_id=tale.request.call_id,
            provider_call_id=tale.request.provider_call_id,
            tool=tale.request.tool,
            error=result.error,
            parts=tuple(self._parts(result.blocks)),
        )

    def _parts(self, blocks: Blocks) -> list[Part]:
        return [self._part(block) for block in says(blocks)]

    def _part(self, block: Block) -> Part:
        texts = self._sources.texts
        blob = block.body if isinstance(block.body, Blob) else None
        return Part(
            kind=block.kind,
            text=clean_text(_text(block.body, texts))[0],
            media_type=block.media_type,
            blob=blob if blob is not None and not is_text(blob) else None,
            provider=block.provider,
            model=block.model,
            signature=block.signature,
            opaque=None if block.opaque is None else _text(block.opaque, texts),
        )


def is_text(blob: Blob) -> bool:
    """Whether a blob's bytes are UTF-8 text, which the model may read."""
    return blob.media_type.startswith(("text/", "application/json"))


def _text(body: Body, texts: Mapping[bytes, str]) -> str:
    match body:
        case str():
            return body
        case Blob() if body.sha256 in texts:
            return texts[body.sha256]
        case Blob():
            size = f"[{body.size} bytes of {body.media_type}, not shown]"
            return f"{body.preview}\n{size}" if body.preview else size
        case Sealed():
            return "[sealed]"


def _late_note(event: AnyEvent) -> str:
    of = getattr(event, "call_id", None) or getattr(event, "handle", "")
    return f"Late result of the earlier call {of}: "


def text_blobs(events: Sequence[Recorded]) -> dict[bytes, Blob]:
    """The blobs of text in events, whose whole text a context shows."""
    found: dict[bytes, Blob] = {}
    for recorded in events:
        _find_blobs(recorded.event, found)
    return found


def _find_blobs(value: object, found: dict[bytes, Blob]) -> None:
    if isinstance(value, Blob):
        if is_text(value):
            found[value.sha256] = value
    elif isinstance(value, tuple):
        for item in cast("tuple[object, ...]", value):
            _find_blobs(item, found)
    elif isinstance(value, Record):
        for item in value.__dict__.values():
            _find_blobs(item, found)


def _plain(value: object) -> object:
    """A context's parts as JSON can hold them."""
    if isinstance(value, tuple):
        return [_plain(item) for item in cast("tuple[object, ...]", value)]
    if isinstance(value, (Part, Message)):
        return [_plain(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, Record):
        return [_plain(item) for item in value.__dict__.values()]
    return value.hex() if isinstance(value, bytes) else value
