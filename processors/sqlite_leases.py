"""Leases in the log's file, and locks beside it that tell a dead owner at once.

A lease is alive while it was renewed within its time to live, on a clock that all
processes of the machine share and that goes on in sleep, and while its owner's process
holds the lock of its writer: the kernel drops that lock at whatever death. So a killed
owner's lease ends at once, a frozen one's after its time to live.
"""

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from foldline.processors.log import Lease, each_lease
from foldline.processors.owner_locks import OwnerLocks
from foldline.processors.sqlite_file import connect, translated

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def machine_ms() -> int:
    """Milliseconds since this machine's start, the same in every process."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


def boot_id() -> str:
    """What tells this start of the machine from others; empty where unknown."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class SqliteLeases:
    """The leases of one file, on a connection of their own."""

    def __init__(self, path: Path, *, url: str, busy_timeout_ms: int) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._boot_id = boot_id()
        self._owners = OwnerLocks(path.with_name(f"{path.name}.owners"))
        with translated(url):
            self._connection = connect(path, busy_timeout_ms=busy_timeout_ms)
            # Not synced: after a crash of the machine every lease is dead anyway.
            self._connection.execute("PRAGMA synchronous=NORMAL")

    def renew(self, session_id: str, *, epoch: int, writer: str, ttl_ms: int) -> None:
        """Say that this writer lives. A lease of a lower epoch replaces no higher one.

        Raises:
            LogUnavailableError: the file is locked or full; the lease is not renewed.
        """
        locked = self._owners.hold(writer)
        self._execute(
            "INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (session_id) DO UPDATE SET epoch = excluded.epoch, "
            "writer = excluded.writer, boot_id = excluded.boot_id, "
            "renewed_ms = excluded.renewed_ms, ttl_ms = excluded.ttl_ms, "
            "locked = excluded.locked "
            "WHERE excluded.epoch > epoch "
            "OR excluded.epoch = epoch AND excluded.writer = writer",
            (
                session_id,
                epoch,
                writer,
                self._boot_id,
                machine_ms(),
                ttl_ms,
                locked,
            ),
        )

    def release(self, session_id: str, *, epoch: int, writer: str) -> None:
        """Give the lease up at once; nothing happens if another writer holds it."""
        self._execute(
            "DELETE FROM leases WHERE session_id = ? AND epoch = ? AND writer = ?",
            (session_id, epoch, writer),
        )

    def get_many(self, session_ids: Sequence[str]) -> dict[str, Lease]:
        """The leases of several sessions, of those that have one."""
        return each_lease(self, session_ids)

    def get(self, session_id: str) -> Lease | None:
        """The lease of a session; None where none was ever taken or it was released."""
        row = self._execute(
            "SELECT epoch, writer, boot_id, renewed_ms, ttl_ms, locked "
            "FROM leases WHERE session_id = ?",
            (session_id,),
        )
        if row is None:
            return None
        epoch, writer, boot, renewed_ms, ttl_ms, locked = row
        age_ms = machine_ms() - renewed_ms
        alive = boot == self._boot_id and 0 <= age_ms < ttl_ms
        alive = alive and (not locked or self._owners.lives(writer))
        return Lease(session_id, epoch, writer, alive, ttl_ms - age_ms if alive else 0)

    def _execute(
        self, statement: str, parameters: tuple[object, ...]
    ) -> tuple[int, str, str, int, int, int] | None:
        with self._lock, translated(self._url):
            return self._connection.execute(statement, parameters).fetchone()

    def close(self) -> None:
        """Drop the locks: this process's leases are dead from here on."""
        with self._lock:
            self._owners.close()
            self._connection.close()
