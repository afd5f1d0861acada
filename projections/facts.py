"""What no summary may leave out, whoever makes it. Pure.

    failures    what failed, how often, and its last words
    unknown     calls that were begun, and whose outcome nobody knows
    plan        its steps
    questions   what the agent asked and nobody answered

Each has its share of a summary's tokens. Where that is small the same is told in fewer
words; the newest failures, and the first steps that are open, are told whatever the share.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from foldline.projections.calls import Result, Tale
from foldline.projections.pruning import excerpt_of
from foldline.projections.token_count import TokenCounter
from foldline.schemas.blocks import Block
from foldline.schemas.events import InputProvided, InputRequested, PlanItem, PlanUpdated
from foldline.schemas.recorded import Recorded

FACTS_SHARE = 0.1
FACTS_MIN_TOKENS = 150
"""What each kind of facts may have: a share of the summary, and so much at the least."""

FACTS_KEPT = 3
"""So many of each kind are told whatever the share."""

FAILURES_MAX = 12
QUESTIONS_MAX = 5

WORDS_TOKENS = (40, 16, 6)
"""Tokens of arguments, last words or a step: in full, shorter, and in few words."""

UNKNOWN_FORMS = frozenset({"UNKNOWN", "TIMED_OUT", "CANCELLED"})
"""What stands in for the result of a call that may have had its effect."""

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
        self._words: dict[tuple[str, str], str] = {}
        self._unknown: list[Tale] = []
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
            case _:
                pass

    def take_call(self, tale: Tale) -> None:
        """Take in what became of one more call."""
        result = known_of(tale)
        if not tale.ends and tale.standing.form in UNKNOWN_FORMS:
            self._unknown.append(tale)
        if result.error:
            arguments = self._text_of(tale.request.arguments)
            key = tale.request.tool, excerpt_of(arguments, tokens=WORDS_TOKENS[0])
            self._counts[key] += 1
            self._words.pop(key, None)
            self._words[key] = self._text_of(result.blocks)

    def within(self, tokens: int, counter: TokenCounter) -> list[tuple[str, list[str]]]:
        """The kinds of facts that there are, each with its title and its lines.

        Args:
            tokens: of the whole summary.
            counter: counts them.
        """
        room = max(int(tokens * FACTS_SHARE), FACTS_MIN_TOKENS)
        found = [
            ("What failed:", self._failures()),
            ("Nobody knows how these ended, verify first:", self._unended()),
            ("The plan:", self._steps()),
            ("Not answered yet:", self._questions()),
        ]
        return [(title, _chosen(facts, room, counter)) for title, facts in found if facts]

    # --- each kind, what matters most first -------------------------------------------

    def _failures(self) -> list[Fact]:
        """What failed, by tool and arguments; the newest first."""
        newest = islice(reversed(self._words.items()), FAILURES_MAX)
        return [
            _failure(-place, *key, self._counts[key], last)
            for place, (key, last) in enumerate(newest)
        ]

    def _unended(self) -> list[Fact]:
        """Calls that were begun and have no end; the newest first."""
        newest = reversed(self._unknown[-FAILURES_MAX:])
        return [_unended(tale, self._text_of) for tale in newest]

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


def _chosen(facts: Sequence[Fact], tokens: int, counter: TokenCounter) -> list[str]:
    """The lines that have room, in their order; the first facts matter most."""
    least = min(FACTS_KEPT, len(facts))
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


def _failure(place: int, tool: str, arguments: str, count: int, last: str) -> Fact:
    return _in_words(
        place,
        lambda cut: f"- {tool} {cut(arguments)}: {count} times, last: {cut(last)}",
    )


def _unended(tale: Tale, text_of: TextOf) -> Fact:
    tool, arguments = tale.request.tool, text_of(tale.request.arguments)
    return _in_words(tale.seq, lambda cut: f"- [{tale.seq}] {tool} {cut(arguments)}")


def _item(place: int, item: PlanItem, text_of: TextOf) -> Fact:
    said = text_of(item.blocks)
    return _in_words(place, lambda cut: f"- {item.status}: {cut(said)}")


def _question(seq: int, said: str) -> Fact:
    return _in_words(seq, lambda cut: f"- {cut(said)}")
