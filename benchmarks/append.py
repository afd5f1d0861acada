"""One append, synced to the disk: foldline's SQLite log beside what others do.

Each row appends the same event, one at a time, in turns:

    bare JSONL               json.dumps, os.write, os.fsync; nothing else
    bare SQLite              one INSERT of the recorded bytes, WAL, synchronous=FULL
    OpenAI Agents SDK        SQLiteSession.add_items([item]), as it comes, and made FULL
    foldline, log port       admission, Avro and fold in one transaction
    foldline, session API    the same through `await turn.append(event)`, with redaction
    foldline, no disk        the log in memory: what of the port's time is computing

A settled file has a write-ahead log of its full size, which SQLite overwrites; in a new
one every append makes that file longer, which costs every SQLite user a dearer sync.
"""

import asyncio
import cProfile
import io
import json
import os
import pstats
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uuid_utils
from measure import Rounds, finish, in_turns, options, ratio, say, summary, table, target
from openai_peer import VERSION, OpenAiSession
from workload import Script, Sizes, Step, Writer

from foldline import OwnedSession, Turn, connect
from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.schemas.codec import encode_content
from foldline.schemas.events import KnownEvent, type_of

SIZES = Sizes(user=300, assistant=420, arguments=300, output=750)
"""So much is said that the events, as JSON lines, have 500 bytes on average."""

HISTORY_EVENTS = 2_000
"""How long the session is before anything is measured."""

SETTLING_APPENDS = 600
"""Single appends after which every write-ahead log has its full size (1,000 pages)."""

PER_ROUND = 12
ROUNDS = 60
ROUNDS_FRESH = 15
TARGET_TIMES_JSONL = 3.0
TARGET_TIMES_OPENAI = 1.0

PORT = "foldline, log port"
API = "foldline, session API"
MEMORY = "foldline, no disk"
JSONL = "bare JSONL, fsync"
SQLITE = "bare SQLite, synchronous=FULL"
OPENAI = "OpenAI Agents SDK, as it comes"
OPENAI_FULL = "OpenAI Agents SDK, synchronous=FULL"

Run = Callable[[list[Step]], list[float]]


def script() -> Script:
    """What is appended: model calls and tool calls of one long turn."""
    return Script(SIZES, permission_every=None)


def steps_of(source: Script) -> Iterator[Step]:
    """Appends without end, six for each tool call."""
    while True:
        yield from source.tool_call()


def line_of(event: KnownEvent) -> dict[str, Any]:
    """The event as somebody without foldline would note it down."""
    return {
        "id": str(uuid_utils.uuid7()),
        "session": "bench",
        "time": time.time(),
        "type": type_of(event),
        **event.model_dump(mode="json", exclude_defaults=True),
    }


def timed(append: Callable[[Any], object]) -> Callable[[list[Any]], list[float]]:
    """Call for each item; the seconds that each took."""

    def run(items: list[Any]) -> list[float]:
        took: list[float] = []
        for item in items:
            begun = time.perf_counter()
            append(item)
            took.append(time.perf_counter() - begun)
        return took

    return run


class Jsonl:
    """A file of lines, each synced."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def append(self, line: dict[str, Any]) -> None:
        """Write one line and wait until it is on the disk."""
        os.write(self._file, json.dumps(line).encode() + b"\n")
        os.fsync(self._file)

    def run(self, steps: list[Step]) -> list[float]:
        """One round."""
        return timed(self.append)([line_of(step.event) for step in steps])

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class BareSqlite:
    """One table, one INSERT per transaction: what SQLite alone takes."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, body BLOB)")

    def append(self, body: bytes) -> None:
        """Insert one row and wait until it is on the disk."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO events (body) VALUES (?)", (body,))
        self._connection.execute("COMMIT")

    def run(self, steps: list[Step]) -> list[float]:
        """One round; the envelope's bytes are stood in for."""
        envelope = bytes(330)
        bodies = [envelope + encode_content(step.event) for step in steps]
        return timed(self.append)(bodies)

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


class Port:
    """The session's owner at the log port: an Append is made, encoded and answered."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._writer = Writer(log, "bench")
        source = script()
        self._writer.append(source.opening())
        history = steps_of(source)
        opening = source.turn_begin()
        self._writer.append(opening)
        self._writer.append([next(history) for _ in range(HISTORY_EVENTS)])

    def run(self, steps: list[Step]) -> list[float]:
        """One round."""
        return timed(self._writer.append_one)(steps)


class Api:
    """The same through a client, an owned session and its turn."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._client = connect(url)
        self._turn = self._runner.run(self._begin())

    async def _begin(self) -> Turn:
        await self._client.__aenter__()
        owned: OwnedSession = await self._client.create(agent="coder", goal="bench")
        turn = await owned.turn("go").__aenter__()
        source = steps_of(script())
        for _ in range(HISTORY_EVENTS // 24):
            await turn.append(*(next(source).event for _ in range(24)))
        return turn

    def run(self, steps: list[Step]) -> list[float]:
        """One round."""
        return self._runner.run(self._append(steps))

    async def _append(self, steps: list[Step]) -> list[float]:
        took: list[float] = []
        for step in steps:
            begun = time.perf_counter()
            await self._turn.append(step.event)
            took.append(time.perf_counter() - begun)
        return took

    def close(self) -> None:
        """Leave the turn open and close the client."""
        self._turn.leave()
        self._runner.run(self._client.close())
        self._runner.close()


class Contest:
    """All who append, each with files of its own."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        jsonl = Jsonl(folder / "events.jsonl")
        stack.callback(jsonl.close)
        sqlite = BareSqlite(folder / "bare.db")
        stack.callback(sqlite.close)
        peers = {
            name: stack.enter_context(OpenAiSession(folder / f"openai-{m}.db", mode=m))
            for name, m in ((OPENAI, "default"), (OPENAI_FULL, "full"))
        }
        self.settings = {name: peer.settings for name, peer in peers.items()}
        log = open_log(f"sqlite:///{folder / 'port.db'}")
        stack.callback(log.close)
        memory = open_log("memory:")
        stack.callback(memory.close)
        self.port = Port(log)
        api = Api(f"sqlite:///{folder / 'api.db'}")
        stack.callback(api.close)
        self.runs: dict[str, Run] = {
            JSONL: jsonl.run,
            SQLITE: sqlite.run,
            **{name: _peer_run(peer) for name, peer in peers.items()},
            PORT: self.port.run,
            API: api.run,
            MEMORY: Port(memory).run,
        }
        for name in (OPENAI, OPENAI_FULL):
            self._pass_history(peers[name])
        self._sources = {name: steps_of(script()) for name in self.runs}

    def _pass_history(self, peer: OpenAiSession) -> None:
        source = steps_of(script())
        peer.append_all([line_of(next(source).event) for _ in range(HISTORY_EVENTS)])

    def once(self, name: str, count: int) -> list[float]:
        """So many appends of one of them."""
        steps = [next(self._sources[name]) for _ in range(count)]
        return self.runs[name](steps)

    def measured(self, *, rounds: int, per_round: int) -> Rounds:
        """All of them, in turns."""

        def one(name: str) -> Callable[[], list[float]]:
            return lambda: self.once(name, per_round)

        return in_turns({name: one(name) for name in self.runs}, rounds=rounds)


def _peer_run(peer: OpenAiSession) -> Run:
    return lambda steps: peer.append([line_of(step.event) for step in steps])


def mean_bytes() -> int:
    """The mean size of what is appended, as a JSON line."""
    source = steps_of(script())
    lines = [json.dumps(line_of(next(source).event)) for _ in range(600)]
    return round(sum(map(len, lines)) / len(lines))


def profile(contest: Contest) -> None:
    """Where the time of the port's appends goes."""
    profiler = cProfile.Profile()
    profiler.runcall(contest.once, PORT, 600)
    out = io.StringIO()
    pstats.Stats(profiler, stream=out).sort_stats("tottime").print_stats(25)
    say(out.getvalue())


def show(title: str, samples: Rounds) -> dict[str, Any]:
    """A table of one measurement, and its numbers."""
    found = {name: summary(rounds) for name, rounds in samples.items()}
    times = {
        name: {
            "times_jsonl": round(ratio(samples, name, JSONL), 2),
            "times_openai": round(ratio(samples, name, OPENAI), 2),
        }
        for name in samples
    }
    say(f"\n{title}")
    say(
        table(
            ("one append", "p50 us", "p99 us", "x JSONL", "x OpenAI"),
            [
                (
                    name,
                    round(found[name]["p50_us"]),
                    round(found[name]["p99_us"]),
                    times[name]["times_jsonl"],
                    times[name]["times_openai"],
                )
                for name in samples
            ],
        )
    )
    return {name: found[name] | times[name] for name in samples}


def main() -> None:
    """Run the benchmark."""
    parser = options("One append, synced")
    parser.add_argument("--profile", action="store_true", help="where the time goes")
    arguments = parser.parse_args()
    rounds = 5 if arguments.quick else ROUNDS
    rounds_fresh = 5 if arguments.quick else ROUNDS_FRESH
    arguments.folder.mkdir(parents=True, exist_ok=True)
    size = mean_bytes()
    say(f"events of {size} bytes as JSON lines; openai-agents {VERSION}")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder, ExitStack() as stack:
        contest = Contest(Path(folder), stack)
        for name, found in contest.settings.items():
            say(f"{name}: {found}")
        fresh = contest.measured(rounds=rounds_fresh, per_round=PER_ROUND)
        for name in contest.runs:
            contest.once(name, SETTLING_APPENDS)
        settled = contest.measured(rounds=rounds, per_round=PER_ROUND)
        if arguments.profile:
            profile(contest)
    results = {
        "new_file": show("A new file", fresh),
        "settled": show("A settled file", settled),
    }
    say()
    port = results["settled"][PORT]
    reached = {
        "p50 at most the OpenAI Agents SDK's": target(
            "p50 over the OpenAI Agents SDK's", port["times_openai"], TARGET_TIMES_OPENAI
        ),
        "p50 at most 3 x bare JSONL's": target(
            "p50 over bare JSONL's", port["times_jsonl"], TARGET_TIMES_JSONL
        ),
    }
    finish(
        arguments,
        {
            "benchmark": "append",
            "bytes_per_event": size,
            "openai_agents": contest.settings,
            **results,
            "targets": reached,
        },
    )


if __name__ == "__main__":
    main()
