"""The log behind a service passes the contract, in front of two kinds of log."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from foldline.processors.batch import Clock
from foldline.processors.http_log import HttpLog
from foldline.processors.memory_log import MemoryLog
from foldline.processors.open_log import open_log, wall_clock
from foldline.processors.stored import AuditableLog
from foldline.settings import Settings
from foldline.testing import LogContract
from foldline.testing.verdict_contract import MakeLog
from tests.serving import serving

UNLIMITED = Settings(token_rate_per_s=10_000_000, tenant_rate_per_s=10_000_000)


class _Served(LogContract):
    """The contract of a log behind a service."""

    def open_behind(self, folder: Path, clock: Clock) -> AuditableLog:
        raise NotImplementedError

    @pytest.fixture
    def tenant(self) -> str:
        """The token's: a client behind a service has no other."""
        return "default"

    @pytest.fixture
    def make_log(self, tmp_path: Path) -> Iterator[MakeLog]:
        with ExitStack() as stack:

            def make(*, clock: Clock = wall_clock) -> HttpLog:
                behind = self.open_behind(tmp_path, clock)
                stack.callback(behind.close)
                served = stack.enter_context(serving(behind, settings=UNLIMITED))
                return served.log()

            yield make


class TestHttpLogBeforeMemory(_Served):
    def open_behind(self, folder: Path, clock: Clock) -> AuditableLog:
        return MemoryLog(settings=Settings(), clock=clock)


class TestHttpLogBeforeSqlite(_Served):
    def open_behind(self, folder: Path, clock: Clock) -> AuditableLog:
        return open_log(f"sqlite:///{folder}/sessions.db", clock=clock)
