"""Appends to the OpenAI Agents SDK's SQLiteSession; run by the Python that has it.

Usage: openai_session.py DB_PATH (default | full)

The first line on stdout says what is measured. Then each line on stdin is a JSON object:
`{"each": [...]}` is answered by an array of seconds, one for each `add_items` of one
item; `{"all": [...]}` adds them at once.
"""

import asyncio
import importlib
import importlib.metadata
import json
import sqlite3
import sys
import time
from typing import Any, cast

sessions = cast("Any", importlib.import_module("agents.memory.sqlite_session"))
SQLiteSession = sessions.SQLiteSession


class FullSession(SQLiteSession):
    """The session with every commit synced, whatever SQLite was built with."""

    @staticmethod
    def _configure_connection(conn: sqlite3.Connection) -> None:
        SQLiteSession._configure_connection(conn)  # noqa: SLF001 - the only hook
        conn.execute("PRAGMA synchronous=FULL")


async def append(session: Any, items: list[Any]) -> list[float]:
    """Add items one by one; the seconds that each took."""
    took: list[float] = []
    for item in items:
        begun = time.perf_counter()
        await session.add_items([item])
        took.append(time.perf_counter() - begun)
    return took


async def main() -> None:
    """Serve rounds until stdin ends."""
    path, mode = sys.argv[1:]
    session = (FullSession if mode == "full" else SQLiteSession)("bench", path)
    pragmas = await asyncio.to_thread(settings, session)
    say({"version": importlib.metadata.version("openai-agents"), **pragmas})
    for line in iter(sys.stdin.readline, ""):
        asked = json.loads(line)
        await session.add_items(asked.get("all", []))
        say(await append(session, asked.get("each", [])))
    session.close()


def settings(session: Any) -> dict[str, Any]:
    """The settings that decide what a commit means."""
    connection = session._get_connection()  # noqa: SLF001 - there is no other way
    names = ("journal_mode", "synchronous")
    return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names} | {
        "sqlite": sqlite3.sqlite_version
    }


def say(answer: object) -> None:
    """One line of JSON."""
    print(json.dumps(answer), flush=True)


asyncio.run(main())
