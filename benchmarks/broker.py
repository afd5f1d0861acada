"""A real broker as a benchmark sees it: topics, bulk filling, progress, sizes, times.

How fast a consumer is, is read from what it has committed: the broker's own times of
the records that a `read_committed` reader finds afterwards. So it is measured in the
same way for all, and nobody reads along while it runs.
"""

import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import confluent_kafka
import confluent_kafka.admin
from confluent_kafka import Producer, TopicPartition

_clients = cast("Any", confluent_kafka)  # the types of both are partly unknown
_api = cast("Any", confluent_kafka.admin)

TIMEOUT_S = 30.0
POLL_S = 0.5
START_S = 90.0
"""How long a consumer may take until it has committed anything."""
LOG_TIME = {"message.timestamp.type": "LogAppendTime"}


class Filled(NamedTuple):
    """A record for `fill`."""

    partition: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]] | None = None


@dataclass(frozen=True, slots=True)
class Rates:
    """Events a second, by the broker's clock: of the second half, and of everything."""

    warm: int
    whole: int
    events: int
    value_bytes: int
    """The mean size of their values."""


class Broker:
    """One broker, or the first of a cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = _api.AdminClient({"bootstrap.servers": bootstrap})

    def create(self, *topics: str, partitions: int) -> None:
        """Make topics whose records have the broker's times."""
        new = [_api.NewTopic(t, partitions, 1, config=LOG_TIME) for t in topics]
        for made in self._admin.create_topics(new).values():
            made.result(TIMEOUT_S)

    def delete(self, prefix: str) -> None:
        """Delete every topic with this in its name: changelogs have prefixes beside."""
        names = list(self._admin.list_topics(timeout=TIMEOUT_S).topics)
        mine = [name for name in names if prefix in name]
        if mine:
            for gone in self._admin.delete_topics(mine).values():
                gone.result(TIMEOUT_S)

    def fill(self, topic: str, records: Iterable[Filled]) -> int:
        """Produce records in bulk, in their order within a partition; how many."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "linger.ms": 20,
                "acks": "all",
                "enable.idempotence": True,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        count = 0
        for record in records:
            _produced(producer, topic, record)
            count += 1
        assert producer.flush(TIMEOUT_S) == 0, f"{topic} took not everything"
        return count

    def ends(self, topic: str, *, committed: bool = False) -> dict[int, int]:
        """The end of each partition, by number."""
        partitions = (
            self._admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        )
        asked = {TopicPartition(topic, p): _api.OffsetSpec.latest() for p in partitions}
        level = "READ_COMMITTED" if committed else "READ_UNCOMMITTED"
        found = self._admin.list_offsets(
            asked, isolation_level=getattr(_clients.IsolationLevel, level)
        )
        return {tp.partition: f.result(TIMEOUT_S).offset for tp, f in found.items()}

    def consumed(self, group: str, topic: str, *, partitions: int) -> int:
        """How many records of a topic lie before the offsets that a group committed."""
        config = {"bootstrap.servers": self.bootstrap, "group.id": group}
        consumer = _clients.Consumer({**config, "isolation.level": "read_uncommitted"})
        asked = [TopicPartition(topic, p) for p in range(partitions)]
        try:
            found = consumer.committed(asked, timeout=TIMEOUT_S)
        finally:
            consumer.close()
        return sum(partition.offset for partition in found if partition.offset > 0)

    def wait_consumed(
        self,
        group: str,
        topic: str,
        *,
        limit_s: float,
        alive: Callable[[], bool],
    ) -> bool:
        """Wait until a group has committed a topic's end, or the time is over.

        The time begins with its first commit.

        Raises:
            AssertionError: who should consume has ended.
        """
        ends = self.ends(topic)
        wanted, before = sum(ends.values()), 0
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            done = self.consumed(group, topic, partitions=len(ends))
            if done >= wanted:
                return True
            if done and not before:
                until = time.monotonic() + limit_s
            before = done
            assert alive(), f"{group} has ended"
            time.sleep(POLL_S)
        return False

    def read(self, topic: str, *, after: Mapping[int, int] | None = None) -> list[Any]:
        """Every committed message of a topic, or those from the offsets given."""
        ends = self.ends(topic, committed=True)
        consumer = _clients.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "foldline-benchmark",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        starts = {p: (after or {}).get(p, 0) for p in ends}
        consumer.assign([TopicPartition(topic, p, starts[p]) for p in ends])
        left = {p for p, end in ends.items() if end > starts[p]}
        found: list[Any] = []
        while left:
            for message in consumer.consume(10_000, 1.0):
                if message.error() is None:
                    found.append(message)
                else:  # the end of a partition: markers lie before it too
                    left.discard(message.partition())
        consumer.close()
        return found

    def rates(self, topic: str) -> Rates:
        """How fast the committed records of a topic came."""
        messages = self.read(topic)
        times = sorted(message.timestamp()[1] for message in messages)
        half = len(times) // 2
        assert half > 1, f"{topic} has {len(times)} records"

        def per_s(first: int) -> float:
            return (len(times) - 1 - first) / max(times[-1] - times[first], 1) * 1000

        size = sum(len(message.value()) for message in messages) // len(messages)
        return Rates(round(per_s(half)), round(per_s(0)), len(times), size)

    def log_bytes(self) -> dict[str, int]:
        """Bytes of each topic's segments in the broker's log folders."""
        host, _, port = self.bootstrap.partition(",")[0].rpartition(":")
        return _log_bytes(host, int(port))


def _produced(producer: Producer, topic: str, record: Filled) -> None:
    """Produce one record, waiting where the queue is full."""
    partition, key, value, headers = record
    while True:
        try:
            producer.produce(
                topic, value, key, partition=partition, headers=cast("Any", headers)
            )
        except BufferError:
            producer.poll(0.1)
        else:
            return


# --- DescribeLogDirs, which the client library does not have ------------------------------

_DESCRIBE_LOG_DIRS = 35
_VERSION = 1
_correlation = itertools.count(1)


def _log_bytes(host: str, port: int) -> dict[str, int]:
    """One request and its answer, version 1: sizes are of the segments alone."""
    client = b"foldline-benchmark"
    head = struct.pack(
        ">hhih", _DESCRIBE_LOG_DIRS, _VERSION, next(_correlation), len(client)
    )
    request = head + client + struct.pack(">i", -1)  # null: every topic
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", _exactly(connection, 4))
        return _sizes(_exactly(connection, length))


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts: list[bytes] = []
    while count:
        part = connection.recv(count)
        assert part, "the broker closed the connection"
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _sizes(answer: bytes) -> dict[str, int]:
    """Sizes by topic, all partitions and folders together."""
    at = 8  # correlation id, throttle time
    sizes: dict[str, int] = {}

    def take(layout: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(layout, answer, at)
        at += struct.calcsize(layout)
        return value

    def text() -> str:
        nonlocal at
        length = take(">h")
        at += length
        return answer[at - length : at].decode()

    for _ in range(take(">i")):
        error = take(">h")
        assert not error, f"DescribeLogDirs: error {error}"
        text()  # the folder
        for _ in range(take(">i")):
            topic = text()
            for _ in range(take(">i")):
                take(">i")  # the partition
                sizes[topic] = sizes.get(topic, 0) + take(">q")
                take(">q")  # its lag
                take(">b")  # whether it is moving to another folder
    return sizes
