"""A summary that no model makes: extracts of the original events. Pure.

What it says, each within its share of the summary's tokens, the newest first where not
all has room:

    task        what people said, in their words
    facts       what failed, what has no end, the plan (`foldline.projections.facts`)
    history     each call with its arguments and how it ended, and what the agent said
    mentions    paths, identifiers and numbers that only the left-out outputs have

It is made from originals, never from a summary: an earlier one says nothing here that the
events themselves do not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from foldline.projections.digest import Digest
from foldline.projections.policy import ContextPolicy
from foldline.projections.pruning import MISSES_MAX, SEPARATOR, fitted, within
from foldline.projections.token_count import TokenCounter
from foldline.schemas.recorded import Recorded

SUMMARY_MIN_TOKENS = 1_000
"""What a summary may have at the least, however short what it tells of."""

TASK_SHARE = 0.25
NEWER_SHARE = 0.1
HISTORY_SHARE = 0.4
"""Shares of a summary's tokens: what people said, of that at the least what they said
after the first thing, and what was done. What one leaves goes to those after it."""


@dataclass(frozen=True, slots=True)
class Originals:
    """The events of a history, as far as they are summarised, and the texts of blobs."""

    events: Sequence[Recorded]
    to_seq: int
    texts: Mapping[bytes, str]
    _made: list[tuple[TokenCounter, Digest]] = field(
        default_factory=list[tuple[TokenCounter, Digest]],
        init=False,
        repr=False,
        compare=False,
    )

    def digest(self, counter: TokenCounter) -> Digest:
        """What they say, made once: whoever has it only reads it."""
        for known, digest in self._made:
            if known is counter:
                return digest
        digest = Digest(self.texts, counter)
        digest.take(self.events, self.to_seq)
        self._made.append((counter, digest))
        return digest


def summary_of(
    originals: Originals, *, policy: ContextPolicy, counter: TokenCounter
) -> str:
    """The summary's text."""
    return summary_from(originals.digest(counter), policy=policy, counter=counter)


def facts_of(originals: Originals, *, policy: ContextPolicy, counter: TokenCounter) -> str:
    """What no summary may leave out, whoever makes it; empty where there is nothing.

    What failed and how often, whose outcome nobody knows, what is still open, the plan,
    the open questions.
    """
    digest = originals.digest(counter)
    facts = digest.facts.within(_tokens_for(digest, policy), counter)
    return "\n".join(line for title, lines in facts for line in (title, *lines))


def summary_from(digest: Digest, *, policy: ContextPolicy, counter: TokenCounter) -> str:
    """The summary of what a digest has: all parts that say something."""
    tokens = _tokens_for(digest, policy)
    text = _Text(f"[Summary of events 1 to {digest.to_seq}, {GONE}]", tokens, counter)
    least = int(tokens * NEWER_SHARE)
    said = text.first_and_newest(digest.tasks, int(tokens * TASK_SHARE), newer=least)
    text.add("What people said:", said)
    for title, lines in digest.facts.within(tokens, counter):
        text.add(title, lines)
    done = text.first_and_newest(digest.history, int(tokens * HISTORY_SHARE))
    text.add("What was done:", done)
    names = within(
        digest.mentioned.in_order(), shown=str(text), tokens=text.left, counter=counter
    )
    text.add("Also mentioned:", [SEPARATOR.join(names)] if names else [])
    return str(text)


GONE = "which are not shown any more"


def _tokens_for(digest: Digest, policy: ContextPolicy) -> int:
    """What a summary may have."""
    share = int(digest.tokens * policy.summary_share)
    return min(policy.summary_tokens, max(share, SUMMARY_MIN_TOKENS))


class _Text:
    """A text in the making; `left` is how many tokens it may still get."""

    def __init__(self, head: str, tokens: int, counter: TokenCounter) -> None:
        self.left = tokens - counter.count(head)
        self._counter = counter
        self._lines = [head]

    def __str__(self) -> str:
        return "\n".join(self._lines)

    def add(self, title: str, lines: Sequence[str]) -> None:
        """Add lines below a title, if there are any."""
        if lines:
            self._lines += [title, *lines]
            self.left -= sum(map(self._counter.count, lines))

    def first_and_newest(
        self, lines: Sequence[str], tokens: int, *, newer: int = 0
    ) -> list[str]:
        """The first line, cut to its room, and the newest besides, in their order.

        Args:
            lines: of which these are.
            tokens: what all may have together.
            newer: what the newest may have at the least, whatever the first one takes.
        """
        room = min(tokens, self.left)
        first = fitted(lines[0] if lines else "", tokens=room, counter=self._counter)
        room -= self._counter.count(first)
        return [*filter(None, [first]), *self._newest(lines[1:], max(room, newer))]

    def _newest(self, lines: Sequence[str], tokens: int) -> list[str]:
        """The newest lines that have room, in their order; longer ones are passed over."""
        misses = 0
        kept: list[str] = []
        for line in reversed(lines):
            if tokens <= 0 or misses >= MISSES_MAX:
                break
            cost = self._counter.count(line)
            misses = misses + 1 if cost > tokens else 0
            if cost <= tokens:
                kept.append(line)
                tokens -= cost
        return kept[::-1]
