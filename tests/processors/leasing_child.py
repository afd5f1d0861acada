"""A process that takes a lease, starts children of its own, and waits to be killed."""

import os
import subprocess
import sys
import time

from foldline.processors.open_log import open_log

LONG_MS = 600_000


def main(url: str) -> None:
    """Print the ids of a forked and of a started child, which outlive this process."""
    log = open_log(url)
    log.leases.renew("s", epoch=1, writer="parent", ttl_ms=LONG_MS)
    forked = os.fork()
    if forked == 0:
        time.sleep(LONG_MS / 1000)
        os._exit(0)
    started = subprocess.Popen(["sleep", "600"], close_fds=False)
    print(forked, started.pid, flush=True)  # noqa: T201 - the parent reads it
    time.sleep(LONG_MS / 1000)


if __name__ == "__main__":
    main(sys.argv[1])
