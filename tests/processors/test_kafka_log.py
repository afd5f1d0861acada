"""The log on Kafka passes the contract, alone and shared, with a real worker behind it.

The tests of this module share one log: making topics and starting a worker takes longer
than most of them.
"""

from collections.abc import Generator

import pytest

from foldline.processors.batch import Clock
from foldline.processors.open_log import open_log, wall_clock
from foldline.processors.stored import AuditableLog
from foldline.testing import LogContract, SharedLogContract
from foldline.testing.verdict_contract import MakeLog
from tests.cluster.logs import FreshLog
from tests.cluster.served import served_log
from tests.cluster.shared import Broker

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def served(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Generator[FreshLog]:
    """One log for all of these tests, and its worker."""
    with served_log(broker, tmp_path_factory.mktemp("kafka-log")) as log:
        yield log


class TestKafkaLog(LogContract):
    one_shot_writers = 1_000

    @pytest.fixture
    def make_log(self, served: FreshLog) -> MakeLog:
        def make(*, clock: Clock = wall_clock) -> AuditableLog:
            return open_log(served.cluster.url, clock=clock)

        return make


class TestSharedKafkaLog(SharedLogContract):
    races = 100

    @pytest.fixture
    def url(self, served: FreshLog) -> str:
        return served.cluster.url


@pytest.mark.storm
@pytest.mark.skipif(
    "'storm' not in config.getoption('markexpr')", reason="by name only: -m storm"
)
class TestLongKafkaRace(TestSharedKafkaLog):
    races = 1_000
