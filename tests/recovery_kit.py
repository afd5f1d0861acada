"""What `foldline recovery run` is given in tests: the charging tool, and its harness.

LEDGER and EFFECT in the environment say which.
"""

import os
from pathlib import Path
from typing import cast

from foldline.producers.client import Client
from foldline.producers.session import OwnedSession
from foldline.producers.tools import Effect, Toolbox
from tests import charging


def toolbox() -> Toolbox:
    """The tool of `tests.charging`."""
    effect = cast("Effect", os.environ["EFFECT"])
    return charging.toolbox(Path(os.environ["LEDGER"]), effect)


async def resume(_client: Client, owned: OwnedSession) -> None:
    """Its harness, from where the last owner was."""
    async with await owned.resume_turn() as turn:
        await charging.go_on(owned, turn, toolbox())
    await owned.complete()


async def breaks(_client: Client, _owned: OwnedSession) -> None:
    """A harness that never gets anywhere."""
    raise RuntimeError("the model is away")
