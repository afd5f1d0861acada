"""Restores of a log's only partition in the test's process, and records past every rule."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from confluent_kafka import TopicPartition

from foldline import kafka
from foldline.processors.kafka_records import Headers
from foldline.processors.partition_restore import restore_partition
from foldline.processors.restore_ways import Progress, Restored
from foldline.processors.worker_health import Health
from foldline.processors.worker_setup import Setup
from foldline.schemas.snapshots import state_hash
from tests.cluster.logs import FreshLog
from tests.kafka_checker import Checked


@contextmanager
def restored(log: FreshLog, state_dir: Path, *, slot: str = "") -> Generator[Restored]:
    """The only partition, restored in this process (with the table of a worker's slot)."""
    place = {"state_dir": state_dir, "worker_slot": slot}
    settings = log.settings.model_copy(update=place)
    setup = Setup.prepare(settings, health=Health(), on_ready=lambda _: None)
    try:
        result = restore_partition(0, setup.ways, cancelled=Event(), progress=Progress())
        try:
            yield result
        finally:
            result.table.close()
    finally:
        setup.close()


def assert_same(result: Restored, checked: Checked) -> None:
    """Every session is as the checker found it."""
    flush = result.partition.flush()
    if flush is not None:
        result.table.write(flush)
    for session_id, state in checked.states.items():
        held = result.table.get(session_id)
        assert held is not None, session_id
        assert state_hash(held) == state_hash(state), session_id


def put(
    log: FreshLog, topic: str, key: str, value: bytes | None, headers: Headers | None = None
) -> None:
    """Write a record past every rule."""
    producer: Any = kafka.plain_producer(log.cluster, log.settings)
    producer.produce(topic, value, key.encode(), 0, headers=headers)
    assert producer.flush(10) == 0


def delete_records(log: FreshLog, topic: str, *, before: int) -> None:
    """Delete the first records of a topic's only partition; -1: all of them."""
    client: Any = kafka.admin(log.cluster, log.settings)
    partition = TopicPartition(topic, 0, before)
    client.delete_records([partition])[partition].result(10)
