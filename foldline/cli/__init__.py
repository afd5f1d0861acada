"""The `foldline` command: look into sessions, add to them, import, verify.

`main` is the entry point; `foldline.cli.failures` has the exit codes.
"""

from foldline.cli.app import main

__all__ = ["main"]
