"""Contexts made smaller by their owner, in memory and in a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.testing.context_contract import ContextContract


class TestInMemory(ContextContract):
    @pytest.fixture
    def log(self) -> Iterator[Log]:
        log = open_log("memory:")
        yield log
        log.close()


class TestInAFile(ContextContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[Log]:
        log = open_log(f"sqlite:///{tmp_path}/sessions.db")
        yield log
        log.close()
