"""Avro's primitives by hand, for the few fields that are written with every event.

fastavro wants a dictionary and a schema, and takes 10 to 20 us for what is a handful of
numbers and texts. What is written here is what fastavro writes; the tests compare.
"""

import struct
from functools import lru_cache

from foldline.errors import EncodeError

_EIGHT = struct.Struct("<Q")
_GOES_ON = 0x0080_8080_8080_8080
"""The top bits of a number of exactly eight bytes: all but the last byte's are set."""

_EIGHT_BYTES_FROM = 1 << 48
_EIGHT_BYTES_TO = 1 << 55
"""The numbers that take eight bytes: times in microseconds do until the year 3111."""


_SMALL = tuple(bytes((number << 1,)) for number in range(1 << 6))
"""The numbers of one byte."""


def long_bytes(number: int) -> bytes:
    """A long: zigzag, seven bits a byte."""
    if 0 <= number < 1 << 20:
        if number < 1 << 6:
            return _SMALL[number]
        number <<= 1
        if number < 1 << 14:
            return b"%c%c" % (number & 127 | 128, number >> 7)
        return b"%c%c%c" % (number & 127 | 128, number >> 7 & 127 | 128, number >> 14)
    return _long(number)


def _long(number: int) -> bytes:
    if not -(1 << 63) <= number < 1 << 63:
        raise EncodeError("long", f"{number} does not fit into 64 bits")
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 127:  # noqa: PLR2004 - the continuation bit
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


@lru_cache(maxsize=1024)
def time_bytes(micros: int) -> bytes:
    """A time as a long. The broker's clock ticks in milliseconds, so they repeat."""
    if not _EIGHT_BYTES_FROM <= micros < _EIGHT_BYTES_TO:
        return long_bytes(micros)
    number = micros << 1
    # Open gaps between groups of seven bits: in halves, then quarters, then bytes.
    number = (number & 0x0FFF_FFFF) | ((number & 0x00FF_FFFF_F000_0000) << 4)
    number = (number & 0x0000_3FFF_0000_3FFF) | ((number & 0x0FFF_C000_0FFF_C000) << 2)
    number = (number & 0x007F_007F_007F_007F) | ((number & 0x3F80_3F80_3F80_3F80) << 1)
    return _EIGHT.pack(number | _GOES_ON)


def text_bytes(text: str) -> bytes:
    """A string, its length before it.

    Raises:
        UnicodeEncodeError: a lone surrogate.
    """
    data = text.encode()
    size = len(data)
    return (_SMALL[size] if size < 1 << 6 else long_bytes(size)) + data


def data_bytes(data: bytes) -> bytes:
    """Bytes, their length before them."""
    return long_bytes(len(data)) + data


def optional_text(text: str | None) -> bytes:
    """A string that may be null: null is the first branch."""
    return b"\x00" if text is None else b"\x02" + text_bytes(text)
