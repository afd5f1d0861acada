"""A pattern of many literals that does not try each of them at every place."""

import re
from collections.abc import Sequence
from itertools import groupby


def tree_of(words: Sequence[str]) -> str:
    """A pattern of sorted words that tries each beginning once and takes the longest."""
    branches: list[str] = []
    optional = "" in words
    for _, group in groupby((word for word in words if word), key=lambda word: word[0]):
        alike = list(group)
        shared = _shared(alike[0], alike[-1])
        rest = tree_of([word[len(shared) :] for word in alike]) if alike[1:] else ""
        branches.append(re.escape(shared) + rest)
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)})" + ("?" if optional else "")


def _shared(first: str, last: str) -> str:
    """What the first and the last of sorted words begin with, and so all between."""
    for index, (a, b) in enumerate(zip(first, last, strict=False)):
        if a != b:
            return first[:index]
    return first
