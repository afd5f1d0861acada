"""The SQLite log passes the contract, alone and shared."""

from pathlib import Path

import pytest

from foldline.processors.clock import Clock, wall_clock
from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog
from foldline.testing import LogContract, MachineLogContract
from foldline.testing.verdict_contract import MakeLog


class TestSqliteLog(LogContract):
    @pytest.fixture
    def make_log(self, tmp_path: Path) -> MakeLog:
        def make(*, clock: Clock = wall_clock) -> AuditableLog:
            return open_log(f"sqlite:///{tmp_path}/sessions.db", clock=clock)

        return make


class TestSharedSqliteLog(MachineLogContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/sessions.db"
