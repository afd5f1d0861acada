"""What a record of `appends` is: an append that is to be admitted, rules, or neither."""

from foldline.errors import DecodeError, NoAppendError
from foldline.processors.admission import JUDGES
from foldline.processors.kafka_records import (
    Incoming,
    TakenAppend,
    schema_id_of,
    take_append,
)
from foldline.processors.partition_answers import HeaderMap
from foldline.processors.partition_shapes import Rules
from foldline.schemas.codec import Codec
from foldline.schemas.intake import Like
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.topic_records import RulesInForce

LIKES_KEPT = 4096
"""Of how many sessions the last envelope is remembered for the next one, some 2 KB
each; never of more than may be in memory."""

NO_RULES = "no rules in force: foldline topics upgrade"


class BlockedError(Exception):
    """The batch ends before this record."""


class Intake:
    """Reads the records of one partition of `appends`."""

    def __init__(self, codec: Codec, *, partitions: int, cached_sessions: int) -> None:
        self._codec = codec
        self._partitions = partitions
        self._records = RecordCodec(codec.schemas)
        self._readable: set[int] = set()
        self._likes: dict[str, Like] = {}
        self._likes_max = min(LIKES_KEPT, cached_sessions)

    def session_of(self, key: bytes | None, rules: Rules) -> str:
        """The session that a key names.

        Raises:
            NoAppendError: it names none, or nothing is in force yet.
            BlockedError: rules that are not known here are.
        """
        if rules.version not in JUDGES:
            _refuse_to_judge(rules)
        if not key or key[0] == 0:
            raise NoAppendError("bad_key", "the key is no session id")
        try:
            return key.decode()
        except UnicodeDecodeError as error:
            raise NoAppendError("bad_key", "the key is not UTF-8") from error

    def append_of(
        self, record: Incoming, headers: HeaderMap, session_id: str, rules: Rules
    ) -> TakenAppend:
        """The append that a record is.

        Raises:
            NoAppendError: it is none.
            BlockedError: the text of its schema cannot be had now.
        """
        schema_id = schema_id_of(record.value)
        if schema_id not in rules.schema_ids:
            reason = f"schema id {schema_id} is not in force: foldline topics upgrade"
            raise NoAppendError("unknown_schema", reason)
        if schema_id not in self._readable:
            self._look_up(schema_id)
        like = self._likes.get(session_id)
        found = take_append(record, headers, schema_id, self._codec, like)
        if like is None and len(self._likes) >= self._likes_max:
            self._likes.clear()
        self._likes[session_id] = found.taken.like
        return found

    def _look_up(self, schema_id: int) -> None:
        """A schema that is in force exists: without its text the partition waits."""
        try:
            self._codec.schemas.schema_of(schema_id)
        except KeyError as error:
            raise BlockedError(
                f"schema {schema_id} is in force, and the registry does not know it"
            ) from error
        self._readable.add(schema_id)

    def rules_of(self, record: Incoming) -> Rules:
        """The rules that a control record puts in force.

        Raises:
            NoAppendError: it is none.
            BlockedError: rules that are not known here, or those of another log.
        """
        try:
            rules = self._records.unframe_record(RulesInForce, record.value)
        except DecodeError as error:
            raise NoAppendError("bad_control", error.reason) from error
        if rules.rules_version not in JUDGES:
            raise _unknown_rules(rules.rules_version, "comes into force")
        if rules.partitions != self._partitions:
            raise BlockedError(
                f"the control record is of a log of {rules.partitions} partitions, this "
                f"one has {self._partitions}"
            )
        return Rules(rules.rules_version, frozenset(rules.schema_ids))


def _refuse_to_judge(rules: Rules) -> None:
    """Refuse rules that are not known here, whoever put them in force or restored."""
    if rules.version == 0:
        raise NoAppendError("no_rules", NO_RULES)
    raise _unknown_rules(rules.version, "is in force")


def _unknown_rules(version: int, what: str) -> BlockedError:
    known = ", ".join(map(str, sorted(JUDGES)))
    reason = f"rules version {version} {what}, this worker knows {known}: upgrade it"
    return BlockedError(reason)
