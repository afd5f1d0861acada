"""Asking a tool's reconciler whether an effect happened. It may not know, or fail."""

import asyncio
import inspect
from functools import partial
from typing import Any

from foldline.producers.threads import run_apart
from foldline.producers.tools import Reconciled, Reconciler, ToolContext

RECONCILE_TIMEOUT_S = 60.0
"""How long a reconciler may take; after that it is taken not to know."""


async def ask_reconciler(
    reconcile: Reconciler, arguments: dict[str, Any], context: ToolContext
) -> Reconciled:
    """Ask; one that fails, or takes too long, knows nothing."""
    try:
        async with asyncio.timeout(RECONCILE_TIMEOUT_S):
            return await _answer(reconcile, arguments, context)
    except Exception as error:  # noqa: BLE001 - a failing reconciler knows nothing
        return Reconciled(None, evidence=f"the reconciler failed: {error!r}")


async def _answer(
    reconcile: Reconciler, arguments: dict[str, Any], context: ToolContext
) -> Reconciled:
    """Ask a reconciler: a coroutine function here, any other in a thread."""
    if inspect.iscoroutinefunction(reconcile):
        found = reconcile(arguments, context)
    else:
        ask = partial(reconcile, arguments, context)
        found = await run_apart(ask, name="foldline-reconcile")
    return await found if inspect.isawaitable(found) else found
