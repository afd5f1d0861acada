"""Bytes as a first guess of tokens. Pure.

A counter's vocabulary takes seconds to load, and much memory; most contexts are far from
any step of their policy, which their bytes say already.
"""

USUAL_BYTES_PER_TOKEN = 4
"""The usual bytes of a token of prose and code."""

LEAST_BYTES_PER_TOKEN = 1
"""Of any text: no token stands for less. What keeps a budget so keeps it by any count."""


class BytesAsTokens:
    """Counts a token for every so many bytes of UTF-8, rounded up."""

    def __init__(self, bytes_per_token: int = USUAL_BYTES_PER_TOKEN) -> None:
        self.name = f"bytes/{bytes_per_token}"
        self._bytes_per_token = bytes_per_token

    def count(self, text: str) -> int:
        """How many tokens a text may be; 0 for none."""
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        return -(-size // self._bytes_per_token)
