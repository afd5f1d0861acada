"""The log on Kafka: appends through `appends` and its workers, reads beside them.

ACCEPTED means: on `min.insync.replicas` brokers, in a committed transaction.

What this process reads it reads from the read service, where `FOLDLINE_READ_URL` names
one. Without it, it keeps a replica of its own of the partitions that it reads: those of
its sessions, filled from the topic when they are first needed. Both answer a read with
all that was committed when it was asked.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import uuid_utils
from confluent_kafka import Consumer, TopicPartition

from foldline.errors import (
    LogUnavailableError,
    RegistryUnavailableError,
)
from foldline.kafka import Cluster, client_producer, reader_consumer
from foldline.kafka_meta import read_meta
from foldline.places import default_data_dir
from foldline.processors.blobs import BlobStore
from foldline.processors.kafka_append import KafkaAppends
from foldline.processors.kafka_channel import Channel, Channels
from foldline.processors.kafka_leases import KafkaLeases
from foldline.processors.kafka_records import Headers, encode_append
from foldline.processors.kafka_recovery import RecoveryFeed
from foldline.processors.kafka_verdicts import VerdictReader
from foldline.processors.log import Leases
from foldline.processors.open_blobs import open_blobs
from foldline.processors.reading_log import ReadingLog
from foldline.processors.reads import Reads
from foldline.processors.replica import Replica
from foldline.processors.replica_reads import ReplicaReads
from foldline.processors.scratch import Scratch
from foldline.processors.sending import Limits
from foldline.processors.stored import (
    StoredEvent,
)
from foldline.schemas.codec import Codec
from foldline.schemas.events import EVENT_TYPES, type_of
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.registry_client import registry_of
from foldline.schemas.topic_records import RecoveryAction
from foldline.schemas.verdicts import Verdict
from foldline.settings import Settings
from foldline.topics import partition_for

VERDICT_FETCH_WAIT_MS = 100
"""How long a fetch of verdicts waits at the broker; one that comes ends the wait."""

LEASES_FETCH_WAIT_MS = 10
"""The same of leases: what is asked for is there already."""

REPLICAS = "replicas"
"""The folder of private replicas, below the state folder."""


class KafkaLog(ReadingLog):
    """A log on Kafka, as one client sees it.

    `make_reads` gives what reads, for a process that keeps a replica anyway.
    Connections are made when they are needed: a process that only reads has no
    producer, one that only appends has no replica.

    Raises:
        NoLogMetaError: the brokers have no log under this prefix.
        LogUnavailableError: no broker answers.
        RegistryUnavailableError: the registry does not, for `registry_wait_ms`.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        settings: Settings,
        make_reads: Callable[[Codec], Reads] | None = None,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._make_reads = make_reads
        self._client_id = str(uuid_utils.uuid7())
        self._opening = threading.RLock()
        self._closing = ExitStack()
        self._closed = False
        self._channels: Channels | None = None
        self._appends: KafkaAppends | None = None
        self._reads: Reads | None = None
        self._seen: OrderedDict[str, int] = OrderedDict()
        self._seen_lock = threading.Lock()
        self._registry = registry_of(settings)
        self._closing.callback(self._registry.close)
        try:
            self._registry.wait_ready(settings.registry_wait_ms)
            meta = read_meta(cluster, settings, schemas=self._registry)
        except BaseException:
            self._closing.close()
            raise
        self.log_id = meta.log_id
        self.partitions = meta.partitions
        self._codec = Codec(self._registry)
        self._records = RecordCodec(self._registry)
        beside = Path() if settings.blobs else default_data_dir()
        self._blobs = open_blobs(settings, beside=beside / f"{meta.log_id}.blobs")
        self._leases = self._open_leases()

    @property
    def url(self) -> str:
        """The URL that opens this log."""
        return self._cluster.url

    @property
    def leases(self) -> Leases:
        """The leases of this log's sessions."""
        return self._leases

    @property
    def blobs(self) -> BlobStore:
        """Where bodies above the inline limit are kept: every machine needs the same."""
        return self._blobs

    @property
    def codec(self) -> Codec:
        """What decodes this log's events."""
        return self._codec

    # --- connections -----------------------------------------------------------------

    def _open_channels(self) -> Channels:
        with self._opening:
            self._check_open()
            if self._channels is None:
                self._channels = Channels(
                    lambda hear: client_producer(
                        self._cluster, self._settings, on_error=hear
                    )
                )
                self._closing.callback(self._channels.close)
            return self._channels

    def _open_channel(self) -> Channel:
        """The channel of what is no append."""
        return self._open_channels().of(0)

    def _open_appends(self) -> KafkaAppends:
        """The way of appends, with the verdicts' way back open before it is used."""
        with self._opening:
            self._check_open()
            if self._appends is None:
                appends = KafkaAppends(
                    url=self.url,
                    topic=self._cluster.names.appends,
                    partitions=self.partitions,
                    limits=_limits(self._settings),
                    encode=self._encode,
                    channels=self._open_channels(),
                )
                verdicts = self._open_verdicts(appends)
                appends.watch(verdicts.thread)
                self._closing.callback(verdicts.close)
                self._closing.callback(appends.close)
                self._appends = appends
            return self._appends

    def _open_verdicts(self, appends: KafkaAppends) -> VerdictReader:
        partition = partition_for(self._client_id, self.partitions)
        reader = VerdictReader(
            self._open_consumer(VERDICT_FETCH_WAIT_MS),
            place=TopicPartition(self._cluster.names.verdicts, partition),
            reply_to=self._client_id,
            codec=self._records,
            on_verdicts=appends.hear,
        )
        try:
            reader.start(self.url)
        except LogUnavailableError:
            reader.close()
            raise
        return reader

    def _open_leases(self) -> KafkaLeases:
        leases = KafkaLeases(
            url=self.url,
            topic=self._cluster.names.leases,
            partitions=self.partitions,
            client_id=self._client_id,
            schema_id=partial(self._registry.id_of, "LeaseRenewal"),
            codec=self._records,
            channel=self._open_channel,
            open_consumer=partial(self._open_consumer, LEASES_FETCH_WAIT_MS),
        )
        self._closing.callback(leases.close)
        return leases

    def _open_consumer(self, fetch_wait_ms: int) -> Consumer:
        return reader_consumer(
            self._cluster,
            self._settings,
            isolation="read_uncommitted",
            fetch_wait_ms=fetch_wait_ms,
        )

    def _open_reads(self) -> Reads:
        with self._opening:
            self._check_open()
            if self._reads is None:
                self._reads = self._made_reads()
                self._closing.callback(self._reads.close)
            return self._reads

    def _made_reads(self) -> Reads:
        settings = self._settings
        if self._make_reads is not None:
            return self._make_reads(self._codec)
        if settings.read_url:
            return self._read_through(settings.read_url)
        scratch = Scratch(settings.state_dir / REPLICAS)
        self._closing.callback(scratch.close)
        replica = Replica(self._cluster, settings, folder=scratch.folder, codec=self._codec)
        return ReplicaReads(replica, settings=settings)

    def _read_through(self, read_url: str) -> Reads:
        """Through a node that serves all partitions, or several of ranges of them."""
        from foldline.processors.http_reads import HttpReads  # late: an HTTP client
        from foldline.processors.http_spread import SpreadReads, urls_of

        urls = urls_of(read_url)
        if len(urls) == 1:
            return HttpReads(urls[0], settings=self._settings)
        return SpreadReads(urls, settings=self._settings, partitions=self.partitions)

    def _check_open(self) -> None:
        if self._closed:
            raise LogUnavailableError(self.url, "the log is closed")

    # --- appending -------------------------------------------------------------------

    def append(self, appends: Sequence[Append]) -> list[Verdict]:
        """Answer appends, in order.

        Raises:
            EncodeError: what Avro cannot hold; nothing of it is sent.
            LogUnavailableError: nothing of it is sent: closed, no broker, no registry.
            UncertainAppendError: no verdict in time; what was sent may be recorded.
        """
        if not appends:
            return []
        with self._registry_needed():
            verdicts = self._open_appends().append(appends)
        with self._seen_lock:
            for verdict in verdicts:
                self._saw(verdict.session_id, verdict.current_seq)
        return verdicts

    def _encode(self, append: Append) -> tuple[bytes, Headers]:
        name = append.schema_name or type_of(append.event)
        version = None if name in EVENT_TYPES else append.schema_version
        schema_id = self._registry.id_of(name, version=version)
        return encode_append(append, schema_id=schema_id, reply_to=self._client_id)

    def _saw(self, session_id: str, seq: int) -> None:
        """Remember how far a session is, for reads that must not be older."""
        self._seen[session_id] = max(seq, self._seen.pop(session_id, 0))
        while len(self._seen) > self._settings.cached_sessions:
            self._seen.popitem(last=False)

    def write_recovery(self, actions: Sequence[RecoveryAction]) -> None:
        """Publish what recovery did; acknowledged when this returns.

        Raises:
            LogUnavailableError: not all of it is published.
        """
        feed = RecoveryFeed(
            url=self.url,
            topic=self._cluster.names.recovery,
            partitions=self.partitions,
            channel=self._open_channel(),
        )
        with self._registry_needed():
            schema_id = self._registry.id_of("RecoveryAction")
        feed.write(actions, schema_id=schema_id)

    # --- reading ---------------------------------------------------------------------

    def _known(self, session_id: str) -> int:
        with self._seen_lock:
            return self._seen.get(session_id, 0)

    def _whole(self, session_id: str, stored: StoredEvent) -> Recorded:
        with self._registry_needed():
            return super()._whole(session_id, stored)

    def _structure(self, session_id: str, stored: StoredEvent) -> Recorded:
        with self._registry_needed():
            return super()._structure(session_id, stored)

    @contextmanager
    def _registry_needed(self) -> Generator[None]:
        """An outage of the registry is one of the log."""
        try:
            yield
        except RegistryUnavailableError as error:
            raise LogUnavailableError(self.url, str(error)) from error

    def warm_up(self) -> None:
        """Connect: the verdicts' place, the schemas, and what reads come from.

        A registry has no question for many ids at once: they are asked for while
        brokers answer.
        """
        with ThreadPoolExecutor(1) as beside:
            ids = beside.submit(self._registry.event_ids)
            self._open_appends()
            self._open_reads().warm_up()
        with self._registry_needed():
            self._codec.warm_up(ids.result())

    def close(self) -> None:
        """Let go of connections, threads and the private replica."""
        with self._opening:
            if self._closed:
                return
            self._closed = True
        self._closing.close()


def _limits(settings: Settings) -> Limits:
    return Limits(
        inflight_max=settings.inflight_max,
        resend_max=settings.resend_max,
        resend_after_ms=settings.resend_after_ms,
        timeout_ms=settings.verdict_timeout_ms,
    )
