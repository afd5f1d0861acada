"""The hash chain of one session, checked row by row, and which row broke it.

A link is between two rows: the later one holds the hash of the earlier one's body. A
broken link alone does not say which of them was changed; the next link does. If that
one holds, the later row is as it was written, so the earlier one was changed; if it is
broken too, the later one was.
"""

import hashlib
from collections.abc import Iterator

from foldline.errors import FoldlineError
from foldline.processors.restore import misplaced
from foldline.processors.stored import Problem, StoredEvent
from foldline.schemas.codec import Codec
from foldline.schemas.events import SessionCreated
from foldline.schemas.recorded import Recorded

MISSING = "the event is missing"
CHANGED = "its bytes are not those that were recorded"


class Chain:
    """Takes a session's rows in order and says what is wrong with them."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._found: list[Problem] = []
        self._seq = 0
        self._head = b""
        self._head_known = True
        self._recorded_at = 0
        self._suspect: int | None = None
        self.broken = False

    def add(self, stored: StoredEvent, codec: Codec) -> Recorded | None:
        """Check one row; gives the event if it decodes and stands where it belongs."""
        recorded = self._decoded(stored, codec)
        if recorded is not None:
            self._link(recorded)
        elif self._suspect is not None:
            self._report(self._suspect, CHANGED)
            self._suspect = None
        self._seq = stored.seq
        self._head = hashlib.sha256(stored.body).digest()
        self._head_known = recorded is not None
        return recorded

    def end(self, last_seq: int, head_hash: bytes) -> None:
        """Check the last link: the index holds seq and hash of the last body."""
        if self._seq < last_seq:
            self._report(self._seq + 1, MISSING)
        elif self._head_known:
            self._judge(holds=self._head == head_hash)
        if self._suspect is not None:
            self._report(self._suspect, "it is not the event that the index has")

    def found(self) -> Iterator[Problem]:
        """The problems found since this was last asked."""
        found, self._found = self._found, []
        yield from found

    def _report(self, seq: int, reason: str) -> None:
        self.broken = True
        self._found.append(Problem(self._session_id, seq, reason))

    def _decoded(self, stored: StoredEvent, codec: Codec) -> Recorded | None:
        try:
            recorded = codec.decode(stored.schema_id, stored.body)
        except FoldlineError as error:
            self._report(stored.seq, str(error))
            return None
        first = self._seq == 0
        if first and not isinstance(recorded.event, SessionCreated):
            self._report(stored.seq - 1, MISSING)
        if not first and stored.seq != self._seq + 1:
            self._report(self._seq + 1, MISSING)
            self._head_known = False
        # The link is judged later: here the event itself is compared with its row.
        linked = recorded.envelope.prev_hash or b""
        head = b"" if isinstance(recorded.event, SessionCreated) and first else linked
        reason = misplaced(recorded, self._session_id, stored.seq, head)
        if reason:
            self._report(stored.seq, reason)
            return None
        return recorded

    def _link(self, recorded: Recorded) -> None:
        envelope = recorded.envelope
        if envelope.recorded_at < self._recorded_at:
            self._report(envelope.seq, "its log time is before that of its predecessor")
        self._recorded_at = envelope.recorded_at
        if self._seq and self._head_known:
            self._judge(holds=envelope.prev_hash == self._head)

    def _judge(self, *, holds: bool) -> None:
        """Take in whether the link after the last row holds."""
        if self._suspect is not None:
            self._report(self._suspect if holds else self._seq, CHANGED)
            self._suspect = None
        elif not holds:
            self.broken = True
            self._suspect = self._seq
