"""`foldline completion`: scripts that real shells take and that complete commands."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Run

ASK_BASH = """
source "$1"
COMP_WORDS=({words}); COMP_CWORD={at}; COMP_LINE="{words}"; COMP_POINT=${{#COMP_LINE}}
_foldline
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(script: Path, *words: str) -> list[str]:
    line = " ".join(words)
    asked = ASK_BASH.format(words=line, at=len(words) - 1)
    done = subprocess.run(
        ["bash", "-c", asked, "bash", str(script)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_bash_completes_commands_their_parts_and_options(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "foldline.bash"
    done = run("completion", "bash")
    assert done.code == 0
    script.write_text(done.out)
    assert completed(script, "foldline", "ses") == ["sessions"]
    assert "grant" in completed(script, "foldline", "approvals", "g")
    assert "--at-seq" in completed(script, "foldline", "state", "--at")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_scripts_with_every_command(run: Run, shell: str) -> None:
    done = run("completion", shell, "--json")
    script = done.json()["script"]
    assert all(name in script for name in ("sessions", "approvals", "recovery", "--log"))
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, "-n", "/dev/stdin"], input=script, text=True, check=True)


def test_a_shell_that_there_is_none_for_is_told_which_there_are(run: Run) -> None:
    done = run("completion", "csh")
    assert done.code != 0
    assert "bash" in done.err
