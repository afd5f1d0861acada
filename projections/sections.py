"""The sections of a context beside their budgets, and what makes one smaller. Pure.

1. Where outputs or arguments have more than their budget, the oldest before the window
   become references at once, a little more than needed: each changes the prefix that a
   provider has cached.
2. Where that does not bring them within it, it waits as every other change does.
"""

from collections.abc import Mapping, Sequence

from foldline.projections.grouping import Group
from foldline.projections.policy import NO_SECTIONS, ContextPolicy
from foldline.projections.prune_step import Prune, prune_oldest
from foldline.projections.token_count import Reader, TokenCounter, message_sizes

PRUNABLE: Mapping[str, str] = {"results": "result", "calls": "call"}
"""The sections of which parts can become references, and the kind of these parts."""

SECTION_ROOM = 0.2
"""Which share of its budget a section has left after that."""


def above(sizes: Mapping[str, int], policy: ContextPolicy) -> dict[str, int]:
    """The sections that have more than their budget, and by how many tokens."""
    over = {
        name: sizes.get(name, 0) - budget
        for name, budget in policy.sections.as_dict().items()
    }
    return {name: tokens for name, tokens in over.items() if tokens > 0}


def prune_sections(
    groups: Sequence[Group],
    window: int,
    policy: ContextPolicy,
    counter: TokenCounter,
    reader: Reader,
    *,
    may_change: bool,
) -> Prune | None:
    """What of the first section above its budget becomes references; None: nothing does.

    Args:
        groups: of the context.
        window: how many of them are before the window.
        policy: what its sections may have.
        counter: counts tokens.
        reader: whom the context is for.
        may_change: whether to do what does not bring the section within its budget, too.
    """
    if policy.sections == NO_SECTIONS:
        return None
    messages = (message for group in groups for message in group.messages)
    sizes = message_sizes(messages, counter, reader=reader)
    for name, over in above(sizes, policy).items():
        if name not in PRUNABLE:
            continue
        wanted = over + int(policy.sections.as_dict()[name] * SECTION_ROOM)
        kind = PRUNABLE[name]
        step = prune_oldest(groups[:window], kind, wanted, policy, counter, reader)
        if step is not None and (may_change or step.tokens_saved >= over):
            return step
    return None
