"""The demo's stand-in for a model: what it asks for next, and when it stops asking."""

import asyncio
import runpy
from pathlib import Path

import pytest

from foldline.producers.model import ToolRequest
from foldline.projections.context import Context, Message, Part

MODEL = Path(__file__).resolve().parents[2] / "examples" / "demo" / "model.py"


def asked_after(*failures: bool) -> list[str]:
    """The tools that the script asks for after one call that worked, and these."""
    results = [Part("result", error=error) for error in (False, *failures)]
    messages = tuple(Message("tool", (result,), ()) for result in results)
    context = Context(messages, tools=(), base_seq=0, upto_seq=9)
    script = runpy.run_path(str(MODEL))["Script"]()
    answer = asyncio.run(script.answer(context))
    return [part.tool for part in answer.parts if isinstance(part, ToolRequest)]


@pytest.mark.parametrize("failures", [(), (True,), (True, True), (True, True, True, False)])
def test_a_step_that_failed_is_asked_for_again(failures: tuple[bool, ...]) -> None:
    assert len(asked_after(*failures)) == 1


def test_the_script_gives_up_where_a_step_fails_again_and_again() -> None:
    """As when the post office is gone: the demo ends, and says what did not happen."""
    assert asked_after(*[True] * 3) == []
