"""A fold in Quix Streams, exactly once; run by the Python that has it.

Usage: quixstreams_fold.py (admitting | bare) BOOTSTRAP GROUP SOURCE TARGET STATE_DIR

Everything is as it comes, commits every five seconds included, except what makes it
exactly once. Its state lies in RocksDB with a changelog topic, which gets a session's
last state once per commit; its JSON is orjson's.
"""

import importlib
import sys
from typing import Any, cast

from session_fold import Event, fold_admitting, fold_bare

quixstreams = cast("Any", importlib.import_module("quixstreams"))

STATE = "session"


def admitting(event: Event, state: Any) -> Event | None:
    """Fold one event into its session's state."""
    folded = fold_admitting(state.get(STATE), event)
    if folded is None:
        return None
    state.set(STATE, folded[0])
    return folded[1]


def bare(value: bytes, state: Any) -> bytes:
    """Fold one event into its session's row."""
    after, out = fold_bare(state.get_bytes(STATE), value)
    state.set_bytes(STATE, after)
    return out


def is_new(out: Event | None) -> bool:
    """Whether there is anything to go out."""
    return out is not None


def main() -> None:
    """Consume until killed."""
    kind, bootstrap, group, source, target, state_dir = sys.argv[1:]
    app = quixstreams.Application(
        broker_address=bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=state_dir,
        loglevel="WARNING",
    )
    of_values = "json" if kind == "admitting" else "bytes"
    events = app.topic(source, key_deserializer="bytes", value_deserializer=of_values)
    folded = app.topic(target, key_serializer="bytes", value_serializer=of_values)
    frame = app.dataframe(events)
    if kind == "admitting":
        frame = frame.apply(admitting, stateful=True).filter(is_new)
    else:
        frame = frame.apply(bare, stateful=True)
    frame.to_topic(folded)
    app.run()


main()
