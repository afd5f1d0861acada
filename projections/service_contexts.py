"""Routes about what models are shown: a context, two of them compared, a past request."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from foldline.processors.http_wire import (
    INT64_MAX,
    SOURCES,
    WireSources,
    pack_events,
    pack_sources,
)
from foldline.processors.stored import StoredEvent
from foldline.projections.context_views import (
    Built,
    Wanted,
    built,
    context_view,
    difference_view,
    last_two_calls,
    policy_wanted,
    request_view,
)
from foldline.projections.policy import POLICIES
from foldline.projections.reading import request_of
from foldline.projections.request import Form
from foldline.projections.service_access import Reader
from foldline.projections.service_forks import lineage_for
from foldline.projections.service_limits import Lane
from foldline.projections.service_node import Int64, Node, Serving, SessionId
from foldline.projections.service_problems import Problem
from foldline.projections.warm import Warm
from foldline.schemas.recorded import Recorded
from foldline.tokenizers import default_counter

router = APIRouter(tags=["contexts"])

_FORMAT = "^(|anthropic|openai-chat|openai-responses)$"

_POLICY = f"^(|{'|'.join(POLICIES)})$"

Named = Annotated[str, Query(max_length=256)]


class ContextIn(BaseModel):
    """Which context, and for whom; `model` is the one that was last asked if not given.

    With a `policy` or a `budget` (in tokens) it is as if the session's owner had used
    that policy from the start.
    """

    at_seq: Int64 | None = None
    format: Annotated[str, Query(pattern=_FORMAT)] = "openai-chat"
    model: Named = ""
    provider: Named = ""
    policy: Annotated[str, Query(pattern=_POLICY)] = ""
    budget: Annotated[int, Field(ge=1, le=INT64_MAX)] | None = None

    def wanted(self) -> Wanted:
        """The same as the views have it."""
        form = Form(self.format, self.model, self.provider)
        return Wanted(self.at_seq, form, policy_wanted(self.policy, self.budget))


class ExplainIn(ContextIn):
    """The same, and whether it is explained."""

    explain: bool = False


class DifferenceIn(ContextIn):
    """The later context, and the seq of the earlier one."""

    from_seq: Int64 | None = None


class ContextView(BaseModel):
    """What the model is shown, as its provider's API takes it."""

    format: str
    model: str
    provider: str
    base_seq: int
    upto_seq: int
    messages: int
    tools: int
    sha256: str
    """The hash of the request's bytes: JSON without blanks, in this order of keys."""
    request: dict[str, Any] | None = None
    explanation: dict[str, Any] | None = None
    """Each message with its events, tokens and reason; what was left out."""


@router.get("/sessions/{session_id}/context")
async def show_context(
    node: Serving,
    caller: Reader,
    session_id: SessionId,
    given: Annotated[ExplainIn, Query()],
) -> ContextView:
    """Build the context that a model is shown next, with the renderer that harnesses use.

    Signed and encrypted reasoning goes back to `model` only. Images come as data. An
    empty `format` gives no request. `explain` counts tokens, which takes longer the first
    time.
    """
    await lineage_for(node, caller, session_id)  # each ancestor is served here, or 421

    def view() -> ContextView:
        found = _built(node, session_id, given.wanted())
        counter = default_counter() if given.explain else None
        return ContextView(**context_view(found, counter))

    return await _lane(node, given).run(view)


class SourcesIn(BaseModel):
    """How new they are at the least."""

    min_seq: Annotated[int, Field(ge=0, le=INT64_MAX)] = 0


@router.get(
    "/sessions/{session_id}/context/sources",
    response_class=Response,
    responses={200: {"content": {SOURCES: {"schema": {"format": "binary"}}}}},
)
async def show_sources(
    node: Serving,
    caller: Reader,
    session_id: SessionId,
    given: Annotated[SourcesIn, Query()],
) -> Response:
    """Give what the next context is built from, in one piece (MessagePack).

    It is what foldline's client reads first when it takes a session. It is never older
    than what was recorded when you asked, nor than `min_seq`. What is larger than one
    answer holds (`FOLDLINE_WARM_SESSION_BYTES`) ends before `upto_seq`.
    """
    state = await node.state(caller, session_id, min_seq=given.min_seq)
    if state.fork_seq:
        await lineage_for(node, caller, session_id)  # each ancestor is served here, or 421

    def read() -> bytes:
        warm, how = node.warm.sources(state)
        node.metrics.sources.labels(how).inc()
        return pack_sources(wire_of(warm))

    return Response(await node.reading.run(read), media_type=SOURCES)


def wire_of(warm: Warm) -> WireSources:
    """Sources as a client is sent them."""
    sources = warm.sources
    return WireSources(
        sources.base_seq,
        warm.upto_seq,
        pack_events(_stored(warm.held)),
        warm.base,
        pack_events(_stored(sources.events)),
        tuple(text.encode() for text in sources.texts.values()),
    )


def _stored(events: Iterable[Recorded]) -> Iterator[StoredEvent]:
    return (StoredEvent(r.seq, r.schema_id, r.body) for r in events)


@router.get("/sessions/{session_id}/context/difference")
async def compare_contexts(
    node: Serving,
    caller: Reader,
    session_id: SessionId,
    given: Annotated[DifferenceIn, Query()],
) -> dict[str, Any]:
    """Compare two contexts: what they share from the beginning, what is dropped and new.

    Without `from_seq` those of the last two model calls up to `at_seq`.
    """
    await lineage_for(node, caller, session_id)

    def view() -> dict[str, Any]:
        wanted, from_seq = given.wanted(), given.from_seq
        if from_seq is None:
            calls = last_two_calls(node.log, session_id, wanted.at_seq)
            if len(calls) < 2:  # noqa: PLR2004 - two are compared
                raise Problem(404, "no_model_call", "there are no two model calls")
            from_seq, last_seq = calls
            wanted = replace(wanted, at_seq=last_seq)
        after = _built(node, session_id, wanted)
        wanted = replace(wanted, at_seq=from_seq, form=after.form)
        before = _built(node, session_id, wanted)
        read_blob = node.log.blobs.get
        return difference_view(before, after, default_counter(), read_blob=read_blob)

    return await _lane(node, given).run(view)


class RequestView(BaseModel):
    """The request of a model call, rebuilt; whether its hash is the recorded one."""

    model_call_id: str
    ok: bool
    problems: list[str]
    sha256: str | None
    recorded_sha256: str | None
    bytes: int
    reference: dict[str, Any] | None
    request: Any


@router.get("/sessions/{session_id}/requests/{model_call_id}")
async def show_request(
    node: Serving, caller: Reader, session_id: SessionId, model_call_id: str
) -> RequestView:
    """Rebuild the request of a model call from events, and compare its hash."""
    await lineage_for(node, caller, session_id)
    found = await node.reading.run(request_of, node.log, session_id, model_call_id)
    if found is None:
        detail = f"session {session_id!r} has no model call {model_call_id!r}"
        raise Problem(404, "no_model_call", detail)
    return RequestView(**request_view(found))


def _lane(node: Node, given: ContextIn) -> Lane:
    """Where a context is made: to shape a session anew keeps nobody else waiting."""
    shapes = given.policy or given.budget is not None
    return node.shaping if shapes else node.reading


def _built(node: Node, session_id: str, wanted: Wanted) -> Built:
    found = built(node.log, session_id, wanted, read=node.warm.read)
    if found is None:
        detail = f"session {session_id!r} has no event at {wanted.at_seq}"
        raise Problem(404, "no_event", detail)
    return found
