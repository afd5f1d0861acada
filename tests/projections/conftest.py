"""A read service that knows people by their tokens, one for all tests of a file."""

from collections.abc import Iterator

import httpx2
import pytest

from foldline.testing import LogStory
from foldline.testing.samples import created, started
from tests.serving import Served, people_of, serving_memory


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The service; a file that needs another one has its own."""
    with serving_memory(people_of(tmp_path_factory.mktemp("served"))) as served:
        yield served


@pytest.fixture
def http(served: Served) -> Iterator[httpx2.Client]:
    """A client with a person's token."""
    with served.http("fl_ann") as client:
        yield client


@pytest.fixture
def story(served: Served) -> LogStory:
    """A session in a turn, in the log behind the service."""
    return LogStory(served.node.log).given(created(), started())
