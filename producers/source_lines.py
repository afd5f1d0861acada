"""What an exporter gives: the lines of a file, each with the record that it stands for."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from foldline.producers.json_fields import Json
from foldline.producers.source_bodies import Bodies
from foldline.producers.source_groups import Grouped

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its end, and the index of its group of facts.

    `index` is None for a line that stands for no fact. Without `data` no record tells the
    facts of the group.
    """

    index: int | None
    data: bytes | None


Exporter = Callable[[Grouped, Bodies], Iterator[Line]]
"""Makes the records of a session again, in their order."""


def line_of(index: int | None, record: Json) -> Line:
    """A record as a line of JSON."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    try:
        return Line(index, text.encode())
    except UnicodeEncodeError:  # what was no text stays none
        return Line(index, json.dumps(record, separators=(",", ":")).encode())


def verbatim(index: int, raw: str) -> Line:
    """A record that was kept as it is."""
    return Line(index, raw.encode("utf-8", "surrogateescape"))


def iso_of(micros: int | None) -> str | None:
    """A time in microseconds since 1970 as harnesses write it; None for none."""
    if micros is None:
        return None
    moment = _EPOCH + timedelta(microseconds=micros)
    unit = "microseconds" if micros % 1_000 else "milliseconds"
    return moment.isoformat(timespec=unit).replace("+00:00", "Z")
