"""The log on Kafka passes the contract, alone and shared, with a real worker behind it.

The tests of this module share one log: making topics and starting a worker takes longer
than most of them.
"""

import runpy
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from foldline.processors.clock import Clock, wall_clock
from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog
from foldline.testing import LogContract, LogStory, SharedLogContract
from foldline.testing.samples import created, said, started
from foldline.testing.verdict_contract import MakeLog
from tests.cluster.logs import FreshLog
from tests.cluster.served import served_log
from tests.cluster.shared import Broker

pytestmark = pytest.mark.kafka

VERIFIER = Path(__file__).resolve().parents[2] / "examples" / "verify_chain.py"


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


def test_the_bytes_of_the_topic_prove_a_session_to_code_that_knows_no_log(
    served: FreshLog,
) -> None:
    with closing(open_log(served.cluster.url)) as log:
        story = LogStory(log).given(created(), started(), said())
        head = story.state.chain_head.hex()
    verify = runpy.run_path(str(VERIFIER))["main"]
    assert verify(served.cluster.url, story.session_id, "3", head) == 0
    assert verify(served.cluster.url, story.session_id, "2", head) == 1
    assert verify(served.cluster.url, "nobody") == 1


@pytest.mark.storm
@pytest.mark.skipif(
    "'storm' not in config.getoption('markexpr')", reason="by name only: -m storm"
)
class TestLongKafkaRace(TestSharedKafkaLog):
    races = 1_000
