"""Who decides: a script that stands in for a model, or a model behind a URL.

Both see the context that foldline builds from the log, and nothing else. So what they
decide after a crash follows from what was recorded before it, in whatever process.
"""

import asyncio
import json
import os
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from foldline import ModelResponse, ToolRequest
from foldline.context import Context
from foldline.models import from_openai, to_openai_messages

CUSTOMER = "maria@example.com"
SOURCE = "invoice/total.py"
BUG = "sum(price for price, quantity in items)"
FIX = "sum(price * quantity for price, quantity in items)"

INSTRUCTIONS = (
    "You are a coding agent in a small Python repository. Use the tools, one step at a "
    "time, and say in one sentence when you are done."
)

TASK = (
    f"Invoices are too low. Run the tests, repair {SOURCE}, and run them again. When "
    f"they pass, tell {CUSTOMER} in one mail, note the mail's number in CHANGELOG.md, "
    "and commit."
)


class Model(Protocol):
    """Answers a context with text, or with requests for tools."""

    @property
    def provider(self) -> str:
        """Who runs it."""
        ...

    @property
    def name(self) -> str:
        """Its name there."""
        ...

    async def answer(self, context: Context) -> ModelResponse:
        """What comes next, given all that was said and done so far."""
        ...


# --- the script ----------------------------------------------------------------------

TRIES = 3
"""How often the script asks for a step that fails."""

Results = Sequence[str]
"""What the tools have answered, step by step."""


def _call(tool: str, **arguments: str) -> ToolRequest:
    return ToolRequest(tool=tool, arguments=json.dumps(arguments))


STEPS: tuple[Callable[[Results], ToolRequest], ...] = (
    lambda _: _call("run_tests"),
    lambda _: _call("read_file", path=SOURCE),
    lambda results: _call("write_file", path=SOURCE, content=results[1].replace(BUG, FIX)),
    lambda _: _call("run_tests"),
    lambda results: _call(
        "send_mail",
        to=CUSTOMER,
        subject="Your invoice was too low",
        text=f"It is repaired. The tests: {results[3].splitlines()[-1]}.",
    ),
    lambda results: _call(
        "write_file",
        path="CHANGELOG.md",
        content=f"# Changes\n\n- Every piece is counted ({CUSTOMER}: {results[4]}).\n",
    ),
    lambda _: _call("commit", message="Count every piece of an invoice"),
)
"""Each step is asked for until the context shows its result."""


@dataclass(frozen=True, slots=True)
class Script:
    """Asks for the first step of the task that the context shows no result of.

    It gives up where a step fails again and again: a post office that is gone must not
    keep it busy for ever.
    """

    provider: str = "script"
    name: str = "script"

    async def answer(self, context: Context) -> ModelResponse:
        """The next step; text when every step has its result."""
        results = _results(context)
        failed = _failed_in_a_row(context)
        if len(results) < len(STEPS) and failed < TRIES:
            return ModelResponse.of("", STEPS[len(results)](results))
        if failed:
            return ModelResponse.of("I give up: that step fails again and again.")
        return ModelResponse.of(f"Done: {results[-1]}")


def _failed_in_a_row(context: Context) -> int:
    """How many of the latest results, one after another, are failures."""
    failed = 0
    for message in context.messages:
        if message.role == "tool":
            for result in message.parts:
                failed = failed + 1 if result.error else 0
    return failed


def _results(context: Context) -> Results:
    """What the tools have answered, without what failed or was not run."""
    return [
        "".join(said.text for said in result.parts)
        for message in context.messages
        if message.role == "tool"
        for result in message.parts
        if not result.error
    ]


# --- a real model --------------------------------------------------------------------

ANSWER_LIMIT_S = 120


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model behind an OpenAI-compatible URL (.../v1); OPENAI_API_KEY is its key."""

    url: str
    name: str
    provider: str = "openai"

    async def answer(self, context: Context) -> ModelResponse:
        """Ask it."""
        body = {
            "model": self.name,
            "messages": to_openai_messages(context),
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": json.loads(str(tool.input_schema)),
                    },
                }
                for tool in context.tools
            ],
        }
        return from_openai(await asyncio.to_thread(self._post, body))

    def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - the URL is the user's own
            f"{self.url.rstrip('/')}/chat/completions",
            data=json.dumps(body).encode(),
            headers={
                "Content-Type": "application/json",
                "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}",
            },
        )
        with urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S) as answer:  # noqa: S310 - see above
            return json.load(answer)
