"""Outputs of tools of any size, through the log on Kafka: inline, or as a blob."""

import hashlib
import random
from collections.abc import Generator

import pytest

from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.producers.client import connect
from foldline.producers.model import ToolRequest
from foldline.producers.session import OwnedSession
from foldline.producers.tools import Done, Tool, Toolbox
from foldline.schemas.blocks import Blob
from foldline.schemas.events import ToolExecutionCompleted
from foldline.settings import Settings
from tests.cluster.logs import FreshLog, running_worker
from tests.cluster.operators import set_config
from tests.cluster.served import in_environment, served_log
from tests.cluster.shared import Broker
from tests.harness import one_turn

pytestmark = pytest.mark.kafka

MIB = 1024 * 1024
LIMIT = Settings().inline_max_bytes
OVERHEAD = 1_000
"""More than what an event has beside its output."""

SIZES = {
    "well below the limit": LIMIT // 2,
    "0.99 of the limit, inline": round(0.99 * LIMIT) - OVERHEAD,
    "1.01 of the limit": round(1.01 * LIMIT),
    "0.99 MiB": round(0.99 * MIB),
    "1.01 MiB": round(1.01 * MIB),
    "10 MiB": 10 * MIB,
}


@pytest.fixture(scope="module")
def served(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Generator[FreshLog]:
    """One log for all of these tests, and its worker."""
    with served_log(broker, tmp_path_factory.mktemp("kafka-sizes")) as log:
        yield log


async def run_tool_of(size: int, log: FreshLog) -> None:
    """A tool that puts out so many bytes: what is recorded of it, and what is given.

    The text has a name of its own in every line, so that no byte can be another one's.
    """
    text = text_of(size)
    tools = Toolbox(Tool(lambda _a, _c: text, name="dump", effect="READ_ONLY"))
    async with connect(log.cluster.url) as client:
        owned = await client.create(agent="a", tools=tools)
        (result,) = await one_turn(owned, tools, ToolRequest("dump", "{}", "p"))
        assert isinstance(result, Done)
        (block,) = (await completed(owned)).output
        if size + OVERHEAD <= LIMIT:
            assert block.body == text
        else:
            assert isinstance(block.body, Blob)
            assert block.body.size == size
            assert block.body.sha256 == hashlib.sha256(text.encode()).digest()
            assert await owned.blob(block.body) == text.encode()
        await owned.steer("and it goes on")
        await owned.complete(expire_steering="the test is over")
        assert (await owned.state()).status == "COMPLETED"


async def completed(owned: OwnedSession) -> ToolExecutionCompleted:
    """The one outcome of a session."""
    (event,) = [
        one.event
        async for one in owned.events()
        if isinstance(one.event, ToolExecutionCompleted)
    ]
    return event


def text_of(size: int) -> str:
    """So many bytes of text."""
    line = "line {:>9}\n"
    count = size // len(line.format(0)) + 1
    return "".join(line.format(number) for number in range(count))[:size]


def unpackable(size: int) -> str:
    """So many bytes of text of which a producer's packing makes no fewer."""
    return random.Random(size).randbytes(size // 2 + 1).hex()[:size]


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
async def test_an_output_is_inline_up_to_the_limit_and_a_blob_above_it(
    served: FreshLog, size: int
) -> None:
    """Row 13: with size and hash of its bytes, which come back as they were."""
    await run_tool_of(size, served)


@pytest.mark.storm
@pytest.mark.skipif(
    "'storm' not in config.getoption('markexpr')", reason="by name only: -m storm"
)
async def test_an_output_of_two_hundred_megabytes_is_a_blob(served: FreshLog) -> None:
    """Row 13: and the client goes on."""
    await run_tool_of(200 * MIB, served)


async def test_an_output_that_is_too_large_for_any_blob_is_recorded_without_it(
    served: FreshLog,
) -> None:
    """Row 13: the tool did run; that is never lost for what it said."""
    small = open_log(served.cluster.url, settings=Settings(blob_max_bytes=MIB))
    await assert_withheld(small, round(1.01 * MIB), "blob_max_bytes is 1048576")


async def test_an_output_that_the_broker_refuses_is_recorded_without_it(
    fresh_log: FreshLog,
) -> None:
    """Row 13: somebody set a lower limit on the topic than the log takes."""
    with in_environment(fresh_log), running_worker(fresh_log):
        set_config(fresh_log, fresh_log.names.appends, max_message_bytes=20_000)
        log = open_log(fresh_log.cluster.url)
        await assert_withheld(log, 50_000, "TOO_LARGE")


async def assert_withheld(log: Log, size: int, why: str) -> None:
    """A tool with an output of this size ran; why it is not there is, and all goes on."""
    text = unpackable(size)
    tools = Toolbox(Tool(lambda _a, _c: text, name="dump", effect="UNSAFE"))
    try:
        async with connect(log) as client:
            owned = await client.create(agent="a", tools=tools)
            (result,) = await one_turn(owned, tools, ToolRequest("dump", "{}", "p"))
            assert isinstance(result, Done)
            (block,) = (await completed(owned)).output
            assert "not recorded" in str(block.body)
            assert why in str(block.body)
            await owned.complete()
            assert (await owned.state()).status == "COMPLETED"
    finally:
        log.close()
