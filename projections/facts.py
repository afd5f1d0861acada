"""What no summary may leave out, whoever makes it. Pure.

    failures    what ended in a failure, how often, and its last words
    unknown     calls that were begun, and whose outcome nobody knows
    open        calls that wait, go on in the background, or did not begin yet
    plan        its steps
    questions   what the agent asked and nobody answered

Each has its share of a summary's tokens. Where that is small the same is told in fewer
words; calls without an end, the newest failures, and the first steps that are open, are
told whatever the share.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from foldline.projections.calls import Result, Tale
from foldline.projections.pruning import excerpt_of
from foldline.projections.token_count import TokenCounter
from foldline.schemas.blocks import Block
from foldline.schemas.events import (
    InputProvided,
    InputRequested,
    PlanItem,
    PlanUpdated,
    SessionCreated,
    ToolBackgrounded,
    ToolExecutionStarted,
    TurnEnded,
)
from foldline.schemas.recorded import Recorded

FACTS_SHARE = 0.1
FACTS_MIN_TOKENS = 150
"""What each kind of facts may have: a share of the summary, and so much at the least."""

FACTS_KEPT = 3
"""So many of each kind are told whatever the share."""

FAILURES_MAX = 12
UNENDED_MAX = 12
QUESTIONS_MAX = 5
"""The newest so many are told; of calls without an end, how many there are besides."""

WORDS_TOKENS = (40, 16, 6)
"""Tokens of arguments, last words or a step: in full, shorter, and in few words."""

UNKNOWN, OPEN = "UNKNOWN", "OPEN"
"""Kinds of calls without an end."""

UNKNOWN_FORMS = frozenset({"UNKNOWN", "TIMED_OUT", "CANCELLED"})
"""What stands in for the result of a call that may have had its effect."""

BACKGROUND = "BACKGROUND"

NOT_BEGUN = {
    "WAITING": "waits for a person's permission",
    "GRANTED": "permitted, not run yet",
    "DENIED": "denied, may be asked for again",
    "EXPIRED": "nobody answered in time, may be asked for again",
    "NOT_RUN": "not run",
}
"""What stands in for the result of a call that did not begin, in words.

The end of its turn ends it: then nobody waits for it any more.
"""

LEFT = "left to the session that this one was forked from"

DONE = frozenset({"COMPLETED", "DROPPED"})
"""Steps of a plan that are not open any more."""

TextOf = Callable[[Iterable[Block]], str]


@dataclass(frozen=True, slots=True)
class Fact:
    """One line, in full and in ever fewer words; `place` is where it stands."""

    place: int
    told: tuple[str, ...]


class Facts:
    """The facts of a history, taken in event by event.

    Args:
        text_of: the text of blocks.
    """

    def __init__(self, text_of: TextOf) -> None:
        self._text_of = text_of
        self._counts: Counter[tuple[str, str]] = Counter()
        self._words: dict[tuple[str, str], tuple[str, str]] = {}
        self._unended: dict[str, Tale] = {}
        self._retried: dict[str, int] = {}
        self._handles: dict[str, str] = {}
        self._turn_ended_seq = 0
        self._plan: tuple[PlanItem, ...] = ()
        self._asked: dict[str, tuple[int, str]] = {}

    def take(self, recorded: Recorded) -> None:
        """Take one more event in."""
        match recorded.event:
            case PlanUpdated(items=items):
                self._plan = items
            case InputRequested(request_id=name, prompt=prompt):
                self._asked[name] = recorded.seq, self._text_of(prompt)
            case InputProvided(request_id=name):
                self._asked.pop(name, None)
            case ToolExecutionStarted(call_id=name, attempt=attempt) if attempt > 1:
                self._retried[name] = attempt
            case ToolBackgrounded(call_id=name, handle=handle):
                self._handles[name] = handle
            case TurnEnded():
                self._turn_ended_seq = recorded.seq
            case SessionCreated(inherited=inherited):
                self._plan = inherited.plan if inherited else ()
                self._asked.clear()
            case _:
                pass

    def forget_failures(self) -> None:
        """What failed so far is told no more; what is open is as open as before."""
        self._counts.clear()
        self._words.clear()

    def take_call(self, tale: Tale, *, failed: bool) -> None:
        """Take in what became of one more call; `failed`: it is to be told as a failure."""
        request = tale.request
        if _is_unended(tale, self._retried.get(request.call_id, 0)):
            self._unended[request.call_id] = tale
        if failed:
            arguments = self._text_of(request.arguments)
            key = request.tool, request.args_hash or arguments
            self._counts[key] += 1
            self._words.pop(key, None)
            said = self._text_of(known_of(tale).blocks)
            self._words[key] = excerpt_of(arguments, tokens=WORDS_TOKENS[0]), said

    def within(self, tokens: int, counter: TokenCounter) -> list[tuple[str, list[str]]]:
        """The kinds of facts that there are, each with its title and its lines.

        Args:
            tokens: of the whole summary.
            counter: counts them.
        """
        room = max(int(tokens * FACTS_SHARE), FACTS_MIN_TOKENS)
        found = [
            ("What failed:", self._failures(), FACTS_KEPT),
            (
                *self._calls("Nobody knows how these ended, verify first", UNKNOWN),
                UNENDED_MAX,
            ),
            (*self._calls("Still open", OPEN), UNENDED_MAX),
            ("The plan:", self._steps(), FACTS_KEPT),
            ("Not answered yet:", self._questions(), FACTS_KEPT),
        ]
        return [
            (title, _chosen(facts, room, counter, least=least))
            for title, facts, least in found
            if facts
        ]

    # --- each kind, what matters most first -------------------------------------------

    def _failures(self) -> list[Fact]:
        """What failed, by tool and arguments; the newest first."""
        newest = islice(reversed(self._words.items()), FAILURES_MAX)
        return [
            _failure(-place, key[0], *said, self._counts[key])
            for place, (key, said) in enumerate(newest)
        ]

    def _calls(self, title: str, kind: str) -> tuple[str, list[Fact]]:
        """Calls of a kind that have no end, with their title; the newest first."""
        tales = [t for t in self._unended.values() if self._kind_of(t) == kind]
        newest = reversed(tales[-UNENDED_MAX:])
        some = f" (the newest {UNENDED_MAX} of {len(tales)})"
        some = some if len(tales) > UNENDED_MAX else ""
        return f"{title}{some}:", [self._unended_call(tale) for tale in newest]

    def _unended_call(self, tale: Tale) -> Fact:
        request = tale.request
        arguments = self._text_of(request.arguments)
        stands = _stands(tale.standing.form, self._handles.get(request.call_id, ""))
        return _in_words(
            tale.seq, lambda cut: f"- [{tale.seq}] {request.tool} {cut(arguments)}{stands}"
        )

    def _kind_of(self, tale: Tale) -> str:
        """UNKNOWN, OPEN, or empty: it did not begin, and its turn is over."""
        if tale.standing.form in UNKNOWN_FORMS:
            return UNKNOWN
        over = tale.standing.form in NOT_BEGUN and tale.seq < self._turn_ended_seq
        return "" if over else OPEN

    def _steps(self) -> list[Fact]:
        """The steps of the plan; those that are open first."""
        items = list(enumerate(self._plan))
        items.sort(key=lambda placed: placed[1].status in DONE)
        return [_item(place, item, self._text_of) for place, item in items]

    def _questions(self) -> list[Fact]:
        """What was asked and not answered; the newest first."""
        newest = reversed(list(self._asked.values())[-QUESTIONS_MAX:])
        return [_question(seq, said) for seq, said in newest]


def known_of(tale: Tale) -> Result:
    """What is known of a call by now: a late end, or else what the model was shown."""
    late = list(tale.late().values())
    return late[-1] if late else tale.result()


def failed_of(tale: Tale) -> bool:
    """Whether a call ended in a failure; what only stands in for its result is none."""
    return bool(tale.ends) and known_of(tale).error


def _is_unended(tale: Tale, retried: int) -> bool:
    """Whether a call has no end, or none of the attempt that it was tried again in."""
    return all(end.attempt < retried for end in tale.ends)


def _chosen(
    facts: Sequence[Fact], tokens: int, counter: TokenCounter, *, least: int
) -> list[str]:
    """The lines that have room, `least` at the least; the first facts matter most."""
    least = min(least, len(facts))
    brevity, kept = 0, _fitting(facts, 0, tokens, counter)
    while len(kept) < least and brevity + 1 < len(WORDS_TOKENS):
        brevity += 1
        kept = _fitting(facts, brevity, tokens, counter)
    kept = kept if len(kept) >= least else facts[:least]
    in_order = sorted(kept, key=lambda fact: fact.place)
    return [fact.told[brevity] for fact in in_order]


def _fitting(
    facts: Sequence[Fact], brevity: int, tokens: int, counter: TokenCounter
) -> Sequence[Fact]:
    for count, fact in enumerate(facts):
        tokens -= counter.count(fact.told[brevity])
        if tokens < 0:
            return facts[:count]
    return facts


def _in_words(place: int, tell: Callable[[Callable[[str], str]], str]) -> Fact:
    """A fact whose texts are cut to ever fewer words."""

    def cut_to(tokens: int) -> Callable[[str], str]:
        return lambda text: excerpt_of(text, tokens=tokens)

    return Fact(place, tuple(tell(cut_to(tokens)) for tokens in WORDS_TOKENS))


def _failure(place: int, tool: str, arguments: str, last: str, count: int) -> Fact:
    return _in_words(
        place,
        lambda cut: f"- {tool} {cut(arguments)}: {count} times, last: {cut(last)}",
    )


def _stands(form: str, handle: str) -> str:
    """How it is with a call that is open; what a title says already is not said again."""
    if form in UNKNOWN_FORMS:
        return ""
    if form == BACKGROUND:
        return f": goes on in the background, as {handle}"
    return f": {NOT_BEGUN.get(form, LEFT)}"


def _item(place: int, item: PlanItem, text_of: TextOf) -> Fact:
    said = text_of(item.blocks)
    return _in_words(place, lambda cut: f"- {item.status}: {cut(said)}")


def _question(seq: int, said: str) -> Fact:
    return _in_words(seq, lambda cut: f"- {cut(said)}")
