"""What is in force in a history: instructions, goal, constraints, tools. Pure.

What is in force when the conversation begins, or goes on after a compaction or clearing,
leads it, as the system message. What is set later is said where it was set, so that
nothing in front of it changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from foldline.projections.context import Message, Part
from foldline.projections.inheritance import parts_of
from foldline.projections.pieces import Pieces
from foldline.schemas.blocks import Blocks, text_block
from foldline.schemas.events import (
    AnyEvent,
    ConstraintLifted,
    ConstraintSet,
    GoalSet,
    InstructionsSet,
    SessionCreated,
    ToolDeclaration,
    ToolsDeclared,
)
from foldline.schemas.recorded import Recorded

SETS_UP: frozenset[type] = frozenset(
    {
        ConstraintLifted,
        ConstraintSet,
        GoalSet,
        InstructionsSet,
        SessionCreated,
        ToolsDeclared,
    }
)
"""Events that say what is in force."""

INSTRUCTIONS = "instructions"
GOAL = "goal"
CONSTRAINT = "constraint"


@dataclass(frozen=True, slots=True)
class _Held:
    """Instructions, the goal or a constraint, as an event set it."""

    event_id: str
    label: str
    blocks: Blocks


class InForce:
    """Takes in the events of a history that set something up, in their order.

    Args:
        pieces: makes parts of their blocks.
    """

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._now: dict[str, _Held] = {}
        self._leads: dict[str, _Held] = {}
        self.tools: tuple[ToolDeclaration, ...] = ()
        self.tools_event_id: str | None = None

    def lead(self) -> None:
        """The conversation begins here: all that is in force now leads it."""
        self._leads = dict(self._now)

    def take(self, recorded: Recorded) -> list[Blocks]:
        """Take one such event in, and give what it says to a conversation under way."""
        event, event_id = recorded.event, recorded.envelope.event_id
        if isinstance(event, SessionCreated):
            return self._fork(event, event_id)
        if isinstance(event, ConstraintLifted):
            return self._drop(f"{CONSTRAINT}:{event.constraint_id}")
        return self._set(event, event_id)

    def _set(self, event: AnyEvent, event_id: str) -> list[Blocks]:
        if isinstance(event, ToolsDeclared):
            self.tools, self.tools_event_id = event.tools, event_id
        named = _named(event)
        if named is None:
            return []
        key, label, blocks = named
        self._now[key] = _Held(event_id, label, blocks)
        note = f"{label or 'The instructions'}, from now on: "
        return [(text_block(note), *blocks)]

    def _drop(self, key: str) -> list[Blocks]:
        dropped = self._now.pop(key, None)
        return [] if dropped is None else [(text_block(_dropped(key)),)]

    def _fork(self, created: SessionCreated, event_id: str) -> list[Blocks]:
        """A fork says in its own words what is in force: only what differs is said."""
        notes: list[Blocks] = []
        held: set[str] = set()
        self.tools, self.tools_event_id = (), None
        for part in parts_of(created):
            named = _named(part)
            held.add(named[0] if named else "")
            if named is None or not self._goes_on(named[0], named[2], event_id):
                notes += self._set(part, event_id)
        for key in [key for key in self._now if key not in held]:
            notes += self._drop(key)
        return notes

    def _goes_on(self, key: str, blocks: Blocks, event_id: str) -> bool:
        """Whether this was in force before; then only the event that holds it is new."""
        known = self._now.get(key)
        if known is None or self._pieces.parts(known.blocks) != self._pieces.parts(blocks):
            return False
        self._now[key] = replace(known, event_id=event_id)
        return True

    # --- what leads ------------------------------------------------------------------

    def instructions_event_ids(self) -> tuple[str, ...]:
        """The events that hold the instructions which lead the conversation."""
        return tuple(held.event_id for held in self._leading(INSTRUCTIONS))

    def message(self) -> list[Message]:
        """The system message, if there is anything to say in it."""
        parts: list[Part] = []
        event_ids: list[str] = []
        for kind in (INSTRUCTIONS, GOAL, CONSTRAINT):
            for held in self._leading(kind):
                if found := self._pieces.parts(held.blocks):
                    first, *rest = found
                    label = f"{held.label}: " if held.label else ""
                    gap = "\n\n" if parts else ""
                    parts += [replace(first, text=gap + label + first.text), *rest]
                    event_ids.append(held.event_id)
        return [Message("system", tuple(parts), tuple(event_ids))] if parts else []

    def _leading(self, kind: str) -> Iterator[_Held]:
        for key, held in sorted(self._leads.items()):
            if key.partition(":")[0] == kind:
                yield held


def _named(event: AnyEvent) -> tuple[str, str, Blocks] | None:
    """What an event sets: its key, how it is called to the model, and its words."""
    match event:
        case GoalSet(blocks=blocks):
            return GOAL, "Goal", blocks
        case InstructionsSet(role=role, blocks=blocks):
            return f"{INSTRUCTIONS}:{role}", "", blocks
        case ConstraintSet(constraint_id=name, blocks=blocks):
            return f"{CONSTRAINT}:{name}", f"Constraint {name}", blocks
        case _:
            return None


def _dropped(key: str) -> str:
    kind, _, name = key.partition(":")
    if kind == CONSTRAINT:
        return f"Constraint {name} no longer holds."
    return f"The {kind} no longer {'hold' if kind == INSTRUCTIONS else 'holds'}."
