"""One append, synced to the disk: foldline's SQLite log beside what others do.

Each appends the same events, one at a time, a few at a turn, in a process of its own:

    bare JSONL               json.dumps, os.write, os.fsync; nothing else
    bare SQLite              one INSERT of as many bytes, WAL, synchronous=FULL
    OpenAI Agents SDK        SQLiteSession.add_items([item]), as it comes, and made FULL
    foldline, log port       admission, Avro and fold in one transaction
    foldline, session API    the same through `await turn.append(event)`, with redaction
    foldline, no disk        the log in memory: what of the port's time is computing

A settled file has a write-ahead log of its full size, which SQLite overwrites; in a new
one every append makes that file longer, which costs every SQLite user a dearer sync.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from contestants import HISTORY_EVENTS, line_of, steps
from measure import Rounds, finish, in_turns, options, ratio, say, summary, table, target
from openai_peer import SCRIPT, VERSION, interpreter

SETTLING_APPENDS = 600
"""Single appends after which every write-ahead log has its full size (1,000 pages)."""

PER_TURN = 12
ROUNDS = 60
ROUNDS_NEW = 15
ROUNDS_QUICK = 5
TARGET_TIMES_JSONL = 3.0
TARGET_TIMES_OPENAI = 1.0

JSONL = "bare JSONL, fsync"
SQLITE = "bare SQLite, synchronous=FULL"
OPENAI = "OpenAI Agents SDK, as it comes"
OPENAI_FULL = "OpenAI Agents SDK, synchronous=FULL"
PORT = "foldline, log port"
API = "foldline, session API"
MEMORY = "foldline, no disk"

OURS = {JSONL: "jsonl", SQLITE: "sqlite", PORT: "port", API: "api", MEMORY: "memory"}
PEERS = {OPENAI: "default", OPENAI_FULL: "full"}


class Contestant:
    """A process that appends when it is asked to."""

    def __init__(self, command: list[str | Path]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.settings: dict[str, Any] = self._answer()

    def append(self, count: int, *, profile: bool = False) -> list[float]:
        """The seconds that each of so many appends took."""
        return self.ask({"count": count, "profile": profile})

    def ask(self, question: dict[str, Any]) -> Any:
        """Send a question and wait for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process ended; see its message above"
        return json.loads(line)

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class OpenAiContestant(Contestant):
    """The same for the peer, which is handed its items: it knows no events."""

    def __init__(self, command: list[str | Path], *, appends: int) -> None:
        super().__init__(command)
        some = islice(steps(), HISTORY_EVENTS + appends)
        self._rest = iter([line_of(step.event) for step in some])
        self.ask({"all": self._items(HISTORY_EVENTS)})

    def append(self, count: int, *, profile: bool = False) -> list[float]:
        """The seconds that each of so many appends took."""
        assert not profile, "the peer is not profiled"
        return self.ask({"each": self._items(count)})

    def _items(self, count: int) -> list[dict[str, Any]]:
        return list(islice(self._rest, count))


def contestants(folder: Path, stack: ExitStack, *, appends: int) -> dict[str, Contestant]:
    """All of them, each with a file of its own and so many appends made ready."""
    found: dict[str, Contestant] = {}
    script = Path(__file__).parent / "contestants.py"
    for name, kind in OURS.items():
        found[name] = Contestant(
            [sys.executable, script, kind, folder / kind, str(appends)]
        )
    for name, mode in PEERS.items():
        path = folder / f"openai-{mode}.db"
        command = [interpreter(), SCRIPT, path, mode]
        found[name] = OpenAiContestant(command, appends=appends)
    for contestant in found.values():
        stack.callback(contestant.close)
    order = (JSONL, SQLITE, OPENAI, OPENAI_FULL, PORT, API, MEMORY)
    return {name: found[name] for name in order}


def measured(all_of_them: dict[str, Contestant], *, rounds: int) -> Rounds:
    """All of them, in turns."""

    def one(contestant: Contestant) -> Callable[[], list[float]]:
        return lambda: contestant.append(PER_TURN)

    return in_turns({name: one(c) for name, c in all_of_them.items()}, rounds=rounds)


def mean_bytes() -> int:
    """The mean size of what is appended, as a JSON line."""
    sizes = [len(json.dumps(line_of(step.event))) for step in islice(steps(), 600)]
    return round(sum(sizes) / len(sizes))


def show(title: str, samples: Rounds) -> dict[str, Any]:
    """A table of one measurement, and its numbers."""
    found = {
        name: summary(rounds)
        | {
            "times_jsonl": round(ratio(samples, name, JSONL), 2),
            "times_openai": round(ratio(samples, name, OPENAI), 2),
        }
        for name, rounds in samples.items()
    }
    say(f"\n{title}")
    say(
        table(
            ("one append", "p50 us", "p99 us", "x JSONL", "x OpenAI"),
            [
                (
                    name,
                    round(numbers["p50_us"]),
                    round(numbers["p99_us"]),
                    numbers["times_jsonl"],
                    numbers["times_openai"],
                )
                for name, numbers in found.items()
            ],
        )
    )
    return found


def main() -> None:
    """Run the benchmark."""
    parser = options("One append, synced")
    parser.add_argument("--profile", action="store_true", help="where the time goes")
    arguments = parser.parse_args()
    quick = arguments.quick
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rounds_new = ROUNDS_QUICK if quick else ROUNDS_NEW
    rounds = ROUNDS_QUICK if quick else ROUNDS
    # A warm-up of each measurement, and one that may be profiled.
    appends = (rounds_new + rounds + 2) * PER_TURN + 2 * SETTLING_APPENDS
    size = mean_bytes()
    say(f"events of {size} bytes as JSON lines; openai-agents {VERSION}")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder, ExitStack() as stack:
        all_of_them = contestants(Path(folder), stack, appends=appends)
        settings = {name: all_of_them[name].settings for name in PEERS}
        for name, found in settings.items():
            say(f"{name}: {found}")
        new = measured(all_of_them, rounds=rounds_new)
        for contestant in all_of_them.values():
            contestant.append(SETTLING_APPENDS)
        settled = measured(all_of_them, rounds=rounds)
        if arguments.profile:
            for name in (PORT, API):
                all_of_them[name].append(SETTLING_APPENDS, profile=True)
    results = {
        "new_file": show("A new file", new),
        "settled": show("A settled file", settled),
    }
    say()
    numbers = results["settled"][PORT]
    reached = {
        "p50 at most the OpenAI Agents SDK's": target(
            "p50 over the OpenAI Agents SDK's", numbers["times_openai"], TARGET_TIMES_OPENAI
        ),
        "p50 at most 3 x bare JSONL's": target(
            "p50 over bare JSONL's", numbers["times_jsonl"], TARGET_TIMES_JSONL
        ),
    }
    finish(
        arguments,
        {
            "benchmark": "append",
            "bytes_per_event": size,
            "openai_agents": settings,
            **results,
            "targets": reached,
        },
    )


if __name__ == "__main__":
    main()
