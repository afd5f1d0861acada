"""The fold in Faust, at least once; run by the Python that has it.

Usage: faust_fold.py BOOTSTRAP GROUP SOURCE TARGET STATE_DIR PARTITIONS

Its exactly_once loses track of its tables' changelogs, so this is at_least_once: it has
no transactions to pay for. One event at a time (more would commit past those under
way), no web server, no leader topic, raw keys; all else is as it comes.
"""

import importlib
import sys
from typing import Any, cast

from session_fold import fold

faust = cast("Any", importlib.import_module("faust"))

STATE_TABLE = "sessions"


def application(arguments: list[str]) -> Any:
    """The application, its table and its one agent."""
    bootstrap, group, source, target, state_dir, partitions = arguments
    app = faust.App(
        group,
        broker=f"kafka://{bootstrap}",
        datadir=state_dir,
        store="rocksdb://",
        processing_guarantee="at_least_once",
        key_serializer="raw",
        value_serializer="raw",
        topic_partitions=int(partitions),
        topic_replication_factor=1,
        topic_disable_leader=True,
        web_enabled=False,
    )
    raw = {
        "key_type": bytes,
        "value_type": bytes,
        "key_serializer": "raw",
        "value_serializer": "raw",
        "partitions": int(partitions),
    }
    events = app.topic(source, **raw)
    folded = app.topic(target, **raw)
    table = app.Table(
        STATE_TABLE,
        partitions=int(partitions),
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
        options={"driver": "rocksdict"},
    )

    async def evolve(stream: Any) -> None:
        async for key, value in stream.items():
            after, out = fold(table.get(key), value)
            table[key] = after
            await folded.send(key=key, value=out)

    app.agent(events, concurrency=1)(evolve)
    return app


def main() -> None:
    """Consume until killed."""
    app = application(sys.argv[1:])
    faust.Worker(app, loglevel="WARNING").execute_from_commandline()


main()
