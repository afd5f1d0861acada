"""What a fork costs: of a session of 1,000 events, and of one of 100,000.

A fork copies no event: at the same seq it takes the same time and the same bytes,
however long its parent is. Both parents begin alike (instructions, tools, a goal, a
plan) and lie in one SQLite log; their forks take turns. Bytes are those of the fork's
stored events.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import Rounds, finish, options, ratio, say, summary, table, target

import foldline
from foldline import Client
from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    GoalSet,
    InstructionsSet,
    PlanItem,
    PlanUpdated,
    SessionCreated,
    ToolDeclaration,
    ToolsDeclared,
)
from foldline.testing import LogStory
from foldline.testing.samples import told

SIZES = (1_000, 100_000)
SIZES_QUICK = (1_000, 5_000)
AT_SEQ = 50
ROUNDS = 9
FORKS_A_ROUND = 20
TARGET_RATIO = 1.25
"""What the long parent's fork may take, as a multiple of the short one's."""


def parent_of(log: Log, events: int) -> str:
    """A session of so many events; gives its id."""
    story = LogStory(log)
    items = (PlanItem(item_id="1", status="PENDING", blocks=(text_block("look"),)),)
    tools = tuple(ToolDeclaration(name=f"tool{n}", effect="READ_ONLY") for n in range(8))
    story.given(
        SessionCreated(agent="bench"),
        InstructionsSet(role="system", blocks=(text_block("be brief. " * 100),)),
        ToolsDeclared(tools=tools),
        GoalSet(blocks=(text_block("measure it"),)),
        PlanUpdated(items=items),
    )
    told(story, events - story.seq)
    assert story.seq == events
    return story.session_id


async def forked(client: Client, session_id: str) -> tuple[float, str]:
    """Fork it; gives the seconds that it took, and the fork's id."""
    began_s = time.perf_counter()
    fork = await client.fork(session_id, AT_SEQ)
    took_s = time.perf_counter() - began_s
    await fork.close()
    return took_s, fork.session_id


async def measured(
    log: Log, parents: dict[str, str], *, rounds: int
) -> tuple[Rounds, dict[str, int]]:
    """Fork each in turns; gives seconds by parent and round, and a fork's bytes."""
    samples: Rounds = {name: [] for name in parents}
    sizes: dict[str, int] = {}
    async with foldline.connect(log) as client:
        for number in range(-1, rounds):
            for name in list(parents)[:: 1 if number % 2 == 0 else -1]:
                found = [await forked(client, parents[name]) for _ in range(FORKS_A_ROUND)]
                if number >= 0:
                    samples[name].append([took_s for took_s, _ in found])
                own = log.events(found[-1][1])
                sizes[name] = sum(len(recorded.body) for recorded in own)
    return samples, sizes


def main() -> None:
    """Measure, show, compare with the targets."""
    arguments = options(__doc__ or "").parse_args()
    short, long = SIZES_QUICK if arguments.quick else SIZES
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        log = open_log(f"sqlite:///{Path(folder) / 'fork.db'}")
        parents = {str(size): parent_of(log, size) for size in (short, long)}
        rounds = 2 if arguments.quick else ROUNDS
        samples, sizes = asyncio.run(measured(log, parents, rounds=rounds))
        heads = {name: log.state(parents[name]) for name in parents}
        untouched = all(s is not None and str(s.seq) == name for name, s in heads.items())
        log.close()
    result = _result(samples, sizes, short=str(short), long=str(long))
    result["parents_untouched"] = untouched
    _show(result, samples, sizes)
    finish(arguments, result)


def _result(
    samples: Rounds, sizes: dict[str, int], *, short: str, long: str
) -> dict[str, Any]:
    return {
        "fork": {name: summary(found) for name, found in samples.items()},
        "fork_bytes": sizes,
        "time_ratio": round(ratio(samples, long, short), 3),
        "bytes_ratio": round(sizes[long] / sizes[short], 3),
    }


def _show(result: dict[str, Any], samples: Rounds, sizes: dict[str, int]) -> None:
    rows = [
        (f"{int(name):,} events", *result["fork"][name].values(), sizes[name])
        for name in samples
    ]
    say(table(("a fork at 50 of", "p50 µs", "p99 µs", "forks", "bytes"), rows))
    target("time, of the shorter parent's fork", result["time_ratio"], TARGET_RATIO)
    target("bytes, of the shorter parent's fork", result["bytes_ratio"], 1.01)
    target("parents untouched", float(result["parents_untouched"]), 1.0, at_least=True)


if __name__ == "__main__":
    main()
