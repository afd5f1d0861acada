"""Run a command that ends when its parent does: `python tied.py PARENT COMMAND ...`.

The kernel kills it when the process that started it is gone, however that went. Where
there is no such kernel (only Linux has it), the command just runs.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel, then become the command."""
    parent = int(sys.argv[1])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went away before the kernel was asked
        sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - that is what it is for


if __name__ == "__main__":
    main()
