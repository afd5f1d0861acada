"""What puts a summary in the place of events that leave the context: a port.

A summariser is given the original events, never an earlier summary. What failed and how
often, the plan and the open questions are put into the summary for it: `facts`.

    Extractive          extracts of the events; needs no model, and is the default
    ModelSummariser     asks a model: `foldline.producers.model_summariser`
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from foldline.producers.model_call import ModelCall
from foldline.projections.policy import ContextPolicy
from foldline.projections.shaping import EXTRACTIVE
from foldline.projections.summarising import Originals, summary_of
from foldline.projections.token_count import TokenCounter
from foldline.schemas.blocks import Blocks, text_block

ANSWER_SHARE = 0.25
"""The share of a summary's room that facts, however many, leave to a summariser."""


class OpenModelCall(Protocol):
    """Begins a model call of the session, with purpose COMPACTION."""

    def __call__(self, data: bytes, *, model: str, provider: str) -> ModelCall:
        """A call, to be entered; `data` is what the model is sent, and is kept."""
        ...


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """What is to be summarised: `originals` up to their `to_seq`.

    `facts` will stand behind the summary, within the same room, so it need not tell them.
    """

    originals: Originals
    facts: str
    policy: ContextPolicy
    counter: TokenCounter
    model_call: OpenModelCall

    @property
    def answer_tokens(self) -> int:
        """What a summary may have beside the facts; a share of the room at the least."""
        room = self.policy.summary_tokens
        return max(room - self.counter.count(self.facts), int(room * ANSWER_SHARE), 1)


class Summariser(Protocol):
    """Makes summaries. What it raises, or an empty answer, fails the compaction."""

    @property
    def strategy(self) -> str:
        """Its name and version, as the compaction records it."""
        ...

    async def summarise(self, request: SummaryRequest) -> Blocks:
        """The summary: blocks of text, within `request.answer_tokens`."""
        ...


class Extractive:
    """Extracts of the events: the same events give the same summary."""

    strategy = EXTRACTIVE

    async def summarise(self, request: SummaryRequest) -> Blocks:
        """The summary, facts included."""
        text = await asyncio.to_thread(
            summary_of, request.originals, policy=request.policy, counter=request.counter
        )
        return (text_block(text),)
