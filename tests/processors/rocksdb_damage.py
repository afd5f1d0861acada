"""What disks, people and other processes do to a RocksDB folder."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

_HOLD = """
import sys
from pathlib import Path
from foldline.processors.rocks import Rocks
rocks = Rocks(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
rocks.close()
"""


def flip(path: Path, *, at: float) -> None:
    """Flip one bit, at a part of the file between 0 and 1."""
    data = bytearray(path.read_bytes())
    data[int((len(data) - 1) * at)] ^= 1
    path.write_bytes(data)


def files(folder: Path, ending: str) -> list[Path]:
    """The files of a kind that hold something, the largest first."""
    found = [path for path in folder.glob(f"*.{ending}") if path.stat().st_size]
    return sorted(found, key=lambda path: path.stat().st_size, reverse=True)


def lose_manifest(folder: Path) -> None:
    """Delete what says which files belong to the database."""
    for path in folder.glob("MANIFEST-*"):
        path.unlink()


@contextmanager
def held_by_another_process(folder: Path) -> Generator[None]:
    """Another process has the database open."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.communicate("")


@contextmanager
def small_disk(folder: Path, *, size_mb: int) -> Generator[Path]:
    """A file system of a few MiB, so that it can be filled; skipped where not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a small file system takes the right to mount one")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take the space that is left; deleting the file gives it back."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        for block in (1 << 20, 1 << 12):
            try:
                while file.write(b"x" * block) == block:
                    pass
            except OSError:
                continue
    return path
