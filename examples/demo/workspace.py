"""The repository that the agent works on: a small package with a failing test."""

import shutil
import subprocess
from pathlib import Path

from tools import ENVIRONMENT

FILES = {
    "invoice/__init__.py": '"""Invoices."""\n',
    "invoice/total.py": '''\
"""What an invoice adds up to."""


def total_cents(items: list[tuple[int, int]]) -> int:
    """The sum of items, each a pair of price in cents and quantity."""
    return sum(price for price, quantity in items)
''',
    "tests/__init__.py": "",
    "tests/test_total.py": """\
import unittest

from invoice.total import total_cents


class TotalTest(unittest.TestCase):
    def test_an_empty_invoice_is_free(self) -> None:
        self.assertEqual(total_cents([]), 0)

    def test_every_piece_is_counted(self) -> None:
        self.assertEqual(total_cents([(250, 2), (100, 1)]), 600)
""",
    "CHANGELOG.md": "# Changes\n",
}


def make_repository(folder: Path) -> bool:
    """Write the package and commit it; False where this machine has no git."""
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    if shutil.which("git") is None:
        return False
    git(folder, "init", "--quiet")
    git(folder, "config", "user.name", "Agent")
    git(folder, "config", "user.email", "agent@example.com")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=An invoice package, with a bug")
    return True


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder; the user's own configuration has no say."""
    return subprocess.run(  # noqa: S603 - git, with arguments and no shell
        ["git", *arguments],  # noqa: S607 - the one of PATH
        cwd=folder,
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
