"""Lost sessions as tables and replicas keep them: a row each, beside the states."""

from typing import Any

import msgspec

from foldline.errors import DecodeError
from foldline.schemas.topic_records import LostSession

ADVICE = (
    "nothing is recorded in it any more; bring the events back from a copy of the topic, "
    "or go on in another session (forked at a seq that a reader still has)"
)
"""What whoever meets a lost session can do."""

_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode


def encode_lost(lost: LostSession) -> bytes:
    """The row of a lost session."""
    return msgspec.msgpack.encode(lost.__dict__)


def decode_lost(data: bytes) -> LostSession:
    """The lost session of a row.

    Raises:
        DecodeError: the bytes are of none.
    """
    try:
        return LostSession.model_validate(_decode(data), extra="ignore")
    except ValueError as error:
        raise DecodeError(f"no lost session: {error}") from error


def words_of(lost: LostSession) -> str:
    """What is missing of it, for a person."""
    where = f"offsets {lost.from_offset} to {lost.to_offset - 1} of events"
    return f"{lost.missing}: {where} were deleted"
