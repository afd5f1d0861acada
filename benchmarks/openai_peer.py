"""The OpenAI Agents SDK as a peer: in an environment of its own, outside this one."""

import subprocess
import sys
from pathlib import Path

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
