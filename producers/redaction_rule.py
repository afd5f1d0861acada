"""What a rule of redaction is: a kind of secret as data.

A rule names literal `anchors`; wherever one occurs, the rule's pattern is tried exactly
there and nowhere else. So a text without anchors costs a few substring searches, and a
text full of them costs a bounded number of steps per anchor: every quantifier has an
upper bound, and those that could give back what they took do not (possessive).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from re import Match

from foldline.producers.redaction_values import is_mixed

Check = Callable[[Match[str]], bool]
Extend = Callable[[Match[str]], int]

VALUE_MAX = 8_192
"""The longest value, in characters, that a rule takes for one secret."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of secret.

    `name` goes into the placeholder. `anchors` are lower-case literals (of the text as
    it is, if `exact_case`); `pattern` is matched at each place where one begins, and what
    its group `s` holds is replaced. A rule without anchors is tried everywhere, which costs
    more. `check` may refuse a match. `extend` tells where a
    secret ends of which the pattern takes only the begin: what is refused, perhaps at
    every anchor of a text made of anchors, has then cost little.
    """

    name: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    check: Check | None = None
    exact_case: bool = False
    extend: Extend | None = None


# A token begins at a border, and a border may be the end of an escape.
BORDER = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{2})|(?<=\dm))"
END = r"(?![A-Za-z0-9])"
CHAR = r"[A-Za-z0-9_-]"


def shape(
    name: str,
    anchors: str,
    pattern: str,
    check: Check | None = None,
    extend: Extend | None = None,
) -> Rule:
    """A rule for secrets with a prefix of their own; their case matters."""
    return Rule(
        name,
        tuple(anchors.split()),
        re.compile(f"{BORDER}(?P<s>{pattern})"),
        check,
        exact_case=True,
        extend=extend,
    )


def has_mixed(match: Match[str]) -> bool:
    """A check: letters and digits without a pattern, as chance makes them."""
    return is_mixed(match["s"])


_REST = re.compile(r"[A-Za-z0-9_.=-]{0,512}+")


def rest_of_token(match: Match[str]) -> int:
    """An end: where a long token ends of which a check judged the begin."""
    rest = _REST.match(match.string, match.end("s"))
    return match.end("s") if rest is None else rest.end()
