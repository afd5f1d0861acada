"""The demo's session, killed and resumed, replayed: its tools say that none was called."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from foldline.cli.demo import demo_folder

FOLDLINE = Path(sys.executable).with_name("foldline")
LIMIT_S = 180

HARNESS = """
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, {demo!r})

from agent import drive
from tools import Sandbox

from foldline import Toolbox


class Watched(Sandbox):
    def execute(self, tool_name, input):
        self.touched(tool_name)

    def _was_mail_sent(self, arguments, context):
        self.touched("reconcile")

    def touched(self, what):
        with Path("touched").open("a") as file:
            file.write(what)
        raise AssertionError(what)


def toolbox():
    return Watched(Path(), "").toolbox()


async def same(session, inputs):
    await drive(session, inputs, toolbox())


async def changed(session, inputs):
    tools = [
        replace(tool, input_schema={{"type": "object"}}) if tool.name == "commit" else tool
        for tool in toolbox()
    ]
    await drive(session, inputs, Toolbox(*tools))


async def without(session, inputs):
    await drive(session, inputs, Toolbox(*list(toolbox())[1:]))
"""

pytestmark = pytest.mark.crash


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `foldline` in a folder."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FOLDLINE_")}
    return subprocess.run(
        [str(FOLDLINE), *arguments],
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def replayed(folder: Path, log: str, harness: str) -> dict[str, Any]:
    """What the replay of a harness says, and that no tool was touched."""
    done = run(
        folder, "replay", "demo-", "--log", log, "--execute", f"watched:{harness}", "--json"
    )
    report = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == (0 if report["ok"] else 1), done.stderr
    assert not (folder / "touched").exists()
    return report


def demo_killed(folder: Path, *crash: str) -> str:
    """Run the demo, and write the harnesses beside it; gives its log."""
    done = run(folder, "demo", "--json", "--keep", str(folder / "demo"), *crash)
    assert done.returncode == 0, done.stderr
    (folder / "watched.py").write_text(HARNESS.format(demo=str(demo_folder())))
    return json.loads(done.stdout.splitlines()[-1])["log"]


def check_same(folder: Path, log: str) -> None:
    """The same harness does all that was recorded, by two processes, as one."""
    report = replayed(folder, log, "same")
    assert report["divergence"] is None, report["divergence"]
    assert report["model_calls"] == report["model_calls_recorded"] >= 8
    assert report["tool_calls"] >= 7
    assert report["not_given"] == []


def test_a_replay_of_the_demo_calls_nothing_and_names_what_was_changed(
    tmp_path: Path,
) -> None:
    """Killed while the mail is out: its outcome was found out by another process."""
    log = demo_killed(tmp_path)
    check_same(tmp_path, log)
    report = replayed(tmp_path, log, "changed")
    assert report["divergence"]["cause"] == "tool schema"
    assert report["divergence"]["detail"] == "input_schema of commit"
    report = replayed(tmp_path, log, "without")
    assert report["divergence"]["cause"] == "tool set"


def test_a_demo_killed_before_an_effect_replays_as_one_session(tmp_path: Path) -> None:
    """The start is recorded and nothing happened; another process began it again."""
    check_same(tmp_path, demo_killed(tmp_path, "--crash-at", "CP_TOOL_AFTER_START"))
