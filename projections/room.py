"""Whether a context may be too large for its policy, without counting a token. Pure.

A counter's vocabulary takes seconds to load and much memory; most contexts are far from
any step of their policy, which their bytes say already.
"""

from foldline.projections.context import Context
from foldline.projections.policy import NO_LIMIT, ContextPolicy
from foldline.projections.token_count import message_tokens

USUAL_BYTES_PER_TOKEN = 4
"""Of prose and code. No text has fewer than one byte for a token."""


class BytesAsTokens:
    """Counts a token for every so many bytes: 1 gives what no counter exceeds."""

    def __init__(self, bytes_per_token: int = 1) -> None:
        self.name = f"bytes/{bytes_per_token}"
        self._bytes_per_token = bytes_per_token

    def count(self, text: str) -> int:
        """The tokens of a text, rounded up."""
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        return -(-size // self._bytes_per_token)


def may_be_over(context: Context, policy: ContextPolicy, *, bytes_per_token: int) -> bool:
    """Whether there may be anything to prune or to compact.

    Args:
        context: as it was built.
        policy: how small it is to be.
        bytes_per_token: 1 to be certain of a no; `USUAL_BYTES_PER_TOKEN` to guess well.
    """
    steps = (policy.prune_step_tokens, policy.compact_step_tokens, policy.budget_tokens)
    smallest = min((step for step in steps if step != NO_LIMIT), default=NO_LIMIT)
    if smallest == NO_LIMIT:
        return False
    counter = BytesAsTokens(bytes_per_token)
    left = smallest
    for message in context.messages:
        left -= message_tokens(message, counter)
        if left <= 0:
            return True
    return False
