"""A topic `events` as workers leave it: transactions, aborted ones, markers, `ao`.

What it holds was admitted by a memory log, so that this log can be compared with what
a reader of the topic answers.
"""

import json
from collections.abc import Sequence
from typing import Any

from foldline.kafka import transactional_producer
from foldline.processors.kafka_records import APPEND_OFFSET
from foldline.processors.memory_log import MemoryLog
from foldline.processors.stored import StoredEvent
from foldline.schemas.codec import frame
from foldline.schemas.events import KnownEvent
from foldline.testing.log_story import LogStory
from foldline.testing.samples import ticking
from foldline.topics import partition_for
from tests.cluster.logs import FreshLog

SEND_TIMEOUT_S = 30


class Republished:
    """A memory log, and the topic of a log on Kafka that tells the same."""

    def __init__(self, kafka: FreshLog) -> None:
        self.kafka = kafka
        self.memory = MemoryLog(settings=kafka.settings, clock=ticking())
        self._producer: Any = transactional_producer(
            kafka.cluster, kafka.settings, transactional_id=f"{kafka.prefix}republished"
        )
        self._producer.init_transactions(SEND_TIMEOUT_S)
        self._sent: dict[str, int] = {}
        self._appends = 0

    def story(self, session_id: str) -> LogStory:
        """A session of the memory log."""
        return LogStory(self.memory, session_id=session_id)

    def given(self, session_id: str, *events: KnownEvent) -> None:
        """These happened, and are committed in the topic."""
        self.story(session_id).given(*events)
        self.publish(session_id)

    def publish(self, *session_ids: str) -> None:
        """What is new of sessions, in one transaction."""
        self.begin(*session_ids)
        self.commit()

    def begin(self, *session_ids: str) -> None:
        """What is new of sessions, in a transaction that stays open."""
        self._producer.begin_transaction()
        for session_id in session_ids:
            for event in self.new_of(session_id):
                self.send(session_id, event)
                self._sent[session_id] = event.seq

    def commit(self) -> None:
        """Commit the open transaction."""
        self._producer.commit_transaction(SEND_TIMEOUT_S)

    def abort(self, session_id: str) -> None:
        """What is new of a session, in a transaction that is aborted."""
        self._producer.begin_transaction()
        for event in self.new_of(session_id):
            self.send(session_id, event)
        self._producer.flush(SEND_TIMEOUT_S)
        self._producer.abort_transaction(SEND_TIMEOUT_S)

    def new_of(self, session_id: str) -> Sequence[StoredEvent]:
        """Events that are not in the topic yet."""
        after = self._sent.get(session_id, 0)
        return [e for e in self.memory.stored_events(session_id) if e.seq > after]

    def send(self, session_id: str, event: StoredEvent) -> None:
        """One event, into the open transaction."""
        self.send_raw(session_id, frame(self.schema_id(event), event.body))

    def lose(self, session_id: str) -> None:
        """What is new of a session never reaches the topic."""
        self._sent[session_id] = self.story(session_id).seq

    def send_raw(
        self,
        session_id: str,
        value: bytes | None,
        *,
        by_worker: bool = True,
        partition: int | None = None,
    ) -> None:
        """Any record, into the open transaction."""
        own = partition_for(session_id, self.kafka.partitions)
        headers = [(APPEND_OFFSET, str(self._appends).encode())] if by_worker else []
        self._appends += 1
        self._producer.produce(
            self.kafka.names.events,
            value,
            session_id.encode(),
            partition=own if partition is None else partition,
            headers=headers,
        )
        self._producer.poll(0)

    def transaction(
        self,
        *values: tuple[str, bytes | None],
        by_worker: bool,
        partition: int | None = None,
    ) -> None:
        """Any records, committed."""
        self._producer.begin_transaction()
        for session_id, value in values:
            self.send_raw(session_id, value, by_worker=by_worker, partition=partition)
        self.commit()

    def schema_id(self, event: StoredEvent) -> int:
        """The registry's id of an event's schema; the memory log has its own."""
        schema = json.loads(self.memory.schemas.schema_of(event.schema_id))
        version = schema.get("foldline_schema_version", 1)
        return self.kafka.registry.id_of(schema["name"], version=version)
