"""What goes into a log, and what comes out: an append, and a recorded event."""

from typing import NamedTuple

from foldline.schemas.envelope import Envelope
from foldline.schemas.events import AnyEvent, type_of


class Append(NamedTuple):
    """A writer's request to record an event.

    `content` is the Avro of the event's own fields, spliced behind the envelope that
    admission completes. `known_seq` is the seq the writer knew when it made the append,
    unchanged on a retry. `requires` names event ids that must have been recorded.
    `schema_name` and `schema_version` say which published schema `content` follows.
    """

    envelope: Envelope
    event: AnyEvent
    content: bytes
    known_seq: int
    expected_seq: int | None = None
    requires: tuple[str, ...] = ()
    schema_name: str = ""
    schema_version: int = 1


class Recorded(NamedTuple):
    """An event as it stands in the log.

    `body` is its Avro body, without the frame. Without `complete`, only the structure
    was decoded: content fields (blocks) hold their defaults.
    """

    envelope: Envelope
    event: AnyEvent
    body: bytes
    schema_id: int
    complete: bool = True

    @property
    def seq(self) -> int:
        """Its position in the session, from 1."""
        return self.envelope.seq

    @property
    def type(self) -> str:
        """Its logical type."""
        return type_of(self.event)
