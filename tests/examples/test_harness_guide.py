"""docs/harness.md as its reader runs it: its program, its shell, its tests."""

import ast
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from foldline.logs import open_log
from foldline.projections.approvals import Inbox

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "harness.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LIMIT_S = 120

KILLED = "Killed"
OURS = ("FOLDLINE_", "PYTEST_")  # what is set here is not the reader's
REQUEST = "REQUEST"


def blocks(language: str, text: str = GUIDE) -> list[str]:
    """The blocks of a language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    """A section's text."""
    return GUIDE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each command of the guide, and the lines that it is said to print."""
    for block in blocks("console"):
        for command in block.removeprefix("$ ").split("\n$ "):
            line, *printed = command.splitlines()
            yield line, printed


class Reader:
    """Whoever reads the guide: a folder with its files, and a shell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tests = blocks("python", section("Test it"))
        program = [block for block in blocks("python") if block not in tests]
        (folder / "refunds.py").write_text("\n\n".join(program))
        (folder / "test_refunds.py").write_text("\n\n".join(tests))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
        self.environment = kept | {"PATH": path, "XDG_DATA_HOME": str(folder / "data")}

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a shell does."""
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )

    def follow(self, command: str) -> str:
        """Do what the guide says, and give what was printed."""
        name, _, value = command.removeprefix("export ").partition("=")
        if command.startswith("export "):
            self.environment[name] = value
            return ""
        if REQUEST in command.split():
            command = command.replace(REQUEST, self.request_id())
        done = self.run(command)
        said = done.stdout + done.stderr
        if done.returncode == -signal.SIGKILL:
            return f"{KILLED}\n{said}"
        assert done.returncode == 0, f"{command}: {said}"
        return said

    def request_id(self) -> str:
        """The one request that waits."""
        name = self.environment["FOLDLINE_URL"].removeprefix("sqlite:///")
        with closing(open_log(f"sqlite:///{self.folder / name}")) as log:
            (pending,) = Inbox(log).look(limit=2).requests
        return pending.request_id


@pytest.mark.crash
def test_all_that_the_guide_tells_its_reader_to_run_does_what_it_says(
    tmp_path: Path,
) -> None:
    """Its program is killed, approved and steered; its own tests and its replay pass."""
    reader = Reader(tmp_path)
    missing: list[str] = []
    for command, printed in commands():
        said = reader.follow(command)
        missing.extend(f"{command}: {line}" for line in printed if line not in said)
    assert missing == []
    paid = (tmp_path / "ledger.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["cents"] for line in paid) == [900, 4_000, 12_000]


def test_the_guide_names_the_wheel_and_the_extras_that_there_are() -> None:
    """What is installed has the name and version of this project."""
    shell = "".join(blocks("shell"))
    assert f"foldline-{PROJECT['version']}-py3-none-any.whl" in shell
    named = set(re.findall(r"\(`([a-z0-9-]+)`\)", section("Install")))
    assert named
    assert named <= set(PROJECT["optional-dependencies"])


def test_every_section_of_the_guide_is_in_its_list_of_contents() -> None:
    """A list that lacks one hides it."""
    listed = re.findall(r"^\d+\. \[(.+)\]\(#", GUIDE, re.MULTILINE)
    assert listed == re.findall(r"^## (.+)$", GUIDE, re.MULTILINE)


def test_the_guide_imports_only_what_is_public() -> None:
    """A reader copies these lines: they name no module that may move."""
    imported = {
        node.module or ""
        for block in blocks("python")
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.ImportFrom)
    }
    ours = {name for name in imported if name.startswith("foldline.")}
    assert ours
    rooms = ("schemas", "processors", "projections", "producers")
    assert {name for name in ours if name.split(".")[1] in rooms} == set()
