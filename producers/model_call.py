"""A call of a model: begun before the model is asked, its answer and calls in one batch."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from foldline.errors import (
    BlobError,
    EncodeError,
    FencedError,
    FoldlineError,
    LogError,
    RedactionError,
    UncertainAppendError,
)
from foldline.producers.appender import Sent, raise_refused, refusal_of
from foldline.producers.identity import elapsed_clock_s, fresh_id
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.ownership import Ownership
from foldline.producers.prepare import TEXT, Draft
from foldline.producers.tools import PendingCall, parse_arguments
from foldline.projections.context import Context
from foldline.projections.policy import FULL, ContextPolicy
from foldline.projections.request import Form, body_of, reference
from foldline.projections.wire import Json, ReadBlob
from foldline.schemas.blocks import Blob, Block, json_block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    KnownEvent,
    ModelCallCancelled,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallStarted,
    RequestRef,
    ToolCallRequested,
    Usage,
)

Seen = Callable[[Context, Form, Usage | None], None]
"""Is told which context a model has answered to, in which form it had it, and the usage."""


class ModelCall:
    """One call of a model. Left without an answer, it is recorded as such.

    `request` is what to send to the provider's API, where the call was given a format.
    """

    def __init__(
        self,
        owner: Ownership,
        turn_id: str,
        started: ModelCallStarted,
        *,
        context: Context | None = None,
        form: Form | None = None,
        policy: ContextPolicy = FULL,
        seen: Seen | None = None,
        sent: bytes = b"",
    ) -> None:
        self.model_call_id = started.model_call_id
        self.request: Json = {}
        self._context = context
        self._form = form or Form()
        self._policy = policy
        self._seen = seen
        self._sent = sent
        self._owner = owner
        self._turn_id = turn_id
        self._started = started
        self._began_s = 0.0
        self._answered: list[Draft] = []
        self._texts: dict[str, str] = {}
        self._ended = False

    async def __aenter__(self) -> Self:
        started = self._draft(await self._with_request())
        try:
            await self._owner.decide([started])
        except asyncio.CancelledError as error:
            await self.__aexit__(type(error), error, None)  # as in a turn
            raise
        except UncertainAppendError as error:
            end = self._draft(self._cancelled_as(type(error).__name__))
            self._owner.close_later([started, end])
            raise
        self._began_s = elapsed_clock_s()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ended or isinstance(error, (FencedError, LogError)):
            return
        if error is None:
            await self._end(self._cancelled_as("left without an answer"))
            return
        cancelled = isinstance(error, (asyncio.CancelledError, KeyboardInterrupt))
        try:
            await self._end(
                self._cancelled_as(type(error).__name__)
                if cancelled
                else self._failed_as(type(error).__name__, str(error))
            )
        except FoldlineError as problem:
            error.add_note(f"and the model call's end was not recorded: {problem}")

    async def _with_request(self) -> ModelCallStarted:
        """The start, with how to build its request again."""
        link = self._owner.link
        if self._sent:
            sha256 = await link.read(link.log.blobs.put, self._sent)
            kept = Blob(sha256=sha256, size=len(self._sent), media_type=TEXT)
            return self._started.model_copy(update={"request": kept})
        if self._context is None:
            return self._started
        self.request, request = await link.read(
            _rendered,
            self._context,
            self._form,
            self._policy,
            link.images.through(link.log.blobs.get),
        )
        return self._started.model_copy(update={"request": request})

    async def complete(self, response: ModelResponse) -> list[PendingCall]:
        """Record the answer and the calls it asks for, in one batch; give the calls.

        A call that the provider sent twice in the turn is one call. After a
        LogUnavailableError the same again records the answer once.

        Raises:
            FencedError: another owner has the session.
            LogUnavailableError: not recorded.
        """
        if not self._answered:
            self._answered = self._answer(response)
        self._ended = True  # what is sent is recorded, whoever waits for it
        try:
            answers = await self._owner.attempt(self._answered)
        except (EncodeError, RedactionError, BlobError):
            self._ended = False  # nothing of it is: it failed, which is said on leaving
            raise
        if self._seen is not None and self._context is not None:
            self._seen(self._context, self._form, response.usage)
        calls: dict[str, PendingCall] = {}
        for sent in answers:
            if isinstance(sent.event, ToolCallRequested):
                call = await self._requested(sent, sent.event)
                calls.setdefault(call.call_id, call)
            elif (error := refusal_of(sent)) is not None:
                raise error
        return list(calls.values())

    async def complete_apart(self, response: ModelResponse) -> None:
        """Record that the model answered, and its usage; its words go elsewhere.

        Raises: as `complete`.
        """
        self._ended = True
        await self._owner.decide([self._draft(self._completed(response))])

    async def fail(
        self, error_type: str, message: str = "", *, retryable: bool | None = None
    ) -> None:
        """Record that the model failed to answer."""
        failed = self._failed_as(error_type, message)
        await self._end(failed.model_copy(update={"retryable": retryable}))

    def _answer(self, response: ModelResponse) -> list[Draft]:
        message_id = fresh_id()
        drafts = [self._draft(self._completed(response))]
        blocks: list[Block] = []
        requests: list[Draft] = []
        for position, part in enumerate(response.parts):
            if isinstance(part, Block):
                blocks.append(part)
                continue
            call_id = f"{self.model_call_id}:{position}"
            blocks.append(Block(kind="tool_call", name=part.tool, call_id=call_id))
            request = _request(part, call_id, message_id, position)
            self._texts[call_id] = part.arguments
            requests.append(self._draft(request))
        if blocks:
            message = AssistantMessage(
                message_id=message_id,
                model_call_id=self.model_call_id,
                final=True,
                blocks=tuple(blocks),
            )
            drafts.append(self._draft(message))
        return [*drafts, *requests]

    def _completed(self, response: ModelResponse) -> ModelCallCompleted:
        return ModelCallCompleted(
            model_call_id=self.model_call_id,
            response_id=response.response_id,
            model=response.model,
            finish_reason=response.finish_reason,
            usage=response.usage,
            latency_ms=round((elapsed_clock_s() - self._began_s) * 1000),
        )

    async def _requested(self, sent: Sent, request: ToolCallRequested) -> PendingCall:
        """The call of a request; of one that was sent again, the open call it repeats."""
        verdict = sent.verdict
        text = self._texts[request.call_id]
        if verdict.rule == "redelivered" and verdict.related is not None:
            # The same arguments, or it would be another call: they run as that one.
            state = await self._owner.state()
            known = state.calls.get(verdict.related) or state.finished[verdict.related]
            return _pending(request, known.call_id, text, known.requested_seq)
        raise_refused((sent,))
        return _pending(request, request.call_id, text, verdict.seq)

    async def _end(self, event: ModelCallFailed | ModelCallCancelled) -> None:
        self._ended = True
        await self._owner.decide([self._draft(event)])

    def _failed_as(self, error_type: str, message: str) -> ModelCallFailed:
        return ModelCallFailed(
            model_call_id=self.model_call_id,
            error_type=error_type,
            blocks=(text_block(message),) if message else (),
        )

    def _cancelled_as(self, reason: str) -> ModelCallCancelled:
        return ModelCallCancelled(model_call_id=self.model_call_id, reason=reason)

    def _draft(self, event: KnownEvent) -> Draft:
        return self._owner.draft(event, turn_id=self._turn_id, batch_id=self.model_call_id)


def _rendered(
    context: Context, form: Form, policy: ContextPolicy, read_blob: ReadBlob
) -> tuple[Json, RequestRef | None]:
    """The request, and how to build it again; reads the blobs of images."""
    body = body_of(context, form, read_blob=read_blob)
    return body, reference(context, form, body, policy=policy)


def _request(
    part: ToolRequest, call_id: str, message_id: str, position: int
) -> ToolCallRequested:
    return ToolCallRequested(
        call_id=call_id,
        provider_call_id=part.provider_call_id,
        tool=part.tool,
        args_hash="",  # of the arguments as they will be stored: when prepared
        message_id=message_id,
        position=position,
        arguments=(json_block(part.arguments),),
    )


def _pending(
    request: ToolCallRequested, call_id: str, text: str, requested_seq: int
) -> PendingCall:
    arguments, problem = parse_arguments(text)
    return PendingCall(
        call_id=call_id,
        provider_call_id=request.provider_call_id,
        tool=request.tool,
        text=text,
        arguments=arguments,
        problem=problem,
        args_hash=request.args_hash,
        requested_seq=requested_seq,
    )
