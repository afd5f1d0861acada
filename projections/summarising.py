"""A summary that no model makes: extracts of the original events. Pure.

What it says, each within its share of the summary's tokens, the newest first where not
all has room:

    task        what people said, in their words
    history     each call with its arguments and how it ended, and what the agent said
    failures    what failed, how often, and its last words
    plan        the steps that are not done
    questions   what the agent asked and nobody answered
    mentions    paths, identifiers and numbers that only the left-out outputs have

It is made from originals, never from a summary: an earlier one says nothing here that the
events themselves do not.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from foldline.projections.calls import Result, Tale, tales_of
from foldline.projections.context import is_text
from foldline.projections.evidence import evidence_in, quoted_in
from foldline.projections.policy import ContextPolicy
from foldline.projections.pruning import SEPARATOR, ending_of, excerpt_of, within
from foldline.projections.token_count import TokenCounter
from foldline.schemas.blocks import Blob, Block, Blocks, Body
from foldline.schemas.events import (
    AssistantMessage,
    ContextCleared,
    InputProvided,
    InputRequested,
    PlanUpdated,
    SteeringApplied,
    SteeringReceived,
    ToolCallRequested,
    UserMessage,
)
from foldline.schemas.recorded import Recorded

SUMMARY_MIN_TOKENS = 1_000
"""What a summary may have at the least, however short what it tells of."""

TASK_SHARE = 0.25
HISTORY_SHARE = 0.4
FAILURE_SHARE = 0.1
MENTION_SHARE = 0.4
"""Shares of a summary's tokens; what one leaves goes to those after it."""

FIRST_TASK_TOKENS = 400
TASK_TOKENS = 150
SAID_TOKENS = 25
ARGUMENT_TOKENS = 40
OUTCOME_TOKENS = 8
FAILURE_TOKENS = 40
"""Tokens of one entry."""

UNKNOWN_FORMS = frozenset({"UNKNOWN", "TIMED_OUT", "CANCELLED"})
"""What stands in for the result of a call that may have had its effect."""

FAILURES_MAX = 12
QUESTIONS_MAX = 5


@dataclass(frozen=True, slots=True)
class Originals:
    """The events of a history, as far as they are summarised, and the texts of blobs."""

    events: Sequence[Recorded]
    to_seq: int
    texts: Mapping[bytes, str]


def summary_of(
    originals: Originals, *, policy: ContextPolicy, counter: TokenCounter
) -> str:
    """The summary's text."""
    return _Summary(originals, policy, counter).text()


def facts_of(originals: Originals, *, policy: ContextPolicy, counter: TokenCounter) -> str:
    """What no summary may leave out, whoever makes it; empty where there is nothing.

    What failed and how often, whose outcome nobody knows, the plan, the open questions.
    """
    return _Summary(originals, policy, counter).facts()


@dataclass(slots=True)
class _Entry:
    """Something that was said or done: what is told of it, and all that it held."""

    kind: str
    seq: int
    told: str
    whole: str


class _Summary:
    def __init__(
        self, originals: Originals, policy: ContextPolicy, counter: TokenCounter
    ) -> None:
        self._texts = originals.texts
        self._counter = counter
        events = _since_cleared(originals.events, originals.to_seq)
        self._events = events
        self._to_seq = originals.to_seq
        self._tales = tales_of(events)
        self._steering: dict[str, Blocks] = {}
        self._before: dict[str, dict[str, Any]] = {}
        self._entries = [entry for r in events for entry in self._entries_of(r)]
        whole = sum(counter.count(entry.whole) for entry in self._entries)
        self._tokens = min(
            policy.summary_tokens,
            max(int(whole * policy.summary_share), SUMMARY_MIN_TOKENS),
        )

    def text(self) -> str:
        """All parts that say something."""
        head = f"[Summary of events 1 to {self._to_seq}, which are not shown any more]"
        left = self._tokens - self._counter.count(head)
        parts = [head]
        for title, share, lines in (
            ("What people said:", TASK_SHARE, self._lines("task")),
            *self._facts(),
            ("What was done:", HISTORY_SHARE, self._lines("history")),
        ):
            kept = self._newest(lines, min(left, int(self._tokens * share)))
            if kept:
                parts += [title, *kept]
                left -= sum(self._counter.count(line) for line in kept)
        names = self._mentions("\n".join(parts), left)
        if names:
            parts += ["Also mentioned:", SEPARATOR.join(names)]
        return "\n".join(parts)

    def facts(self) -> str:
        """The same without what was said and done."""
        parts: list[str] = []
        for title, share, lines in self._facts():
            kept = self._newest(lines, int(self._tokens * share))
            parts += [title, *kept] if kept else []
        return "\n".join(parts)

    def _facts(self) -> list[tuple[str, float, list[str]]]:
        return [
            ("What failed:", FAILURE_SHARE, self._failures()),
            ("Nobody knows how these ended, verify first:", FAILURE_SHARE, self._unknown()),
            ("The plan:", FAILURE_SHARE, self._plan()),
            ("Not answered yet:", FAILURE_SHARE, self._questions()),
        ]

    # --- what there is to tell --------------------------------------------------------

    def _entries_of(self, recorded: Recorded) -> list[_Entry]:
        seq = recorded.seq
        match recorded.event:
            case UserMessage(blocks=blocks) | InputProvided(blocks=blocks):
                return self._task(seq, blocks)
            case SteeringReceived(blocks=blocks):
                self._steering[recorded.envelope.event_id] = blocks
            case SteeringApplied(steering_event_id=steering_id):
                return self._task(seq, self._steering.get(steering_id, ()))
            case AssistantMessage(blocks=blocks):
                return self._said(seq, blocks)
            case ToolCallRequested(call_id=call_id):
                tale = self._tales[call_id]
                return [self._done(tale)] if tale.seq == seq else []
            case _:
                pass
        return []

    def _task(self, seq: int, blocks: Blocks) -> list[_Entry]:
        text = self._text(blocks)
        return [_Entry("task", seq, text, text)] if text.strip() else []

    def _said(self, seq: int, blocks: Blocks) -> list[_Entry]:
        text = self._text(block for block in blocks if block.kind == "text")
        if not text.strip():
            return []
        told = f"- said: {excerpt_of(text, tokens=SAID_TOKENS)}"
        return [_Entry("history", seq, told, text)]

    def _done(self, tale: Tale) -> _Entry:
        request = tale.request
        arguments = self._text(request.arguments)
        result = _known_of(tale)
        output = self._text(result.blocks)
        failed = "failed: " if result.error else ""
        did = f"{request.tool} {self._values(request.tool, arguments)}"
        told = f"- [{tale.seq}] {did} -> {failed}{ending_of(output, tokens=OUTCOME_TOKENS)}"
        return _Entry("history", tale.seq, told, f"{arguments}\n{output}")

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

    def _lines(self, kind: str) -> list[str]:
        lines: list[str] = []
        for entry in self._entries:
            if entry.kind != kind:
                continue
            if kind == "task":
                tokens = TASK_TOKENS if lines else FIRST_TASK_TOKENS
                lines.append(f"- {excerpt_of(entry.told, tokens=tokens)}")
            else:
                lines.append(entry.told)
        return lines

    def _failures(self) -> list[str]:
        """What failed, by tool and arguments, the last words of each."""
        counts: Counter[tuple[str, str]] = Counter()
        words: dict[tuple[str, str], str] = {}
        for tale in self._tales.values():
            result = _known_of(tale)
            if result.error:
                arguments = self._text(tale.request.arguments)
                key = tale.request.tool, excerpt_of(arguments, tokens=ARGUMENT_TOKENS)
                counts[key] += 1
                words.pop(key, None)
                words[key] = self._text(result.blocks)
        return [
            f"- {tool} {arguments}: {counts[tool, arguments]} times, "
            f"last: {excerpt_of(last, tokens=FAILURE_TOKENS)}"
            for (tool, arguments), last in list(words.items())[-FAILURES_MAX:]
        ]

    def _unknown(self) -> list[str]:
        """Calls that were begun and have no end."""
        unknown = [
            tale
            for tale in self._tales.values()
            if not tale.ends and tale.standing.form in UNKNOWN_FORMS
        ]
        return [
            f"- [{tale.seq}] {tale.request.tool} "
            f"{excerpt_of(self._text(tale.request.arguments), tokens=ARGUMENT_TOKENS)}"
            for tale in unknown[-FAILURES_MAX:]
        ]

    def _plan(self) -> list[str]:
        plans = [r.event for r in self._events if isinstance(r.event, PlanUpdated)]
        items = plans[-1].items if plans else ()
        return [f"- {item.status}: {self._text(item.blocks)}" for item in items]

    def _questions(self) -> list[str]:
        asked: dict[str, str] = {}
        for recorded in self._events:
            event = recorded.event
            if isinstance(event, InputRequested):
                asked[event.request_id] = self._text(event.prompt)
            elif isinstance(event, InputProvided):
                asked.pop(event.request_id, None)
        return [f"- {question}" for question in asked.values()][-QUESTIONS_MAX:]

    # --- what has room ----------------------------------------------------------------

    def _newest(self, lines: Sequence[str], tokens: int) -> list[str]:
        """The first line and the newest that have room, in their order."""
        kept: list[str] = []
        for line in [*lines[:1], *reversed(lines[1:])]:
            tokens -= self._counter.count(line)
            if tokens < 0:
                break
            kept.append(line)
        return kept[:1] + kept[:0:-1]

    def _mentions(self, told: str, tokens: int) -> list[str]:
        """What the entries refer to and the summary does not show yet.

        What was named late and by many is named again first.
        """
        named: Counter[str] = Counter()
        last: dict[str, int] = {}
        quoted: set[str] = set()
        for place, entry in enumerate(self._entries):
            names = evidence_in(entry.whole)
            quoted.update(quoted_in(entry.whole) - names)
            for one in names | quoted_in(entry.whole):
                named[one] += 1
                last[one] = place
        count = max(len(self._entries), 1)

        def weight(one: str) -> float:
            late = last[one] / count * LATE_WEIGHT
            return late + min(named[one], NAMED_MAX) - QUOTED_WEIGHT * (one in quoted)

        found = sorted(
            named,
            key=lambda one: (-weight(one), one),
        )
        return within(found, shown=told, tokens=tokens, counter=self._counter)

    def _text(self, blocks: Iterable[Block]) -> str:
        return "\n".join(self._body(block.body) for block in blocks)

    def _body(self, body: Body) -> str:
        match body:
            case str():
                return body
            case Blob() if body.sha256 in self._texts:
                return self._texts[body.sha256]
            case Blob():
                return body.preview or "" if is_text(body) else f"[{body.media_type}]"
            case _:
                return ""


LATE_WEIGHT = 4.0
NAMED_MAX = 8
QUOTED_WEIGHT = 1.0
"""How much it counts that something was named late, by how many entries it was named at
the most, and how much less what only stood between quotes."""


def _known_of(tale: Tale) -> Result:
    """What is known of a call by now: a late end, or else what the model was shown."""
    late = list(tale.late().values())
    return late[-1] if late else tale.result()


def _since_cleared(events: Sequence[Recorded], to_seq: int) -> list[Recorded]:
    kept: list[Recorded] = []
    for recorded in events:
        if recorded.seq > to_seq:
            break
        if isinstance(recorded.event, ContextCleared):
            kept = []
        kept.append(recorded)
    return kept
