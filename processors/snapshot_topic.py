"""What a partition of the snapshot topic says: the newest low-water mark, and states.

A snapshot is never trusted blindly: it must decode, match its own hash, be of the
session that its key names and of this version of the fold. What is not is said, and
noted in `bad`: that session is folded again from its first event. A session that is
lost stays so, whatever snapshot of it there is.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

from foldline.errors import DecodeError
from foldline.processors.partition_source import PartitionSource
from foldline.schemas.codec import unframe
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.snapshots import decode_snapshot
from foldline.schemas.state import FOLD_VERSION, SessionState
from foldline.schemas.topic_records import LOST_KEY, LOW_WATER_KEY, LostSession, LowWater
from foldline.topics import TopicNames

if TYPE_CHECKING:
    from confluent_kafka import Message

TAIL_RECORDS = 256
"""How far back from its end the topic is first read for a low-water record; then ever
further."""


def fold_versions_of(source: PartitionSource, names: TopicNames) -> list[int]:
    """The versions of the fold that have a topic of snapshots, the oldest first."""
    begin = names.snapshots_begin
    found = [t[len(begin) :] for t in source.topics() if t.startswith(begin)]
    return sorted(int(version) for version in found if version.isdecimal())


class SnapshotTopic:
    """One partition of `snapshots.<fold version>`, during one restore.

    `low`, `bad` (reasons by session) and `lost` are filled by reading `states` to its end.
    """

    def __init__(
        self,
        source: PartitionSource,
        names: TopicNames,
        index: int,
        *,
        records: RecordCodec,
        warn: Callable[[str], None],
        fold_version: int = FOLD_VERSION,
    ) -> None:
        self._source = source
        self._topic = names.snapshots(fold_version)
        self._fold_version = fold_version
        self._index = index
        self._records = records
        self._warn = warn
        self.low: LowWater | None = None
        self.bad: dict[str, str] = {}
        self.lost: dict[str, LostSession] = {}

    def newest_low_water(self) -> LowWater | None:
        """Read backwards, in ever larger steps, for the newest mark."""
        first, end = self.bounds()
        back, start = TAIL_RECORDS, end
        while start > first:
            upto, start = start, max(first, end - back)
            mark: LowWater | None = None
            for message in self._source.records(self._topic, start, upto=end):
                if cast("int", message.offset()) >= upto:
                    break
                if message.key() == LOW_WATER_KEY:
                    mark = self._low_water(message) or mark
            if mark is not None:
                return mark
            back *= 8
        return None

    def states(self, on_read: Callable[[int], None]) -> Iterator[SessionState]:
        """The good snapshots, in their order: a later one of a session replaces it.

        Args:
            on_read: is told how many offsets are read.
        """
        first, end = self.bounds()
        for message in self._source.records(self._topic, first, upto=end):
            on_read(cast("int", message.offset()) - first)
            if message.key() == LOW_WATER_KEY:
                self.low = self._low_water(message) or self.low
                continue
            if (message.key() or b"").startswith(LOST_KEY):
                self._note_lost(message)
                continue
            session_id = (message.key() or b"").decode(errors="replace")
            state = self._state(message, session_id)
            if state is not None:
                self.bad.pop(session_id, None)
                yield state

    def bounds(self) -> tuple[int, int]:
        """The first offset and the next one, open transactions included."""
        return self._source.first_offset(self._topic), self._source.end_offset(self._topic)

    def _low_water(self, message: "Message") -> LowWater | None:
        try:
            mark = self._records.unframe_record(LowWater, message.value())
        except DecodeError as error:
            self._ignore(message, error.reason)
            return None
        if (mark.partition, mark.fold_version) != (self._index, self._fold_version):
            self._ignore(message, "it is of another partition or fold version")
            return None
        return mark

    def _note_lost(self, message: "Message") -> None:
        """A lost session, by its own record; a tombstone takes it back."""
        session_id = (message.key() or b"")[len(LOST_KEY) :].decode(errors="replace")
        if message.value() is None:
            self.lost.pop(session_id, None)
            return
        try:
            lost = self._records.unframe_record(LostSession, message.value())
        except DecodeError as error:
            self._ignore(message, error.reason)
            return
        if (lost.partition, lost.session_id) == (self._index, session_id):
            self.lost[session_id] = lost
        else:
            self._ignore(message, "it is of another partition or session")

    def _state(self, message: "Message", session_id: str) -> SessionState | None:
        """The state of a snapshot that can be trusted; a bad one is noted with why.

        A tombstone says nothing, least of all that there is no such session.
        """
        try:
            _, body = unframe(message.value() or b"")
            state = decode_snapshot(body)
        except DecodeError as error:
            deleted = f"somebody deleted that of {session_id!r}, which no worker does"
            reason = deleted if message.value() is None else error.reason
        else:
            if state is not None and state.session_id == session_id:
                return state
            reason = "it is of another session or fold version"
        self.bad[session_id] = reason
        self._ignore(message, reason)
        return None

    def _ignore(self, message: "Message", reason: str) -> None:
        self._warn(f"the snapshot record at offset {message.offset()} is ignored: {reason}")
