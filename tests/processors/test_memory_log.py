"""The log in memory passes the contract."""

import pytest

from foldline.processors.clock import Clock, wall_clock
from foldline.processors.memory_log import MemoryLog
from foldline.settings import Settings
from foldline.testing import LogContract
from foldline.testing.verdict_contract import MakeLog


class TestMemoryLog(LogContract):
    @pytest.fixture
    def make_log(self) -> MakeLog:
        def make(*, clock: Clock = wall_clock) -> MemoryLog:
            return MemoryLog(settings=Settings(), clock=clock)

        return make
