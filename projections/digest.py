"""What a history says, entry by entry, as far as it is summarised. Pure.

A digest grows: each event is looked at once, however often a summary is made of it. What
came of a call is looked up when the call is taken in. `fits` says whether that is still
true, or all is to be taken in anew.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from foldline.projections.calls import Tale
from foldline.projections.facts import Facts, failed_of, known_of
from foldline.projections.mentioned import Mentioned
from foldline.projections.pieces import plain_text
from foldline.projections.pruning import SEPARATOR, ending_of, excerpt_of
from foldline.projections.tales import tales_of, tells_of
from foldline.projections.token_count import TokenCounter
from foldline.schemas.blocks import Block, Blocks
from foldline.schemas.events import (
    AssistantMessage,
    ContextCleared,
    InputProvided,
    SessionCreated,
    SteeringApplied,
    SteeringReceived,
    ToolCallRequested,
    UserMessage,
)
from foldline.schemas.recorded import Recorded

FIRST_TASK_TOKENS = 400
TASK_TOKENS = 150
SAID_TOKENS = 25
ARGUMENT_TOKENS = 40
OUTCOME_TOKENS = 8
"""Tokens of one entry."""


class Digest:
    """The entries of a history up to `to_seq`.

    Args:
        texts: the whole texts of blobs, by their hash.
        counter: counts tokens.
    """

    def __init__(self, texts: Mapping[bytes, str], counter: TokenCounter) -> None:
        self.to_seq = 0
        self._texts = texts
        self._counter = counter
        self.facts = Facts(self._text)
        self._known: set[str] = set()
        self._tales: Mapping[str, Tale] = {}
        self._steering: dict[str, Blocks] = {}
        self._forget()

    def _forget(self) -> None:
        """Begin anew, as behind a clearing: only what is open stays."""
        self.tasks: list[str] = []
        self.history: list[str] = []
        self.mentioned = Mentioned()
        self.facts.forget_failures()
        self.tokens = 0
        """The tokens of all that the entries hold."""
        self._before: dict[str, dict[str, Any]] = {}

    def fits(self, events: Iterable[Recorded]) -> bool:
        """Whether the next events tell nothing of the calls that were taken in before."""
        return not any(self._tells_of_known(recorded) for recorded in events)

    def _tells_of_known(self, recorded: Recorded) -> bool:
        if isinstance(recorded.event, SessionCreated):
            return bool(self._known)
        return tells_of(recorded.event) in self._known

    def take(self, events: Sequence[Recorded], to_seq: int) -> None:
        """Take in the next events, which are live, up to a seq."""
        self.to_seq = to_seq
        events = [recorded for recorded in events if recorded.seq <= to_seq]
        cleared = [r.seq for r in events if isinstance(r.event, ContextCleared)]
        cleared_seq = cleared[-1] if cleared else 0
        if cleared:
            self._forget()
        self._tales = tales_of(events)
        for recorded in events:
            self.facts.take(recorded)
            if recorded.seq > cleared_seq or isinstance(recorded.event, SteeringReceived):
                self._take(recorded)
        for call_id, tale in self._tales.items():
            self.facts.take_call(tale, failed=tale.seq > cleared_seq and failed_of(tale))
            self._known.update((call_id, *tale.names))

    def _take(self, recorded: Recorded) -> None:
        match recorded.event:
            case UserMessage(blocks=blocks) | InputProvided(blocks=blocks):
                self._task(blocks)
            case SteeringReceived(blocks=blocks):
                self._steering[recorded.envelope.event_id] = blocks
            case SteeringApplied(steering_event_id=steering_id):
                self._task(self._steering.get(steering_id, ()))
            case AssistantMessage(blocks=blocks):
                self._said(blocks)
            case ToolCallRequested(call_id=call_id):
                tale = self._tales[call_id]
                if tale.seq == recorded.seq:
                    self._done(tale)
            case _:
                pass

    def _task(self, blocks: Blocks) -> None:
        text = self._text(blocks)
        if text.strip():
            tokens = TASK_TOKENS if self.tasks else FIRST_TASK_TOKENS
            self._enter(self.tasks, f"- {excerpt_of(text, tokens=tokens)}", text)

    def _said(self, blocks: Blocks) -> None:
        text = self._text(block for block in blocks if block.kind == "text")
        if text.strip():
            told = f"- said: {excerpt_of(text, tokens=SAID_TOKENS)}"
            self._enter(self.history, told, text)

    def _done(self, tale: Tale) -> None:
        request = tale.request
        arguments = self._text(request.arguments)
        result = known_of(tale)
        output = self._text(result.blocks)
        failed = "failed: " if failed_of(tale) else ""
        did = f"{request.tool} {self._values(request.tool, arguments)}"
        told = f"- [{tale.seq}] {did} -> {failed}{ending_of(output, tokens=OUTCOME_TOKENS)}"
        self._enter(self.history, told, f"{arguments}\n{output}")

    def _enter(self, lines: list[str], told: str, whole: str) -> None:
        """One more entry: what is told of it, and all that it held."""
        lines.append(told)
        self.mentioned.take(whole)
        self.tokens += self._counter.count(whole)

    def _values(self, tool: str, arguments: str) -> str:
        """Arguments in few words: their values, but for those of the call before."""
        try:
            value: object = json.loads(arguments)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            return excerpt_of(arguments, tokens=ARGUMENT_TOKENS)
        fields = cast("dict[str, Any]", value)
        before = self._before.get(tool, {})
        self._before[tool] = fields
        new = [str(v) for k, v in fields.items() if before.get(k, ...) != v]
        return excerpt_of(SEPARATOR.join(new), tokens=ARGUMENT_TOKENS)

    def _text(self, blocks: Iterable[Block]) -> str:
        return plain_text(blocks, self._texts)
