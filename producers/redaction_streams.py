"""Secrets that begin in one record and end in the next.

What was said last in a stream (the outputs of one call, what one side says in a session)
is remembered for as long as its client lives: its last characters, in memory only. Where
a token runs on from there into the next record, both are looked at together, and what the
next record holds of a secret is replaced. What the record before holds is stored by then:
a beginning, which is no use without the rest.
"""

import string
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Protocol, cast, runtime_checkable

from foldline.schemas.blocks import Block
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import KnownEvent, type_of

TAIL_CHARS = 512
"""How much of a record is remembered, and how much of the next is looked at with it."""

STREAMS_MAX = 1_024
"""How many streams, the latest ones, have their last record remembered."""

_TOUCHING = frozenset(string.ascii_letters + string.digits + "_-+/=%:")

Key = tuple[str, str, str]


@runtime_checkable
class RedactsRests(Protocol):
    """A redactor that knows a secret by what stood before it."""

    def redact_rest(self, before: str, text: str) -> tuple[str, Mapping[str, int]]:
        """The text without the end of a secret that begins in what stood before it."""
        ...


class Tails:
    """The ends of the last records of the streams of one client, from any thread."""

    def __init__(self) -> None:
        self._tails: OrderedDict[Key, str] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, envelope: Envelope, event: KnownEvent) -> None:
        """Take what an event said last, before anything in it is redacted."""
        texts = _texts(event)
        if not texts:
            return
        key = _key(envelope, event)
        with self._lock:
            self._tails[key] = str(texts[-1][2].body)[-TAIL_CHARS:]
            self._tails.move_to_end(key)
            if len(self._tails) > STREAMS_MAX:
                self._tails.popitem(last=False)

    def continued(
        self, envelope: Envelope, event: KnownEvent, redactor: object
    ) -> tuple[KnownEvent, Mapping[str, int]]:
        """The event without the end of a secret that the record before it begins."""
        texts = _texts(event)
        before = self._tails.get(_key(envelope, event), "")
        if not texts or not before or not isinstance(redactor, RedactsRests):
            return event, Counter()
        name, index, block = texts[0]
        body = str(block.body)
        if before[-1] not in _TOUCHING or body[:1] not in _TOUCHING:
            return event, Counter()
        rest, counts = redactor.redact_rest(before, body)
        if not counts:
            return event, counts
        blocks = list(cast("tuple[Block, ...]", getattr(event, name)))
        blocks[index] = block.model_copy(update={"body": rest})
        return event.model_copy(update={name: tuple(blocks)}), counts


def _key(envelope: Envelope, event: KnownEvent) -> Key:
    return envelope.session_id, type_of(event), str(getattr(event, "call_id", ""))


def _texts(event: KnownEvent) -> list[tuple[str, int, Block]]:
    """The texts that an event says: in which field, at which place."""
    return [
        (name, index, block)
        for name in ("blocks", "output")
        for index, block in enumerate(cast("tuple[Block, ...]", getattr(event, name, ())))
        if block.kind == "text" and isinstance(block.body, str) and block.body
    ]
