"""A client for tests of a worker: it sends appends as records, and collects verdicts.

    feed = Feed(log, seed=1)
    feed.tell(200)
    feed.settle()
    check(log, feed.answers)

It knows nothing of `foldline.processors.kafka_log`: a worker is tested by what stands in
the topics. What gets no final verdict is sent again, with the same event_id and
known_seq; a refusal is final once it is of the last copy that the broker took.
"""

import random
import time
from collections import defaultdict
from typing import Any, cast

from confluent_kafka import TopicPartition

from foldline.kafka import client_producer, reader_consumer
from foldline.processors.kafka_records import Headers, decode_verdict, encode_append
from foldline.schemas.events import KnownEvent, SessionCreated, TurnStarted, type_of
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.recorded import Append
from foldline.schemas.verdicts import Verdict
from foldline.testing.log_story import make_append, new_id
from foldline.testing.samples import created, said
from foldline.topics import partition_for
from tests.cluster.logs import FreshLog

RESEND_S = 1.0
SETTLE_S = 60.0


class Feed:
    """One client of a log; not for more than one thread."""

    def __init__(self, log: FreshLog, *, seed: int = 0, sessions: int = 8) -> None:
        self.log = log
        self.reply_to = f"feed-{new_id()}"
        self.sent: dict[str, Append] = {}
        self.verdicts: defaultdict[str, list[Verdict]] = defaultdict(list)
        self.heads: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._chance = random.Random(seed)
        self._names = [f"session-{seed}-{number}" for number in range(sessions)]
        self._producer: Any = client_producer(log.cluster, log.settings)
        self._reader: Any = reader_consumer(log.cluster, log.settings, fetch_wait_ms=10)
        self._codec = RecordCodec(log.registry)
        place = partition_for(self.reply_to, log.partitions)
        partition = TopicPartition(log.names.verdicts, place)
        partition.offset = self._reader.get_watermark_offsets(partition, timeout=10)[1]
        self._reader.assign([partition])

    @property
    def answers(self) -> dict[str, Verdict]:
        """The final verdict of every append that has one."""
        finals = ((event_id, self._final(event_id)) for event_id in self.sent)
        return {event_id: verdict for event_id, verdict in finals if verdict is not None}

    def _final(self, event_id: str) -> Verdict | None:
        """A recorded one, or the refusal of the last copy that the broker took."""
        last = self._taken.get(event_id, -1)
        for verdict in self.verdicts[event_id]:
            if verdict.recorded or verdict.append_offset >= last >= 0:
                return verdict
        return None

    def tell(self, count: int) -> None:
        """Send appends of several sessions: most are accepted, some refused or twice."""
        for _ in range(count):
            name = self._chance.choice(self._names)
            if name not in self.heads:
                self.heads[name] = 0
                self.append(name, created())
                continue
            match self._chance.randrange(12):
                case 0:  # refused: nobody is in that epoch
                    self.append(name, TurnStarted(trigger="USER"), epoch=7)
                case 1:  # twice: the second is a duplicate
                    self.send(self.append(name, said("twice")))
                case 2:  # one of two is a conflict, or both are
                    self.append(name, said("expected"), expected_seq=self.heads[name])
                case _:
                    self.append(name, said("x" * self._chance.randrange(400)))
        self.take(0)

    def append(self, session_id: str, event: KnownEvent, **how: Any) -> Append:
        """Send one append of a session, by who knows its head."""
        epoch = 1 if isinstance(event, SessionCreated) else 0
        known = self.heads.setdefault(session_id, 0)
        chosen: dict[str, Any] = {"known_seq": known, "epoch": epoch} | how
        append = make_append(session_id, event, **chosen)
        self.send(append)
        return append

    def send(self, append: Append) -> None:
        """Send one copy of an append."""
        self.sent[append.envelope.event_id] = append
        schema_id = self.log.registry.id_of(type_of(append.event))
        value, headers = encode_append(append, schema_id=schema_id, reply_to=self.reply_to)
        self.put(append.envelope.session_id, value, headers, append.envelope.event_id)

    def put(
        self,
        key: str,
        value: bytes | None,
        headers: Headers | None = None,
        event_id: str = "",
    ) -> None:
        """Send any record to where its key belongs."""

        def taken(error: Any, message: Any) -> None:
            if error is None:
                self._taken[event_id] = max(message.offset(), self._taken.get(event_id, -1))

        partition = partition_for(key, self.log.partitions)
        topic = self.log.names.appends
        self._producer.produce(
            topic, value, key.encode(), partition, taken, headers=headers
        )
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until the broker has what was sent."""
        assert self._producer.flush(30) == 0

    def settle(self, timeout_s: float = SETTLE_S) -> dict[str, Verdict]:
        """Wait until everything has a verdict; resend what has none."""
        self.flush()
        end = time.monotonic() + timeout_s
        pause_s = RESEND_S
        resend = time.monotonic() + pause_s
        while open_ids := [e for e in self.sent if self._final(e) is None]:
            assert time.monotonic() < end, f"{len(open_ids)} appends have no verdict"
            self.take(0.2)
            if time.monotonic() > resend:
                pause_s *= 2  # or a slow worker never comes to the last copy
                resend = time.monotonic() + pause_s
                for event_id in [e for e in open_ids if self._final(e) is None]:
                    self.send(self.sent[event_id])
                self.flush()
        return self.answers

    def take(self, wait_s: float) -> None:
        """Take the verdicts that have come."""
        while (first := self._reader.poll(wait_s)) is not None:
            for message in [first, *self._reader.consume(500, 0)]:
                if message.error() is None and message.key() == self.reply_to.encode():
                    value = cast("bytes", message.value())
                    verdict = decode_verdict(value, self._codec)
                    self.verdicts[verdict.event_id].append(verdict)
                    if verdict.recorded:
                        head = self.heads.get(verdict.session_id, 0)
                        self.heads[verdict.session_id] = max(head, verdict.current_seq)
            wait_s = 0

    def close(self) -> None:
        """Let go of the clients."""
        self._reader.close()
        self._producer.flush(1)
