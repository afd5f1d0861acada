"""How a session's models count, by what their providers say of its calls. Pure.

An owner notes each context that a model answered to. It is counted when somebody asks for
a budget the next time: most contexts are too small to be counted at all.
"""

from typing import NamedTuple

from foldline.projections.context import Context
from foldline.projections.token_count import (
    CALIBRATED_CALLS,
    Reader,
    Sample,
    TokenCounter,
    calibrate,
    context_tokens,
    input_tokens,
)
from foldline.schemas.events import Usage


class _Answered(NamedTuple):
    context: Context
    reader: Reader
    usage: Usage


class Calibrating:
    """The last calls of a session, as far as they were counted."""

    def __init__(self) -> None:
        self._last: _Answered | None = None
        self._samples: list[Sample] = []

    def answered(self, context: Context, reader: Reader, usage: Usage | None) -> None:
        """A model has answered to a context, and its provider said how large that was."""
        self._last = None if usage is None else _Answered(context, reader, usage)

    def budget(self, tokens: int, counter: TokenCounter, reader: Reader) -> int:
        """What may be counted here, so that a reader's provider counts no more either."""
        self._count(counter)
        return calibrate(self._samples).counted(tokens, model=reader.model)

    def _count(self, counter: TokenCounter) -> None:
        last, self._last = self._last, None
        if last is None:
            return
        reader = last.reader
        counted = context_tokens(last.context, counter, reader=reader)
        reported = input_tokens(last.usage, provider=reader.provider)
        sample = Sample(reader.model, counted, reported)
        self._samples = [*self._samples, sample][-CALIBRATED_CALLS:]
