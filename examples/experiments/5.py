"""Two agents, forked at event 50 of one session: which of them gets further?

    python examples/experiments/5.py [URL]

1. One agent works until its session has more than 50 events.
2. The session is forked twice at seq 50. No event is copied; both forks begin with the
   goal and the history up to there, and see the same context.
3. Each goes its own way. Then: where they part, what each used, and that the session
   they came from is as long as it was.

Without a URL it runs in memory.
"""

import asyncio
import sys

import foldline
from foldline import ModelResponse, OwnedSession
from foldline.events import Usage, text_block
from foldline.models import to_openai_messages

AT_SEQ = 50


async def ask(owned: OwnedSession, said: str, answer: str) -> object:
    """One turn with a scripted model; gives what the model was shown."""
    async with owned.turn(said) as turn:
        context = await turn.context()
        async with turn.model_call(context, model="script", provider="none") as call:
            usage = Usage(input_tokens=100, output_tokens=10)
            parts = (text_block(answer),)
            await call.complete(ModelResponse(parts=parts, usage=usage))
    return to_openai_messages(context)


async def experiment(url: str) -> dict[str, object]:
    """Run it; gives what it found."""
    async with foldline.connect(url) as client:
        parent = await client.create(agent="planner", goal="make the tests fast")
        while (await parent.state()).seq < AT_SEQ + 10:
            await ask(parent, "go on", "looking")
        length = (await parent.state()).seq
        bold = await parent.fork(AT_SEQ, agent="bold", labels={"way": "rewrite"})
        careful = await parent.fork(AT_SEQ, agent="careful", labels={"way": "measure"})
        shown = [await ask(fork, "now decide", "deciding") for fork in (bold, careful)]
        await ask(bold, "and then?", "rewrite it all")
        for answer in ("measure first", "cut the slowest test"):
            await ask(careful, "and then?", answer)
        states = [await fork.state() for fork in (bold, careful)]
        histories = [[e.seq async for e in fork.events()] for fork in (bold, careful)]
        return {
            "parent_events": length,
            "parent_events_after": (await parent.state()).seq,
            "saw_the_same": shown[0] == shown[1],
            "own_events": [state.seq - AT_SEQ for state in states],
            "history": [len(seqs) for seqs in histories],
            "own_input_tokens": [state.usage.input_tokens for state in states],
        }


def main() -> int:
    """Print what was found; exit code 0 if it is as it should be."""
    found = asyncio.run(experiment(sys.argv[1] if len(sys.argv) > 1 else "memory:"))
    for name, value in found.items():
        print(f"{name:<20} {value}")
    right = found["parent_events"] == found["parent_events_after"]
    return 0 if right and found["saw_the_same"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
