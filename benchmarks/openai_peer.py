"""The OpenAI Agents SDK as a peer: in an environment of its own, outside this one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from measure import CACHE_FOLDER, say

VERSION = "0.24.0"
SCRIPT = Path(__file__).parent / "peers" / "openai_session.py"


def interpreter() -> Path:
    """The Python of the environment that has the SDK; made if it is not there."""
    folder = CACHE_FOLDER / f"openai-agents-{VERSION}"
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if not ready.exists():
        say(f"installing openai-agents {VERSION} into {folder}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        install = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([python, *install, f"openai-agents=={VERSION}"], check=True)
        ready.touch()
    return python


class OpenAiSession:
    """A process that appends to one SQLiteSession, round by round."""

    def __init__(self, path: Path, *, mode: str) -> None:
        self._process = subprocess.Popen(
            [interpreter(), SCRIPT, path, mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.settings: dict[str, Any] = self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def append(self, items: list[Any]) -> list[float]:
        """The seconds that each append of one item took."""
        return self._ask({"each": items})

    def append_all(self, items: list[Any]) -> None:
        """Append items at once."""
        self._ask({"all": items})

    def _ask(self, question: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the peer ended; see its message above"
        return json.loads(line)
