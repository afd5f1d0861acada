"""One walk through the events of a conversation, which makes its messages. Pure."""

from foldline.projections.calls import (
    ENDS,
    End,
    Result,
    end_of,
    named_by,
)
from foldline.projections.context import (
    NOTE,
    SAID,
    SUMMARY,
    Message,
    Part,
    Shown,
)
from foldline.projections.in_force import SETS_UP, InForce
from foldline.projections.items import Item, Messages, Pruned
from foldline.projections.pieces import Pieces
from foldline.projections.tales import Told
from foldline.schemas.blocks import Blocks, text_block
from foldline.schemas.events import (
    AssistantMessage,
    CompactionCompleted,
    ContextCleared,
    ContextPruned,
    InputProvided,
    SteeringApplied,
    SteeringExpired,
    SteeringReceived,
    SummaryCreated,
    SystemObservation,
    ToolCallRequested,
    UserMessage,
)
from foldline.schemas.recorded import Recorded

PRUNED_TEXT = "[This output is no longer shown. The session's log has it.]"
"""What is shown where a pruning does not say what."""


class Walk:
    """Goes through the events of a history once, in their order.

    1. `hold` takes in what was in force where the history begins.
    2. `begin`: from here on the conversation is shown.
    3. `step` takes in its events, one by one.
    4. `messages` are what came of it.

    Args:
        pieces: makes parts of blocks.
        told: every call that is requested, and what each end ends.
    """

    def __init__(self, pieces: Pieces, told: Told) -> None:
        self._pieces = pieces
        self._tales = told.calls
        self._ended = told.ended
        self._late = {event_id for tale in told.calls.values() for event_id in tale.late()}
        self._items: list[Item] = []
        self._messages: dict[str, Item] = {}
        self._asked: dict[str, Item] = {}
        self._steering: dict[str, tuple[int, Blocks]] = {}
        self._pruned: dict[str, Pruned] = {}
        self._compacted_to = 0
        self.in_force = InForce(pieces)

    def hold(self, recorded: Recorded) -> None:
        """Take in an event that sets something up, before the conversation begins."""
        if type(recorded.event) in SETS_UP:
            self.in_force.take(recorded)

    def begin(self) -> None:
        """The conversation begins: what is in force leads it."""
        self.in_force.lead()

    def step(self, recorded: Recorded) -> None:
        """Take one more event in."""
        if type(recorded.event) in ENDS:
            self._end(recorded)
            return
        match recorded.event:
            case AssistantMessage(message_id=message_id):
                self._add(self._item_of(recorded, message_id), recorded)
            case ToolCallRequested(message_id=message_id):
                self._add(self._item_of(recorded, message_id), recorded)
            case UserMessage(blocks=blocks) | SystemObservation(blocks=blocks):
                self._say(recorded, blocks)
            case SteeringReceived(blocks=blocks):
                self._steering[recorded.envelope.event_id] = recorded.seq, blocks
            case SteeringApplied(steering_event_id=steering_id):
                self._say(recorded, self._steering.pop(steering_id, (0, ()))[1])
            case SteeringExpired(steering_event_id=steering_id):
                self._steering.pop(steering_id, None)
            case InputProvided(blocks=blocks):
                self._say(recorded, (text_block("Answer: "), *blocks))
            case ContextCleared():
                self._restart([])
            case CompactionCompleted() as compaction:
                self._compact(recorded, compaction)
            case SummaryCreated() as summary:
                self._summarise(recorded, summary)
            case ContextPruned() as pruning:
                self._prune(recorded, pruning)
            case event if type(event) in SETS_UP:
                self._set_up(recorded)
            case _:
                pass

    # --- the conversation ------------------------------------------------------------

    def _say(self, recorded: Recorded, blocks: Blocks, *, origin: str = SAID) -> None:
        self._items.extend(self._said(recorded, blocks, origin))

    def _set_up(self, recorded: Recorded) -> None:
        """Say what came into force: the system message has it after a compaction."""
        notes = self.in_force.take(recorded)
        if not self._items:
            self.in_force.lead()
            return
        for blocks in notes:
            for item in self._said(recorded, blocks, NOTE):
                item.set_up = True
                self._items.append(item)

    def _said(self, recorded: Recorded, blocks: Blocks, origin: str) -> list[Item]:
        """Something that is said to the model, if it says anything."""
        parts = self._pieces.parts(blocks)
        if not parts:
            return []
        seq, event_ids = recorded.seq, [recorded.envelope.event_id]
        name: str = recorded.event.__dict__.get("message_id") or ""
        names = (name,) if name else ()
        return [Item(seq, "user", parts, event_ids, seq, origin, message_ids=names)]

    def _summary(self, recorded: Recorded, blocks: Blocks, to_seq: int) -> list[Item]:
        """What stands for events up to a seq; nothing where it says nothing."""
        items = self._said(recorded, blocks, SUMMARY)
        for item in items:
            item.last_seq = to_seq
        return items

    def _item_of(self, recorded: Recorded, message_id: str) -> Item:
        """The message that parts of this id belong to; a new one where there is none."""
        item = self._messages.get(message_id)
        if item is None:
            item = Item(recorded.seq, "assistant", message_ids=(message_id,))
            self._messages[message_id] = item
            self._items.append(item)
        return item

    def _add(self, item: Item, recorded: Recorded) -> None:
        """Take into the model's message what an event has of it."""
        item.said.append(recorded)
        item.event_ids.append(recorded.envelope.event_id)
        item.last_seq = recorded.seq
        match recorded.event:
            case ToolCallRequested(call_id=call_id):
                _add_call(item, call_id)
                self._asked.setdefault(call_id, item)
            case AssistantMessage(blocks=blocks):
                for block in blocks:
                    if block.kind == "tool_call" and block.call_id:
                        _add_call(item, block.call_id)
                    elif block.kind != "call":  # never shown of a model; so it stays
                        item.parts.extend(self._pieces.parts((block,)))
            case _:
                pass

    def _end(self, recorded: Recorded) -> None:
        """An end that is not shown with its call: late, or of a call no longer here."""
        event_id = recorded.envelope.event_id
        call_id = self._ended.get(event_id, "")
        if event_id not in self._late and call_id in self._asked:
            return
        end = end_of(recorded.event)
        of = named_by(recorded.event) or call_id
        if end is not None and of:  # a denial may be of no call
            self._say(recorded, _late(of, end), origin=NOTE)

    # --- what begins anew ------------------------------------------------------------

    def _restart(self, items: list[Item]) -> None:
        """The conversation goes on from these items; all that is in force leads them."""
        self._items = items
        kept = {id(item) for item in items}
        self._messages = {k: i for k, i in self._messages.items() if id(i) in kept}
        self._asked = self._asked_in(items)
        self.in_force.lead()

    def _asked_in(self, items: list[Item]) -> dict[str, Item]:
        """The calls that these items show, each where it was first asked for."""
        found: dict[str, Item] = {}
        for item in items:
            for part in item.parts:
                if part.kind == "call" and part.call_id in self._asked:
                    found.setdefault(part.call_id, item)
        return found

    def _compact(self, recorded: Recorded, compaction: CompactionCompleted) -> None:
        first, last = compaction.from_seq, compaction.to_seq
        kept = set(compaction.kept)
        stays: list[Item] = []
        for item in self._items:
            if not first <= item.place <= last or kept.intersection(item.event_ids):
                stays.append(item)
            else:
                stays += self._rest(item, last)
                stays += self._ends_between(item, last, recorded.seq)
        stays = [item for item in stays if not item.set_up]
        before = [item for item in stays if item.place < first]
        behind = sorted((i for i in stays if i.place >= first), key=lambda i: i.place)
        summary = self._summary(recorded, compaction.blocks, last)
        self._compacted_to = last
        self._restart([*before, *summary, *behind])

    def _rest(self, item: Item, last: int) -> list[Item]:
        """What of the model's message came behind the cut of a compaction."""
        behind = [recorded for recorded in item.said if recorded.seq > last]
        if not behind:
            return []
        rest = Item(behind[0].seq, item.role, message_ids=item.message_ids)
        for recorded in behind:
            self._add(rest, recorded)
            message_id = recorded.event.__dict__["message_id"]
            self._messages[message_id] = rest
        return [rest]

    def _ends_between(self, item: Item, last: int, now: int) -> list[Item]:
        """Notes of ends that came behind the cut of a compaction that takes their call."""
        asked = [p.call_id for p in item.parts if self._asked.get(p.call_id) is item]
        tales = [self._tales[c] for c in asked if c in self._tales]
        ends = [tale.shown_end() for tale in tales if tale.seq <= last]
        return [self._late_item(end) for end in ends if end and last < end.seq < now]

    def _late_item(self, end: End) -> Item:
        parts = self._pieces.parts(_late(end.of, end.result))
        return Item(end.seq, "user", parts, [end.event_id], end.seq, NOTE)

    def _summarise(self, recorded: Recorded, summary: SummaryCreated) -> None:
        """A summary that a harness recorded behind its compaction, in its place."""
        if summary.to_seq > self._compacted_to:
            return  # nothing was left out for it
        said = self._summary(recorded, summary.blocks, summary.to_seq)
        before = [item for item in self._items if item.place < summary.from_seq]
        self._items = [*before, *said, *self._items[len(before) :]]

    def _prune(self, recorded: Recorded, pruning: ContextPruned) -> None:
        """Show references from here on; what was pruned already stays as it is."""
        shown = iter(pruning.blocks)
        for target in pruning.targets:
            block = next(shown, None) or text_block(PRUNED_TEXT)
            self._pruned.setdefault(target, Pruned(recorded.seq, (block,)))

    # --- what came of it -------------------------------------------------------------

    def messages(self) -> tuple[list[Message], tuple[Shown, ...]]:
        """The messages, and the stand-ins that they show."""
        made = Messages(self._pieces, self._tales, self._asked, self._pruned)
        messages = self.in_force.message()
        for item in self._items:
            messages.extend(made.of(item))
        return messages, tuple(made.stand_ins)

    def held_seq(self) -> int | None:
        """Where the first steering lies that waits; None where none does."""
        return min((seq for seq, _ in self._steering.values()), default=None)


def _add_call(item: Item, call_id: str) -> None:
    """Name a call in a message, once: its block and its request both do."""
    if all(part.call_id != call_id for part in item.parts):
        item.parts.append(Part("call", call_id=call_id))


def _late(of: str, result: Result) -> Blocks:
    """What is said of an end whose call is not here, or was shown otherwise."""
    return (text_block(f"Late result of the earlier call {of}: "), *result.blocks)
