"""The rules in force at an offset of `appends`, where no table or low-water record says.

Every control record leaves a low-water record, so this is for what is left when the
snapshot topic is new (another fold version) or lost:

1. the low-water records of older fold versions;
2. the control records that `appends` still has: the last one before the offset, else
   the first one after it;
3. what the topic `meta` says is in force.
"""

from collections.abc import Iterator
from typing import TypeVar, cast

from foldline.errors import DecodeError, NoRulesError
from foldline.kafka import Cluster
from foldline.kafka_meta import read_said
from foldline.processors.partition import Rules
from foldline.processors.partition_source import PartitionSource
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.registry_client import RegistryClient
from foldline.schemas.state import FOLD_VERSION
from foldline.schemas.topic_records import (
    CONTROL_KEY,
    LOW_WATER_KEY,
    LowWater,
    RulesInForce,
)
from foldline.settings import Settings

Kind = TypeVar("Kind", LowWater, RulesInForce)


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
    found = _of_older_folds(source, records, cluster)
    if found is None:
        found = _of_appends(source, records, cluster, upto)
    if found is None:
        found = read_said(cluster, settings, schemas=registry).rules
    if found is None:
        raise NoRulesError(cluster.url)
    return Rules(found.rules_version, frozenset(found.schema_ids))


def _of_older_folds(
    source: PartitionSource, records: RecordCodec, cluster: Cluster
) -> LowWater | None:
    """The low-water record that was written last, of the newest older fold version."""
    for version in range(FOLD_VERSION - 1, 0, -1):
        topic = cluster.names.snapshots(version)
        if not source.has(topic):
            continue
        marks = list(_records(source, topic, records, LOW_WATER_KEY, LowWater))
        if marks:
            return marks[-1][1]
    return None


def _of_appends(
    source: PartitionSource, records: RecordCodec, cluster: Cluster, upto: int
) -> RulesInForce | None:
    topic = cluster.names.appends
    found: RulesInForce | None = None
    for offset, rules in _records(source, topic, records, CONTROL_KEY, RulesInForce):
        if offset >= upto and found is not None:
            break
        found = rules
    return found


def _records(
    source: PartitionSource,
    topic: str,
    records: RecordCodec,
    key: bytes,
    kind: type[Kind],
) -> Iterator[tuple[int, Kind]]:
    """The records of one key, with their offsets, oldest first."""
    first, end = source.first_offset(topic), source.end_offset(topic)
    for message in source.records(topic, first, upto=end):
        if message.key() != key:
            continue
        try:
            record = records.unframe_record(kind, message.value())
        except DecodeError:
            continue  # it put nothing in force
        yield cast("int", message.offset()), record
