"""A harness in a process of its own that reads files until its context is compacted."""

import asyncio
import sys

from foldline.producers.client import connect
from foldline.testing.context_kit import TIGHT, step

SESSION = "compacting"
STEPS = 6


async def main(url: str) -> None:
    """Work, and end the session."""
    async with connect(url) as client:
        owned = await client.create(agent="a", session_id=SESSION, policy=TIGHT)
        async with owned.turn("look around") as turn:
            for number in range(STEPS):
                await step(turn, ("read", f'{{"path": "src/{number}.py"}}'))
        await owned.complete()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
