"""Admission: the conditional append. `admit` answers one append; it changes nothing.

Pure. Deterministic per rules version: the same state, append and log time give the same
verdict everywhere. The checks stand in this order, and the first that fails is the
answer:

1.  UNDECODABLE, TOO_LARGE  what is no append at all
    MISROUTED               what belongs to a session of another id or tenant
    UNRECOVERABLE           events of the session were deleted: nobody knows its state
2.  NO_SESSION              the first event of a session is SessionCreated
3.  DUPLICATE, EXISTS       a resend is told where its event is
    TOO_OLD, ILLEGAL        the writer's `known_seq` is too far back, or above the head
4.  ACCEPTED                a mirrored session: it happened, nothing below is asked
5.  CLOSED                  the session has ended
6.  FENCED                  a decision, fact or claim by someone who may not
7.  CONFLICT                expected_seq is not the current seq
8.  LIMIT                   a list of the state is full
9.  ILLEGAL                 a rule is broken (`foldline.processors.rules`)
10. ACCEPTED
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from foldline.processors.anomalies import anomalies_of
from foldline.processors.kept import INT64_MAX, bounded
from foldline.processors.lost_sessions import ADVICE, words_of
from foldline.processors.rules import RULES, broken_limit, broken_rule, facts_owner
from foldline.schemas.authority import CLAIMS, TAKEN_WHEN_ENDED, authority_of
from foldline.schemas.blocks import clean_text
from foldline.schemas.codec import MAX_EVENT_BYTES
from foldline.schemas.envelope import Envelope, Source
from foldline.schemas.events import SessionCreated, type_of
from foldline.schemas.recorded import Append
from foldline.schemas.state import ENDED, MIRRORED, OWNED, WINDOW, SessionState
from foldline.schemas.topic_records import LostSession
from foldline.schemas.verdicts import (
    ACCEPTED,
    CLOSED,
    CONFLICT,
    DUPLICATE,
    EXISTS,
    FENCED,
    ILLEGAL,
    LIMIT,
    MISROUTED,
    NO_SESSION,
    TOO_LARGE,
    TOO_OLD,
    UNDECODABLE,
    UNRECOVERABLE,
    Verdict,
)

RULES_VERSION = 1
"""The newest version of the rules, and the one that counts where nothing says another:
it is written into every event that it admits."""

ENVELOPE_MARGIN_BYTES = 64_000
"""More than any envelope takes, so that what is taken in always fits out."""

MAX_CONTENT_BYTES = MAX_EVENT_BYTES - ENVELOPE_MARGIN_BYTES
"""The largest content of an append; what is larger belongs into a blob."""

MAX_ID_LENGTH = 512
"""How long a text of the envelope may be, in characters."""

MAX_SOURCE_LENGTH = 4_096
"""How long the path of a mirrored source and a position in it may be, in characters."""

HASH_BYTES = 32

MAX_FORK_SEQ = 2**31
"""Where a fork begins at the latest: a log may have 32 bits for a seq, and what a session
records after its fork point wants room too."""

ROLES: frozenset[str] = frozenset({"AGENT", "PERSON", "POLICY", "SERVICE", "HARNESS"})
"""The actor kinds. A local log grants them to whoever may open its file."""

FORK = "FORK"
"""The relation of a session that goes on from a seq of another."""

_is_uuid = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
).fullmatch


class Decision(NamedTuple):
    """The verdict, and the completed envelope if it is ACCEPTED."""

    verdict: Verdict
    envelope: Envelope | None = None


@dataclass(frozen=True, slots=True)
class _Refusal:
    kind: str
    rule: str = ""
    detail: str = ""
    related: str | None = None
    seq: int = 0


def log_time(state: SessionState | None, clock: int) -> int:
    """Log time of the next event: never before the session's last."""
    return clock if state is None else max(state.recorded_at, clock)


def admit(
    state: SessionState | None,
    append: Append,
    *,
    now: int,
    rules_version: int = RULES_VERSION,
) -> Decision:
    """Answer one append.

    Args:
        state: the session's state; None if it has no event.
        append: what a writer asks to record.
        now: log time in microseconds (see `log_time`).
        rules_version: the version that is in force, one of `JUDGES`.
    """
    event = bounded(append.event)
    if event is not append.event:
        append = append._replace(event=event)
    refusal = JUDGES[rules_version](state, append, now)
    if refusal is not None:
        return Decision(_verdict(state, append, now, refusal, rules_version))
    envelope = _completed(state, append, now, rules_version)
    fields = _fields(envelope, now, rules_version)
    fields["kind"] = ACCEPTED
    fields["seq"] = fields["current_seq"] = envelope.seq
    fields["epoch"] = _epoch_after(state, append)
    if state is not None:
        fields["anomalies"] = anomalies_of(state, envelope, event)
    return Decision(Verdict.trusted(fields), envelope)


def _refusal(state: SessionState | None, append: Append, now: int) -> _Refusal | None:
    refusal = _malformed(append)
    if refusal is not None:
        return refusal
    if state is None:
        return _first(append)
    refusal = _misrouted(state, append) or _repeated(state, append)
    if refusal is not None or state.mode == MIRRORED:
        return refusal
    return (
        _closed(state, append)
        or _fenced(state, append)
        or _conflict_limit_or_rule(state, append, now)
    )


JUDGES: dict[int, Callable[[SessionState | None, Append, int], _Refusal | None]] = {
    RULES_VERSION: _refusal
}
"""How each version of the rules judges that may be in force in a log. Whoever makes a
version keeps the one before it: new workers judge by that one as long as it counts."""


def _malformed(append: Append) -> _Refusal | None:
    """1. What is no append at all."""
    envelope = append.envelope
    problem = (
        _bad_text(envelope)
        or (_bad_source(envelope.source) if envelope.source is not None else "")
        or _bad_number(envelope)
        or ("known_seq is missing" if append.known_seq < 0 else "")
    )
    if problem:
        return _Refusal(UNDECODABLE, detail=problem)
    size = len(append.content)
    if size > MAX_CONTENT_BYTES:
        return _Refusal(
            TOO_LARGE, detail=f"{size} bytes, MAX_CONTENT_BYTES is {MAX_CONTENT_BYTES}"
        )
    return None


_REQUIRED_TEXTS = ("session_id", "tenant", "writer", "certainty")
_OPTIONAL_TEXTS = (
    "turn_id",
    "branch",
    "parent_event_id",
    "correlation_id",
    "batch_id",
    "traceparent",
)
_required_texts = itemgetter(*_REQUIRED_TEXTS)
_optional_texts = itemgetter(*_OPTIONAL_TEXTS)


def _bad_text(envelope: Envelope) -> str:
    if _is_uuid(envelope.event_id) is None:
        return "event_id is no lower-case UUID"
    actor = envelope.actor.__dict__
    if actor["kind"] not in ROLES:
        return f"actor kind is none of {sorted(ROLES)}"
    if len(actor["id"]) > MAX_ID_LENGTH:
        return "actor id is too long"
    fields = envelope.__dict__
    if fields["session_id"][:1] == "\0":
        return "session_id begins with a zero byte"
    for text in _required_texts(fields):
        if not 0 < len(text) <= MAX_ID_LENGTH or not text.isascii():
            return _bad_required_text(fields) or _bad_optional_text(fields)
    for text in _optional_texts(fields):
        if text is not None and len(text) > MAX_ID_LENGTH:
            return _bad_optional_text(fields)
    return ""


def _bad_required_text(fields: Mapping[str, str]) -> str:
    for name in _REQUIRED_TEXTS:
        text = fields[name]
        if not text or len(text) > MAX_ID_LENGTH:
            return f"{name} is empty or too long"
        if not text.isascii() and clean_text(text)[0] != text:
            return f"{name} is not UTF-8"
    return ""


def _bad_optional_text(fields: Mapping[str, str | None]) -> str:
    for name in _OPTIONAL_TEXTS:
        if len(fields[name] or "") > MAX_ID_LENGTH:
            return f"{name} is too long"
    return ""


def _bad_source(source: Source) -> str:
    if len(source.system) > MAX_ID_LENGTH:
        return "source system is too long"
    if max(len(source.stream), len(source.position)) > MAX_SOURCE_LENGTH:
        return "source stream or position is too long"
    return "" if len(source.sha256) <= HASH_BYTES else "source sha256 is too long"


def _bad_number(envelope: Envelope) -> str:
    fields = envelope.__dict__
    if not 0 <= fields["epoch"] < INT64_MAX:
        return "epoch is no epoch"
    if not 1 <= fields["schema_version"] <= INT64_MAX:
        return "schema_version is no version"
    if abs(fields["occurred_at"] or 0) > INT64_MAX:
        return "occurred_at is no time"
    if len(fields["prev_hash"] or b"") not in (0, HASH_BYTES):
        return "prev_hash is no SHA-256"
    return ""


def _misrouted(state: SessionState, append: Append) -> _Refusal | None:
    """1. What belongs to another session, or to another tenant's."""
    envelope = append.envelope
    if envelope.session_id == state.session_id and envelope.tenant == state.tenant:
        return None
    return _Refusal(MISROUTED, detail="the session is of another id or tenant")


def _first(append: Append) -> _Refusal | None:
    """2. The first event is SessionCreated."""
    event = append.event
    if not isinstance(event, SessionCreated):
        return _Refusal(NO_SESSION)
    if append.known_seq > max(event.fork_seq or 0, 0):
        return _illegal_by("known_seq")
    if event.mode != MIRRORED and append.envelope.epoch not in (0, 1):
        return _Refusal(FENCED, detail="a session begins in epoch 0 or 1")
    if event.mode != MIRRORED and append.expected_seq not in (None, 0):
        return _Refusal(CONFLICT)
    if event.mode not in (OWNED, MIRRORED):
        return _illegal_by("mode")
    return None if _is_forked_rightly(append, event) else _illegal_by("fork_point")


def _is_forked_rightly(append: Append, event: SessionCreated) -> bool:
    """Whether a fork says all of where it forks; a mirror may not know it."""
    if event.fork_seq is None:
        return event.relation != FORK or event.mode == MIRRORED
    return (
        event.relation == FORK
        and 1 <= event.fork_seq <= MAX_FORK_SEQ
        and bool(event.parent_session_id)
        and append.envelope.prev_hash is not None
    )


def _repeated(state: SessionState, append: Append) -> _Refusal | None:
    """3. A resend, or a writer that has not looked for too long."""
    seq = state.seq_of(append.envelope.event_id)
    if seq is not None:
        return _Refusal(DUPLICATE, seq=seq)
    if isinstance(append.event, SessionCreated):
        return _Refusal(EXISTS)
    if state.seq - append.known_seq > WINDOW:
        return _Refusal(
            TOO_OLD, detail="look whether the event is in the log; if not, append anew"
        )
    if append.known_seq > state.seq:
        return _illegal_by("known_seq")
    return None


def _closed(state: SessionState, append: Append) -> _Refusal | None:
    """5. An ended session takes little."""
    if state.phase in ENDED and type_of(append.event) not in TAKEN_WHEN_ENDED:
        return _Refusal(CLOSED, detail=f"the session is {state.phase}")
    return None


def _fenced(state: SessionState, append: Append) -> _Refusal | None:
    """6. Who may append this."""
    authority = authority_of(append.event)
    if authority == "external":
        return None
    envelope = append.envelope
    owns = envelope.epoch == state.epoch > 0 and envelope.writer == state.owner
    match authority:
        case "decision":
            allowed = owns
        case "fact":
            allowed = owns or facts_owner(state, append.event) == (
                envelope.epoch,
                envelope.writer,
            )
        case "claim":
            allowed = envelope.epoch == state.epoch + 1
    if allowed:
        return None
    return _Refusal(FENCED, detail=f"the owner is {state.owner or 'nobody'}")


def _conflict_limit_or_rule(
    state: SessionState, append: Append, now: int
) -> _Refusal | None:
    """7 to 9. The expected seq, then the limits, then the rules."""
    if append.expected_seq is not None and append.expected_seq != state.seq:
        return _Refusal(CONFLICT, detail=f"expected_seq was {append.expected_seq}")
    limit = broken_limit(state, append.event)
    if limit is not None:
        return _Refusal(LIMIT, rule=limit)
    broken = broken_rule(state, append, now)
    if broken is None:
        return None
    return _illegal_by(broken.rule, related=broken.related)


def _illegal_by(rule: str, *, related: str | None = None) -> _Refusal:
    return _Refusal(ILLEGAL, rule=rule, detail=RULES[rule], related=related)


def _verdict(
    state: SessionState | None,
    append: Append,
    now: int,
    refusal: _Refusal,
    rules_version: int,
) -> Verdict:
    fields = _fields(append.envelope, now, rules_version)
    fields["kind"] = refusal.kind
    fields["seq"] = refusal.seq
    if state is not None:
        fields["current_seq"] = state.seq
        fields["epoch"] = state.epoch
    fields["rule"] = refusal.rule
    fields["related"] = refusal.related
    fields["detail"] = refusal.detail
    return Verdict.trusted(fields)


def _fields(envelope: Envelope, now: int, rules_version: int) -> dict[str, Any]:
    """Every field of a verdict: whom it answers, and nothing said yet."""
    fields = _UNSAID.copy()
    fields["session_id"] = envelope.session_id
    fields["event_id"] = envelope.event_id
    fields["recorded_at"] = now
    fields["rules_version"] = rules_version
    return fields


_UNSAID = Verdict(kind="", session_id="", event_id="").__dict__.copy()
"""The fields of a verdict that says nothing: each answer is made of a copy."""


def unrecoverable(
    lost: LostSession, append: Append, *, now: int, rules_version: int
) -> Verdict:
    """The refusal of every append to a session whose events were deleted.

    Args:
        lost: what is known of it.
        append: what a writer asks to record.
        now: log time in microseconds.
        rules_version: the version that is in force.
    """
    refusal = _malformed(append)
    if refusal is None and lost.tenant not in ("", append.envelope.tenant):
        refusal = _Refusal(MISROUTED, detail="the session is of another id or tenant")
    if refusal is None:
        refusal = _Refusal(UNRECOVERABLE, detail=f"{words_of(lost)}; {ADVICE}")
    verdict = _verdict(None, append, now, refusal, rules_version)
    return verdict.model_copy(update={"current_seq": lost.known_seq})


def overruled(
    accepted: Verdict, state: SessionState | None, kind: str, detail: str
) -> Verdict:
    """A refusal of what `admit` alone would have taken.

    Args:
        accepted: its verdict.
        state: the state that it was judged on.
        kind: the kind of the refusal.
        detail: a sentence for a person.
    """
    return accepted.model_copy(
        update={
            "kind": kind,
            "seq": 0,
            "current_seq": state.seq if state else 0,
            "epoch": state.epoch if state else 0,
            "detail": detail,
            "anomalies": (),
        }
    )


def _completed(
    state: SessionState | None, append: Append, now: int, rules_version: int
) -> Envelope:
    """The envelope with what only admission knows."""
    fields = dict(append.envelope.__dict__)
    fields["recorded_at"] = now
    fields["rules_version"] = rules_version
    if state is not None:
        fields["seq"] = state.seq + 1
        fields["prev_hash"] = state.chain_head or None
    elif isinstance(append.event, SessionCreated):
        # In a fork the chain goes on from the parent's event, whose hash the writer gives.
        fields["seq"] = (append.event.fork_seq or 0) + 1
        if append.event.fork_seq is None:
            fields["prev_hash"] = None
    return Envelope.trusted(fields)


def _epoch_after(state: SessionState | None, append: Append) -> int:
    if state is None:
        owned = isinstance(append.event, SessionCreated) and append.event.mode == OWNED
        return append.envelope.epoch if owned else 0
    claims = type(append.event) in CLAIMS and state.mode != MIRRORED
    return append.envelope.epoch if claims else state.epoch
