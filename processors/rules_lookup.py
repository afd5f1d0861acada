"""The rules in force at an offset of `appends`, where no table or low-water record says.

Every control record leaves a low-water record, so this is for what is left when the
snapshot topics are lost:

1. the control records that `appends` still has: the last one before the offset, else
   the first one after it;
2. what the topic `meta` says is in force.
"""

from typing import cast

from foldline.errors import DecodeError, NoRulesError
from foldline.kafka import Cluster
from foldline.kafka_meta import read_said
from foldline.processors.partition import Rules
from foldline.processors.partition_source import PartitionSource
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.registry_client import RegistryClient
from foldline.schemas.topic_records import CONTROL_KEY, RulesInForce
from foldline.settings import Settings


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
