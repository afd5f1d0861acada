"""Asking a tool's reconciler whether an effect happened. It may not know, or fail."""

import asyncio
import inspect
from dataclasses import replace
from functools import partial
from typing import Any, cast

from foldline.producers.secrets import Secrets
from foldline.producers.threads import is_told_to_stop, run_apart
from foldline.producers.tools import (
    Reconciled,
    Reconciler,
    ToolContext,
    said_blocks,
)

RECONCILE_TIMEOUT_S = 60.0
"""How long a reconciler may take; after that it is taken not to know."""


async def ask_reconciler(
    reconcile: Reconciler, arguments: dict[str, Any], context: ToolContext
) -> Reconciled:
    """Ask; one that fails, takes too long, or gives no answer, knows nothing.

    Whatever it raises is its failure, also what would end a process: whoever recovers
    next would ask it again, and end as well.
    """
    try:
        async with asyncio.timeout(RECONCILE_TIMEOUT_S):
            found = await _answer(reconcile, arguments, context)
            return _without_secrets(_checked(found), context.secrets)
    except BaseException as error:
        if is_told_to_stop():
            raise
        evidence = context.secrets.conceal_text(f"the reconciler failed: {error!r}")
        return Reconciled(None, evidence=evidence)


def _checked(found: object) -> Reconciled:
    """An answer, if it is one: anything but True, False and None would be guessed at."""
    if isinstance(found, Reconciled) and (
        found.executed is None or isinstance(cast("object", found.executed), bool)
    ):
        return found
    msg = f"no answer: {found!r}"
    raise TypeError(msg)


def _without_secrets(found: Reconciled, secrets: Secrets) -> Reconciled:
    """What was found out, without the secrets that the tool was given."""
    said = secrets.conceal(said_blocks(found.said))
    return replace(found, said=said, evidence=secrets.conceal_text(found.evidence))


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
