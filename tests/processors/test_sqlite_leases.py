"""Leases beside a SQLite file: who is dead is told at once, who sleeps after a while."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from foldline.processors.log import Lease
from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog

CHILD = Path(__file__).with_name("leasing_child.py")
LONG_MS = 600_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
def log(path: Path) -> Iterator[AuditableLog]:
    log = open_log(f"sqlite:///{path}")
    yield log
    log.close()


def lease_of(log: AuditableLog) -> Lease:
    lease = log.leases.get("s")
    assert lease is not None
    return lease


def lock_files(path: Path) -> list[Path]:
    return list(path.with_name(f"{path.name}.owners").glob("*.lock"))


@pytest.mark.crash
def test_children_of_a_killed_owner_keep_no_lease_alive(
    path: Path, log: AuditableLog
) -> None:
    owner = subprocess.Popen(
        [sys.executable, str(CHILD), log.url], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    children = [int(child) for child in owner.stdout.readline().split()]
    assert lease_of(log).alive
    owner.kill()
    owner.wait()
    owner.stdout.close()
    try:
        assert not lease_of(log).alive
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
    assert len(lock_files(path)) == 1
    log.leases.renew("s", epoch=2, writer="next", ttl_ms=LONG_MS)
    assert len(lock_files(path)) == 1, "the dead writer's file was swept"


def test_a_closed_log_leaves_no_lock_and_its_leases_are_dead(path: Path) -> None:
    url = f"sqlite:///{path}"
    owner, other = open_log(url), open_log(url)
    owner.leases.renew("s", epoch=1, writer="a", ttl_ms=LONG_MS)
    assert lease_of(other).alive
    owner.close()
    assert not lease_of(other).alive
    assert lock_files(path) == []
    other.close()


def test_a_lease_of_before_a_restart_of_the_machine_is_dead(
    path: Path, log: AuditableLog
) -> None:
    log.leases.renew("s", epoch=1, writer="a", ttl_ms=LONG_MS)
    change(path, "boot_id = 'an earlier one'")
    assert not lease_of(log).alive


def test_a_lease_from_the_future_is_dead(path: Path, log: AuditableLog) -> None:
    log.leases.renew("s", epoch=1, writer="a", ttl_ms=LONG_MS)
    change(path, "renewed_ms = renewed_ms + 1000000")
    assert not lease_of(log).alive


def test_where_files_cannot_be_locked_the_time_to_live_decides(
    path: Path, log: AuditableLog
) -> None:
    path.with_name(f"{path.name}.owners").write_text("in the way")
    log.leases.renew("s", epoch=1, writer="a", ttl_ms=LONG_MS)
    assert lease_of(log).alive
    log.leases.renew("s", epoch=1, writer="a", ttl_ms=0)
    assert not lease_of(log).alive


def test_one_writer_in_two_open_logs_is_alive_until_both_are_gone(path: Path) -> None:
    url = f"sqlite:///{path}"
    one, two, reader = open_log(url), open_log(url), open_log(url)
    one.leases.renew("s", epoch=1, writer="a", ttl_ms=LONG_MS)
    two.leases.renew("s", epoch=1, writer="a", ttl_ms=LONG_MS)
    two.close()
    assert lease_of(reader).alive
    one.close()
    reader.close()


def change(path: Path, assignment: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(f"UPDATE leases SET {assignment}")  # noqa: S608
    connection.close()
