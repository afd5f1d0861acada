"""The upcaster chain: old event versions to the newest, right after decoding.

An upcaster takes the decoded fields of one record name and gives the next record name
and its fields. A chain of them ends at a record that `foldline.schemas.events` knows.
Stored bytes are never rewritten. There is no old version yet, so the chain is empty.
"""

from collections.abc import Callable, Mapping
from typing import Any

Upcaster = Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]

UPCASTERS: Mapping[str, Upcaster] = {}

MAX_CHAIN = 64
"""How many steps a chain may have before it is taken for a circle."""
