"""Verdicts: admission's answer to one append. A value, not an exception."""

from collections.abc import Mapping
from typing import Annotated, Any

from foldline.schemas.avro_bytes import (
    long_bytes,
    optional_text,
    text_bytes,
    time_bytes,
)
from foldline.schemas.blocks import clean_text
from foldline.schemas.record import TIMESTAMP_MICROS, Record

ACCEPTED = "ACCEPTED"
DUPLICATE = "DUPLICATE"
EXISTS = "EXISTS"
NO_SESSION = "NO_SESSION"
UNRECOVERABLE = "UNRECOVERABLE"
UNDECODABLE = "UNDECODABLE"
MISROUTED = "MISROUTED"
TOO_LARGE = "TOO_LARGE"
TOO_OLD = "TOO_OLD"
LIMIT = "LIMIT"
CLOSED = "CLOSED"
FENCED = "FENCED"
CONFLICT = "CONFLICT"
ILLEGAL = "ILLEGAL"

VERDICT_KINDS = (
    UNDECODABLE,
    TOO_LARGE,
    MISROUTED,
    UNRECOVERABLE,
    NO_SESSION,
    DUPLICATE,
    EXISTS,
    TOO_OLD,
    CLOSED,
    FENCED,
    CONFLICT,
    LIMIT,
    ILLEGAL,
    ACCEPTED,
)
"""Every kind, in the order in which admission looks for them; a `known_seq` above the
head is ILLEGAL early, with TOO_OLD."""


class Verdict(Record):
    """The answer to one append.

    `seq` is the event's own (ACCEPTED, DUPLICATE), else 0. `current_seq` and `epoch`
    are the session's. `recorded_at` is log time in microseconds: a taker's "now".
    `rule` names the rule of an ILLEGAL or the limit of a LIMIT; `related` the open call
    that a `redelivered` request repeats. `anomalies` name what is odd in a mirrored
    session, or late.
    """

    kind: str
    session_id: str
    event_id: str
    seq: int = 0
    current_seq: int = 0
    epoch: int = 0
    recorded_at: Annotated[int, TIMESTAMP_MICROS] = 0
    rule: str = ""
    related: str | None = None
    detail: str = ""
    append_offset: int = -1
    rules_version: int = 0
    anomalies: tuple[str, ...] = ()

    @property
    def recorded(self) -> bool:
        """Whether the event is in the log: ACCEPTED now, or DUPLICATE of before."""
        return self.kind in (ACCEPTED, DUPLICATE)


_KIND_BYTES = {kind: text_bytes(kind) for kind in VERDICT_KINDS}


def encode_verdict(verdict: Verdict, *, append_offset: int | None = None) -> bytes:
    """The Avro body of a verdict. Lone surrogates become U+FFFD.

    Args:
        verdict: the answer.
        append_offset: said instead of the verdict's own.

    Raises:
        EncodeError: a number beyond 64 bits.
    """
    fields = verdict.__dict__
    if append_offset is None:
        append_offset = verdict.append_offset
    try:
        return _encoded(fields, append_offset)
    except UnicodeEncodeError:
        cleaned = {
            name: clean_text(value)[0] if isinstance(value, str) else value
            for name, value in fields.items()
        }
        return _encoded(cleaned, append_offset)


def _encoded(fields: Mapping[str, Any], append_offset: int) -> bytes:
    kind, rule, detail = fields["kind"], fields["rule"], fields["detail"]
    related, anomalies = fields["related"], fields["anomalies"]
    seq, current_seq = fields["seq"], fields["current_seq"]
    seq_bytes = long_bytes(seq)
    return b"%b%b%b%b%b%b%b%b%b%b%b%b%b" % (
        _KIND_BYTES.get(kind) or text_bytes(kind),
        text_bytes(fields["session_id"]),
        text_bytes(fields["event_id"]),
        seq_bytes,
        seq_bytes if seq == current_seq else long_bytes(current_seq),
        long_bytes(fields["epoch"]),
        time_bytes(fields["recorded_at"]),
        text_bytes(rule) if rule else b"\x00",
        b"\x00" if related is None else optional_text(related),
        text_bytes(detail) if detail else b"\x00",
        long_bytes(append_offset),
        long_bytes(fields["rules_version"]),
        _texts(anomalies) if anomalies else b"\x00",
    )


def _texts(texts: tuple[str, ...]) -> bytes:
    return b"".join((long_bytes(len(texts)), *map(text_bytes, texts), b"\x00"))
