"""Case B36: killed between request, grant and start; every call runs once, when granted."""

from pathlib import Path

import pytest

from tests.approving_run import Run, check_killed_and_granted

REQUESTED = "CP_PERMISSION_AFTER_REQUEST:1"
ANSWERED = "CP_PERMISSION_AFTER_ANSWER:1"
BEFORE_START = "CP_TOOL_BEFORE_START:1"

pytestmark = pytest.mark.crash


@pytest.mark.parametrize(
    "crashes",
    [
        (REQUESTED,),
        (REQUESTED, ANSWERED),
        (REQUESTED, BEFORE_START),
        (REQUESTED, ANSWERED, REQUESTED, BEFORE_START),
    ],
    ids=" ".join,
)
async def test_a_harness_killed_around_a_grant_runs_each_call_once(
    tmp_path: Path, crashes: tuple[str, ...]
) -> None:
    """The request is offered again, the grant remembered."""
    run = Run(f"sqlite:///{tmp_path}/sessions.db", tmp_path)
    await check_killed_and_granted(run, *crashes)
