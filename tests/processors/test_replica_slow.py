"""A reader that is slow, or hangs, holds up nobody, says so, and keeps within bounds."""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from foldline import kafka
from foldline.processors.kafka_records import APPEND_OFFSET
from foldline.processors.replica import Replica
from foldline.processors.replica_reads import ReplicaReads
from foldline.schemas.codec import Codec
from foldline.schemas.recorded import Recorded
from foldline.schemas.snapshots import state_hash
from foldline.testing.samples import created
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog, running_worker
from tests.cluster.processes import wait_until
from tests.kafka_checker import check
from tests.kafka_feed import Feed

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

CATCH_UP_S = 120
RECORD_BYTES = 900_000
RECORDS = 160
BOUND_BYTES = 100_000_000
"""Of 144 MB that lie there; 32 MiB are fetched ahead, and one batch is under way."""


class SlowCodec(Codec):
    """Decodes far more slowly than a worker admits, and not at all while it is held."""

    def __init__(self, registry: Any, *, pause_s: float = 0.0) -> None:
        super().__init__(registry)
        self._pause_s = pause_s
        self.held = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def decode_structure(self, schema_id: int, body: bytes) -> Recorded:
        if not self.go_on.is_set():
            self.held.set()
            self.go_on.wait(CATCH_UP_S)
        time.sleep(self._pause_s)
        return super().decode_structure(schema_id, body)


@contextmanager
def replica(log: FreshLog, folder: Path, codec: Codec) -> Generator[ReplicaReads]:
    """A replica of every partition, which begins to read at once."""
    made = Replica(
        log.cluster,
        log.settings,
        folder=folder,
        codec=codec,
        partitions=range(log.partitions),
    )
    reads = ReplicaReads(made, settings=log.settings)
    try:
        yield reads
    finally:
        if isinstance(codec, SlowCodec):
            codec.go_on.set()  # or a test that fails would wait for it
        reads.close()


def behind(reads: ReplicaReads) -> int:
    """How many offsets it says that it lacks, in all partitions."""
    return sum(one.end - one.next_offset for one in reads.progress())


def test_a_slow_reader_holds_up_neither_appends_nor_other_readers(
    make_fresh_log: MakeLog, tmp_path: Path
) -> None:
    """Row 24: it says how far behind it is, also if nobody reads of it, and catches up."""
    log = make_fresh_log(partitions=2)
    feed = Feed(log, seed=24)
    slow_codec = SlowCodec(log.registry, pause_s=0.03)
    with (
        running_worker(log),
        replica(log, tmp_path / "slow", slow_codec) as slow,
        replica(log, tmp_path / "quick", Codec(log.registry)) as quick,
    ):
        feed.tell(100)
        feed.settle()
        slow_codec.go_on.clear()
        feed.tell(100)
        feed.settle()
        wait_until(slow_codec.held.is_set, timeout_s=30, what=lambda: "it hangs")
        feed.append("while it hangs", created())
        feed.settle()
        checked = check(log, feed.answers)
        for session_id, state in checked.states.items():
            assert quick.state(session_id) == state
        assert behind(slow) > 0
        slow_codec.go_on.set()
        wait_until(
            lambda: sum(one.events for one in slow.progress()) == checked.events,
            timeout_s=CATCH_UP_S,
            what=lambda: str(slow.progress()),
        )
        for session_id, state in checked.states.items():
            held = slow.state(session_id)
            assert held is not None
            assert state_hash(held) == state_hash(state), session_id
        assert [one.problem for one in slow.progress()] == ["", ""]


@pytest.mark.storm
@pytest.mark.skipif(
    "'storm' not in config.getoption('markexpr')", reason="by name only: -m storm"
)
def test_a_reader_that_hangs_fetches_no_more_than_its_queue_holds(
    make_fresh_log: MakeLog, tmp_path: Path
) -> None:
    """Row 24: memory does not follow what lies in the topic."""
    log = make_fresh_log(partitions=1)
    codec = SlowCodec(log.registry)
    codec.go_on.clear()
    with replica(log, tmp_path / "hangs", codec) as reads:
        _write_much(log, 1)
        wait_until(codec.held.is_set, timeout_s=30, what=lambda: "it hangs")
        before = resident_bytes()
        _write_much(log, RECORDS)
        peak = 0
        until = time.monotonic() + 10
        while time.monotonic() < until:
            peak = max(peak, resident_bytes())
            time.sleep(0.1)
        assert peak - before < BOUND_BYTES
        codec.go_on.set()
        wait_until(
            lambda: any(one.problem for one in reads.progress()),
            timeout_s=30,
            what=lambda: "what it was given is no event, and it says so",
        )


def _write_much(log: FreshLog, count: int) -> None:
    """Large records that look like a worker's; one by one, so that none is kept here."""
    producer: Any = kafka.plain_producer(log.cluster, log.settings)
    value = b"\x00\x00\x00\x00\x01" + b"x" * RECORD_BYTES
    for number in range(count):
        headers = [(APPEND_OFFSET, b"%d" % number)]
        producer.produce(log.names.events, value, b"large", 0, headers=headers)
        assert producer.flush(30) == 0


def resident_bytes() -> int:
    """The memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * 4096
