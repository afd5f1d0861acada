"""Those who append in `append.py`, each in a process of its own.

Usage: contestants.py (jsonl | sqlite | port | api | memory) PATH APPENDS

The first line on stdout says that it is ready. Then each line on stdin is a JSON object
`{"count": n}`: so many appends, answered by an array of seconds, one for each. All that
is ever appended is made before the first, and a thread appends that does nothing else, as
the SDK's does: whoever has just computed, a busy machine lets wait after each sync for
up to its scheduler's slice, and that is not what is measured.
"""

import asyncio
import cProfile
import io
import json
import os
import pstats
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import uuid_utils
from measure import say
from workload import Script, Sizes, Step, Writer

from foldline import OwnedSession, Turn, connect
from foldline.processors.open_log import open_log
from foldline.schemas.codec import encode_content
from foldline.schemas.events import KnownEvent, type_of

SIZES = Sizes(user=300, assistant=420, arguments=300, output=700)
"""So much is said that the events, as JSON lines, have about 500 bytes on average."""

HISTORY_EVENTS = 2_000
"""How long the session is before anything is measured."""

ENVELOPE_BYTES = 330
"""What an envelope takes, for the row that has none."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """What makes a step ready, and what appends what is ready, one by one."""

    prepare: Callable[[Step], Any]
    run: Callable[[list[Any]], list[float]]


def steps() -> Iterator[Step]:
    """Model calls and tool calls of one long turn, without end: six events at a time."""
    script = Script(SIZES, permission_every=None)
    while True:
        yield from script.tool_call()


def line_of(event: KnownEvent) -> dict[str, Any]:
    """The event as somebody without foldline would note it down."""
    return {
        "id": str(uuid_utils.uuid7()),
        "session": "bench",
        "time": time.time(),
        "type": type_of(event),
        **event.model_dump(mode="json", exclude_defaults=True),
    }


def timed(append: Callable[[Any], object], items: list[Any]) -> list[float]:
    """Call for each item; the seconds that each took."""
    took: list[float] = []
    for item in items:
        begun = time.perf_counter()
        append(item)
        took.append(time.perf_counter() - begun)
    return took


def jsonl(path: Path) -> Contestant:
    """A file of lines, each synced."""
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def append(line: dict[str, Any]) -> None:
        os.write(file, json.dumps(line).encode() + b"\n")
        os.fsync(file)

    return Contestant(lambda step: line_of(step.event), partial(timed, append))


def bare_sqlite(path: Path) -> Contestant:
    """One table, one INSERT per transaction: what SQLite alone takes."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, body BLOB)")

    def append(body: bytes) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO events (body) VALUES (?)", (body,))
        connection.execute("COMMIT")

    def prepare(step: Step) -> bytes:
        return bytes(ENVELOPE_BYTES) + encode_content(step.event)

    return Contestant(prepare, partial(timed, append))


def port(path: Path) -> Contestant:
    """The session's owner at the log port: an Append is made, encoded and answered."""
    return _at_port(f"sqlite:///{path}")


def memory(_: Path) -> Contestant:
    """The same without a disk."""
    return _at_port("memory:")


def _at_port(url: str) -> Contestant:
    writer = Writer(open_log(url), "bench")
    script = Script(SIZES)
    source = steps()
    writer.append([*script.opening(), *script.turn_begin()])
    writer.append([next(source) for _ in range(HISTORY_EVENTS)])
    return Contestant(lambda step: step, partial(timed, writer.append_one))


def api(path: Path) -> Contestant:
    """The same through a client, an owned session and its turn, with redaction."""
    loop = asyncio.new_event_loop()
    turn = loop.run_until_complete(_turn_of(f"sqlite:///{path}"))

    async def append(events: list[KnownEvent]) -> list[float]:
        took: list[float] = []
        for event in events:
            begun = time.perf_counter()
            await turn.append(event)
            took.append(time.perf_counter() - begun)
        return took

    return Contestant(
        lambda step: step.event, lambda some: loop.run_until_complete(append(some))
    )


async def _turn_of(url: str) -> Turn:
    client = await connect(url).__aenter__()
    owned: OwnedSession = await client.create(agent="coder", goal="bench")
    turn = await owned.turn("go").__aenter__()
    source = steps()
    for _ in range(HISTORY_EVENTS // 24):
        await turn.append(*(next(source).event for _ in range(24)))
    return turn


CONTESTANTS = {
    "jsonl": jsonl,
    "sqlite": bare_sqlite,
    "port": port,
    "api": api,
    "memory": memory,
}


def profiled(contestant: Contestant, some: list[Any]) -> list[float]:
    """One round, and where its time went."""
    profiler = cProfile.Profile()
    took = profiler.runcall(contestant.run, some)
    out = io.StringIO()
    pstats.Stats(profiler, stream=out).sort_stats("tottime").print_stats(34)
    say(out.getvalue())
    return took


def main() -> None:
    """Serve rounds until stdin ends; the process then ends without closing anything."""
    name, path, appends = sys.argv[1:]
    contestant = CONTESTANTS[name](Path(path))
    ready = map(contestant.prepare, list(islice(steps(), int(appends))))
    rest = iter(list(ready))
    appender = ThreadPoolExecutor(1)
    print(json.dumps({}), flush=True)
    for line in iter(sys.stdin.readline, ""):
        asked = json.loads(line)
        some = list(islice(rest, asked["count"]))
        assert len(some) == asked["count"], "more is asked for than was announced"
        run = partial(profiled, contestant) if asked["profile"] else contestant.run
        print(json.dumps(appender.submit(run, some).result()), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
