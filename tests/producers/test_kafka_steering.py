"""Steering on Kafka: as on one machine, from another process, over a kill."""

from collections.abc import Generator

import pytest

from tests.cluster.logs import FreshLog
from tests.cluster.served import served_log
from tests.cluster.shared import Broker
from tests.steering_run import POINTS, check_delivered_once, check_stopped

pytestmark = [pytest.mark.kafka, pytest.mark.crash]

BRIEF = {"FOLDLINE_LEASE_TTL_MS": "700", "FOLDLINE_LEASE_RENEW_MS": "150"}


@pytest.fixture(scope="module")
def served(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Generator[FreshLog]:
    """One log for all of these tests, and its worker."""
    with served_log(broker, tmp_path_factory.mktemp("kafka-steering")) as log:
        yield log


@pytest.mark.parametrize("point", POINTS)
async def test_a_harness_killed_while_it_takes_steering_in_delivers_it_once(
    served: FreshLog, point: str
) -> None:
    """Case B37, on the other log."""
    environment = dict(served.environment) | BRIEF
    await check_delivered_once(served.cluster.url, point, environment)


async def test_steering_stops_a_tool_that_can_stop_in_another_process(
    served: FreshLog,
) -> None:
    """Over the broker, and back into the process that runs the tool."""
    await check_stopped(served.cluster.url, "stoppable", served.environment)
