"""A fold in Faust, at least once; run by the Python that has it.

Usage: faust_fold.py (admitting | bare) BOOTSTRAP GROUP SOURCE TARGET STATE_DIR PARTITIONS

Its exactly_once loses track of its tables' changelogs, so this is at_least_once: it has
no transactions to pay for. One event at a time (more would commit past those under
way), no web server, no leader topic, raw keys; its JSON is orjson's.
"""

import importlib
import sys
from typing import Any, cast

from session_fold import fold_admitting, fold_bare

faust = cast("Any", importlib.import_module("faust"))

TABLE = "sessions"


def application(arguments: list[str]) -> Any:
    """The application, its table and its one agent."""
    kind, bootstrap, group, source, target, state_dir, partitions = arguments
    app = faust.App(
        group,
        broker=f"kafka://{bootstrap}",
        datadir=state_dir,
        store="rocksdb://",
        processing_guarantee="at_least_once",
        key_serializer="raw",
        value_serializer="json" if kind == "admitting" else "raw",
        topic_partitions=int(partitions),
        topic_replication_factor=1,
        topic_disable_leader=True,
        web_enabled=False,
    )
    of_values = None if kind == "admitting" else bytes
    types = {"key_type": bytes, "value_type": of_values, "partitions": int(partitions)}
    events = app.topic(source, key_serializer="raw", **types)
    folded = app.topic(target, key_serializer="raw", **types)
    table = app.Table(TABLE, options={"driver": "rocksdict"}, **types)
    fold = cast("Any", fold_admitting if kind == "admitting" else fold_bare)

    async def evolve(stream: Any) -> None:
        async for key, value in stream.items():
            done = fold(table.get(key), value)
            if done is not None:
                table[key], out = done
                await folded.send(key=key, value=out)

    app.agent(events, concurrency=1)(evolve)
    return app


def main() -> None:
    """Consume until killed."""
    app = application(sys.argv[1:])
    faust.Worker(app, loglevel="WARNING").execute_from_commandline()


main()
