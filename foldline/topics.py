"""The topics of one log: names, keys, what each must be configured as.

Nothing here talks to a broker (`foldline.kafka` does). Every topic's name begins with
the prefix of the log; the number of partitions is fixed for ever when a log is made,
because a key never moves between partitions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import murmur2  # a pure function of the C library: no client

from foldline.places import DEFAULT_PREFIX, KAFKA

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FOREVER = "-1"

MAX_APPEND_RECORD_BYTES = 1_000_000
"""The largest record of `appends`, key and headers included."""

MAX_RECORD_BYTES = 1_150_000
"""The largest record of every other topic: what was taken in always fits out."""


FLEET_TABLE = "rows"


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The names of one log's topics."""

    prefix: str = DEFAULT_PREFIX

    @property
    def appends(self) -> str:
        """What writers ask to record, and control records."""
        return f"{self.prefix}appends"

    @property
    def events(self) -> str:
        """Admitted events: the truth."""
        return f"{self.prefix}events"

    @property
    def verdicts(self) -> str:
        """One verdict per append."""
        return f"{self.prefix}verdicts"

    @property
    def rejected(self) -> str:
        """Dead letters, and pointers to refused appends."""
        return f"{self.prefix}rejected"

    @property
    def leases(self) -> str:
        """Owner liveness."""
        return f"{self.prefix}leases"

    @property
    def recovery(self) -> str:
        """Recovery actions."""
        return f"{self.prefix}recovery"

    @property
    def meta(self) -> str:
        """What a log is: one record, with its number of partitions."""
        return f"{self.prefix}meta"

    def snapshots(self, fold_version: int) -> str:
        """Published states and low-water records of one version of the fold."""
        return f"{self.snapshots_begin}{fold_version}"

    @property
    def snapshots_begin(self) -> str:
        """What the names of the snapshot topics of all fold versions begin with."""
        return f"{self.prefix}snapshots."

    def fleet(self, version: str) -> str:
        """The consumer group of the fleet's workers, with rows of one version."""
        return f"{self.prefix}fleet.{version}"

    def fleet_changelog(self, version: str) -> str:
        """The changelog of the fleet's rows: Faust names it after group and table."""
        return f"{self.fleet(version)}-{FLEET_TABLE}-changelog"

    @property
    def group(self) -> str:
        """The consumer group of the workers."""
        return f"{self.prefix}workers"


def prefix_in(url: str) -> str:
    """What topics begin with, as a kafka:// URL says it after its brokers; else empty."""
    return url[len(KAFKA) :].partition("/")[2] if url.startswith(KAFKA) else ""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic as it must be. `config` holds what `check` compares."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Drift:
    """Something about a topic that is not as it must be."""

    topic: str
    what: str
    wanted: str
    found: str


def partition_for(session_id: str, partitions: int) -> int:
    """The partition of a key: murmur2 over its UTF-8, as Java's default partitioner.

    Raises:
        ValueError: an empty key, which clients would scatter.
    """
    if not session_id:
        raise ValueError("an empty key belongs to no partition")
    return murmur2(session_id.encode(), partitions)


def specs(
    names: TopicNames, *, partitions: int, replication: int, fold_version: int
) -> list[TopicSpec]:
    """Every topic of a log, in the order in which they are made (`meta` last)."""
    common = _common(replication)

    def kept(ms: str, **more: str) -> dict[str, str]:
        more = {name.replace("_", "."): text for name, text in more.items()}
        return common | {"cleanup.policy": "delete", "retention.ms": ms} | more

    compacted = common | {"cleanup.policy": "compact"}
    snapshots = compacted | {
        "min.compaction.lag.ms": "600000",
        "delete.retention.ms": str(DAY_MS),
    }
    leases = common | {"cleanup.policy": "compact,delete", "retention.ms": str(DAY_MS)}
    appends = kept(str(7 * DAY_MS), max_message_bytes=str(MAX_APPEND_RECORD_BYTES))
    events = kept(FOREVER, retention_bytes=FOREVER)
    return [
        TopicSpec(names.appends, partitions, appends),
        TopicSpec(names.events, partitions, events),
        TopicSpec(names.verdicts, partitions, kept(str(HOUR_MS))),
        TopicSpec(names.snapshots(fold_version), partitions, snapshots),
        TopicSpec(names.rejected, partitions, kept(str(30 * DAY_MS))),
        TopicSpec(names.leases, partitions, leases),
        TopicSpec(names.recovery, partitions, kept(str(30 * DAY_MS))),
        TopicSpec(names.meta, 1, compacted),
    ]


def fleet_spec(
    names: TopicNames, version: str, *, partitions: int, replication: int
) -> TopicSpec:
    """The changelog of the fleet's rows, which its first worker makes, not `create`."""
    config = _common(replication) | {"cleanup.policy": "compact"}
    return TopicSpec(names.fleet_changelog(version), partitions, config)


def _common(replication: int) -> dict[str, str]:
    """What every topic is configured as."""
    return {
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": str(max(1, replication - 1)),
        "unclean.leader.election.enable": "false",
        "max.message.bytes": str(MAX_RECORD_BYTES),
    }
