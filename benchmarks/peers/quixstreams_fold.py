"""The fold in Quix Streams, exactly once; run by the Python that has it.

Usage: quixstreams_fold.py BOOTSTRAP GROUP SOURCE TARGET STATE_DIR

Everything is as it comes, commits every five seconds included, except what makes it
exactly once and keeps keys and values as bytes. Its state lies in RocksDB with a
changelog topic, which gets a session's last state once per commit.
"""

import importlib
import sys
from typing import Any, cast

from session_fold import fold

quixstreams = cast("Any", importlib.import_module("quixstreams"))

STATE = "session"


def evolve(value: bytes, state: Any) -> bytes:
    """Fold one event into its session's row."""
    after, out = fold(state.get_bytes(STATE), value)
    state.set_bytes(STATE, after)
    return out


def main() -> None:
    """Consume until killed."""
    bootstrap, group, source, target, state_dir = sys.argv[1:]
    app = quixstreams.Application(
        broker_address=bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=state_dir,
        loglevel="WARNING",
    )
    events = app.topic(source, key_deserializer="bytes", value_deserializer="bytes")
    folded = app.topic(target, key_serializer="bytes", value_serializer="bytes")
    frame = app.dataframe(events)
    frame.apply(evolve, stateful=True).to_topic(folded)
    app.run()


main()
