"""What topics hold beside events, snapshots and verdicts: each is registered Avro too.

| record | topic | key |
| --- | --- | --- |
| `RulesInForce` | appends (control record), all partitions | `CONTROL_KEY` |
| `LowWater` | snapshots.<fold version>, one per partition | `LOW_WATER_KEY` |
| `LostSession` | snapshots.<fold version> | `LOST_KEY` and the session_id |
| `DeadLetter`, `RefusedAppend` | rejected | session_id (or the record's own key) |
| `LeaseRenewal` | leases | session_id; a tick: `TICK_KEY` and the client's id |
| `RecoveryAction` | recovery | session_id |
| `LogMeta` | meta | `META_KEY` |

A key that is no session's begins with a zero byte: no session id does, admission and
clients refuse it.
"""

from typing import Annotated

from foldline.schemas.record import TIMESTAMP_MICROS, Record

CONTROL_KEY = b"\x00control"
LOW_WATER_KEY = b"\x00low-water"
LOST_KEY = b"\x00lost:"
TICK_KEY = b"\x00tick:"
META_KEY = b"\x00meta"

LOG_FORMAT_VERSION = 1
"""The version of what a log's topics hold together (`LogMeta.format_version`)."""


class RulesInForce(Record):
    """The control record: from its offset on, a partition is admitted by these rules.

    `schema_ids` are the registry's ids of every schema that an append may have been
    written with; another id is unknown, whatever the registry says. `partitions` is
    the log's number of partitions.
    """

    rules_version: int
    schema_ids: tuple[int, ...]
    partitions: int
    written_by: str = ""


class LowWater(Record):
    """From where a partition's events must be refolded over its snapshots.

    Every event below offset `low` of `events` is in a published snapshot. `input_offset`
    is the next offset of `appends` after the batch that wrote it; `rules_version` and
    `schema_ids` are in force there.
    """

    partition: int
    fold_version: int
    low: int
    input_offset: int
    rules_version: int
    schema_ids: tuple[int, ...]
    low_input_offset: int = 0
    """Every event at or above `low` was asked for at or above this offset of `appends`;
    0 where that is not known."""


class LostSession(Record):
    """Events of a session were deleted that nothing covers: nobody knows its state.

    `known_seq` is the last seq of which the partition had a state, 0 for none; the events
    after it are missing, up to `next_seq`, the first that is there again, or 0 where none
    is. They lay in `events` from offset `from_offset` on, below `to_offset`. `detail` says
    how it was told.
    """

    session_id: str
    tenant: str
    partition: int
    known_seq: int
    next_seq: int
    from_offset: int
    to_offset: int
    detail: str = ""

    @property
    def missing(self) -> str:
        """The seqs that are missing, in words."""
        first = self.known_seq + 1
        if self.next_seq > first + 1:
            return f"seqs {first} to {self.next_seq - 1} are missing"
        if self.next_seq == first + 1:
            return f"seq {first} is missing"
        return f"what follows seq {self.known_seq} is missing"


class Header(Record):
    """One header of a dead letter's record."""

    name: str
    value: bytes


class DeadLetter(Record):
    """A record of `appends` that is no append, with its bytes.

    `kind` is UNDECODABLE, MISROUTED or TOO_LARGE; `reason` a word for metrics
    (`unknown_schema`, `bad_frame`, ...); `detail` a sentence. `recorded_at` is the
    record's log time in microseconds. `value` is null where the record had none.
    """

    session_id: str
    partition: int
    offset: int
    recorded_at: Annotated[int, TIMESTAMP_MICROS]
    kind: str
    reason: str
    detail: str
    headers: tuple[Header, ...] = ()
    key: bytes | None = None
    value: bytes | None = None


class RefusedAppend(Record):
    """A pointer to a refused append, and why: its bytes are in `appends` for a week."""

    session_id: str
    event_id: str
    event_type: str
    writer: str
    partition: int
    offset: int
    recorded_at: Annotated[int, TIMESTAMP_MICROS]
    kind: str
    rule: str
    detail: str
    known_seq: int
    expected_seq: int | None = None


class LeaseRenewal(Record):
    """An owner lives, or (`released`) gives its session up. Never folded.

    A tick has no session: it only tells its client the broker's time.
    """

    session_id: str
    epoch: int
    writer: str
    ttl_ms: int
    released: bool = False


class RecoveryAction(Record):
    """What recovery did about a session, or wants done (`RESUME_WANTED`).

    `action` is a word, in upper case. `epoch` is the one in which it was done, 0 where
    the session was not taken; `seq` the session's last seq then; `resumes` how often
    the open turn had been taken up. The record's own time is when.
    """

    session_id: str
    tenant: str
    action: str
    epoch: int
    seq: int
    writer: str
    resumes: int = 0
    call_id: str | None = None
    attempt: int | None = None
    detail: str = ""


class LogMeta(Record):
    """What a log is. `log_id` is new for every log; `partitions` is fixed for ever."""

    log_id: str
    partitions: int
    format_version: int = LOG_FORMAT_VERSION


TOPIC_RECORDS: tuple[type[Record], ...] = (
    RulesInForce,
    LowWater,
    LostSession,
    DeadLetter,
    RefusedAppend,
    LeaseRenewal,
    RecoveryAction,
    LogMeta,
)
