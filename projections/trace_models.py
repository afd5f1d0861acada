"""The spans of model calls: `chat {model}`, each with its usage once. Pure.

A mirror may know only that a model had answered. Then the call began when the model had
heard the last thing before it, and ends with the last part of its message; that its start
is not recorded is said in `foldline.start.inferred`.
"""

import json
from dataclasses import dataclass, field

from foldline.projections.otel_genai import (
    CACHE_READ_TOKENS,
    CHAT,
    FINISH_REASONS,
    INPUT_TOKENS,
    OPERATION,
    OUTPUT_MESSAGES,
    OUTPUT_TOKENS,
    PROVIDER_NAME,
    REQUEST_MODEL,
    RESPONSE_ID,
    RESPONSE_MODEL,
)
from foldline.projections.spans import (
    CLIENT,
    CONTENT_CHARS_MAX,
    ERROR,
    MODEL,
    NAME_CHARS_MAX,
    OK,
    Span,
    cut,
)
from foldline.projections.spending import PROVIDERS
from foldline.projections.token_count import input_tokens
from foldline.projections.trace_board import RETRY, Board
from foldline.schemas.blocks import Block, text_of
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import (
    AssistantMessage,
    ModelCallCancelled,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallStarted,
    Usage,
    UsageCorrected,
)


@dataclass(slots=True)
class Asked:
    """One call of a model: its span, and what is known of it so far."""

    span: Span
    started: bool
    branch: str
    provider: str = ""
    model: str = ""
    usage: Usage | None = None
    said: list[Block] = field(default_factory=list[Block])


class ModelSpans:
    """Takes the events of model calls, in order."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._calls: dict[str, Asked] = {}
        self._answering: dict[str, Asked] = {}
        """For each branch, the call without a start whose message may go on."""
        self._compacted = False

    def compacted(self) -> None:
        """The next call is shown a compacted context."""
        self._compacted = True

    def started(self, envelope: Envelope, event: ModelCallStarted) -> None:
        """A request goes out."""
        call = self._begun(envelope, event.model_call_id, started=True)
        call.provider, call.model = event.provider, event.model
        call.span.note("model_call.purpose", event.purpose)
        call.span.note("model_call.attempt", event.attempt)
        former = self._calls.get(event.retry_of or "")
        call.span.link(former and former.span.ref, RETRY)
        self._named(call)

    def completed(self, envelope: Envelope, event: ModelCallCompleted) -> None:
        """The model answered."""
        call = self._call(envelope, event.model_call_id, event.latency_ms)
        span = call.span
        call.model = call.model or event.model or ""
        span.set(RESPONSE_ID, event.response_id)
        span.set(RESPONSE_MODEL, event.model)
        span.set(FINISH_REASONS, (event.finish_reason,) if event.finish_reason else None)
        ttft_s = None if event.ttft_ms is None else event.ttft_ms / 1000
        span.set(self._board.names.time_to_first_chunk, ttft_s)
        span.note("model_call.latency_ms", event.latency_ms)
        if event.cost is not None:
            span.note("cost.amount_micros", event.cost.amount_micros)
            span.note("cost.currency", event.cost.currency)
        if event.usage is not None:
            call.usage = event.usage
        self._named(call)
        self._ended(call)

    def failed(
        self, envelope: Envelope, event: ModelCallFailed | ModelCallCancelled
    ) -> None:
        """The model did not answer, or not to the end."""
        call = self._call(envelope, event.model_call_id, None)
        call.usage = event.usage or call.usage
        self._named(call)
        call.span.note("model_call.received", event.received)
        if isinstance(event, ModelCallCancelled):
            self._board.close(call.span, reason=event.reason or "cancelled")
            return
        call.span.note("model_call.retryable", event.retryable)
        if self._board.content:
            call.span.message = str(cut(text_of(event.blocks)))
        self._board.close(call.span, status=ERROR, error_type=event.error_type)

    def said(self, envelope: Envelope, event: AssistantMessage) -> None:
        """A part of an answer: it says who answered, and until when."""
        if event.model_call_id is None:
            return
        call = self._call(envelope, event.model_call_id, None)
        for block in event.blocks:
            call.provider = call.provider or block.provider or ""
            call.model = call.model or block.model or ""
        if self._board.content:
            call.said.extend(event.blocks)
            call.span.attributes[OUTPUT_MESSAGES] = _messages(call.said)
        self._named(call)
        if not call.span.closed and not call.started:
            self._ended(call)

    def corrected(self, event: UsageCorrected) -> None:
        """The usage of a call as now known: it replaces what was said before."""
        call = self._calls.get(event.model_call_id)
        if call is None:
            return  # as the fold has it: nobody knows what was counted
        call.usage = event.usage
        self._counted(call)
        self._board.touch(call.span)

    # --- parts -----------------------------------------------------------------------

    def _call(self, envelope: Envelope, call_id: str, latency_ms: int | None) -> Asked:
        call = self._calls.get(call_id)
        return call or self._begun(envelope, call_id, latency_ms=latency_ms)

    def _begun(
        self,
        envelope: Envelope,
        call_id: str,
        *,
        started: bool = False,
        latency_ms: int | None = None,
    ) -> Asked:
        board, branch = self._board, envelope.branch or ""
        self._settle(branch)
        heard_us = board.heard_us.get(branch, board.now_us)
        if latency_ms is not None:
            heard_us = board.now_us - latency_ms * 1000
        span = board.open(
            envelope,
            what=MODEL,
            name=CHAT,
            above=board.turn_of(envelope).span,
            kind=CLIENT,
            start_us=board.now_us if started else min(heard_us, board.now_us),
        )
        span.set(OPERATION, CHAT)
        span.note("model_call.id", call_id)
        span.note("start.inferred", None if started else True)
        if self._compacted:
            span.set(board.names.compacted, value=True)
            self._compacted = False
        call = self._calls[call_id] = Asked(span, started, branch)
        if not started:
            self._answering[branch] = call
        return call

    def _settle(self, branch: str) -> None:
        """Another call begins: the message of the one before is whole."""
        before = self._answering.pop(branch, None)
        if before is not None and not before.span.closed:
            self._board.settle(before.span, "")

    def _ended(self, call: Asked) -> None:
        """The answer is there; without a start its message may go on."""
        if call.started:
            self._board.close(call.span, status=OK)
            return
        call.span.status = OK
        call.span.end_us = max(self._board.now_us, call.span.start_us, call.span.end_us)
        self._board.touch(call.span)

    def _named(self, call: Asked) -> None:
        span = call.span
        provider = call.provider or PROVIDERS.get(self._board.system, "")
        span.set(PROVIDER_NAME, provider)
        span.set(REQUEST_MODEL, call.model)
        span.name = str(cut(f"{CHAT} {call.model}".strip(), NAME_CHARS_MAX))
        self._counted(call)

    def _counted(self, call: Asked) -> None:
        usage, names = call.usage, self._board.names
        if usage is None:
            return
        provider = call.provider or PROVIDERS.get(self._board.system, "")
        known = usage.input_tokens is not None or usage.cache_read_input_tokens is not None
        whole = input_tokens(usage, provider=provider) if known else None
        for name, count in (
            (INPUT_TOKENS, whole),
            (OUTPUT_TOKENS, usage.output_tokens),
            (CACHE_READ_TOKENS, usage.cache_read_input_tokens),
            (names.cache_write_tokens, usage.cache_write_input_tokens),
            (names.reasoning_tokens, usage.reasoning_output_tokens),
        ):
            call.span.attributes.pop(name, None)
            call.span.set(name, count)


def _messages(blocks: list[Block]) -> str:
    """What a model said, as the conventions put it; calls are spans of their own."""
    parts = [
        {"type": "text" if block.kind == "text" else block.kind, "content": text}
        for block in blocks
        if (text := text_of((block,)))
    ]
    said = json.dumps([{"role": "assistant", "parts": parts}], ensure_ascii=False)
    return str(cut(said, CONTENT_CHARS_MAX))
