"""A transcript to write, and a log to import it into."""

from pathlib import Path

import pytest

from foldline.processors.open_log import open_log
from tests.transcripts import Import, Transcript


@pytest.fixture
def script() -> Transcript:
    return Transcript()


@pytest.fixture
def into(tmp_path: Path) -> Import:
    return Import(open_log("memory:"), tmp_path)
