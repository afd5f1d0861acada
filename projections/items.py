"""Messages in the making, and the messages that they become. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from foldline.projections.calls import Result, Tale, shown
from foldline.projections.context import SAID, SUMMARY, Message, Part, Shown
from foldline.projections.pieces import Pieces
from foldline.schemas.blocks import Blocks
from foldline.schemas.recorded import Recorded

PRUNED = "PRUNED"
"""The form of a result that left the context: a reference stands for it."""


@dataclass(slots=True)
class Item:
    """A message in the making; the seq is where it stands.

    `said` are the events that the model's own message consists of. `set_up`: it says what
    came into force.
    """

    seq: int
    role: str
    parts: list[Part] = field(default_factory=list[Part])
    event_ids: list[str] = field(default_factory=list[str])
    last_seq: int = 0
    origin: str = SAID
    set_up: bool = False
    said: list[Recorded] = field(default_factory=list[Recorded])
    message_ids: tuple[str, ...] = ()

    @property
    def place(self) -> int:
        """Where it stands among the others: a summary where what it stands for ended."""
        return self.last_seq if self.origin == SUMMARY else self.seq


@dataclass(frozen=True, slots=True)
class Pruned:
    """What is shown instead of a result or arguments; `seq` is of what says so."""

    seq: int
    blocks: Blocks


class Messages:
    """Makes messages of items.

    Args:
        pieces: makes parts of blocks.
        tales: every call that was requested.
        asked: the message that shows each of them, by the call's id.
        pruned: what is shown instead, by what it stands for.
    """

    def __init__(
        self,
        pieces: Pieces,
        tales: Mapping[str, Tale],
        asked: Mapping[str, Item],
        pruned: Mapping[str, Pruned],
    ) -> None:
        self._pieces = pieces
        self._tales = tales
        self._asked = asked
        self._pruned = pruned
        self.stand_ins: list[Shown] = []
        """The stand-ins that they show."""

    def of(self, item: Item) -> list[Message]:
        """The message of an item, and behind it the results of its calls."""
        parts, told = self._parts(item)
        if not parts:
            return []
        rest = (
            tuple(item.event_ids),
            item.seq,
            max([item.last_seq, *[tale.settled_seq for tale in told]]),
            item.origin,
            tuple([tale.request.call_id for tale in told if not tale.settled_seq]),
            item.message_ids,
        )
        said = Message(item.role, tuple(parts), *rest)
        if not told:
            return [said]
        return [said, Message("tool", tuple([self._result(t) for t in told]), *rest)]

    def _parts(self, item: Item) -> tuple[list[Part], list[Tale]]:
        """What the message says, with the calls that were requested; and those."""
        if item.role != "assistant":
            return item.parts, []
        parts: list[Part] = []
        told: list[Tale] = []
        for part in item.parts:
            if part.kind != "call":
                parts.append(part)
            elif self._asked.get(part.call_id) is item and part.call_id in self._tales:
                told.append(self._tales[part.call_id])
                parts.append(self._call(told[-1]))
        return parts, told

    def _call(self, tale: Tale) -> Part:
        request = tale.request
        pruned = self._pruned.get(tale.event_id)
        arguments = pruned.blocks if pruned else request.arguments
        return Part(
            "call",
            text="".join([part.text for part in self._pieces.parts(arguments)]),
            call_id=request.call_id,
            provider_call_id=request.provider_call_id,
            tool=request.tool,
            event_id=tale.event_id,
            seq=tale.seq,
        )

    def _result(self, tale: Tale) -> Part:
        result = tale.result()
        call_id = tale.request.call_id
        if result.stands_in:
            self.stand_ins.append(Shown(call_id, result.form, result.blocks))
        elif self._pruned and (reference := self._reference(tale)) is not None:
            result = Result(PRUNED, reference, result.error)
        return Part(
            "result",
            call_id=call_id,
            provider_call_id=tale.request.provider_call_id,
            tool=tale.request.tool,
            error=result.error,
            parts=tuple(self._pieces.parts(result.blocks) or self._pieces.parts(shown(()))),
            form=result.form,
            event_id=tale.shown_id,
            seq=tale.settled_seq,
        )

    def _reference(self, tale: Tale) -> Blocks | None:
        """The reference to show; imported ones may name the call by its provider's id.

        Providers repeat ids: a later call is not the one that was meant.
        """
        request = tale.request
        for name in (request.call_id, tale.shown_id, request.provider_call_id):
            pruned = self._pruned.get(name) if name else None
            if pruned is not None and pruned.seq > tale.seq:
                return pruned.blocks
        return None
