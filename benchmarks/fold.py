"""How fast a session is folded again: from memory, from stored bytes, from its file.

What is compared with is fastavro's reader, which decodes the same bodies whole and
folds nothing. What *from stored bytes* means: the bodies lie in memory as the log holds
them, and each is decoded and folded.
"""

import cProfile
import io
import json
import pstats
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import fastavro
from measure import finish, in_turns, options, say, table, target
from workload import build

from foldline.processors.fold import initial, replay
from foldline.processors.open_log import open_log
from foldline.processors.restore import Source, restore
from foldline.processors.stored import AuditableLog, StoredEvent
from foldline.schemas.recorded import Recorded
from foldline.schemas.registry import LocalRegistry
from foldline.settings import Settings

EVENTS = 20_000
EVENTS_QUICK = 2_000
ROUNDS = 15
ROUNDS_QUICK = 3
TARGET_EVENTS_S = 100_000
SESSION = "bench-fold"

_fastavro = cast("Any", fastavro)


class Refold:
    """One session, refolded in several ways."""

    def __init__(self, log: AuditableLog, stored: Sequence[StoredEvent]) -> None:
        self._log = log
        self._stored = stored
        self._decode = log.codec.decode_structure
        self._recorded = list(self._structure())
        self._head = log.state(SESSION)
        registry = cast("LocalRegistry", getattr(log, "schemas"))  # noqa: B009
        ids = {event.schema_id for event in stored}
        self._schemas = {
            i: _fastavro.parse_schema(json.loads(registry.schema_of(i)), {}) for i in ids
        }

    def _structure(self) -> "map[Recorded]":
        return map(
            self._decode,
            [event.schema_id for event in self._stored],
            [event.body for event in self._stored],
        )

    def from_memory(self) -> None:
        """Fold what is decoded already."""
        self._check(replay(initial(SESSION), self._recorded))

    def from_bytes(self) -> None:
        """Decode the structure of each body and fold it."""
        self._check(replay(initial(SESSION), self._structure()))

    def from_bytes_checked(self) -> None:
        """The same as a log restores a state: each event's hash is compared too."""
        source = Source(self._log.url, SESSION, self._log.codec, (), lambda _: self._stored)
        self._check(restore(source))

    def from_file(self) -> None:
        """Read the session from its SQLite file, decode and fold it."""
        self._check(replay(initial(SESSION), self._log.structure(SESSION)))

    def decoded_by_fastavro(self) -> None:
        """Decode each body whole with fastavro; no model, no fold."""
        read, schemas = _fastavro.schemaless_reader, self._schemas
        for event in self._stored:
            read(io.BytesIO(event.body), schemas[event.schema_id], None)

    def _check(self, state: object) -> None:
        assert state == self._head, "the refolded state is another one"


def timed(run: Callable[[], None]) -> Callable[[], list[float]]:
    """What gives the one sample of a round: seconds of one whole run."""

    def sample() -> list[float]:
        begun = time.perf_counter()
        run()
        return [time.perf_counter() - begun]

    return sample


def profile(run: Callable[[], None]) -> None:
    """Where the time of one run goes."""
    profiler = cProfile.Profile()
    profiler.runcall(run)
    out = io.StringIO()
    pstats.Stats(profiler, stream=out).sort_stats("tottime").print_stats(18)
    say(out.getvalue())


def main() -> None:
    """Run the benchmark."""
    parser = options("Fold events per second")
    parser.add_argument("--profile", action="store_true", help="where the time goes")
    arguments = parser.parse_args()
    events = EVENTS_QUICK if arguments.quick else EVENTS
    rounds = ROUNDS_QUICK if arguments.quick else ROUNDS
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        # No snapshots on the way: what is measured is the fold of every event.
        settings = Settings(snapshot_every_events=10**9)
        log = open_log(f"sqlite:///{Path(folder) / 'fold.db'}", settings=settings)
        build(log, SESSION, events=events)
        stored = list(log.stored_events(SESSION))
        refold = Refold(log, stored)
        runs = {
            "from memory": refold.from_memory,
            "from stored bytes": refold.from_bytes,
            "from stored bytes, hashes compared": refold.from_bytes_checked,
            "from the SQLite file": refold.from_file,
            "fastavro, whole events, no fold": refold.decoded_by_fastavro,
        }
        samples = in_turns({name: timed(run) for name, run in runs.items()}, rounds=rounds)
        if arguments.profile:
            profile(refold.from_bytes)
        log.close()
    body_bytes = sum(len(event.body) for event in stored)
    speeds = {
        name: events / statistics.median(s for (s,) in found)
        for name, found in samples.items()
    }
    best = {name: events / min(s for (s,) in found) for name, found in samples.items()}
    peer = speeds["fastavro, whole events, no fold"]
    mean = round(body_bytes / events)
    say(f"{events:,} events of {mean} bytes, medians of {rounds} rounds")
    say(
        table(
            ("", "events/s", "best round", "us/event", "x fastavro"),
            [
                (name, round(speed), round(best[name]), 1e6 / speed, speed / peer)
                for name, speed in speeds.items()
            ],
        )
    )
    reached = target(
        "events/s from stored bytes",
        round(speeds["from stored bytes"]),
        TARGET_EVENTS_S,
        at_least=True,
    )
    finish(
        arguments,
        {
            "benchmark": "fold",
            "events": events,
            "bytes_per_event": mean,
            "rounds": rounds,
            "events_per_s": {name: round(speed) for name, speed in speeds.items()},
            "best_events_per_s": {name: round(speed) for name, speed in best.items()},
            "times_fastavro": {
                name: round(speed / peer, 2) for name, speed in speeds.items()
            },
            "targets": {"from stored bytes at least 100,000/s": reached},
        },
    )


if __name__ == "__main__":
    main()
