"""A context as a request: Anthropic Messages, OpenAI Chat Completions, Responses. Pure.

    request = render(context, "anthropic", model="claude-...", parameters={...})
    request_bytes(request)  # the same bytes on every rebuild
    render_rules.breaches(request, "anthropic")  # what the API would refuse

A request is complete: `parameters` are what the caller adds to what the context says.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from foldline.errors import SettingsError
from foldline.projections import render_anthropic, render_chat, render_responses
from foldline.projections.context import Context
from foldline.projections.render_anthropic import (
    Caching,
    anthropic_body,
    may_think,
)
from foldline.projections.render_chat import chat_body, chat_messages
from foldline.projections.render_responses import responses_body
from foldline.projections.wire import (
    GLUED,
    VERSION,
    FormatLimits,
    Json,
    ReadBlob,
    Wire,
    call_ids,
    cleaned,
    compact,
    provider_of,
    system_text,
)

ANTHROPIC = "anthropic"
OPENAI_CHAT = "openai-chat"
OPENAI_RESPONSES = "openai-responses"

FORMATS: dict[str, FormatLimits] = {
    ANTHROPIC: render_anthropic.LIMITS,
    OPENAI_CHAT: render_chat.LIMITS,
    OPENAI_RESPONSES: render_responses.LIMITS,
}
"""The formats, and how long ids and names may be in each."""


def render(
    context: Context,
    format: str,  # noqa: A002 - the word for it
    *,
    model: str,
    provider: str = "",
    read_blob: ReadBlob | None = None,
    parameters: Mapping[str, Any] | None = None,
    caching: Caching | None = None,
    version: int = VERSION,
) -> Json:
    """The body of a request for what comes next.

    Args:
        context: what to show.
        format: one of FORMATS.
        model: whom to ask; signed and encrypted reasoning goes back to it only.
        provider: who serves the model; default: whose format it is.
        read_blob: gives the bytes of images; without it they are named, not shown.
        parameters: the rest of the request; its `tools` stand behind the context's.
        caching: breakpoints for Anthropic's cache; they change no other byte.
        version: of the requests; older ones are rebuilt as they were.
    """
    wire = _wire(context, format, model=model, provider=provider, read_blob=read_blob)
    wire = replace(wire, version=version)
    if format == ANTHROPIC:
        body = anthropic_body(context, wire, caching=caching)
    elif format == OPENAI_CHAT:
        body = chat_body(context, wire)
    else:
        body = responses_body(context, wire)
    return _complete(format, wire, body, parameters or {})


def _wire(
    context: Context,
    format: str,  # noqa: A002 - the word for it
    *,
    model: str,
    provider: str,
    read_blob: ReadBlob | None,
) -> Wire:
    limits = FORMATS.get(format)
    if limits is None:
        raise SettingsError("format", format, f"one of {', '.join(FORMATS)}")
    whose = provider_of(format, provider)
    return Wire(limits, call_ids(context, limits), whose, model, read_blob)


def _complete(format: str, wire: Wire, body: Json, parameters: Mapping[str, Any]) -> Json:  # noqa: A002 - the word for it
    """The parameters in front, in one order, and the context behind them."""
    given = cast("Json", cleaned(dict(sorted(parameters.items()))))
    tools = [*body.pop("tools", []), *given.pop("tools", [])]
    both = sorted({"model", *body} & given.keys())
    if both:
        raise SettingsError("parameters", ", ".join(both), "nothing that the context says")
    if format == ANTHROPIC:
        asks = cast("Json", given.get("thinking") or {}).get("type") == "enabled"
        if asks and not may_think(body["messages"]):
            given.pop("thinking")
        thinks = 0 if wire.version == GLUED else _thinking_tokens(given)
        given.setdefault("max_tokens", render_anthropic.MAX_TOKENS + thinks)
    return {"model": wire.model, **given, **({"tools": tools} if tools else {}), **body}


def _thinking_tokens(given: Json) -> int:
    """How much the model may think, which is a part of what it may write."""
    thinking: object = given.get("thinking")
    tokens = cast("Json", thinking).get("budget_tokens") if thinking else 0
    return tokens if isinstance(tokens, int) else 0


def request_bytes(request: Json) -> bytes:
    """A request as JSON, the same for the same request."""
    return compact(request).encode()


def to_openai_messages(
    context: Context, *, read_blob: ReadBlob | None = None
) -> list[Json]:
    """Messages for an OpenAI-style chat completion.

    Args:
        context: what to show.
        read_blob: gives the bytes of images; without it they are named, not shown.
    """
    wire = _wire(context, OPENAI_CHAT, model="", provider="", read_blob=read_blob)
    return chat_messages(context, wire)


def to_anthropic_messages(
    context: Context, *, model: str = "", read_blob: ReadBlob | None = None
) -> tuple[str, list[Json]]:
    """The system text, and messages for an Anthropic-style request.

    Args:
        context: what to show.
        model: signed reasoning goes back to this model only; of others it is dropped.
        read_blob: gives the bytes of images; without it they are named, not shown.
    """
    wire = _wire(context, ANTHROPIC, model=model, provider="", read_blob=read_blob)
    return system_text(context, wire), anthropic_body(context, wire)["messages"]
