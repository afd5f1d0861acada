"""A transcript to write, and a log to import it into."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from foldline.processors.open_log import open_log
from tests.hooked import Harness
from tests.transcripts import Import, Transcript


@pytest.fixture
def script() -> Transcript:
    return Transcript()


@pytest.fixture
def into(tmp_path: Path) -> Import:
    return Import(open_log("memory:"), tmp_path)


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    made = Harness(tmp_path, monkeypatch)
    yield made
    made.follower.mirroring.close()
    made.follower.log.close()
