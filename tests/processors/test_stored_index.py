"""The index of a log is read on behind a session, and by whose children are wanted."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from foldline.processors import sqlite_log, sqlite_read
from foldline.processors.clock import wall_clock
from foldline.processors.memory_log import MemoryLog
from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog
from foldline.projections import service_sessions
from foldline.schemas.events import SessionCreated
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.samples import created
from tests.serving import serving

NAMES = ["a", "a!b", "b", "kid", "z", "é"]
"""Of sessions, in the order of their UTF-8."""

PAGE = 2

Open = Callable[[Path, ExitStack], AuditableLog]


def in_memory(_: Path, stack: ExitStack) -> AuditableLog:
    log = MemoryLog(settings=Settings(), clock=wall_clock)
    stack.callback(log.close)
    return log


def in_sqlite(folder: Path, stack: ExitStack) -> AuditableLog:
    log = open_log(f"sqlite:///{folder}/sessions.db")
    stack.callback(log.close)
    return log


def in_lines(folder: Path, stack: ExitStack) -> AuditableLog:
    log = open_log(f"jsonl:///{folder}/sessions.jsonl")
    stack.callback(log.close)
    return log


def behind_a_service(folder: Path, stack: ExitStack) -> AuditableLog:
    log = stack.enter_context(serving(in_memory(folder, stack))).log()
    stack.callback(log.close)
    return log


@pytest.fixture(params=[in_memory, in_sqlite, in_lines, behind_a_service])
def log(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AuditableLog]:
    """A log with some sessions, of which `kid` and `z` are the children of `b`."""
    monkeypatch.setattr(sqlite_log, "INDEX_ROWS", PAGE)
    monkeypatch.setattr(sqlite_read, "INDEX_ROWS", PAGE)
    monkeypatch.setattr(service_sessions, "INDEX_MAX", PAGE)
    child = SessionCreated(agent="c", relation="SUBAGENT", parent_session_id="b")
    with ExitStack() as stack:
        opened: Open = request.param
        log = opened(tmp_path, stack)
        for name in reversed(NAMES):
            first = child if name in ("kid", "z") else created()
            LogStory(log, session_id=name).given(first)
        yield log


def names(log: AuditableLog, *, after: str = "", parent: str | None = None) -> list[str]:
    return [row.session_id for row in log.stored_sessions(after=after, parent=parent)]


def test_every_session_is_there_once_and_in_order(log: AuditableLog) -> None:
    assert names(log) == NAMES


@pytest.mark.parametrize("after", [*NAMES, "aa", "nobody"])
def test_it_goes_on_behind_a_session_that_may_not_be_there(
    log: AuditableLog, after: str
) -> None:
    assert names(log, after=after) == [name for name in NAMES if name > after]


def test_the_children_of_one_are_its_own(log: AuditableLog) -> None:
    assert names(log, parent="b") == ["kid", "z"]
    assert names(log, parent="b", after="kid") == ["z"]
    assert names(log, parent="a") == names(log, parent="nobody") == []
