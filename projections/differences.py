"""Where two histories part, and what each says from there on. Pure.

Events of two sessions never have the same ids and times. So events are compared by their
type and by what they say: an id counts by the order in which it first came up on its
side, and times and hashes of states do not count at all.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, cast

from foldline.projections.views import event_view
from foldline.schemas.recorded import Recorded

_IDS = ("_id", "_ids", "handle", "kept")
_NOT_COMPARED = ("_at", "_at_us", "_ms", "state_hash")


@dataclass(frozen=True, slots=True)
class Pair:
    """What stands at the same place on both sides; None where a side has ended.

    `fields` names what differs: `type` alone, or fields of the event.
    """

    a: Recorded | None
    b: Recorded | None
    fields: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether both say the same."""
        return not self.fields


def pairs_of(a: Iterable[Recorded], b: Iterable[Recorded]) -> Iterator[Pair]:
    """The events of two sides, place by place, each pair compared."""
    one, other = _Side(), _Side()
    for left, right in zip_longest(a, b):
        said = one.said(left), other.said(right)
        yield Pair(left, right, _fields(*said))


def _fields(a: dict[str, Any], b: dict[str, Any]) -> tuple[str, ...]:
    if a.get("type") != b.get("type"):
        return ("type",)
    return tuple(name for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name))


class _Side:
    """One side, which numbers its ids as they come up."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def said(self, recorded: Recorded | None) -> dict[str, Any]:
        """An event as it is compared."""
        if recorded is None:
            return {}
        view = event_view(recorded)
        own = cast("dict[str, Any]", self._plain("", view["event"]))
        return own | {"type": view["type"]}

    def _plain(self, name: str, value: Any) -> Any:
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            return {
                key: self._plain(key, item)
                for key, item in items
                if not key.endswith(_NOT_COMPARED)
            }
        if isinstance(value, list):
            return [self._plain(name, item) for item in cast("list[Any]", value)]
        if isinstance(value, str) and name.endswith(_IDS):
            return self._numbers.setdefault(value, len(self._numbers))
        return value
