"""Leases among the processes of one machine: how they are judged, wherever they are kept.

A lease is alive while it was renewed within its time to live, on a clock that all
processes of the machine share and that goes on in sleep, and while its owner's process
holds the lock of its writer: the kernel drops that lock at whatever death. So a killed
owner's lease ends at once, a frozen one's after its time to live.
"""

import time
from pathlib import Path
from typing import NamedTuple

from foldline.processors.log import Lease
from foldline.processors.owner_locks import OwnerLocks

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Kept(NamedTuple):
    """A lease as it is kept: by whom, and when it was renewed on which clock."""

    epoch: int
    writer: str
    boot_id: str
    renewed_ms: int
    ttl_ms: int
    locked: int


def machine_ms() -> int:
    """Milliseconds since this machine's start, the same in every process."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


def boot_id() -> str:
    """What tells this start of the machine from others; empty where unknown."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def judged(kept: Kept, session_id: str, *, boot: str, owners: OwnerLocks) -> Lease:
    """What a kept lease is worth now, on the start of the machine `boot`."""
    age_ms = machine_ms() - kept.renewed_ms
    alive = kept.boot_id == boot and 0 <= age_ms < kept.ttl_ms
    alive = alive and (not kept.locked or owners.lives(kept.writer))
    left_ms = kept.ttl_ms - age_ms if alive else 0
    return Lease(session_id, kept.epoch, kept.writer, alive, left_ms)
