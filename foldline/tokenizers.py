"""Counting tokens on this machine, without a network: the vocabulary is in the library.

    counter = default_counter()
    counter.count("a text")  # a number of tokens, those of the encoding o200k_base

The library takes a second or two and some 140 MB when it is first asked, so nothing here
loads it before a text is counted. A text that was counted is remembered by its hash.
"""

import warnings
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from threading import Lock

ENCODING = "o200k_base"
"""The default: of OpenAI's models since 2024. Others' are near it, and calibrated."""

COUNTED_AT_ONCE_CHARS = 32_768
"""A longer text is counted in pieces, which may be a token more for each."""

REMEMBERED_TEXTS = 65_536
"""How many counts are kept; the oldest go first. Each takes some 150 bytes."""

NOT_REMEMBERED_CHARS = 64
"""A text this short is counted again sooner than it is found."""


class Tokens:
    """Counts by the encoding `name` of the library bpe-openai. For any thread."""

    def __init__(self, name: str = ENCODING) -> None:
        self.name = name
        self._encode: Callable[[str], list[int]] | None = None
        self._known: dict[bytes, int] = {}
        self._lock = Lock()

    @property
    def remembered(self) -> int:
        """How many counts it has kept."""
        return len(self._known)

    @property
    def loaded(self) -> bool:
        """Whether the library is here already."""
        return self._encode is not None

    def load(self) -> None:
        """Load the library now, which takes a second or two."""
        self._loaded()

    def count(self, text: str) -> int:
        """How many tokens a text is; 0 for none."""
        if len(text) <= NOT_REMEMBERED_CHARS:
            return self._count(text)
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        known = self._known.get(key)
        return self._remember(key, self._count(text)) if known is None else known

    def _remember(self, key: bytes, count: int) -> int:
        with self._lock:
            if len(self._known) >= REMEMBERED_TEXTS:
                del self._known[next(iter(self._known))]
            self._known[key] = count
        return count

    def _count(self, text: str) -> int:
        encode = self._loaded()
        return sum(
            len(encode(text[start : start + COUNTED_AT_ONCE_CHARS]))
            for start in range(0, len(text), COUNTED_AT_ONCE_CHARS)
        )

    def _loaded(self) -> Callable[[str], list[int]]:
        if self._encode is None:
            with self._lock:
                self._encode = self._encode or _load(self.name)
        return self._encode


def _load(name: str) -> Callable[[str], list[int]]:
    with warnings.catch_warnings():
        # It reads its files in a way that some versions of Python call old.
        warnings.simplefilter("ignore", DeprecationWarning)
        # late: see above
        from bpe_openai import get_encoding  # pyright: ignore[reportMissingTypeStubs]

        return get_encoding(name).encode_ordinary


@cache
def default_counter() -> Tokens:
    """The counter of this process; the library is loaded when it first counts."""
    return Tokens()
