"""What goes on from a parent into a fork, and what a fork's own events say of it. Pure.

In force at the fork point: goal, plan, budget, tools, instructions and constraints. No
grants, no open work: calls, requests, steering and handles stay the parent's.

The parent's state names the event that holds each; that may be the event that set it, or
the parent's own creation, if the parent is a fork itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from foldline.processors.kept import short
from foldline.schemas.blocks import Blocks
from foldline.schemas.events import (
    AnyEvent,
    BudgetSet,
    Constraint,
    ConstraintSet,
    GoalSet,
    Inherited,
    Instruction,
    InstructionsSet,
    PlanItem,
    PlanUpdated,
    SessionCreated,
    ToolDeclaration,
    ToolsDeclared,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState


def seqs_in_force(state: SessionState) -> list[int]:
    """The seqs of the events that hold what is in force, in order, each once."""
    refs = [state.goal, state.plan, state.budget, state.tools]
    refs += [*state.instructions.values(), *state.constraints.values()]
    return sorted({ref.seq for ref in refs if ref is not None})


def inheritance_of(
    state: SessionState, held: Mapping[int, Recorded]
) -> tuple[tuple[str, ...], Inherited]:
    """The `inherits` and `inherited` of a fork.

    Args:
        state: the parent's, at the fork point.
        held: the events that `seqs_in_force` named, by seq.
    """
    taken = _Taken()
    for seq in seqs_in_force(state):
        if seq in held:
            _take(taken, state, seq, held[seq].event)
    return tuple(taken.names), Inherited(
        budget_json=taken.budget_json,
        tools=taken.tools,
        goal=taken.goal,
        plan=taken.plan,
        constraints=tuple(taken.constraints),
        instructions=tuple(taken.instructions),
    )


@dataclass(slots=True)
class _Taken:
    """What was found so far; `names` as `SessionCreated.inherits` has them."""

    names: list[str] = field(default_factory=list[str])
    budget_json: str | None = None
    tools: tuple[ToolDeclaration, ...] = ()
    goal: Blocks = ()
    plan: tuple[PlanItem, ...] = ()
    constraints: list[Constraint] = field(default_factory=list[Constraint])
    instructions: list[Instruction] = field(default_factory=list[Instruction])


def _take(taken: _Taken, state: SessionState, seq: int, event: AnyEvent) -> None:
    match event:
        case GoalSet(blocks=blocks):
            taken.goal = blocks
            taken.names.append("goal")
        case PlanUpdated(items=items):
            taken.plan = items
            taken.names.append("plan")
        case BudgetSet(limits_json=limits_json):
            taken.budget_json = limits_json
            taken.names.append("budget")
        case ToolsDeclared(tools=tools):
            taken.tools = tools
            taken.names.append("tools")
        case InstructionsSet(role=role, blocks=blocks):
            taken.instructions.append(Instruction(role=role, blocks=blocks))
            taken.names.append(f"instructions:{role}")
        case ConstraintSet(constraint_id=name, blocks=blocks):
            taken.constraints.append(Constraint(constraint_id=name, blocks=blocks))
            taken.names.append(f"constraint:{name}")
        case SessionCreated(inherited=Inherited()):
            for part in parts_in_force(event, state, seq):
                _take(taken, state, seq, part)
        case _:
            pass


PartInForce = (
    GoalSet | PlanUpdated | BudgetSet | ToolsDeclared | InstructionsSet | ConstraintSet
)


def parts_of(created: SessionCreated) -> list[PartInForce]:
    """What a fork's creation says is in force, each as the event that would say it."""
    inherited = created.inherited or Inherited()
    parts: list[PartInForce] = [
        *(
            InstructionsSet(role=said.role, blocks=said.blocks)
            for said in inherited.instructions
        ),
        *(
            ConstraintSet(constraint_id=said.constraint_id, blocks=said.blocks)
            for said in inherited.constraints
        ),
    ]
    if "goal" in created.inherits:
        parts.append(GoalSet(blocks=inherited.goal))
    if "plan" in created.inherits:
        parts.append(PlanUpdated(items=inherited.plan))
    if "tools" in created.inherits:
        parts.append(ToolsDeclared(tools=inherited.tools))
    if "budget" in created.inherits and inherited.budget_json is not None:
        parts.append(BudgetSet(limits_json=inherited.budget_json))
    return parts


def parts_in_force(
    created: SessionCreated, state: SessionState, seq: int
) -> list[PartInForce]:
    """Those of them that a later state still has from the creation, which is at `seq`."""
    return [part for part in parts_of(created) if _seq_of(part, state) == seq]


def _seq_of(part: PartInForce, state: SessionState) -> int:
    """The seq of the event that a state says holds such a part; 0 for none."""
    match part:
        case GoalSet():
            ref = state.goal
        case PlanUpdated():
            ref = state.plan
        case BudgetSet():
            ref = state.budget
        case ToolsDeclared():
            ref = state.tools
        case InstructionsSet(role=role):
            ref = state.instructions.get(short(role))
        case ConstraintSet(constraint_id=name):
            ref = state.constraints.get(short(name))
    return ref.seq if ref else 0


def as_set_up(recorded: Recorded, state: SessionState) -> list[Recorded]:
    """An event that holds what is in force, as what sets up a context at a state.

    A fork's creation comes as the parts of it that are still in force.
    """
    if not isinstance(recorded.event, SessionCreated):
        return [recorded]
    return [
        recorded._replace(event=part)
        for part in parts_in_force(recorded.event, state, recorded.seq)
    ]
