"""A tool's reconciler that fails, or gives no answer, knows nothing: a person is asked."""

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn, cast

import pytest

from foldline.producers.reconciling import ask_reconciler
from foldline.producers.tools import Reconciled, Reconciler, ToolContext


class EverythingEndsError(BaseException):
    """What no `except Exception` catches."""


def _context() -> ToolContext:
    return ToolContext(session_id="s", call_id="c", operation_id="op", attempt=1)


def _raising(error: BaseException) -> Callable[..., NoReturn]:
    def reconcile(_arguments: dict[str, Any], _context: ToolContext) -> NoReturn:
        raise error

    return reconcile


def _raising_in_the_loop(error: BaseException) -> Callable[..., Any]:
    async def reconcile(_arguments: dict[str, Any], _context: ToolContext) -> NoReturn:
        raise error

    return reconcile


@pytest.mark.parametrize("how", [_raising, _raising_in_the_loop])
@pytest.mark.parametrize(
    "error",
    [ValueError("x"), SystemExit(4), EverythingEndsError(), asyncio.CancelledError()],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_reconciler_raises_ends_nobody_but_itself(
    how: Callable[[BaseException], Reconciler], error: BaseException
) -> None:
    """A SystemExit of one would end every recovery that asks it, one after the other."""
    found = await ask_reconciler(how(error), {}, _context())
    assert found.executed is None
    assert type(error).__name__ in found.evidence


@pytest.mark.parametrize(
    "answer",
    [None, "True", True, Reconciled(cast("bool", "yes")), Reconciled(cast("bool", 1))],
)
async def test_what_is_no_answer_is_not_taken_for_one(answer: object) -> None:
    """Neither a yes nor a no: guessed at, it would settle nothing for ever."""

    def reconcile(_arguments: dict[str, Any], _context: ToolContext) -> Reconciled:
        return cast("Reconciled", answer)

    found = await ask_reconciler(reconcile, {}, _context())
    assert found.executed is None
    assert "no answer" in found.evidence


async def test_who_asks_a_reconciler_can_be_stopped() -> None:
    """Its cancellation is no failure of the reconciler."""
    begun = asyncio.Event()

    async def reconcile(_arguments: dict[str, Any], _context: ToolContext) -> Reconciled:
        begun.set()
        await asyncio.Event().wait()
        return Reconciled(executed=True)

    asking = asyncio.create_task(ask_reconciler(reconcile, {}, _context()))
    await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
