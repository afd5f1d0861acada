"""Appending to a log on Kafka: records of `appends` go out, verdicts come back.

1. Every append is encoded before any is sent: what Avro cannot hold is an error, and
   nothing of it counts. What no record can carry is answered here.
2. The appends of a session stand in its lane (`foldline.processors.sending`), which
   says what is to be sent now. Lanes of many sessions and callers go side by side.
3. A record goes to the partition of its session, always over the same connection, which
   has one request in flight: the broker takes a session's records in their order.
4. The acknowledgement says at which offset a copy stands. Not acknowledged, it is sent
   again; acknowledged without a verdict, too, but later.
5. A verdict, once it is final, is the answer. When every append of a call has one, the
   call returns; when one has waited for `verdict_timeout_ms`, the call fails: nobody
   waits for the rest of it any longer, and what was sent may or may not be recorded.

Memory is bounded: calls block their callers, the producer's queue has a limit, and one
that is full is tried again until the time is up.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message

from foldline.errors import LogUnavailableError, UncertainAppendError
from foldline.faults import crash_point
from foldline.processors.admission import MAX_ID_LENGTH
from foldline.processors.kafka_channel import Channels
from foldline.processors.kafka_records import Headers, Outgoing, utf8
from foldline.processors.sending import Lane, Limits, Pace, Sending
from foldline.schemas.blocks import clean_text
from foldline.schemas.recorded import Append
from foldline.schemas.verdicts import TOO_LARGE, UNDECODABLE, Verdict
from foldline.topics import MAX_APPEND_RECORD_BYTES, partition_for

RECORD_OVERHEAD_BYTES = 512
"""More than Kafka's own bytes around a record and its batch."""

HEADER_OVERHEAD_BYTES = 10
"""More than Kafka's own bytes around a header."""

LOOK_S = 1.0
"""How often who waits looks whether the client's threads still live."""

TOO_LARGE_TRIES = 3
"""How often the broker may find a record too large before it is taken at its word: what
it measures is the batch, and the next one may be smaller."""

Encode = Callable[[Append], tuple[bytes, Headers]]
"""Value and headers of an append; KeyError where its schema has no id."""


class Call:
    """The appends of one caller, and its waiting."""

    def __init__(self, count: int) -> None:
        self.answers: list[Verdict | None] = [None] * count
        self.places: dict[Sending, int] = {}
        self.error: LogUnavailableError | None = None
        self.done = threading.Event()

    def answer(self, sending: Sending) -> None:
        """Take the answer of one append."""
        self.answers[self.places.pop(sending)] = sending.verdict
        if not self.places:
            self.done.set()

    def fail(self, error: LogUnavailableError) -> None:
        """Give up."""
        self.error = error
        self.done.set()


class KafkaAppends:
    """Appends to one log for one client; any thread may.

    Args:
        url: the log, for messages.
        topic: `appends`.
        partitions: how many it has.
        limits: how much is under way, and when it is sent again.
        encode: makes a record of an append.
        channels: send them, and call back.
    """

    def __init__(
        self,
        *,
        url: str,
        topic: str,
        partitions: int,
        limits: Limits,
        encode: Encode,
        channels: Channels,
    ) -> None:
        self._url = url
        self._topic = topic
        self._partitions = partitions
        self._limits = limits
        self._encode = encode
        self._lock = threading.Lock()
        self._lanes: dict[str, Lane] = {}
        self._pace = Pace(limits)
        self._calls: dict[Sending, Call] = {}
        self._closed = False
        self._channels = channels
        self._watched: list[threading.Thread] = []
        channels.call_on_tick(self._tick)

    # --- the caller's thread ---------------------------------------------------------

    def append(self, appends: Sequence[Append]) -> list[Verdict]:
        """Answer appends, in order.

        Raises:
            EncodeError: what Avro cannot hold; nothing of it is sent.
            LogUnavailableError: the log is closed, or the registry gives no id; nothing
                of it is sent.
            UncertainAppendError: one has no verdict in time.
        """
        call = Call(len(appends))
        sendings = self._prepare(call, appends)
        if sendings:
            try:
                self._submit(call, sendings)
                while not call.done.wait(LOOK_S):
                    self._check_threads()
            finally:
                self._withdraw(call)
        if call.error is not None:
            raise call.error
        return [verdict for verdict in call.answers if verdict is not None]

    def watch(self, thread: threading.Thread) -> None:
        """Without this thread no answer comes: who waits is told when it has failed."""
        self._watched.append(thread)

    def _check_threads(self) -> None:
        threads = [*self._channels.threads, *self._watched]
        dead = [thread.name for thread in threads if not thread.is_alive()]
        if dead and not self._closed:
            reason = f"thread {dead[0]} of this client has failed; open the log anew"
            raise UncertainAppendError(self._url, reason)

    def _prepare(self, call: Call, appends: Sequence[Append]) -> list[tuple[str, Sending]]:
        sendings: list[tuple[str, Sending]] = []
        for place, append in enumerate(appends):
            prepared = self._record_of(append)
            if isinstance(prepared, Verdict):
                call.answers[place] = prepared
                continue
            sending = Sending(utf8(append.envelope.event_id).decode(), prepared)
            call.places[sending] = place
            sendings.append((append.envelope.session_id, sending))
        return sendings

    def _record_of(self, append: Append) -> Outgoing | Verdict:
        session_id = append.envelope.session_id
        if problem := _unanswerable(append):
            return _refused(append, UNDECODABLE, problem)
        key = session_id.encode()
        partition = partition_for(session_id, self._partitions)
        try:
            value, headers = self._encode(append)
        except KeyError:
            return _refused(append, UNDECODABLE, "no schema of that name")
        record = Outgoing(partition, key, value, headers)
        size = record_bytes(record)
        if size > MAX_APPEND_RECORD_BYTES:
            reason = f"{size} bytes, MAX_APPEND_RECORD_BYTES is {MAX_APPEND_RECORD_BYTES}"
            return _refused(append, TOO_LARGE, reason)
        return record

    def _submit(self, call: Call, sendings: list[tuple[str, Sending]]) -> None:
        with self._lock:
            if self._closed:
                raise LogUnavailableError(self._url, "the log is closed")
            for session_id, sending in sendings:
                lane = self._lanes.get(session_id)
                if lane is None:
                    lane = Lane(self._limits, chance=random.random, pace=self._pace)
                    self._lanes[session_id] = lane
                lane.add(sending)
                self._calls[sending] = call
            for session_id in dict.fromkeys(name for name, _ in sendings):
                self._pump(self._lanes[session_id], time.monotonic())
        crash_point("CP_KAFKA_AFTER_SEND")

    def _withdraw(self, call: Call) -> None:
        """Forget what the call still waits for: it failed, or its thread was stopped."""
        if not call.places:
            return
        with self._lock:
            unwanted = set(call.places)
            for sending in unwanted:
                self._calls.pop(sending, None)
            for session_id, lane in list(self._lanes.items()):
                lane.withdraw(unwanted)
                self._drop_if_empty(session_id, lane)

    # --- with the lock held ----------------------------------------------------------

    def _pump(self, lane: Lane, now_s: float) -> None:
        """Send what is due, in order; what finds no room stays due."""
        for sending in lane.due(now_s):
            heard = partial(self._delivered, lane, sending)
            try:
                channel = self._channels.of(sending.record.partition)
                channel.send(self._topic, sending.record, heard)
            except BufferError:
                sending.trouble = "too many records are on their way"
                return
            except KafkaException as error:
                sending.trouble = error.args[0].str()
                return
            lane.sent(sending, now_s)

    def _settle(self, session_id: str, lane: Lane, now_s: float) -> None:
        """Give out what has become final, and send what there is room for now."""
        for sending in lane.settle():
            self._pace.answered(sending, now_s)
            call = self._calls.pop(sending, None)
            if call is not None:
                call.answer(sending)
        self._pump(lane, now_s)
        self._drop_if_empty(session_id, lane)

    def _drop_if_empty(self, session_id: str, lane: Lane) -> None:
        if lane.empty and self._lanes.get(session_id) is lane:
            del self._lanes[session_id]

    # --- the threads of acknowledgements and verdicts --------------------------------

    def _delivered(
        self, lane: Lane, sending: Sending, error: KafkaError | None, record: Message
    ) -> None:
        """Step 4, called once for each copy."""
        now_s = time.monotonic()
        if error is None:
            crash_point("CP_KAFKA_AFTER_ACK")
        with self._lock:
            if error is None:
                lane.acknowledged(sending, record.offset() or 0)
            else:
                lane.lost(sending, error.str(), now_s)
                if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    self._found_too_large(lane, sending)
            session_id = sending.record.key.decode()
            if self._lanes.get(session_id) is lane:
                self._settle(session_id, lane, now_s)

    def _found_too_large(self, lane: Lane, sending: Sending) -> None:
        sending.too_large += 1
        if sending.too_large == TOO_LARGE_TRIES:
            detail = f"the broker takes no {record_bytes(sending.record)} bytes at once"
            session_id = sending.record.key.decode()
            lane.answer(sending, _refusal(session_id, sending.event_id, TOO_LARGE, detail))

    def hear(self, verdicts: Sequence[Verdict]) -> None:
        """Step 5: verdicts that came for this client."""
        crash_point("CP_KAFKA_BEFORE_VERDICT")
        now_s = time.monotonic()
        with self._lock:
            heard: dict[str, Lane] = {}
            for verdict in verdicts:
                lane = self._lanes.get(verdict.session_id)
                if lane is not None:
                    lane.heard(verdict)
                    heard[verdict.session_id] = lane
            for session_id, lane in heard.items():
                self._settle(session_id, lane, now_s)

    def _tick(self) -> None:
        """Resend what is due, and fail the calls whose time is up."""
        now_s = time.monotonic()
        with self._lock:
            for session_id, lane in list(self._lanes.items()):
                late = lane.expired(now_s)
                while late is not None:
                    self._give_up(lane, late)
                    late = lane.expired(now_s)
                self._settle(session_id, lane, now_s)

    def _give_up(self, lane: Lane, late: Sending) -> None:
        lane.withdraw({late})
        call = self._calls.pop(late, None)
        if call is not None:
            call.fail(UncertainAppendError(self._url, self._why(late)))

    def _why(self, sending: Sending) -> str:
        waited = f"{self._limits.timeout_ms} ms"
        if sending.last_offset >= 0:
            where = f"[{sending.record.partition}] {sending.last_offset}"
            return f"in {self._topic} {where} for {waited}, but no worker has answered"
        trouble = self._channels.of(sending.record.partition).trouble
        reason = sending.trouble or trouble or "no acknowledgement"
        return f"no broker took it for {waited}: {reason}"

    def close(self) -> None:
        """Fail what is still waited for."""
        with self._lock:
            self._closed = True
            calls = set(self._calls.values())
            self._calls.clear()
            self._lanes.clear()
        for call in calls:
            call.fail(UncertainAppendError(self._url, "the log was closed meanwhile"))


def record_bytes(record: Outgoing) -> int:
    """The most that a record takes in a topic."""
    headers = sum(
        len(name.encode()) + len(value) + HEADER_OVERHEAD_BYTES
        for name, value in record.headers or ()
    )
    return len(record.key) + len(record.value) + headers + RECORD_OVERHEAD_BYTES


def _unanswerable(append: Append) -> str:
    """Why no verdict could find its way back; empty if it can."""
    envelope = append.envelope
    session_id = envelope.session_id
    if not session_id or session_id[0] == "\0" or clean_text(session_id)[0] != session_id:
        return "session_id is empty, no UTF-8, or begins with a zero byte"
    if max(len(session_id), len(envelope.event_id)) > MAX_ID_LENGTH:
        return "session_id or event_id is too long"
    return ""


def _refused(append: Append, kind: str, detail: str) -> Verdict:
    envelope = append.envelope
    return _refusal(envelope.session_id, envelope.event_id, kind, detail)


def _refusal(session_id: str, event_id: str, kind: str, detail: str) -> Verdict:
    """An answer to what no record can carry; of the session, nothing is known here."""
    return Verdict(kind=kind, session_id=session_id, event_id=event_id, detail=detail)
