"""An owner's contexts on Kafka are those of the whole history, as on one machine."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from foldline.processors.lineage import joined_events, lineage_of
from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.producers.client import connect
from foldline.producers.session import OwnedSession
from foldline.projections.building import build
from foldline.projections.context import Context, Sources
from foldline.projections.reading import context_of
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    CompactionCompleted,
    ConstraintSet,
    ContextCleared,
    HistoryRewound,
)
from foldline.testing.context_kit import COMPACTS, TOOLS, check, events_of, step, text_of
from tests.cluster.served import served_log
from tests.cluster.shared import Broker

pytestmark = pytest.mark.kafka


def whole(log: Log, session_id: str) -> Context:
    """The context built from the first event on, ancestors included."""
    return build(Sources(list(joined_events(log, lineage_of(log, session_id)))))


async def shown(log: Log, owned: OwnedSession) -> Context:
    """The owner's next context, which is that of a reader and that of the whole history."""
    async with owned.turn("go on") as turn:
        context = await turn.context(policy="full")
        check(context)
        read = await asyncio.to_thread(context_of, log, owned.session_id)
        expected = await asyncio.to_thread(whole, log, owned.session_id)
        assert read is not None
        assert context.sha256() == read.sha256() == expected.sha256()
    return context


async def test_compacted_rewound_cleared_and_forked_sessions_show_their_whole_history(
    broker: Broker, tmp_path: Path
) -> None:
    with served_log(broker, tmp_path) as fresh, closing(open_log(fresh.cluster.url)) as log:
        async with connect(fresh.cluster.url) as client:
            owned = await client.create(
                agent="a", goal="ship it", tools=TOOLS, policy=COMPACTS
            )
            async with owned.turn("look around") as turn:
                for name in "abc":
                    await step(turn, ("read", f'{{"path": "src/{name}.py"}}'))
                await step(turn, words="seen")
            assert await events_of(owned, CompactionCompleted)
            await shown(log, owned)
            early = (await owned.state()).seq
            await owned.append(ContextCleared())
            await shown(log, owned)
            no_network = ConstraintSet(constraint_id="net", blocks=(text_block("none"),))
            await owned.append(no_network)
            await owned.append(HistoryRewound(to_seq=early))
            later = (await owned.state()).seq
            await shown(log, owned)
            await owned.append(HistoryRewound(to_seq=later))
            assert "Constraint net, from now on: " in text_of(await shown(log, owned))
            fork = await owned.fork((await owned.state()).seq, policy="full")
            await shown(log, fork)
