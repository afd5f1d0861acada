"""What is followed in a folder, however odd the folder is.

A folder below may be unreadable, end in a loop of links, or lie deeper than the stack or a
path may be: that costs what is in it and nothing else.
"""

import os
from collections.abc import Callable
from pathlib import Path

SUFFIX = ".jsonl"
"""How the name of a file ends that is followed in folders and below them."""

Odd = Callable[[str, Exception], None]
"""Is told which path cannot be looked at, and why."""


def files_below(top: Path, *, odd: Odd) -> list[Path]:
    """The files to follow in a folder, in the order of their paths.

    Links to folders are not gone into; links to nothing are left out.
    """
    found: list[str] = []
    folders = [str(top)]
    while folders:
        folder = folders.pop()
        try:
            found += _looked_through(folder, folders, odd=odd)
        except FileNotFoundError:
            continue  # it was removed meanwhile
        except OSError as error:
            odd(folder, error)
    return [Path(name) for name in sorted(found)]


def _looked_through(folder: str, folders: list[str], *, odd: Odd) -> list[str]:
    """The files of one folder; the folders in it are added to `folders`."""
    found: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif entry.name.endswith(SUFFIX) and _is_there(entry, odd=odd):
                found.append(entry.path)
    return found


def _is_there(entry: "os.DirEntry[str]", *, odd: Odd) -> bool:
    if not entry.is_symlink():
        return True
    try:
        entry.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        odd(entry.path, error)
        return False
    return True
