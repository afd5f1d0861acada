"""Folders for one process: gone when it is, and never another's while it lives."""

import subprocess
import sys
from pathlib import Path

import pytest

from foldline.errors import LogUnavailableError
from foldline.processors.scratch import Scratch

KILLED = (
    "import os, pathlib, signal, sys\n"
    "from foldline.processors.scratch import Scratch\n"
    "scratch = Scratch(pathlib.Path(sys.argv[1]))\n"
    "(scratch.folder / 'large').write_bytes(b'x')\n"
    "os.kill(os.getpid(), signal.SIGKILL)\n"
)


def test_a_folder_is_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "below")
    (scratch.folder / "file").write_text("x")
    scratch.close()
    assert list((tmp_path / "below").iterdir()) == []


def test_living_owners_keep_their_folders(tmp_path: Path) -> None:
    one, two = Scratch(tmp_path), Scratch(tmp_path)
    assert {one.folder, two.folder} == set(tmp_path.iterdir())
    one.close()
    two.close()


@pytest.mark.crash
def test_the_folder_of_a_killed_owner_is_removed_by_the_next(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    scratch = Scratch(tmp_path)
    assert list(tmp_path.iterdir()) == [scratch.folder]
    scratch.close()


def test_a_place_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(LogUnavailableError, match="file"):
        Scratch(tmp_path / "file")
