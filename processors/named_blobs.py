"""Which blobs an event names, wherever in it."""

from collections.abc import Iterator, Sequence
from typing import cast

from foldline.schemas.blocks import Blob
from foldline.schemas.record import Record


def blobs_in(value: object) -> Iterator[Blob]:
    """The blobs that an event names."""
    if isinstance(value, Blob):
        yield value
    elif isinstance(value, Record):
        for item in value.__dict__.values():
            yield from blobs_in(item)
    elif isinstance(value, tuple | list):
        for item in cast("Sequence[object]", value):
            yield from blobs_in(item)
