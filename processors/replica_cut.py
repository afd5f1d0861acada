"""How a replica goes on behind records that were deleted before it read them.

What the workers publish says enough, once it reaches beyond them: the state of every
session that had an event there, or that it is lost. Before, nothing can be said.
"""

import logging

from foldline.processors.event_store import EventStore
from foldline.processors.partition_source import PartitionSource
from foldline.processors.snapshot_topic import SnapshotTopic
from foldline.schemas.record_codec import RecordCodec
from foldline.topics import TopicNames

_logger = logging.getLogger("foldline.replica")


def go_on_behind(
    store: EventStore,
    source: PartitionSource,
    names: TopicNames,
    *,
    partition: int,
    records: RecordCodec,
    first_offset: int,
) -> bool:
    """Bring a store to the first record that is left; False if nobody knows enough.

    Raises:
        LogUnavailableError: the brokers do not answer, or no space.
        RestoreCancelledError: the replica is closed.
    """

    def warn(text: str) -> None:
        _logger.warning("partition %d: %s", partition, text)

    if store.next_offset >= first_offset:
        return True  # they were brought back
    topic = SnapshotTopic(source, names, partition, records=records, warn=warn)
    mark = topic.newest_low_water()
    if mark is None or mark.low < first_offset:
        return False
    before = store.next_offset
    states = topic.states(lambda _: None)
    store.go_on_behind(first_offset, states, lambda: list(topic.lost.values()))
    warn(
        f"records {before} to {first_offset - 1} of {names.events} were deleted: it goes "
        f"on from published states, {len(topic.lost)} sessions are UNRECOVERABLE"
    )
    return True
