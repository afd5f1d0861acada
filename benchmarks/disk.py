"""What a session takes on disk: per event, and per byte of event, beside bare JSONL.

The session has 200 turns of one user message, one model call and one tool output of
2 KB. Bare JSONL is the same said once more: each event as one JSON line with id, time
and type; the second JSONL row has the whole envelope too, as one who wants the same
facts would have to write it.
"""

import json
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from measure import finish, options, say, table
from workload import Script, Sizes, Writer

from foldline.processors.open_log import open_log
from foldline.schemas.events import UnknownEvent
from foldline.schemas.recorded import Recorded

TURNS = 200
SESSION = "bench-disk"


def build(url: str) -> list[Recorded]:
    """Record the session and give its events; the log is closed again."""
    log = open_log(url)
    script = Script(Sizes(output=2_048), permission_every=None)
    writer = Writer(log, SESSION)
    writer.append(script.opening())
    for _ in range(TURNS):
        for step in (*script.turn_begin(), *script.tool_call(), *script.turn_end()):
            writer.append_one(step)
    events = list(log.events(SESSION))
    log.close()
    return events


def bare_line(recorded: Recorded) -> dict[str, Any]:
    """An event as somebody without foldline would note it down."""
    event = recorded.event
    assert not isinstance(event, UnknownEvent)
    return {
        "id": recorded.envelope.event_id,
        "session": recorded.envelope.session_id,
        "time": recorded.envelope.recorded_at,
        "type": recorded.type,
        **event.model_dump(mode="json", exclude_defaults=True),
    }


def whole_line(recorded: Recorded) -> dict[str, Any]:
    """The same with its whole envelope."""
    envelope = recorded.envelope.model_dump(mode="json", exclude_none=True)
    return {**envelope, **bare_line(recorded)}


def written(path: Path, lines: list[dict[str, Any]]) -> int:
    """Write lines; the file's size in bytes."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path.stat().st_size


def folder_bytes(folder: Path) -> int:
    """All files of a folder, in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def table_bytes(path: Path) -> dict[str, int]:
    """What each table of a database holds, in bytes of its columns."""
    connection = sqlite3.connect(path)
    sums = {
        "events": "SELECT sum(length(body)) FROM events",
        "snapshots": "SELECT sum(length(body) + length(digest)) FROM snapshots",
        "schemas": "SELECT sum(length(text)) FROM schemas",
    }
    found = {
        name: int(connection.execute(query).fetchone()[0] or 0)
        for name, query in sums.items()
    }
    connection.close()
    return found


def main() -> None:
    """Run the benchmark."""
    arguments = options("Bytes on disk").parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        database = folder / "log" / "sessions.db"
        events = build(f"sqlite:///{database}")
        sizes = {
            "foldline, SQLite": folder_bytes(folder / "log"),
            "bare JSONL": written(folder / "bare.jsonl", list(map(bare_line, events))),
            "JSONL, whole envelope": written(
                folder / "whole.jsonl", list(map(whole_line, events))
            ),
        }
        held = table_bytes(database)
    body_bytes = sum(len(recorded.body) for recorded in events)
    bare = sizes["bare JSONL"]
    say(f"{TURNS} turns, {len(events):,} events, {body_bytes:,} bytes of events")
    say(
        table(
            ("", "bytes", "per event", "per byte of event", "x bare JSONL"),
            [
                (name, size, size / len(events), size / body_bytes, size / bare)
                for name, size in sizes.items()
            ],
        )
    )
    say(f"in the database: {held}")
    finish(
        arguments,
        {
            "benchmark": "disk",
            "turns": TURNS,
            "events": len(events),
            "event_bytes": body_bytes,
            "bytes": sizes,
            "bytes_per_event": {k: round(v / len(events), 1) for k, v in sizes.items()},
            "bytes_per_event_byte": {k: round(v / body_bytes, 3) for k, v in sizes.items()},
            "times_bare_jsonl": {k: round(v / bare, 3) for k, v in sizes.items()},
            "held": held,
        },
    )


if __name__ == "__main__":
    main()
