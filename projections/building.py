"""Building a context: one walk through the events of a history. Pure.

What holds of every build is said, and checked, in `foldline.projections.context`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from foldline.projections.calls import (
    End,
    Result,
    Tale,
    end_of,
    named_by,
    says,
    tales_of,
)
from foldline.projections.context import (
    NOTE,
    SAID,
    SUMMARY,
    Context,
    Message,
    Part,
    Shown,
    Sources,
)
from foldline.projections.inheritance import parts_of
from foldline.projections.invariants import check
from foldline.projections.live import live_of
from foldline.projections.pieces import Pieces
from foldline.schemas.blocks import (
    Blocks,
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
    ContextPruned,
    GoalSet,
    Inherited,
    InputProvided,
    InstructionsSet,
    ModelCallCompleted,
    ModelCallStarted,
    PermissionGranted,
    PermissionRequested,
    SessionCreated,
    SteeringApplied,
    SteeringExpired,
    SteeringReceived,
    SummaryCreated,
    SystemObservation,
    ToolCallRequested,
    ToolDeclaration,
    ToolExecutionStarted,
    ToolResultProjected,
    ToolsDeclared,
    TurnEnded,
    TurnStarted,
    UsageCorrected,
    UserMessage,
)
from foldline.schemas.recorded import Recorded

PRUNED = "PRUNED"
"""The form of a result that left the context: a reference stands for it."""

PRUNED_TEXT = "[This output is no longer shown. The session's log has it.]"
"""What is shown where a pruning does not say what."""


_SILENT: frozenset[type] = frozenset(
    {
        ModelCallCompleted,
        ModelCallStarted,
        PermissionGranted,
        PermissionRequested,
        ToolExecutionStarted,
        ToolResultProjected,
        TurnEnded,
        TurnStarted,
        UsageCorrected,
    }
)
"""The most frequent events that say nothing by themselves: seen at once, to be quick."""


def build(sources: Sources) -> Context:
    """The context of a history."""
    live = live_of(sources.events)
    tales = tales_of(sources.events)
    walk = _Walk(sources, tales)
    for recorded in sources.set_up:
        walk.set_up(recorded)
    for recorded in live:
        if type(recorded.event) not in _SILENT:
            walk.step(recorded)
    return check(walk.context())


@dataclass(slots=True)
class _Item:
    """A message in the making; the seq is where it stands."""

    seq: int
    role: str
    parts: list[Part] = field(default_factory=list[Part])
    event_ids: list[str] = field(default_factory=list[str])
    last_seq: int = 0
    origin: str = SAID
    set_up: bool = False


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
        self._pieces = Pieces(sources.texts)
        self._tales = tales
        self._late = {event_id for tale in tales.values() for event_id in tale.late()}
        self._items: list[_Item] = []
        self._messages: dict[str, _Item] = {}
        self._asked: dict[str, _Item] = {}
        self._in_force: dict[str, _InForce] = {}
        self._system: dict[str, _InForce] = {}
        self._tools: tuple[ToolDeclaration, ...] = ()
        self._tools_event_id: str | None = None
        self._steering: dict[str, tuple[int, Blocks]] = {}
        self._pruned: dict[str, Blocks] = {}
        self._compacted_to = 0

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
                self._steering[event_id] = recorded.seq, blocks
            case SteeringApplied(steering_event_id=steering_id):
                self._say(recorded, self._steering.pop(steering_id, (0, ()))[1])
            case SteeringExpired(steering_event_id=steering_id):
                self._steering.pop(steering_id, None)
            case InputProvided(blocks=blocks):
                self._say(recorded, (text_block("Answer: "), *blocks))
            case ContextCleared():
                self._restart([])
            case SessionCreated(inherited=Inherited()) as created:
                self._fork(recorded, created)
            case CompactionCompleted() as compaction:
                self._compact(recorded, compaction)
            case SummaryCreated() as summary:
                self._summarise(recorded, summary)
            case ContextPruned() as pruning:
                self._prune(pruning)
            case _ if end_of(recorded.event) is not None:
                self._end(recorded)
            case _:
                self.set_up(recorded)

    # --- the conversation ------------------------------------------------------------

    def _say(self, recorded: Recorded, blocks: Blocks, *, origin: str = SAID) -> None:
        self._items.extend(self._said(recorded, blocks, origin))

    def _note(self, recorded: Recorded, blocks: Blocks) -> None:
        """Say what came into force: the system message has it after a compaction."""
        for item in self._said(recorded, blocks, NOTE):
            item.set_up = True
            self._items.append(item)

    def _said(self, recorded: Recorded, blocks: Blocks, origin: str) -> list[_Item]:
        """Something that is said to the model, if it says anything."""
        if not says(blocks):
            return []
        item = _Item(recorded.seq, "user", last_seq=recorded.seq, origin=origin)
        item.event_ids.append(recorded.envelope.event_id)
        item.parts.extend(self._pieces.parts(blocks))
        return [item]

    def _assistant(self, recorded: Recorded, message: AssistantMessage) -> None:
        item = self._item_of(recorded, message.message_id)
        for block in message.blocks:
            if block.kind == "tool_call" and block.call_id:
                item.parts.append(Part("call", call_id=block.call_id))
            else:
                item.parts.extend(self._pieces.parts((block,)))

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
        item.last_seq = recorded.seq
        return item

    def _end(self, recorded: Recorded) -> None:
        """An end that is not shown with its call: late, or of a call no longer here."""
        event = recorded.event
        late = recorded.envelope.event_id in self._late
        end = end_of(event)
        if end is not None and (late or self._call_of(event) not in self._asked):
            self._say(recorded, _late(named_by(event), end), origin=NOTE)

    def _call_of(self, event: AnyEvent) -> str:
        if not isinstance(event, BackgroundEnded):
            return event.__dict__.get("call_id") or ""
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
        stays: list[_Item] = []
        for item in self._items:
            if not first <= item.seq <= last or kept.intersection(item.event_ids):
                stays.append(item)
            else:
                stays += self._ends_between(item, last, recorded.seq)
        stays = [item for item in stays if not item.set_up]
        before = [item for item in stays if item.seq < first]
        behind = sorted((i for i in stays if i.seq >= first), key=lambda item: item.seq)
        summary = self._said(recorded, compaction.blocks, SUMMARY)
        self._compacted_to = last
        self._restart([*before, *summary, *behind])

    def _ends_between(self, item: _Item, last: int, now: int) -> list[_Item]:
        """Notes of ends that came behind the cut of a compaction that takes their call."""
        tales = [self._tales[p.call_id] for p in item.parts if p.call_id in self._tales]
        ends = [end for tale in tales if (end := tale.shown_end()) and last < end.seq < now]
        return [self._late_item(end) for end in ends]

    def _late_item(self, end: End) -> _Item:
        item = _Item(end.seq, "user", last_seq=end.seq, origin=NOTE)
        item.event_ids.append(end.event_id)
        item.parts.extend(self._pieces.parts(_late(end.of, end.result)))
        return item

    def _summarise(self, recorded: Recorded, summary: SummaryCreated) -> None:
        """A summary that a harness recorded behind its compaction, in its place."""
        if summary.to_seq > self._compacted_to:
            return  # nothing was left out for it
        said = self._said(recorded, summary.blocks, SUMMARY)
        before = [item for item in self._items if item.seq < summary.from_seq]
        self._items = [*before, *said, *self._items[len(before) :]]

    def _prune(self, pruning: ContextPruned) -> None:
        """Show references from here on; what was pruned already stays as it is."""
        shown = iter(pruning.blocks)
        for target in pruning.targets:
            block = next(shown, None) or text_block(PRUNED_TEXT)
            self._pruned.setdefault(target, (block,))

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

    def _fork(self, recorded: Recorded, created: SessionCreated) -> None:
        """A fork says in its own words what is in force: only what differs is said."""
        parts = parts_of(created)
        for part in parts:
            said = recorded._replace(event=part)
            if not self._goes_on(said):
                self.set_up(said)
        held = {part.constraint_id for part in parts if isinstance(part, ConstraintSet)}
        for key in list(self._in_force):
            kind, _, name = key.partition(":")
            if kind == "constraint" and name not in held:
                self._lift(recorded, name)

    def _goes_on(self, recorded: Recorded) -> bool:
        """Whether this was in force before; then only the event that holds it is new."""
        match recorded.event:
            case GoalSet(blocks=blocks):
                key = "goal"
            case InstructionsSet(role=role, blocks=blocks):
                key = f"instructions:{role}"
            case ConstraintSet(constraint_id=name, blocks=blocks):
                key = f"constraint:{name}"
            case _:
                return False
        known = self._in_force.get(key)
        if known is None or self._pieces.parts(known.blocks) != self._pieces.parts(blocks):
            return False
        self._in_force[key] = replace(known, event_id=recorded.envelope.event_id)
        return True

    def _put(self, recorded: Recorded, key: str, label: str, blocks: Blocks) -> None:
        said = _InForce(recorded.envelope.event_id, label, blocks)
        self._in_force[key] = said
        if self._items:
            note = f"{label or 'The instructions'}, from now on: "
            self._note(recorded, (text_block(note), *blocks))
        else:
            self._system[key] = said

    def _lift(self, recorded: Recorded, name: str) -> None:
        known = self._in_force.pop(f"constraint:{name}", None)
        if self._items and known is not None:
            lifted = text_block(f"Constraint {name} no longer holds.")
            self._note(recorded, (lifted,))
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
            held_seq=min((seq for seq, _ in self._steering.values()), default=None),
        )

    def _system_message(self) -> list[Message]:
        parts: list[Part] = []
        event_ids: list[str] = []
        for kind in ("instructions", "goal", "constraint"):
            for key, said in sorted(self._system.items()):
                if key.partition(":")[0] == kind and says(said.blocks):
                    first, *rest = self._pieces.parts(said.blocks)
                    label = f"{said.label}: " if said.label else ""
                    gap = "\n\n" if parts else ""
                    parts += [replace(first, text=gap + label + first.text), *rest]
                    event_ids.append(said.event_id)
        return [Message("system", tuple(parts), tuple(event_ids))] if parts else []

    def _messages_of(self, item: _Item, stand_ins: list[Shown]) -> list[Message]:
        """The message of an item, and behind it the results of its calls."""
        parts: list[Part] = []
        told: list[Tale] = []
        for part in item.parts:
            tale = self._tales.get(part.call_id) if part.kind == "call" else None
            if part.kind != "call":
                parts.append(part)
            elif tale is not None and part.call_id in self._asked:
                parts.append(self._call(tale))
                told.append(tale)
        if not parts:
            return []
        said = Message(
            item.role,
            tuple(parts),
            tuple(item.event_ids),
            seq=item.seq,
            last_seq=max([item.last_seq, *(tale.settled_seq for tale in told)]),
            origin=item.origin,
            pending=tuple(t.request.call_id for t in told if not t.settled_seq),
        )
        results = tuple(self._result(tale, stand_ins) for tale in told)
        return [said, replace(said, role="tool", parts=results)] if results else [said]

    def _call(self, tale: Tale) -> Part:
        request = tale.request
        arguments = self._pruned.get(tale.event_id, request.arguments)
        return Part(
            "call",
            text="".join(part.text for part in self._pieces.parts(arguments)),
            call_id=request.call_id,
            provider_call_id=request.provider_call_id,
            tool=request.tool,
            event_id=tale.event_id,
            seq=tale.seq,
        )

    def _result(self, tale: Tale, stand_ins: list[Shown]) -> Part:
        result = tale.result()
        call_id = tale.request.call_id
        if result.stands_in:
            stand_ins.append(Shown(call_id, result.form, result.blocks))
        elif (reference := self._pruned_result(tale)) is not None:
            result = Result(PRUNED, reference, result.error)
        return Part(
            "result",
            call_id=call_id,
            provider_call_id=tale.request.provider_call_id,
            tool=tale.request.tool,
            error=result.error,
            parts=tuple(self._pieces.parts(result.blocks)),
            form=result.form,
            event_id=tale.shown_id,
            seq=tale.settled_seq,
        )

    def _pruned_result(self, tale: Tale) -> Blocks | None:
        """The reference to show; imported ones may name the call by its provider's id."""
        request = tale.request
        for name in (request.call_id, tale.shown_id, request.provider_call_id):
            if name and name in self._pruned:
                return self._pruned[name]
        return None


def _late(of: str, result: Result) -> Blocks:
    """What is said of an end whose call is not here, or was shown otherwise."""
    return (text_block(f"Late result of the earlier call {of}: "), *result.blocks)
