"""A model's request by reference: rebuilt from events, byte for byte, and checked. Pure.

1. Before a model is asked, its context is rendered by a `Form`, and `reference` says from
   which events, by which renderer, with which parameters, and what the bytes hash to.
   The bytes themselves are not kept.
2. `rebuilt` builds that context again from the same events, renders it by the same form
   and compares the hash. What keeps it from being the same is said.

A harness that renders a context by itself has the renderer `foldline.context`: the hash
is then of what the context shows.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from foldline.errors import BlobError, SettingsError
from foldline.projections.building import build
from foldline.projections.context import (
    RENDERER,
    RENDERER_VERSION,
    Context,
    Sources,
    texts_gone,
)
from foldline.projections.policy import FULL, ContextPolicy
from foldline.projections.render import FORMATS, render, request_bytes
from foldline.projections.render_anthropic import Caching
from foldline.projections.token_count import Reader
from foldline.projections.wire import (
    GLUED,
    VERSION,
    Json,
    ReadBlob,
    compact,
    parsed_item,
    provider_of,
)
from foldline.schemas.blocks import Blob
from foldline.schemas.events import ModelCallStarted, RequestRef, SeqRange

VERSIONS: Mapping[str, int] = {
    RENDERER: RENDERER_VERSION,
    **dict.fromkeys(FORMATS, VERSION),
}
"""The version of each renderer, which makes those before it, too. A change of the bytes
that one gives for the same events is a new version: `tests/golden/requests.json` says
when."""

CACHING = "foldline.caching"
"""The name among the recorded parameters of what is no parameter of the request."""

REDACTED_MARK = "‹secret:"
"""What a parameter holds in the place of a secret, which was sent and is not kept."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a request is rendered. An empty `format`: the harness does it by itself."""

    format: str = ""
    model: str = ""
    provider: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    caching: Caching | None = None

    @property
    def renderer(self) -> str:
        """What a reference calls it."""
        return self.format or RENDERER

    @property
    def reader(self) -> Reader:
        """Whom a request in this form is for."""
        return Reader(provider_of(self.format, self.provider), self.model)

    def parameters_json(self) -> str:
        """The parameters as they are recorded.

        Raises:
            SettingsError: they are no JSON.
        """
        marks = {} if self.caching is None else {CACHING: {"ttl": self.caching.ttl}}
        try:
            return compact({**self.parameters, **marks})
        except (TypeError, ValueError) as error:
            name = type(error).__name__
            raise SettingsError("parameters", name, f"JSON: {error}") from error


def form_of(call: ModelCallStarted, request: RequestRef) -> Form:
    """How a recorded request was rendered."""
    parameters = parsed_item(request.parameters_json)
    marks: Json | None = parameters.pop(CACHING, None)
    return Form(
        format="" if request.renderer == RENDERER else request.renderer,
        model=call.model,
        provider=call.provider,
        parameters=parameters,
        caching=None if marks is None else Caching(marks.get("ttl")),
    )


def body_of(
    context: Context,
    form: Form,
    *,
    read_blob: ReadBlob | None,
    version: int = VERSION,
) -> Json:
    """The request, as the provider's API takes it; empty where the harness renders it.

    Args:
        context: what to show.
        form: how.
        read_blob: gives the bytes of images.
        version: of the renderer, of those that are known here.

    Raises:
        SettingsError: an unknown format, or parameters that the context has already.
    """
    if not form.format:
        return {}
    # As they will be read again, so that a rebuild has the same.
    parameters = parsed_item(form.parameters_json())
    parameters.pop(CACHING, None)
    return render(
        context,
        form.format,
        model=form.model,
        provider=form.provider,
        read_blob=read_blob,
        parameters=parameters,
        caching=form.caching,
        version=version,
    )


def bytes_of(context: Context, body: Json) -> bytes:
    """What is hashed: the request, or what the context shows where there is none here."""
    return request_bytes(body) if body else context.as_bytes()


def reference(
    context: Context,
    form: Form,
    body: Json,
    *,
    policy: ContextPolicy = FULL,
) -> RequestRef | None:
    """How to build a request again; None where no event stands behind it.

    Args:
        context: what is shown.
        form: how it was rendered.
        body: what came of that: `body_of`.
        policy: by which the context was shaped; what it did is in events.
    """
    if context.upto_seq <= context.base_seq:
        return None
    events = SeqRange(from_seq=context.base_seq + 1, to_seq=context.upto_seq)
    return RequestRef(
        ranges=(events,),
        renderer=form.renderer,
        renderer_version=VERSIONS[form.renderer],
        policy=policy.name,
        policy_version=policy.version,
        instructions_event_ids=context.instructions_event_ids,
        tools_event_id=context.tools_event_id,
        parameters_json=form.parameters_json(),
        sha256=hashlib.sha256(bytes_of(context, body)).digest(),
    )


# --- rebuilding ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A request as it is rebuilt: its bytes, and whether they are those that were sent.

    `problems` say what differs and why, as far as can be told. Of a call that recorded no
    request the hash is empty.
    """

    model_call_id: str
    data: bytes = b""
    sha256: bytes = b""
    request: RequestRef | None = None
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the bytes are exactly those that the call was made with."""
        return not self.problems


def rebuilt(
    model_call_id: str,
    call: ModelCallStarted | None,
    sources: Sources | None,
    *,
    read_blob: ReadBlob,
) -> Rebuilt:
    """The request of a model call, from the events that it was built from.

    Args:
        model_call_id: of the call.
        call: its recorded start; None where it has none.
        sources: the events of its reference; None where it has none.
        read_blob: gives the bytes of images, and of requests that were kept as they were.
    """
    name, request = model_call_id, None if call is None else call.request
    if isinstance(request, Blob):
        return _kept(name, request, read_blob)
    if call is None or request is None or sources is None:
        return Rebuilt(name, problems=(NOT_RECORDED,))
    gone = _missing(request, sources)
    if gone:
        return Rebuilt(name, sha256=request.sha256, request=request, problems=gone)
    reading = _Reading(read_blob)
    try:
        data = _again(call, request, sources, reading.read)
    except (SettingsError, ValueError) as error:
        problems = (*_suspects(request), f"it cannot be rendered: {error}")
        return Rebuilt(name, sha256=request.sha256, request=request, problems=problems)
    same = hashlib.sha256(data).digest() == request.sha256
    if same:
        return Rebuilt(name, data, request.sha256, request)
    lost = [f"blob {sha256.hex()}: its text is gone" for sha256 in texts_gone(sources)]
    why = [*reading.problems, *lost] or [OTHER_BYTES]
    problems = (*_suspects(request), *why)
    return Rebuilt(name, data, request.sha256, request, problems)


NOT_RECORDED = "no request was recorded with this call"
OTHER_BYTES = "the same events give other bytes here than were sent"


class _Reading:
    """Reads blobs, and notes those that are gone: a request is made without them."""

    def __init__(self, read_blob: ReadBlob) -> None:
        self.problems: list[str] = []
        self._read_blob = read_blob

    def read(self, sha256: bytes) -> bytes:
        """The bytes of a blob."""
        try:
            return self._read_blob(sha256)
        except BlobError as error:
            self.problems.append(str(error))
            raise


def _kept(name: str, blob: Blob, read_blob: ReadBlob) -> Rebuilt:
    """A request whose bytes were stored: nothing is rebuilt."""
    try:
        return Rebuilt(name, read_blob(blob.sha256), blob.sha256)
    except BlobError as error:
        return Rebuilt(name, sha256=blob.sha256, problems=(str(error),))


def _again(
    call: ModelCallStarted, request: RequestRef, sources: Sources, read_blob: ReadBlob
) -> bytes:
    context = build(sources)
    version = min(max(request.renderer_version, GLUED), VERSION)
    form = form_of(call, request)
    body = body_of(context, form, read_blob=read_blob, version=version)
    return bytes_of(context, body)


def _missing(request: RequestRef, sources: Sources) -> tuple[str, ...]:
    """What of a reference's events is not there; then nothing can be built of them."""
    held = sorted(recorded.seq for recorded in sources.events)
    gone, first = 0, 0
    for part in request.ranges:
        there = [seq for seq in held if part.from_seq <= seq <= part.to_seq]
        missing = part.to_seq - part.from_seq + 1 - len(there)
        if missing and not first:
            gaps = (seq for seq, has in enumerate(there, part.from_seq) if seq != has)
            first = next(gaps, part.from_seq + len(there))
        gone += missing
    return (f"{gone} of its events are gone, the first at seq {first}",) if gone else ()


def _suspects(request: RequestRef) -> tuple[str, ...]:
    """What may make other bytes of the same events."""
    found: list[str] = []
    name, version = request.renderer, request.renderer_version
    known = VERSIONS.get(name)
    if known is None:
        found.append(f"it was rendered by {name!r}, which is not known here")
    elif version > known:
        found.append(
            f"it was rendered by version {version} of {name}, newer than {known}, which "
            "is here"
        )
    if REDACTED_MARK in request.parameters_json:
        found.append("its parameters held a secret, which was sent and not recorded")
    return tuple(found)
