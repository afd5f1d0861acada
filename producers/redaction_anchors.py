"""Which of many literals a text has, in one search.

The search takes the shortest literal at a place and goes on behind it, so it steps over
others that begin in the middle of it, or with it: those count as there, too.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from foldline.producers.redaction_rule import Rule
from foldline.producers.redaction_tree import tree_of

Wanted = tuple[int, str]
"""The place of a rule among all, and one of its anchors."""


class Anchors:
    """The anchors of some rules, each with the place of its rule among all."""

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self._wanted = wanted
        self._with: dict[str, frozenset[Wanted]] = {}
        anchors = sorted({anchor for _, anchor in wanted})
        self._pattern = re.compile(tree_of(_shortest(anchors)) or "(?!)")

    def possible_in(self, text: str) -> set[Wanted]:
        """The anchors that a text may have; all that it has are among them."""
        found = set(self._pattern.findall(text))
        return {wanted for anchor in found for wanted in self._beginning_in(anchor)}

    def _beginning_in(self, found: str) -> frozenset[Wanted]:
        """The anchors that may begin where one was found, or in the middle of it.

        Worked out when first asked.
        """
        known = self._with.get(found)
        if known is None:
            tails = tuple(found[index:] for index in range(len(found)))
            known = frozenset(
                one for one in self._wanted if one[1] in found or one[1].startswith(tails)
            )
            self._with[found] = known
        return known


@lru_cache(maxsize=16)
def anchors_of(rules: tuple[Rule, ...], *, exact_case: bool) -> Anchors:
    """The anchors of the rules for which case matters, or of those for which not."""
    chosen = [one for one in enumerate(rules) if one[1].exact_case is exact_case]
    return Anchors([(place, anchor) for place, rule in chosen for anchor in rule.anchors])


def _shortest(literals: Sequence[str]) -> list[str]:
    """The literals, of sorted ones, that begin with none of the others."""
    kept: list[str] = []
    for literal in literals:
        if not kept or not literal.startswith(kept[-1]):
            kept.append(literal)
    return kept
