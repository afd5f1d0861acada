"""The log as JSON lines: what a person reads, what a crash leaves, what damage hides.

    python examples/experiments/1.py [FOLDER]

1. One session is recorded. Every line of the file is JSON; a view says what happened.
2. The file ends in half a line, as a crash leaves it: the log goes on on a new line, and
   the half is set aside. Nothing is glued to it.
3. A line in the middle is damaged: it is named by its number, and all others are read.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import foldline
from foldline.errors import LogFormatError
from foldline.logs import open_log, verify


async def say(url: str, session_id: str, *texts: str) -> int:
    """Record these messages as a person; gives how many events there are now."""
    async with foldline.connect(url) as client:
        view = await client.open(session_id)
        for text in texts:
            await view.message(text)
        return (await view.state()).seq


async def begin(url: str) -> str:
    """A session without an owner at work."""
    async with foldline.connect(url) as client:
        return (await client.create(agent="scribe", goal="write it down")).session_id


def views(file: Path) -> list[str]:
    """What a person sees: the type of each event, read with nothing but json."""
    lines = map(json.loads, file.read_bytes().splitlines())
    return [line["view"]["type"] for line in lines if "view" in line]


def damage(file: Path) -> int:
    """Cut a line in the middle short; gives its number."""
    lines = file.read_bytes().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines, start=1) if b'"seq":4,' in line)
    lines[number - 1] = lines[number - 1][:150] + b"\n"
    file.write_bytes(b"".join(lines))
    return number


def readable(url: str, session_id: str) -> list[int]:
    """The seqs of all events that can be read, around what cannot."""
    log = open_log(url)
    seqs: list[int] = []
    after_seq = 0
    while True:
        try:
            for recorded in log.events(session_id, after_seq=after_seq):
                after_seq = recorded.seq
                seqs.append(after_seq)
        except LogFormatError:
            after_seq += 1
        else:
            log.close()
            return seqs


def problems(url: str) -> list[str]:
    """What verify finds."""
    log = open_log(url)
    found = [problem.reason for problem in verify(log).problems]
    log.close()
    return found


def experiment(folder: Path) -> dict[str, object]:
    """Run it; gives what it found."""
    file = folder / "sessions.jsonl"
    url = f"jsonl:///{file}"
    session_id = asyncio.run(begin(url))
    before = asyncio.run(say(url, session_id, "one", "two", "three"))
    with file.open("ab") as torn:
        torn.write(file.read_bytes().splitlines(keepends=True)[-1][:100])
    after = asyncio.run(say(url, session_id, "four"))
    shown = views(file)
    aside = [
        len(part.read_bytes()) for part in file.with_name(f"{file.name}.torn").iterdir()
    ]
    sound = problems(url)
    number = damage(file)
    return {
        "events": before,
        "events_after_torn": after,
        "set_aside_bytes": aside,
        "views": shown,
        "problems_before": sound,
        "damaged_line": number,
        "is_named": any(f"line {number} " in reason for reason in problems(url)),
        "readable": readable(url, session_id),
    }


def main() -> int:
    """Print what was found; exit code 0 if it is as it should be."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    found = experiment(folder)
    for name, value in found.items():
        print(f"{name:<20} {value}")
    whole = found["set_aside_bytes"] == [100] and found["problems_before"] == []
    right = whole and found["is_named"]
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
