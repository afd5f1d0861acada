"""Leases in the log's file; `foldline.processors.machine_leases` judges them."""

import threading
from collections.abc import Sequence
from pathlib import Path

from foldline.processors.log import Lease, each_lease
from foldline.processors.machine_leases import Kept, boot_id, judged, machine_ms
from foldline.processors.owner_locks import OwnerLocks
from foldline.processors.sqlite_file import connect, translated


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
        kept = Kept(epoch, writer, self._boot_id, machine_ms(), ttl_ms, locked)
        self._execute(
            "INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (session_id) DO UPDATE SET epoch = excluded.epoch, "
            "writer = excluded.writer, boot_id = excluded.boot_id, "
            "renewed_ms = excluded.renewed_ms, ttl_ms = excluded.ttl_ms, "
            "locked = excluded.locked "
            "WHERE excluded.epoch > epoch "
            "OR excluded.epoch = epoch AND excluded.writer = writer",
            (session_id, *kept),
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
        return judged(Kept(*row), session_id, boot=self._boot_id, owners=self._owners)

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
