"""Leases beside a log of JSON lines: a small file for each session, replaced whole."""

import hashlib
import json
import os
import threading
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foldline.errors import LogUnavailableError
from foldline.places import OWN_FILE, OWN_FOLDER
from foldline.processors.file_lock import lock_within
from foldline.processors.log import Lease, each_lease
from foldline.processors.machine_leases import Kept, boot_id, judged, machine_ms
from foldline.processors.owner_locks import OwnerLocks

LOCK_NAME = "lock"
NAME_CHARS = 32


class JsonlLeases:
    """The leases of one log. Not synced: after a crash of the machine all are dead."""

    def __init__(self, path: Path, *, url: str, busy_timeout_ms: int) -> None:
        self._url = url
        self._folder = path.with_name(f"{path.name}.leases")
        self._busy_timeout_ms = busy_timeout_ms
        self._lock = threading.Lock()
        self._boot_id = boot_id()
        self._owners = OwnerLocks(path.with_name(f"{path.name}.owners"))
        self._closed = False

    def renew(self, session_id: str, *, epoch: int, writer: str, ttl_ms: int) -> None:
        """Say that this writer lives. A lease of a lower epoch replaces no higher one.

        Raises:
            LogUnavailableError: the lease cannot be written; it is not renewed.
        """
        locked = self._owners.hold(writer)
        with self._changing():
            held = self._kept(session_id)
            if (
                held
                and (held.epoch, held.writer) != (epoch, writer)
                and held.epoch >= epoch
            ):
                return
            kept = Kept(epoch, writer, self._boot_id, machine_ms(), ttl_ms, locked)
            self._write(session_id, kept)

    def release(self, session_id: str, *, epoch: int, writer: str) -> None:
        """Give the lease up at once; nothing happens if another writer holds it."""
        with self._changing():
            held = self._kept(session_id)
            if held and (held.epoch, held.writer) == (epoch, writer):
                self._path(session_id).unlink(missing_ok=True)

    def get_many(self, session_ids: Sequence[str]) -> dict[str, Lease]:
        """The leases of several sessions, of those that have one."""
        return each_lease(self, session_ids)

    def get(self, session_id: str) -> Lease | None:
        """The lease of a session; None where none was ever taken or it was released."""
        self._check_open()
        kept = self._kept(session_id)
        if kept is None:
            return None
        return judged(kept, session_id, boot=self._boot_id, owners=self._owners)

    def close(self) -> None:
        """Drop the locks: this process's leases are dead from here on."""
        with self._lock:
            self._closed = True
            self._owners.close()

    def _check_open(self) -> None:
        if self._closed:
            raise LogUnavailableError(self._url, "the log is closed")

    @contextmanager
    def _changing(self) -> Generator[None]:
        """Be the only one that changes leases, among all threads and processes.

        The lock is of a file that is opened for this change: a forked child holds it no
        longer than the change takes.
        """
        with self._lock:
            self._check_open()
            try:
                self._folder.mkdir(mode=OWN_FOLDER, exist_ok=True)
                path = self._folder / LOCK_NAME
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, OWN_FILE)
                try:
                    if not lock_within(descriptor, self._busy_timeout_ms):
                        reason = "the leases are locked by another process"
                        raise LogUnavailableError(self._url, reason)
                    yield
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise LogUnavailableError(self._url, f"lease: {error}") from error

    def _path(self, session_id: str) -> Path:
        name = hashlib.sha256(session_id.encode(errors="surrogatepass")).hexdigest()
        return self._folder / f"{name[:NAME_CHARS]}.json"

    def _kept(self, session_id: str) -> Kept | None:
        try:
            fields: dict[str, Any] = json.loads(self._path(session_id).read_bytes())
            kept = Kept(
                int(fields["epoch"]),
                str(fields["writer"]),
                str(fields["boot_id"]),
                int(fields["renewed_ms"]),
                int(fields["ttl_ms"]),
                int(fields["locked"]),
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LogUnavailableError(self._url, f"lease: {error}") from error
        except (ValueError, LookupError, TypeError):
            return None  # damaged: the owner's next renewal replaces it
        return kept

    def _write(self, session_id: str, kept: Kept) -> None:
        path = self._path(session_id)
        draft = path.with_name(f".{uuid.uuid4().hex}.part")
        made = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWN_FILE)
        try:
            with os.fdopen(made, "wb") as file:
                fields = {"session_id": session_id} | kept._asdict()
                file.write(json.dumps(fields).encode() + b"\n")
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
