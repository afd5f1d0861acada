"""How small a context is to be, as data: what stays in full, and what makes room. Pure.

A policy decides when events are pruned or compacted; what was decided stands in the log,
so another policy later changes nothing that was shown.
"""

from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase

from foldline.errors import SettingsError

MESSAGES = "messages"
"""What the budget of a policy is of: all of them together."""

NO_LIMIT = 0
"""A budget for which nothing is pruned or compacted."""


@dataclass(frozen=True, slots=True)
class ToolRule:
    """How the calls of some tools are pruned; what a rule does not say, its policy does.

    Args:
        tools: names of tools (a glob).
        keep: their outputs stay in full until they are compacted.
        reference_tokens: as in `ContextPolicy`, as all that follow.
        mention_share: how much of a pruned output may go into what it mentions.
        mention_tokens: how much that is at the most.
        prune_result_tokens: smaller outputs stay.
        prune_argument_tokens: smaller arguments stay.
    """

    tools: str
    keep: bool = False
    reference_tokens: int | None = None
    mention_share: float | None = None
    mention_tokens: int | None = None
    prune_result_tokens: int | None = None
    prune_argument_tokens: int | None = None

    def of(self, policy: "ContextPolicy") -> "ContextPolicy":
        """A policy as it is for these tools."""
        said = {f.name: getattr(self, f.name) for f in fields(self)[2:]}
        own = {name: value for name, value in said.items() if value is not None}
        return replace(policy, **own)


@dataclass(frozen=True, slots=True)
class SectionBudgets:
    """How many tokens the sections of a context may have, each by itself.

    Of outputs (`results`) and arguments (`calls`) the oldest become references as soon as
    there are more; a summary is made no larger. What was said by whom, what the model
    thought, and tools are never made smaller for a section: an explanation tells where
    they are above their budgets.
    """

    system: int = NO_LIMIT
    tools: int = NO_LIMIT
    user: int = NO_LIMIT
    assistant: int = NO_LIMIT
    reasoning: int = NO_LIMIT
    calls: int = NO_LIMIT
    results: int = NO_LIMIT
    summary: int = NO_LIMIT

    def as_dict(self) -> dict[str, int]:
        """The budgets that there are, by the names of their sections."""
        said = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: tokens for name, tokens in said.items() if tokens != NO_LIMIT}

    def within(self, budget_tokens: int) -> "SectionBudgets":
        """None of them above a budget of all."""
        lower = {name: min(n, budget_tokens) for name, n in self.as_dict().items()}
        return replace(self, **lower)


NO_SECTIONS = SectionBudgets()


@dataclass(frozen=True, slots=True)
class ContextPolicy:
    """What a context may hold. Sizes are in tokens, as the session's counter counts.

    Args:
        name: what a `RequestRef` calls it.
        version: of these numbers.
        budget_tokens: above it, what is older than the window is compacted.
        window_tokens: the newest messages, which nothing takes away; what the model has
            not seen yet stays besides.
        prune_step_tokens: outputs before the window become references as soon as that
            saves so much: each pruning changes the prefix that a provider has cached.
        compact_step_tokens: messages before the window are compacted as soon as they
            are so many, for the same reason.
        apart_calls: after a pruning or compaction, so many answers of the model are
            awaited before the next, unless the context is above its budget.
        summary_tokens: what a summary may have at the most.
        summary_share: of the tokens that it stands for, how many a summary may have.
        reference_tokens: what is shown of a pruned output besides what it mentions.
        mention_share: of a pruned output's tokens, how many may go into what it mentions.
        mention_tokens: how many these are at the most, however large the output is.
        prune_result_tokens: smaller outputs stay.
        prune_argument_tokens: smaller arguments stay.
        tools: rules for some tools; the first one that fits a tool holds for it.
        sections: what the sections may have, each by itself.
        pinned: ids of events or calls that stay in full, through every compaction.
        no_progress_max: so many compactions without progress, and a person is asked.
    """

    name: str
    version: int = 1
    budget_tokens: int = NO_LIMIT
    window_tokens: int = 4_000
    prune_step_tokens: int = NO_LIMIT
    compact_step_tokens: int = NO_LIMIT
    apart_calls: int = 4
    summary_tokens: int = 4_000
    summary_share: float = 0.2
    reference_tokens: int = 40
    mention_share: float = 0.15
    mention_tokens: int = 2_000
    prune_result_tokens: int = 100
    prune_argument_tokens: int = 200
    tools: tuple[ToolRule, ...] = ()
    sections: SectionBudgets = NO_SECTIONS
    pinned: tuple[str, ...] = ()
    no_progress_max: int = 3

    @property
    def makes_smaller(self) -> bool:
        """Whether it ever prunes or compacts anything."""
        return self.least_step_tokens != NO_LIMIT

    @property
    def least_step_tokens(self) -> int:
        """No context of fewer tokens is made smaller; NO_LIMIT where none ever is."""
        sections = self.sections.as_dict().values()
        steps = (self.budget_tokens, self.prune_step_tokens, self.compact_step_tokens)
        return min((n for n in (*steps, *sections) if n != NO_LIMIT), default=NO_LIMIT)

    @property
    def budgets(self) -> dict[str, int]:
        """What its messages may have together, and each section that has a budget."""
        budget = self.budget_tokens
        return ({} if budget == NO_LIMIT else {MESSAGES: budget}) | self.sections.as_dict()

    def keeps(self, tool: str) -> bool:
        """Whether a tool's outputs stay in full until they are compacted."""
        rule = self._rule_of(tool)
        return rule is not None and rule.keep

    def of(self, tool: str) -> "ContextPolicy":
        """The same policy as it is for a tool."""
        rule = self._rule_of(tool)
        return self if rule is None else rule.of(self)

    def _rule_of(self, tool: str) -> ToolRule | None:
        found = (rule for rule in self.tools if fnmatchcase(tool, rule.tools))
        return next(found, None)

    def within(self, budget_tokens: int) -> "ContextPolicy":
        """The same policy for a smaller context: everything in it shrinks with it.

        Args:
            budget_tokens: what the messages may have together, from 1.

        Raises:
            SettingsError: no such budget.
        """
        if budget_tokens < 1:
            raise SettingsError("budget", str(budget_tokens), "a number of tokens from 1")
        summary = max(int(budget_tokens * SUMMARY_OF_BUDGET), 1)
        step = max(int(budget_tokens * STEP_OF_BUDGET), 1)  # 0 would be no limit
        return replace(
            self,
            name=f"{self.name}@{budget_tokens}",
            budget_tokens=budget_tokens,
            window_tokens=min(self.window_tokens, step),
            prune_step_tokens=min(self.prune_step_tokens, step),
            compact_step_tokens=min(self.compact_step_tokens, step),
            summary_tokens=min(self.summary_tokens, summary),
            mention_tokens=min(self.mention_tokens, step),
            sections=self.sections.within(budget_tokens),
        )


SUMMARY_OF_BUDGET = 0.5
STEP_OF_BUDGET = 0.2
"""Shares of a budget: of the summary, and of what is awaited before anything is done."""

FULL = ContextPolicy("full", window_tokens=4_000, summary_tokens=16_000)
"""Everything since the last compaction. Nothing is done, unless it is given a budget."""

ROOMY = ContextPolicy(
    "roomy",
    version=2,
    budget_tokens=100_000,
    window_tokens=4_000,
    prune_step_tokens=8_000,
    compact_step_tokens=16_000,
    summary_tokens=24_000,
    summary_share=0.3,
    mention_share=0.3,
)
"""A policy for those who would rather pay for tokens than open an old output again."""

LEAN = ContextPolicy(
    "lean",
    version=2,
    budget_tokens=40_000,
    window_tokens=250,
    prune_step_tokens=2_500,
    compact_step_tokens=2_500,
    summary_tokens=16_000,
    summary_share=0.22,
    reference_tokens=24,
    mention_share=0.25,
)
"""The default: about as small as it can be while what the next action names is there."""

POLICIES = {policy.name: policy for policy in (LEAN, ROOMY, FULL)}
DEFAULT = LEAN


def policy_named(name: str) -> ContextPolicy:
    """The policy of a name.

    Raises:
        SettingsError: no policy has this name.
    """
    if name not in POLICIES:
        raise SettingsError("policy", name, f"one of {', '.join(POLICIES)}")
    return POLICIES[name]
