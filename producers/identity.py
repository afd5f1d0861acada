"""Ids: fresh ones, and ones that follow from what they name.

A fresh id is a UUIDv7. A derived one is a UUIDv8 over its parts, so that whoever says
the same thing again says it under the same id, and the log answers DUPLICATE.
"""

import time

import uuid_utils

from foldline.processors.clock import Clock, wall_clock
from foldline.schemas.derived import derived_id

__all__ = [
    "Clock",
    "derived_id",
    "elapsed_clock_s",
    "fresh_id",
    "operation_id",
    "wall_clock",
]


def fresh_id() -> str:
    """A new UUIDv7, in lower case."""
    return str(uuid_utils.uuid7())


def operation_id(session_id: str, call_id: str) -> str:
    """The operation_id of a call: the same in every attempt and every process."""
    return derived_id("operation", session_id, call_id)


def elapsed_clock_s() -> float:
    """Seconds that only ever go on, also while the machine sleeps where it can tell."""
    boottime: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)
