"""The log that tests lose answers with is a real log as long as it loses none."""

import pytest

from foldline.processors.clock import Clock, wall_clock
from foldline.testing import LogContract
from foldline.testing.verdict_contract import MakeLog
from tests.harness import FaultyLog, memory


class TestFaultyLog(LogContract):
    one_shot_writers = 1_000

    @pytest.fixture
    def make_log(self) -> MakeLog:
        def make(*, clock: Clock = wall_clock) -> FaultyLog:
            return memory(clock)

        return make
