"""Keeps the one broker and the one registry of a test run.

Its own process, so that no worker of the run owns them: workers end one by one. It ends
when the run does, however that went, and ends both; if it is killed itself, the kernel
ends them (`tied`).

    python -m tests.cluster.keeper FOLDER OWNER BACKEND

`FOLDER/state.json` appears when both answer; `FOLDER/keeper.log` has what went wrong.
"""

import json
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

from tests.cluster.backends import STATE
from tests.cluster.jar_cluster import JarCluster, JarRegistry
from tests.cluster.logs import registered

LOOK_EVERY_S = 0.5


def main() -> None:
    """Start both, say where they are, wait for the owner's end, end both."""
    folder, owner, backend = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run ends, then this does
    if backend == "containers":
        from tests.cluster.containers import ContainerCluster  # late: see backends

        with ContainerCluster() as cluster:
            _keep(folder, owner, cluster.bootstrap, cluster.registry_url)
    else:
        registry = JarRegistry(folder)
        brokers = JarCluster(folder)
        registry.wait_ready()
        _keep(folder, owner, brokers.bootstrap, registry.url)
        brokers.close()
        registry.close()
    shutil.rmtree(folder, ignore_errors=True)  # after a failure it stays, to be read
    folder.with_suffix(".lock").unlink(missing_ok=True)


def _keep(folder: Path, owner: int, bootstrap: str, registry: str) -> None:
    registered(registry)  # once, before workers of the run do it side by side
    text = json.dumps({"bootstrap": bootstrap, "registry": registry})
    new = folder / (STATE + ".new")
    new.write_text(text, encoding="utf-8")
    new.rename(folder / STATE)
    _wait_for_end_of(owner)


def _wait_for_end_of(owner: int) -> None:
    if hasattr(os, "pidfd_open"):
        try:
            handle = os.pidfd_open(owner)
        except ProcessLookupError:
            return
        select.select([handle], [], [])
        return
    while True:
        try:
            os.kill(owner, 0)
        except ProcessLookupError:
            return
        time.sleep(LOOK_EVERY_S)


if __name__ == "__main__":
    main()
