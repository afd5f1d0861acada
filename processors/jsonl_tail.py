"""Where a log of JSON lines ends: behind the last batch that has all of its lines.

A killed or powerless writer leaves any beginning of its last batch: part of a line,
some lines of several, or, where the file grew before its bytes came, zeros. None of
that was acknowledged.
"""

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from foldline.processors.jsonl_line import LINE_MAX_BYTES, BadLine, parse_line

CHUNK_BYTES = 1024 * 1024


class RawLine(NamedTuple):
    """A line as it is in the file: `data` is without its end; empty for one too long."""

    offset: int
    size: int
    data: bytes
    ended: bool


class Tail(NamedTuple):
    """Up to where the file is kept; the last line may lack nothing but its end."""

    keep: int
    lacks_end: bool = False


def read_lines(descriptor: int, start: int, end: int) -> Iterator[RawLine]:
    """The lines between two offsets; the last one may have no end."""
    offset, at, held, skipped = start, start, b"", 0
    while at < end:
        chunk = os.pread(descriptor, min(CHUNK_BYTES, end - at), at)
        if not chunk:
            break
        at += len(chunk)
        *whole, held = (held + chunk).split(b"\n")
        for line in whole:
            size = skipped + len(line) + 1
            fits = not skipped and len(line) <= LINE_MAX_BYTES
            yield RawLine(offset, size, line if fits else b"", ended=True)
            offset += size
            skipped = 0
        if skipped or len(held) > LINE_MAX_BYTES:
            skipped += len(held)
            held = b""
    if skipped or held:
        yield RawLine(offset, skipped + len(held), held, ended=False)


def tail_of(lines: Iterable[RawLine], start: int, durable: int) -> Tail:
    """Where the file ends.

    Args:
        lines: the lines from `start` to the end of the file.
        start: where a batch begins.
        durable: what is before this offset was synced: there, damage is no torn write.
    """
    begun = end = start
    left = 0
    zeros = False
    for raw in lines:
        line = parse_line(raw.data)
        bad = isinstance(line, BadLine)
        if not left:
            begun, zeros = raw.offset, False
        if not raw.ended:
            lacks_end = not bad and line.left == 0 and left in (0, 1)
            return Tail(raw.offset + raw.size + 1 if lacks_end else begun, lacks_end)
        zeros = zeros or (bad and b"\0" in raw.data)
        left = max(left - 1, 0) if isinstance(line, BadLine) else line.left
        end = raw.offset + raw.size
    torn = left > 0 or (zeros and end > durable)
    return Tail(begun if torn else end)
