"""The example that verifies a chain by itself: it sees what it says, and only that."""

import asyncio
import runpy
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import foldline
from foldline.processors.open_log import open_log

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "verify_chain.py"
TEXTS = ("one", "two", "three")
CHANGED = "UPDATE events SET body = CAST(body || x'00' AS BLOB)"

Main = Callable[..., int]


@pytest.fixture(scope="module")
def main() -> Main:
    return runpy.run_path(str(SCRIPT))["main"]


async def _recorded(url: str) -> str:
    async with foldline.connect(url) as client:
        owned = await client.create(agent="scribe", goal="write it down")
        for text in TEXTS:
            await owned.message(text)
        return owned.session_id


async def _forked(url: str, session_id: str, at_seq: int) -> str:
    async with foldline.connect(url) as client:
        return (await client.fork(session_id, at_seq)).session_id


def head_of(url: str, session_id: str) -> tuple[int, str]:
    """What foldline says: the head of the chain in the folded state."""
    with closing(open_log(url)) as log:
        state = log.state(session_id)
    assert state is not None
    return state.seq, state.chain_head.hex()


def change(path: Path, statement: str, *values: Any) -> None:
    """What somebody with the right to write the file may do."""
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement, values).rowcount == 1


@pytest.fixture
def database(tmp_path: Path) -> tuple[Path, str]:
    path = tmp_path / "sessions.db"
    return path, asyncio.run(_recorded(f"sqlite:///{path}"))


@pytest.mark.parametrize("name", ["sqlite:///{}/sessions.db", "jsonl:///{}/sessions.jsonl"])
def test_it_comes_to_the_head_that_foldline_has(
    tmp_path: Path, main: Main, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    url = name.format(tmp_path)
    session_id = asyncio.run(_recorded(url))
    seq, head = head_of(url, session_id)
    assert main(url.partition("///")[2], session_id, str(seq), head) == 0
    assert capsys.readouterr().out == f"whole: {seq} events, head {seq} {head}\n"


def test_a_fork_is_a_chain_of_its_own_behind_its_fork_point(
    database: tuple[Path, str], main: Main
) -> None:
    path, session_id = database
    fork_id = asyncio.run(_forked(f"sqlite:///{path}", session_id, 2))
    seq, head = head_of(f"sqlite:///{path}", fork_id)
    assert seq > 2
    assert main(str(path), fork_id, str(seq), head) == 0


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            f"{CHANGED} WHERE position & 0xFFFF = 4",
            "seq 5 does not follow from seq 4 as it is now",
        ),
        ("DELETE FROM events WHERE position & 0xFFFF = 3", "where seq 3 belongs"),
        ("DELETE FROM events WHERE position & 0xFFFF = 1", "where seq 1 belongs"),
    ],
    ids=["changed", "deleted", "the first one deleted"],
)
def test_what_was_changed_or_taken_out_breaks_the_chain(
    database: tuple[Path, str],
    main: Main,
    capsys: pytest.CaptureFixture[str],
    statement: str,
    said: str,
) -> None:
    path, session_id = database
    change(path, statement)
    assert main(str(path), session_id) == 1
    assert said in capsys.readouterr().out


def test_a_tail_that_was_cut_off_is_seen_with_an_anchor_only(
    database: tuple[Path, str], main: Main, capsys: pytest.CaptureFixture[str]
) -> None:
    """The chain itself cannot know what came last: that is what an anchor is for."""
    path, session_id = database
    seq, head = head_of(f"sqlite:///{path}", session_id)
    change(path, "DELETE FROM events WHERE position & 0xFFFF = ?", seq)
    assert main(str(path), session_id) == 0
    assert main(str(path), session_id, str(seq), head) == 1
    assert "not what was anchored" in capsys.readouterr().out


def test_a_session_that_is_not_there_is_not_whole(
    database: tuple[Path, str], main: Main
) -> None:
    assert main(str(database[0]), "nobody") == 1
