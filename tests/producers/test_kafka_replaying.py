"""Replay on Kafka: the same record, the same hashes, and no effect."""

from collections.abc import Generator

import pytest

from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog
from foldline.producers.client import connect
from foldline.producers.replaying import continue_live, replay
from foldline.projections.refold import refold_all
from foldline.projections.replay import TOOL_SCHEMA
from foldline.schemas.state import COMPLETED
from tests.cluster.served import served_log
from tests.cluster.shared import Broker
from tests.replaying import Agent

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def log(
    broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Generator[AuditableLog]:
    """A log on Kafka with a worker."""
    with served_log(broker, tmp_path_factory.mktemp("kafka-replay")) as served:
        opened = open_log(served.cluster.url, settings=served.settings)
        yield opened
        opened.close()


async def test_a_session_on_kafka_replays_goes_on_live_and_folds_to_its_hashes(
    log: AuditableLog,
) -> None:
    agent = Agent()
    async with connect(log) as client:
        owned = await agent.record(client, "Tell Ada.", "Again.")
        await owned.checkpoint()
        await owned.complete()
        session_id = owned.session_id
        for schema, cause in (("object", ""), ("string", TOOL_SCHEMA)):
            again = agent.elsewhere(send_schema={"type": schema})
            report = await replay(log, session_id, again.run)
            found = report.divergence
            assert (found.cause if found else "") == cause, found
            assert again.world.touched == 0
        again = agent.elsewhere()
        report = await continue_live(client, session_id, again.run, from_seq=9)
        assert report.divergence is None, report.divergence
        # The first call was open at the fork point: it stays the parent's.
        assert len(again.world.sent) == 1
        state = log.state(report.live_session_id)
        assert state is not None
        assert (state.status, state.fork_seq) == (COMPLETED, 9)
        forked = agent.elsewhere()
        report = await replay(log, report.live_session_id, forked.run)
        assert report.divergence is None, report.divergence
        assert forked.world.touched == 0
    corpus = refold_all(log)
    assert corpus.ok, corpus.mismatches
    assert (corpus.sessions, corpus.compared >= 3) == (2, True)


async def test_a_session_that_nobody_has_ended_is_replayed_as_far_as_it_goes(
    log: AuditableLog,
) -> None:
    agent = Agent()
    async with connect(log) as client:
        owned = await agent.record(client, "Tell Ada.")
        report = await replay(log, owned.session_id, agent.elsewhere().run)
    assert report.divergence is None, report.divergence
    assert report.ended.endswith("before the session does")
