"""The rules in force at an offset of `appends`, where no table or low-water record says.

Every control record leaves a low-water record, so this is for what is left when the
snapshot topics are lost:

1. the control records that `appends` still has: the last one before the offset, else
   the first one after it;
2. what the topic `meta` says is in force.

The other way round, `rules_of_marks` is for a `meta` that was lost: what the low-water
records say was in force, so that ids of another version's events stay in force.
"""

import logging
from threading import Event
from typing import cast

from foldline.errors import DecodeError, NoRulesError
from foldline.kafka import Cluster
from foldline.kafka_meta import read_said
from foldline.processors.partition import Rules
from foldline.processors.partition_source import PartitionSource
from foldline.processors.snapshot_topic import SnapshotTopic, fold_versions_of
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.registry_client import RegistryClient
from foldline.schemas.topic_records import CONTROL_KEY, RulesInForce
from foldline.settings import Settings

_logger = logging.getLogger("foldline.kafka")


def find_rules(
    source: PartitionSource,
    *,
    cluster: Cluster,
    settings: Settings,
    registry: RegistryClient,
    upto: int,
) -> Rules:
    """The rules in force at the input offset `upto`.

    Raises:
        NoRulesError: nothing says which.
    """
    records = RecordCodec(registry)
    found = _of_appends(source, records, cluster, upto)
    if found is None:
        found = read_said(cluster, settings, schemas=registry).rules
    if found is None:
        raise NoRulesError(cluster.url)
    return Rules(found.rules_version, frozenset(found.schema_ids))


def _of_appends(
    source: PartitionSource, records: RecordCodec, cluster: Cluster, upto: int
) -> RulesInForce | None:
    topic = cluster.names.appends
    first, end = source.first_offset(topic), source.end_offset(topic)
    found: RulesInForce | None = None
    for message in source.records(topic, first, upto=end):
        if message.key() != CONTROL_KEY:
            continue
        if cast("int", message.offset()) >= upto and found is not None:
            break
        try:
            found = records.unframe_record(RulesInForce, message.value())
        except DecodeError:
            continue  # it put nothing in force
    return found


def rules_of_marks(
    cluster: Cluster, settings: Settings, *, registry: RegistryClient, partitions: int
) -> RulesInForce | None:
    """What the newest low-water record of each partition says was in force, together.

    None where no partition has any.

    Raises:
        LogUnavailableError: no broker answers.
    """
    records = RecordCodec(registry)
    version, ids = 0, set[int]()
    for index in range(partitions):
        source = PartitionSource(cluster, settings, index=index, cancelled=Event())
        for fold_version in fold_versions_of(source, cluster.names):
            topic = SnapshotTopic(
                source,
                cluster.names,
                index,
                records=records,
                warn=_logger.warning,
                fold_version=fold_version,
            )
            mark = topic.newest_low_water()
            if mark is not None:
                version = max(version, mark.rules_version)
                ids.update(mark.schema_ids)
    if not version:
        return None
    return RulesInForce(
        rules_version=version,
        schema_ids=tuple(sorted(ids)),
        partitions=partitions,
        written_by="",
    )
