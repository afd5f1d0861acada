"""How small a context is to be, as data: what stays in full, and what makes room.

A policy decides when events are pruned or compacted; what was decided stands in the log,
so another policy later changes nothing that was shown.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase

NO_LIMIT = 0
"""Of a budget: nothing is pruned or compacted for it."""


@dataclass(frozen=True, slots=True)
class ContextPolicy:
    """What a context may hold. Sizes are in tokens, as the session's counter counts.

    Args:
        name: what a `RequestRef` calls it.
        version: of these numbers.
        budget_tokens: above it, what is older than the window is compacted.
        window_tokens: the newest messages, which nothing takes away.
        prune_step_tokens: pruning waits until it saves as much, for each pruning changes
            the prefix that a provider has cached.
        summary_tokens: what a summary may have.
        reference_tokens: what is shown of a pruned output besides what it mentions.
        mention_share: of a pruned output's tokens, how many may go into what it mentions.
        prune_result_tokens: smaller outputs stay.
        prune_argument_tokens: smaller arguments stay.
        keep_tools: tools (globs) whose outputs are not pruned.
        pinned: ids of events or calls that stay in full, through every compaction.
        no_progress_max: so many compactions without progress, and a person is asked.
    """

    name: str
    version: int = 1
    budget_tokens: int = NO_LIMIT
    window_tokens: int = 4_000
    prune_step_tokens: int = NO_LIMIT
    compact_step_tokens: int = NO_LIMIT
    summary_tokens: int = 4_000
    summary_share: float = 0.2
    reference_tokens: int = 40
    mention_share: float = 0.15
    prune_result_tokens: int = 100
    prune_argument_tokens: int = 200
    keep_tools: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    no_progress_max: int = 3

    def keeps(self, tool: str) -> bool:
        """Whether a tool's outputs stay in full until they are compacted."""
        return any(fnmatchcase(tool, pattern) for pattern in self.keep_tools)


FULL = ContextPolicy("full")
"""Everything since the last compaction; nothing is done by itself."""

ROOMY = ContextPolicy(
    "roomy",
    budget_tokens=48_000,
    window_tokens=12_000,
    prune_step_tokens=8_000,
    summary_tokens=10_000,
    mention_share=0.2,
)
"""For models with a large context, where a wrong guess costs more than tokens."""

LEAN = ContextPolicy(
    "lean",
    budget_tokens=12_000,
    window_tokens=2_000,
    prune_step_tokens=3_000,
    summary_tokens=5_000,
)
"""The default: about as small as it can be without losing what the next action names."""

POLICIES = {policy.name: policy for policy in (LEAN, ROOMY, FULL)}
DEFAULT = LEAN
