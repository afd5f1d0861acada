"""How many tokens a context is: by a counter, per section, corrected by providers. Pure.

    message_tokens(message, counter)   one message
    context_tokens(context, counter)   all that is shown, tools included
    sizes_of(context, counter)         the same, by section
    calibrate(samples)                 what providers said, beside what was counted here

A count is of text. What a provider adds around it (roles, ids, the names of fields) and
what it makes of an image are constants here, which a calibration corrects.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Protocol

from foldline.projections.context import SUMMARY, Context, Message, Part
from foldline.projections.model_calls import Asked
from foldline.projections.wire import same_model
from foldline.schemas.blocks import Blob, Body, Sealed
from foldline.schemas.events import ToolDeclaration, Usage

MESSAGE_TOKENS = 4
"""What a provider puts around a message: its role and its borders."""

CALL_TOKENS = 12
"""What a provider puts around a call, and around a result: ids and names of fields."""

TOOL_TOKENS = 8
"""What a provider puts around the declaration of a tool."""

IMAGE_TOKENS: Mapping[str, int] = {
    # Anthropic: width x height / 750, of an image made to fit 1.15 megapixels.
    "anthropic": 1_600,
    # OpenAI: 85, and 170 for each of at most 2 x 4 tiles of 512 pixels; usual are 4.
    "openai": 765,
}
"""An image, whose size in pixels is not known here, by the provider that it goes to."""

ANY_IMAGE_TOKENS = max(IMAGE_TOKENS.values())
"""An image that goes to a provider of which no rule is known: rather too many."""

ENCRYPTED_CHARS_PER_TOKEN = 5
"""Characters of encrypted reasoning (base64 of text) for one token that is billed."""

CALIBRATED_CALLS = 8
"""How many of a model's last calls say how its count differs from the one made here."""

TRUSTED_CALLS = 4
"""How many calls must have said that before a budget is kept by it."""

RATIO_MIN = 0.5
RATIO_MAX = 2.0
"""A provider that says less or more than that per token counted here meant something
else. What is above is taken for a part of the request that is not in the context."""


class TokenCounter(Protocol):
    """Counts the tokens of a text, the same for the same text."""

    @property
    def name(self) -> str:
        """Which counter it is: two of one name count the same."""
        ...

    def count(self, text: str) -> int:
        """How many tokens a text is; 0 for none."""
        ...


@dataclass(frozen=True, slots=True)
class Reader:
    """Whom a context is for: reasoning of others is dropped, so it costs nothing.

    Reasoning goes back to its own model, as in requests (`wire.Wire.is_own`). An empty
    provider stands for any of its models; without a model all reasoning is counted.
    """

    provider: str = ""
    model: str = ""

    def keeps(self, part: Part) -> bool:
        """Whether reasoning goes back to this reader."""
        if not self.provider and not self.model:
            return True
        same = part.provider == self.provider or not self.provider
        return same and same_model(part.model or "", self.model)

    @property
    def image_tokens(self) -> int:
        """What an image is for this reader."""
        return IMAGE_TOKENS.get(self.provider, ANY_IMAGE_TOKENS)


ANYBODY = Reader()


@dataclass(frozen=True, slots=True)
class Sizes:
    """The tokens of a context by section.

    A policy's budget is of `messages`; `total` is what a provider is sent.
    """

    system: int = 0
    tools: int = 0
    user: int = 0
    assistant: int = 0
    reasoning: int = 0
    calls: int = 0
    results: int = 0
    summary: int = 0

    @property
    def total(self) -> int:
        """All sections together."""
        return sum(self.as_dict().values())

    @property
    def messages(self) -> int:
        """All but the tools."""
        return self.total - self.tools

    def as_dict(self) -> dict[str, int]:
        """The sections by their names, in the order of a context."""
        return {name: getattr(self, name) for name in SECTIONS}


SECTIONS = tuple(section.name for section in fields(Sizes))

_SAID = {"system": "system", "assistant": "assistant", "tool": "results"}


def context_tokens(
    context: Context, counter: TokenCounter, *, reader: Reader = ANYBODY
) -> int:
    """The tokens of all that a context shows, tools included."""
    return sizes_of(context, counter, reader=reader).total


def message_tokens(
    message: Message, counter: TokenCounter, *, reader: Reader = ANYBODY
) -> int:
    """The tokens of one message."""
    return sum(tokens for _, tokens in _sections(message, counter, reader))


def tools_tokens(tools: Iterable[ToolDeclaration], counter: TokenCounter) -> int:
    """The tokens of the tools that are declared to the model."""
    return sum(
        TOOL_TOKENS
        + counter.count(tool.name)
        + counter.count(_text_of(tool.description))
        + counter.count(_text_of(tool.input_schema))
        for tool in tools
    )


def sizes_of(context: Context, counter: TokenCounter, *, reader: Reader = ANYBODY) -> Sizes:
    """The tokens of a context by section."""
    found = message_sizes(context.messages, counter, reader=reader)
    return Sizes(**found, tools=tools_tokens(context.tools, counter))


def message_sizes(
    messages: Iterable[Message], counter: TokenCounter, *, reader: Reader = ANYBODY
) -> dict[str, int]:
    """The tokens of messages by section."""
    found: dict[str, int] = defaultdict(int)
    for message in messages:
        for section, tokens in _sections(message, counter, reader):
            found[section] += tokens
    return dict(found)


def _sections(
    message: Message, counter: TokenCounter, reader: Reader
) -> Iterator[tuple[str, int]]:
    """What each piece of a message adds, and to which section."""
    said = "summary" if message.origin == SUMMARY else _SAID.get(message.role, "user")
    yield said, MESSAGE_TOKENS
    for part in message.parts:
        tokens = part_tokens(part, counter, reader=reader)
        if part.kind == "call":
            yield "calls", CALL_TOKENS + counter.count(part.tool) + tokens
        elif part.kind == "result":
            yield "results", CALL_TOKENS + tokens
        elif part.kind == "reasoning" and said == "assistant":
            yield "reasoning", tokens
        else:
            yield said, tokens


def part_tokens(part: Part, counter: TokenCounter, *, reader: Reader = ANYBODY) -> int:
    """The tokens of what a part says, without what a provider puts around it."""
    if part.kind == "result":
        return sum(part_tokens(inner, counter, reader=reader) for inner in part.parts)
    if part.kind == "reasoning" and not reader.keeps(part):
        return 0
    if part.kind == "image":
        return reader.image_tokens
    if part.text or part.opaque is None:
        return counter.count(part.spoken)
    if part.kind == "reasoning":
        return math.ceil(len(part.opaque) / ENCRYPTED_CHARS_PER_TOKEN)
    return counter.count(part.opaque)


def _text_of(body: Body) -> str:
    match body:
        case str():
            return body
        case Blob():
            return body.preview or ""
        case Sealed():
            return ""


# --- what providers say ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """One call: the tokens counted here, and those that its provider reported."""

    model: str
    counted: int
    reported: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """What a provider counts: `ratio` for each token counted here, and `unseen` more.

    `unseen` is what a harness adds to each request without recording it: instructions
    and tools of an imported session, mostly. Both rest on `samples` calls.
    """

    ratio: float = 1.0
    unseen: int = 0
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Calibration:
    """How a provider's count differs from the one made here, by model."""

    ratios: Mapping[str, Ratio] = field(default_factory=dict[str, Ratio])

    def tokens(self, counted: int, *, model: str) -> int:
        """What the provider of a model will say; as counted where it never said."""
        of_model = self.of(model)
        return math.ceil(counted * of_model.ratio) + of_model.unseen

    def counted(self, tokens: int, *, model: str) -> int:
        """How much may be counted here of messages that are to have so many tokens.

        Never more than that: it holds by both counts. What a few calls say may be chance.
        """
        of_model = self.of(model)
        trusted = of_model.samples >= TRUSTED_CALLS
        return math.floor(tokens / max(of_model.ratio, 1.0)) if trusted else tokens

    def of(self, model: str) -> Ratio:
        """The ratio of a model; 1 from no calls where its provider never said."""
        return self.ratios.get(model, Ratio())


def calibrate(samples: Iterable[Sample], *, last: int = CALIBRATED_CALLS) -> Calibration:
    """What the last calls of each model say of its provider's count.

    Args:
        samples: the calls in their order, of any models.
        last: how many of each model count.
    """
    by_model: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.counted > 0 and sample.reported > 0:
            by_model[sample.model].append(sample)
    return Calibration({m: _ratio(found[-last:]) for m, found in by_model.items()})


def _ratio(samples: list[Sample]) -> Ratio:
    """The line through the samples with the least squares, within the bounds.

    A line that leaves less than nothing unseen becomes one through the origin.
    """
    count = len(samples)
    counted = sum(s.counted for s in samples) / count
    reported = sum(s.reported for s in samples) / count
    spread = sum((s.counted - counted) ** 2 for s in samples)
    steep = reported / counted
    if spread:
        both = sum((s.counted - counted) * (s.reported - reported) for s in samples)
        slope = min(both / spread, steep)
    else:
        slope = steep
    ratio = min(max(slope, RATIO_MIN), RATIO_MAX)
    return Ratio(ratio, max(round(reported - ratio * counted), 0), count)


def samples_of(calls: Iterable[Asked], counted: Mapping[str, int]) -> list[Sample]:
    """The calls whose context was counted and whose provider said its size.

    Args:
        calls: in their order: `model_calls.asked_of`.
        counted: the tokens of each call's context as counted here, by `model_call_id`.
    """
    return [
        Sample(call.model, counted[call.model_call_id], reported)
        for call in calls
        if call.usage is not None and call.model_call_id in counted
        for reported in [input_tokens(call.usage, provider=call.provider)]
    ]


def input_tokens(usage: Usage, *, provider: str = "") -> int:
    """How many tokens a request was for its provider, cached ones included; 0: not said.

    Anthropic counts what was read from and written to its cache apart from the input,
    others as a part of it. More cached than there was input is apart, whoever says so.
    """
    said = usage.input_tokens or 0
    cached = (usage.cache_read_input_tokens or 0) + (usage.cache_write_input_tokens or 0)
    apart = provider == "anthropic" or cached > said
    return said + cached if apart else said
