"""Killed while a context is made smaller: the next owner has one that is whole."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from foldline.producers.client import connect
from foldline.schemas.events import CompactionCompleted, CompactionStarted, ContextPruned
from foldline.testing.context_kit import TIGHT, TOOLS, check, recorded, step, text_of
from tests.compacting import SESSION

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60

pytestmark = pytest.mark.crash


def killed_at(point: str, url: str) -> None:
    """Run the harness until it is killed there."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("FOLDLINE_")}
    command = [sys.executable, "-m", "tests.compacting", url]
    environment = {**own, "FOLDLINE_CRASH_AT": f"{point}:1"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, timeout=LIMIT_S, check=False)
    assert ran.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "point",
    [
        "CP_CONTEXT_AFTER_PRUNED",
        "CP_COMPACTION_AFTER_STARTED",
        "CP_COMPACTION_BEFORE_COMPLETED",
    ],
)
async def test_whoever_takes_over_after_a_kill_compacts_for_itself(
    tmp_path: Path, point: str
) -> None:
    url = f"sqlite:///{tmp_path}/sessions.db"
    killed_at(point, url)
    async with connect(url) as client:
        owned = await client.take(SESSION, policy=TIGHT)
        begun = len(await recorded(owned, CompactionStarted))
        assert begun == (0 if "PRUNED" in point else 1)
        assert await recorded(owned, CompactionCompleted) == []
        assert await recorded(owned, ContextPruned)
        report = await owned.recover(TOOLS)
        assert report.needs_person == []
        async with await owned.resume_turn() as turn:
            for number in range(3):
                await step(turn, ("read", f'{{"path": "docs/{number}.md"}}'))
            context = await turn.context()
            check(context)
            assert "src/0.py" in text_of(context)
        done = await recorded(owned, CompactionCompleted)
        assert done
        assert (await owned.state()).open_compaction is None
