"""What a caller's append becomes: stamped with who it is, held to what it may.

1. *Stamp*: tenant and actor come from the token, whatever the client says.
2. *Role*: without scope `own` only external events, in epoch 0; a person's answer to a
   request needs scope `approve`, and whoever may give it (`service_approvers`).
3. *Blobs*: an event names only blobs that the tenant has uploaded. Knowing a hash gives
   nobody the bytes.
4. *Answer*: another tenant's session is none, also in a verdict.
"""

import hashlib
from collections.abc import Sequence

from foldline.errors import (
    BlobError,
    ForkPointError,
    LineageError,
    SessionNotFoundError,
)
from foldline.processors.blobs import BlobStore
from foldline.processors.named_blobs import blobs_in
from foldline.processors.naming import check_session_id
from foldline.projections.answering import answered_request
from foldline.projections.forking import fork_point
from foldline.projections.service_node import Node
from foldline.projections.service_problems import Problem
from foldline.projections.tokens import SPEAKS_FOR, Caller
from foldline.schemas.authority import authority_of
from foldline.schemas.envelope import Actor, Envelope
from foldline.schemas.events import (
    AnyEvent,
    SessionCreated,
    type_of,
)
from foldline.schemas.recorded import Append
from foldline.schemas.verdicts import MISROUTED, NO_SESSION, Verdict

_UPLOADED = b"uploaded "


def stamped(caller: Caller, envelope: Envelope) -> Envelope:
    """1. The envelope with the token's tenant, and an actor that the token speaks for."""
    kind, actor_id = envelope.actor.kind, envelope.actor.id
    if kind not in SPEAKS_FOR[caller.kind] or kind == caller.kind:
        kind, actor_id = _own_kind(caller, kind), caller.actor_id
    actor = Actor(kind=kind, id=actor_id)
    return envelope.model_copy(update={"tenant": caller.tenant, "actor": actor})


def _own_kind(caller: Caller, kind: str) -> str:
    """A token's kind; the operator of this machine is what the event says."""
    known = SPEAKS_FOR[caller.kind]
    if caller.kind in known:
        return caller.kind
    return kind if kind in known else "PERSON"


def check_role(caller: Caller, envelope: Envelope, event: AnyEvent) -> None:
    """2. Refuse what the token's scopes do not allow.

    Raises:
        Problem: 403.
    """
    name = type_of(event)
    if answered_request(event) is not None and "approve" not in caller.scopes:
        raise _lacking(caller, "approve", f"{name} by a person")
    if "own" in caller.scopes:
        return
    if authority_of(event) != "external":
        raise _lacking(caller, "own", name)
    if envelope.epoch and not isinstance(event, SessionCreated):
        raise _lacking(caller, "own", f"epoch {envelope.epoch}")


def check_named(envelope: Envelope, event: AnyEvent) -> None:
    """Refuse a new session of a name that no session can have.

    Raises:
        SessionIdError: 422.
    """
    if isinstance(event, SessionCreated):
        check_session_id(envelope.session_id)


def _lacking(caller: Caller, scope: str, what: str) -> Problem:
    detail = f"the token {caller.token_id!r} lacks scope {scope}, which {what} needs"
    return Problem(403, "no_scope", detail)


def check_resendable(event_id: str | None, known_seq: int | None) -> None:
    """Refuse an event that its sender can name again, but not place again.

    What is sent again must say the same `known_seq`, or it is a second event once 128
    others have come in between. Without an `event_id` it is another event anyhow.

    Raises:
        Problem: 422.
    """
    if event_id is not None and known_seq is None:
        detail = (
            "event_id comes with known_seq: the session's seq that you know, the same "
            "one whenever this event is sent again"
        )
        raise Problem(422, "no_known_seq", detail)


def check_blobs(node: Node, caller: Caller, event: AnyEvent) -> None:
    """3. Refuse a blob that the tenant has not uploaded, and no parent of its fork names.

    Raises:
        Problem: 422; it names the hash.
    """
    uploads = node.uploads(caller.tenant)
    missing = [b for b in blobs_in(event) if not is_uploaded(uploads, b.sha256)]
    inherited = _inherited(node, caller, event) if missing else frozenset[bytes]()
    for blob in missing:
        if blob.sha256 not in inherited:
            detail = f"blob {blob.sha256.hex()} was not uploaded; PUT it first"
            raise Problem(422, "no_blob", detail)


def _inherited(node: Node, caller: Caller, event: AnyEvent) -> frozenset[bytes]:
    """The blobs of what a fork's parent has in force where it is forked."""
    if not isinstance(event, SessionCreated) or event.fork_seq is None:
        return frozenset()
    parent_id = event.parent_session_id or ""
    try:
        point = fork_point(node.log, parent_id, event.fork_seq, tenant=caller.tenant)
    except (SessionNotFoundError, ForkPointError, LineageError):
        return frozenset()  # then they are nobody's
    return frozenset(blob.sha256 for blob in blobs_in(point.created))


def note_upload(uploads: BlobStore, sha256: bytes) -> None:
    """Keep that a tenant has these bytes: a note of its own, named by its own hash."""
    uploads.put(_UPLOADED + sha256)


def is_uploaded(uploads: BlobStore, sha256: bytes) -> bool:
    """Whether a tenant has uploaded a blob."""
    try:
        uploads.get(hashlib.sha256(_UPLOADED + sha256).digest())
    except BlobError:
        return False
    return True


def answered(verdict: Verdict) -> Verdict:
    """4. A verdict without what is another tenant's."""
    if verdict.kind != MISROUTED:
        return verdict
    return Verdict(
        kind=NO_SESSION,
        session_id=verdict.session_id,
        event_id=verdict.event_id,
        recorded_at=verdict.recorded_at,
        rules_version=verdict.rules_version,
    )


async def record(node: Node, appends: Sequence[Append]) -> list[Verdict]:
    """Append to the log, count the verdicts, wake who waits.

    Raises:
        FoldlineError: the log gives no answer.
    """
    verdicts = await node.appending.run(node.log.append, appends)
    node.hub.poke()
    for verdict in verdicts:
        node.metrics.verdicts.labels(verdict.kind).inc()
    return [answered(verdict) for verdict in verdicts]
