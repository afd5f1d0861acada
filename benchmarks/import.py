"""Importing a large transcript: bytes a second, memory over its length, bytes on disk.

The transcript is made here, after the grammar of Claude Code: prompts, thinking, tool
calls, outputs of some KB of source code and of command output, and now and then a large
one that becomes a blob. `foldline import` runs in a process of its own, with redaction as
always; its memory is looked at as it runs, and the kernel says what it had at most. MB are
10^6 bytes.

The peer does the least that anybody who keeps a transcript does: it parses each line and
writes it to another file, synced as often as the import commits.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disk import folder_bytes
from measure import finish, options, say, table, target

MEGABYTE = 1_000_000
MEGABYTES = 1_000
QUICK_MEGABYTES = 16

SESSION = "5b0f3c1e-9a7d-4c2b-8e61-0d3f7a915c44"
SOURCES = sorted(Path(json.__file__).parents[1].glob("*.py"))
"""The standard library: code of many hands, for outputs."""

LARGE_EVERY = 400
LARGE_BYTES = 300_000
OUTPUT_BYTES = (500, 6_000)
SYNC_EVERY = 500
LOOK_EVERY_S = 0.2
GROWTH_MAX = 1.25
"""Memory is flat where the most of the second half is hardly more than that of before."""

SEED = 11


class Transcript:
    """Records of one session, turn after turn; the same ones for the same seed."""

    def __init__(self) -> None:
        self._chance = random.Random(SEED)
        self._texts = [path.read_text(encoding="utf-8") for path in SOURCES]
        self._last: str | None = None
        self._number = 0

    def turns(self) -> Iterator[list[dict[str, Any]]]:
        """Turns without end: a prompt, three calls with results, an answer."""
        while True:
            yield list(self._turn())

    def _turn(self) -> Iterator[dict[str, Any]]:
        yield self._user([{"type": "text", "text": self._cut(200)}])
        for _ in range(3):
            call = f"toolu_{self._number:012}"
            name, argument = self._chance.choice((("Bash", "command"), ("Read", "path")))
            yield self._assistant(
                {"type": "thinking", "thinking": self._cut(400), "signature": "c2ln"},
                {"type": "tool_use", "id": call, "name": name}
                | {"input": {argument: self._cut(60)}},
            )
            large = self._chance.randrange(LARGE_EVERY) == 0
            size = LARGE_BYTES if large else self._chance.randint(*OUTPUT_BYTES)
            output = {"type": "tool_result", "tool_use_id": call}
            yield self._user([output | {"content": self._cut(size)}])
        yield self._assistant({"type": "text", "text": self._cut(800)})

    def _cut(self, size: int) -> str:
        """So many characters of somebody's source code."""
        said = ""
        while len(said) < size:
            text = self._chance.choice(self._texts)
            begin = self._chance.randrange(max(len(text) - size, 1))
            said += text[begin : begin + size - len(said)]
        return said

    def _assistant(self, *blocks: dict[str, Any]) -> dict[str, Any]:
        usage = {"input_tokens": 12, "output_tokens": 90, "cache_read_input_tokens": 9_000}
        message = {
            "id": f"msg_{self._number:012}",
            "role": "assistant",
            "model": "claude-made-1",
            "content": list(blocks),
            "stop_reason": "tool_use",
            "usage": usage,
        }
        return self._record("assistant", message)

    def _user(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        return self._record("user", {"role": "user", "content": content})

    def _record(self, kind: str, message: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        uuid, parent = f"00000000-0000-4000-8000-{self._number:012}", self._last
        self._last = uuid
        minutes, seconds = divmod(self._number, 60)
        hours, minutes = divmod(minutes, 60)
        clock = f"{hours % 24:02}:{minutes:02}:{seconds:02}Z"
        return {
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/home/somebody/project",
            "sessionId": SESSION,
            "version": "2.1.0",
            "gitBranch": "main",
            "type": kind,
            "message": message,
            "uuid": uuid,
            "timestamp": f"2026-01-{2 + hours // 24:02}T{clock}",
        }


def make(path: Path, size: int) -> int:
    """Write a transcript of at least so many bytes; gives how many records it has."""
    records = 0
    with path.open("w", encoding="utf-8") as file:
        for turn in Transcript().turns():
            for record in turn:
                file.write(json.dumps(record) + "\n")
            records += len(turn)
            if file.tell() >= size:
                return records
    raise AssertionError


@dataclass(slots=True)
class Ran:
    """How long a process took, and its resident memory over that time, in bytes.

    Without /proc there is nothing to look at: `memory` is empty then, and `peak` 0.
    """

    seconds: float
    memory: list[int]
    peak: int
    out: str

    def at(self, share: float) -> int:
        """Its memory after this share of its time."""
        if not self.memory:
            return 0
        return self.memory[min(int(len(self.memory) * share), len(self.memory) - 1)]

    @property
    def growth(self) -> float:
        """The most of its second half over the most of its second quarter; 0: unknown."""
        count = len(self.memory)
        before, after = self.memory[count // 4 : count // 2], self.memory[count // 2 :]
        return max(after) / max(before) if before else 0.0


def run(command: list[str], environment: dict[str, str]) -> Ran:
    """Run a process to its end, and look at its memory all the while."""
    begin = time.perf_counter()
    looks: list[tuple[int, int]] = []
    with subprocess.Popen(
        command, env=os.environ | environment, stdout=subprocess.PIPE, text=True
    ) as process:
        status = Path(f"/proc/{process.pid}/status")
        while process.poll() is None:
            looks += _memory(status)
            time.sleep(LOOK_EVERY_S)
        out = process.stdout.read() if process.stdout else ""
    assert process.returncode == 0, command
    peak = max((most for _, most in looks), default=0)
    seconds = time.perf_counter() - begin
    return Ran(seconds, [now for now, _ in looks], peak, out)


def _memory(status: Path) -> list[tuple[int, int]]:
    """What a process has now, and had at most, in bytes; empty once it has ended."""
    try:
        lines = status.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    said = dict(line.split(":", 1) for line in lines if ":" in line)
    if "VmHWM" not in said:
        return []
    now, most = (int(said[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    return [(now, most)]


COPY = f"""
import json, os, sys
with open(sys.argv[1], encoding="utf-8") as source, open(sys.argv[2], "w") as to:
    for number, line in enumerate(source, start=1):
        to.write(json.dumps(json.loads(line)) + "\\n")
        if number % {SYNC_EVERY} == 0:
            to.flush()
            os.fsync(to.fileno())
    to.flush()
    os.fsync(to.fileno())
"""


def measure(folder: Path, size: int) -> dict[str, Any]:
    """Import a made transcript, and copy it, each in a process of its own."""
    source = folder / "transcript.jsonl"
    records = make(source, size)
    source_bytes = source.stat().st_size
    say(f"made {source_bytes / MEGABYTE:,.0f} MB, {records:,} records")
    copied = run([sys.executable, "-c", COPY, str(source), str(folder / "copy.jsonl")], {})
    program = str(Path(sys.executable).with_name("foldline"))
    url = f"sqlite:///{folder / 'log' / 'sessions.db'}"
    imported = run(
        [program, "import", str(source), "--json", "--log", url],
        {"FOLDLINE_STATE_DIR": str(folder / "state")},
    )
    report = json.loads(imported.out)
    disk_bytes = folder_bytes(folder / "log")
    megabytes = source_bytes / MEGABYTE
    rows = [
        (
            name,
            megabytes / ran.seconds,
            ran.seconds / copied.seconds,
            *(ran.at(share) / MEGABYTE for share in (0.25, 0.5, 0.99)),
            ran.growth,
        )
        for name, ran in (("foldline import", imported), ("parse and copy", copied))
    ]
    heads = (
        "",
        "MB/s",
        "x the copy's time",
        "MB at 25 %",
        "at 50 %",
        "at the end",
        "growth",
    )
    say(table(heads, rows))
    say(f"on disk: {disk_bytes / source_bytes:.2f} of the source's bytes")
    if imported.growth:
        target("memory, second half over what was before", imported.growth, GROWTH_MAX)
    return {
        "benchmark": "import",
        "megabytes": round(megabytes, 1),
        "records": records,
        "events": report["events"],
        "mb_per_s": round(megabytes / imported.seconds, 2),
        "ratio_copy": round(imported.seconds / copied.seconds, 2),
        "rss_mb_peak": round(imported.peak / MEGABYTE, 1),
        "rss_growth": round(imported.growth, 3),
        "disk_per_source_byte": round(disk_bytes / source_bytes, 3),
    }


def main() -> None:
    """Run the benchmark."""
    parser: argparse.ArgumentParser = options("Importing a large transcript")
    parser.add_argument(
        "--megabytes", type=int, default=None, help="size of the transcript"
    )
    arguments = parser.parse_args()
    megabytes = arguments.megabytes or (QUICK_MEGABYTES if arguments.quick else MEGABYTES)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        finish(arguments, measure(Path(name), megabytes * MEGABYTE))


if __name__ == "__main__":
    main()
