"""What foldline tests itself with, for whoever writes a log, a harness or an adapter.

    LogContract          what every log must do: inherit it, give a `make_log` fixture
    BlobContract         what every blob store must do
    SharedLogContract    what a log that several processes open must do besides
    MachineLogContract   the same, where all of them are on one machine
    LogStory             given, when, then: a session told to a log
    make_append          one append, ready to send

Needs pytest.
"""

import pytest

pytest.register_assert_rewrite(
    "foldline.testing.log_story",
    "foldline.testing.verdict_contract",
    "foldline.testing.reading_contract",
    "foldline.testing.fork_contract",
    "foldline.testing.steering_contract",
    "foldline.testing.subagent_contract",
    "foldline.testing.tool_contract",
    "foldline.testing.log_contract",
    "foldline.testing.blob_contract",
    "foldline.testing.shared_contract",
)

from foldline.testing.blob_contract import BlobContract  # noqa: E402 - after the rewrite
from foldline.testing.log_contract import LogContract  # noqa: E402
from foldline.testing.log_story import LogStory, make_append  # noqa: E402
from foldline.testing.shared_contract import (  # noqa: E402
    MachineLogContract,
    SharedLogContract,
)

__all__ = [
    "BlobContract",
    "LogContract",
    "LogStory",
    "MachineLogContract",
    "SharedLogContract",
    "make_append",
]
