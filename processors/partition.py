"""One partition of the log in a worker: admission and fold of a batch, in memory.

No client, clock or thread: records come in, records go out, and everything that a
batch changes lies in an overlay until the worker says that it is committed. So the
same appends give the same bytes, whoever runs them, however often.

A checkpoint's state is not kept for it as the logs on one machine do: there a snapshot
of the state just before a CheckpointCreated lets `verify` look its hash up; on Kafka
`verify` folds the session again, and comes by that state anyway.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

from foldline.errors import (
    DecodeError,
    NewerFormatError,
    NoAppendError,
    RegistryUnavailableError,
)
from foldline.processors.admission import admit, log_time, overruled, unrecoverable
from foldline.processors.fold import fold_in
from foldline.processors.kafka_records import Incoming, Outgoing
from foldline.processors.partition_answers import Answers, HeaderMap, lost_record
from foldline.processors.partition_intake import BlockedError, Intake
from foldline.processors.partition_shapes import (
    Counters,
    Flush,
    Limits,
    Outcome,
    Position,
    RecordIds,
    Rules,
)
from foldline.processors.restore import broken, misplaced
from foldline.processors.snapshot_lag import DirtyIndex, InputMarks
from foldline.processors.state_overlay import StateOverlay, StateTable
from foldline.schemas.codec import MAX_EVENT_BYTES, Codec, frame
from foldline.schemas.events import type_of
from foldline.schemas.record_codec import frame_record
from foldline.schemas.recorded import Recorded
from foldline.schemas.snapshots import encode_snapshot
from foldline.schemas.state import FOLD_VERSION, SessionState
from foldline.schemas.topic_records import (
    CONTROL_KEY,
    LOW_WATER_KEY,
    LostSession,
    LowWater,
)
from foldline.schemas.verdicts import MISROUTED, TOO_LARGE
from foldline.topics import MAX_RECORD_BYTES, partition_for

__all__ = [
    "Counters",
    "Flush",
    "Limits",
    "Outcome",
    "Partition",
    "Position",
    "RecordIds",
    "Rules",
    "StateTable",
]

MAX_SNAPSHOT_BYTES = MAX_RECORD_BYTES - 10_000
"""The largest snapshot, without key and overhead. The lists of a state are bounded, but
ids of 512 characters in every one of them would make it larger."""

OWED_AT_ONCE = 500
"""How many records about lost sessions, and as many snapshots that only the table has,
one batch publishes."""

_URL = "kafka:"
"""How errors of a restore name the log: a partition does not know its brokers."""


class Partition:
    """Admission and fold of one partition: pure, but for the table that it reads.

    The worker's loop: `admit` (once or more), `due_snapshots`, produce everything,
    `delivered` with the offsets of the events, and after the transaction's commit
    `commit`; after an abort `drop`. Between batches `flush`, write it, `flushed`.
    """

    def __init__(
        self,
        index: int,
        *,
        partitions: int,
        position: Position,
        table: StateTable,
        codec: Codec,
        ids: RecordIds,
        limits: Limits,
        dirty: Mapping[str, int] | None = None,
    ) -> None:
        """Begin where a table or a low-water record stands.

        Args:
            index: the number of the partition.
            partitions: how many the log has.
            position: next offsets and rules (of the table, or of the low-water record
                with `low` as the next offset of `events`).
            table: states that are not in memory.
            codec: decodes with the writers' schemas.
            ids: schema ids of what it writes.
            limits: how much it keeps, and how far snapshots may lag.
            dirty: the table's index of sessions with events that no snapshot covers,
                by the offset of the first such event.
        """
        self.index = index
        self.counters = Counters()
        self._partitions = partitions
        self._codec = codec
        self._intake = Intake(
            codec, partitions=partitions, cached_sessions=limits.cached_sessions
        )
        self._ids = ids
        self._lag_limit = limits.snapshot_lag_events
        self._states = StateOverlay(table, max_cached=limits.cached_sessions)
        self._dirty = DirtyIndex(dirty or {})
        self._answers = Answers(index, partitions=partitions, ids=ids)
        self._inputs = InputMarks()
        self._owed: dict[str, LostSession] = {}
        self._first_event = 0
        self._at_input = position.input_offset
        self._at_event = position.event_offset
        self._at_rules = position.rules
        self._flushed_position = self._handed_position = position
        self._folded = self._folded_at_flush = self._folded_handed = 0
        self._low = self._dirty.low_water(self._at_event)
        self._forget_batch()

    def _forget_batch(self) -> None:
        self._input_offset = self._at_input
        self._rules = self._at_rules
        self._controlled = False
        self._offsets: list[int] | None = None
        self._told: list[str] = []
        self._answers.counters = Counters()

    @property
    def input_offset(self) -> int:
        """The offset of `appends` to admit next."""
        return self._input_offset

    @property
    def position(self) -> Position:
        """Where it stands after the last commit (or refold)."""
        return Position(self._at_input, self._at_event, self._at_rules)

    @property
    def low_water(self) -> int:
        """The offset in `events` from where a restore over snapshots must refold.

        As of the last commit or refold; it may be asked from any thread.
        """
        return self._low

    @property
    def lag(self) -> int:
        """How many offsets of `events` lie above the low-water mark."""
        return self._at_event - self._low

    @property
    def events_since_flush(self) -> int:
        """How many events were folded since the table was last written."""
        return self._folded - self._folded_at_flush

    @property
    def flush_wanted(self) -> bool:
        """Whether so many states wait for the table that it should be written now."""
        return self._states.full

    # --- what is lost -----------------------------------------------------------------

    @property
    def lost_sessions(self) -> int:
        """How many of its sessions are lost."""
        return self._states.lost_count

    @property
    def owes(self) -> bool:
        """Whether it has something to publish though no append comes.

        What says that a session is lost, and states whose events `events` has no more:
        until then only this worker knows.
        """
        oldest = self._dirty.oldest()
        return bool(self._owed) or (oldest is not None and oldest[1] < self._first_event)

    @property
    def owed(self) -> Sequence[LostSession]:
        """The lost sessions of which nothing is published yet."""
        return tuple(self._owed.values())

    def begins_at(self, first_event: int) -> None:
        """Say during a restore that `events` has nothing below an offset any more."""
        self._first_event = first_event
        self._at_event = max(self._at_event, first_event)

    def state(self, session_id: str) -> SessionState | None:
        """The state of a session as it is committed or refolded; not to be changed."""
        return self._states.get(session_id)

    def lost(self, session_id: str) -> LostSession | None:
        """What is missing of a session that is lost; None for any other."""
        return self._states.lost(session_id)

    def lose(self, lost: LostSession) -> None:
        """Mark a session as lost, during a restore: its state is no more."""
        self._states.lose(lost)
        self._dirty.forget(lost.session_id)
        self.owe(lost)

    def owe(self, lost: LostSession) -> None:
        """Publish with the next batch that a session is lost."""
        self._owed[lost.session_id] = lost

    def note_inputs(self, event_offset: int, input_offset: int) -> None:
        """Say during a restore that events from there on were asked for from there on."""
        self._inputs.note(event_offset, input_offset)

    # --- restoring --------------------------------------------------------------------

    def refold(self, schema_id: int, body: bytes, offset: int, append_offset: int) -> None:
        """Fold one committed event during a restore.

        What a snapshot or the table already covers is skipped. A Flush must be written
        and confirmed before the next refold: states are folded in place here.

        Raises:
            LogFormatError: a hole, or bytes that are no event; it names session and seq.
        """
        try:
            recorded = self._codec.decode_structure(schema_id, body)
        except DecodeError as error:
            raise broken(_URL, "?", offset, error.reason) from error
        session_id, seq = recorded.envelope.session_id, recorded.envelope.seq
        if not self._states.known(session_id) and self._place(session_id) != self.index:
            raise broken(_URL, session_id, seq, f"it is in partition {self.index}")
        if self._states.known(session_id) or self._states.lost(session_id) is None:
            self._refold(recorded, offset)
        self._inputs.note(offset, append_offset)
        self._folded += 1
        self._at_event = offset + 1
        self._at_input = self._input_offset = max(self._at_input, append_offset + 1)
        self._low = self._dirty.low_water(self._at_event)

    def _refold(self, recorded: Recorded, offset: int) -> None:
        session_id, seq = recorded.envelope.session_id, recorded.envelope.seq
        state = self._states.refolding(session_id)
        if seq <= state.seq:
            return
        reason = _misplaced(state, recorded)
        if reason:
            raise broken(_URL, session_id, seq, reason)
        fold_in(state, recorded)
        self._dirty.refolded(session_id, offset)

    def resume(self, input_offset: int, *, rules: Rules | None = None) -> None:
        """End a restore: `appends` goes on here, unless the last event's append is later.

        Args:
            input_offset: the group's stable committed offset.
            rules: those in force there, where the restore knows newer ones than the
                table did (of a low-water record further on).
        """
        self._at_input = max(self._at_input, input_offset)
        self._at_rules = rules or self._at_rules
        self._forget_batch()

    # --- a batch ----------------------------------------------------------------------

    def admit(self, records: Sequence[Incoming]) -> Outcome:
        """Answer records in order, on the state that those before them made.

        Several calls may come before one commit. Nothing a record holds raises. Records
        below the position were answered before, and are passed over.
        """
        outcome = Outcome(self._input_offset)
        for record in records:
            if record.offset < self._input_offset:
                continue
            headers: HeaderMap = dict(record.headers or ())
            try:
                self._answer(record, headers, outcome)
            except NoAppendError as error:
                version = self._rules.version
                self._answers.no_append(
                    outcome, record, headers, error, rules_version=version
                )
            except (BlockedError, NewerFormatError, RegistryUnavailableError) as error:
                outcome.blocked = f"at offset {record.offset}: {error}"
                break
            self._input_offset = record.offset + 1
        outcome.input_offset = self._input_offset
        return outcome

    def _answer(self, record: Incoming, headers: HeaderMap, outcome: Outcome) -> None:
        if record.key == CONTROL_KEY:
            # Records before it fall under the old rules, records after it under the new.
            self._rules = self._intake.rules_of(record)
            self._controlled = outcome.controlled = True
            return
        session_id = self._intake.session_of(record.key, self._rules)
        state = self._states.get(session_id)
        if state is None and (place := self._place(session_id)) != self.index:
            reason = f"the key belongs to partition {place}"
            raise NoAppendError("foreign_partition", reason, MISROUTED)
        append, schema_id, body, taken = self._intake.append_of(
            record, headers, session_id, self._rules
        )
        if append.envelope.session_id != session_id:
            raise NoAppendError(
                "foreign_key", "the key is not the envelope's session_id", MISROUTED
            )
        now = log_time(state, record.timestamp_us)
        version = self._rules.version
        if state is None and (lost := self._states.lost(session_id)) is not None:
            verdict = unrecoverable(lost, append, now=now, rules_version=version)
            self._answers.refused(outcome, record, headers, append, verdict)
            return
        verdict, envelope = admit(state, append, now=now, rules_version=version)
        if envelope is None:
            self._answers.refused(outcome, record, headers, append, verdict)
            return
        body = taken.intake.splice(
            body,
            taken.spans,
            envelope.seq,
            envelope.recorded_at,
            envelope.rules_version,
            envelope.prev_hash,
        )
        if len(body) > MAX_EVENT_BYTES:
            reason = f"{len(body)} bytes, MAX_EVENT_BYTES is {MAX_EVENT_BYTES}"
            verdict = overruled(verdict, state, TOO_LARGE, reason)
            self._answers.refused(outcome, record, headers, append, verdict)
            return
        recorded = Recorded(envelope, append.event, body, schema_id, False)  # noqa: FBT003
        fold_in(self._states.own(session_id, state, append.event), recorded)
        value = frame(schema_id, body)
        self._dirty.touch(session_id, self._answers.counters.events, len(value))
        self._answers.event(outcome, record, envelope, type_of(append.event), value)
        self._answers.verdict(outcome, record, headers, verdict)

    def _place(self, session_id: str) -> int:
        return partition_for(session_id, self._partitions)

    def due_snapshots(self) -> list[Outgoing]:
        """Snapshots that the lag makes due after the batch's fold, and the new low water.

        Before them, what is owed: which sessions are lost. They belong into the same
        transaction. A low-water record is the last of them, and stands alone where only
        a control record came into force. To be asked once, after the last `admit` of the
        batch.
        """
        before = self._at_event
        end = before + self._answers.counters.events
        due = self._tell()
        while (oldest := self._dirty.oldest()) is not None:
            session_id, offset = oldest
            if not self._is_due(offset, end=end):
                break
            snapshot = self._snapshot(session_id)
            if snapshot is not None:
                due.append(snapshot)
        if due or self._controlled:
            due.append(self._low_water(self._dirty.low_water(before)))
        return due

    def _is_due(self, offset: int, *, end: int) -> bool:
        """Whether a session that is dirty since an offset is published now."""
        counters = self._answers.counters
        if offset < self._first_event:  # only the table has its state
            return counters.snapshots < OWED_AT_ONCE
        if end - offset <= self._lag_limit:
            return False
        counters.starved += not self._dirty.may_spend
        return self._dirty.may_spend

    def _tell(self) -> list[Outgoing]:
        """Records of lost sessions, so many as one batch publishes."""
        self._told = list(islice(self._owed, OWED_AT_ONCE))
        schema_id = self._ids.lost_session
        return [lost_record(self._owed[one], schema_id) for one in self._told]

    def _snapshot(self, session_id: str) -> Outgoing | None:
        """A session's snapshot; None if it is larger than a record may be."""
        state = self._states.get(session_id)
        if state is None:
            raise broken(_URL, session_id, 0, "it is dirty, and the table does not have it")
        value = frame(self._ids.snapshot, encode_snapshot(state))
        if len(value) > MAX_SNAPSHOT_BYTES:
            self._answers.counters.starved += 1
            self._dirty.pin(session_id)
            return None
        self._dirty.published(session_id, len(value))
        self._answers.counters.snapshots += 1
        self._answers.counters.snapshot_bytes += len(value)
        return Outgoing(self.index, session_id.encode(), value)

    def _low_water(self, low: int) -> Outgoing:
        """The mark. It stays below what is owed and not told: it would be forgotten."""
        told = set(self._told)
        untold = (lost.from_offset for id_, lost in self._owed.items() if id_ not in told)
        low = min(low, *untold) if len(self._owed) > len(told) else low
        mark = LowWater(
            partition=self.index,
            fold_version=FOLD_VERSION,
            low=low,
            input_offset=self._input_offset,
            rules_version=self._rules.version,
            schema_ids=tuple(sorted(self._rules.schema_ids)),
            low_input_offset=self._inputs.under(low),
        )
        value = frame_record(self._ids.low_water, mark)
        return Outgoing(self.index, LOW_WATER_KEY, value)

    def delivered(self, offsets: Sequence[int]) -> None:
        """Take the offsets in `events` of the batch's events, in their order."""
        self._offsets = list(offsets)

    def commit(self) -> None:
        """Merge the batch: its transaction is committed.

        Raises:
            ValueError: `delivered` does not say where every event is.
        """
        counters = self._answers.counters
        offsets = self._offsets or []
        if len(offsets) != counters.events:
            raise ValueError(f"{len(offsets)} offsets of {counters.events} events")
        if offsets:
            self._inputs.note(offsets[0], self._at_input)
        for session_id in self._told:
            del self._owed[session_id]
        self._dirty.commit(offsets)
        self._states.commit()
        self.counters.add(counters)
        self._folded += counters.events
        self._at_event = offsets[-1] + 1 if offsets else self._at_event
        self._at_input = self._input_offset
        self._at_rules = self._rules
        self._low = self._dirty.low_water(self._at_event)
        if not self._owed:
            self._inputs.forget_below(self._low)
        self._forget_batch()

    def drop(self) -> None:
        """Forget the batch: its transaction is aborted; the position is the one before."""
        self._states.drop()
        self._dirty.drop()
        self._forget_batch()

    # --- the table --------------------------------------------------------------------

    def flush(self) -> Flush | None:
        """What the table has to write behind now; None if nothing happened since.

        Only what is committed: an open batch may go on meanwhile.
        """
        position = self.position
        if position == self._flushed_position and not self._states.has_lost:
            return None
        self._handed_position = position
        self._folded_handed = self._folded
        dirty, clean = self._dirty.hand_over()
        states, lost = self._states.hand_over(), self._states.hand_over_lost()
        return Flush(position, states, dirty, clean, lost)

    def flushed(self) -> None:
        """The last `flush` is in the table: its states may leave the memory."""
        self._flushed_position = self._handed_position
        self._folded_at_flush = self._folded_handed
        self._states.handed_over()
        self._dirty.handed_over()


def _misplaced(state: SessionState, recorded: Recorded) -> str:
    """Why an event cannot follow a state; empty if it can."""
    seq = recorded.envelope.seq
    if state.seq and seq != state.seq + 1:
        return f"it follows seq {state.seq}: events are missing"
    return misplaced(recorded, state.session_id, seq, state.chain_head)
