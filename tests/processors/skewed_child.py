"""A writer on a host with a wrong clock: `skewed_child.py tell|hold|look URL SESSION`.

`tell` appends events that carry its own time, and prints what was acknowledged; `hold`
renews a lease once; `look` says whether it is alive, now and once it has run out.
"""

import sys
import time

from foldline.errors import LogUnavailableError
from foldline.processors.clock import wall_clock
from foldline.processors.open_log import open_log
from foldline.schemas.recorded import Append
from foldline.testing import make_append
from foldline.testing.samples import created, said

EVENTS = 40
TTL_MS = 30_000


def say(line: object) -> None:
    """Print a line, at once."""
    print(line, flush=True)  # noqa: T201 - the parent reads it


def tell(url: str, session_id: str) -> None:
    """Append, one after the other, whatever the workers do meanwhile."""
    log = open_log(url)
    for number in range(EVENTS):
        event = said(str(number)) if number else created()
        append = make_append(session_id, event, known_seq=number)
        envelope = append.envelope.model_copy(update={"occurred_at": wall_clock()})
        dated = Append(envelope, event, append.content, known_seq=number)
        while True:
            try:
                (verdict,) = log.append([dated])
            except LogUnavailableError:
                continue
            break
        say(verdict.kind)
    log.close()


def hold(url: str, session_id: str) -> None:
    """Renew a lease once, and die."""
    log = open_log(url)
    log.leases.renew(session_id, epoch=1, writer="holder", ttl_ms=TTL_MS)
    log.close()


def look(url: str, session_id: str) -> None:
    """Say whether the lease is alive, and wait until it is not."""
    log = open_log(url)
    lease = log.leases.get(session_id)
    say(lease is not None and lease.alive)
    while lease is not None and lease.alive:
        time.sleep(0.2)
        lease = log.leases.get(session_id)
    say("it has run out")
    log.close()


if __name__ == "__main__":
    {"tell": tell, "hold": hold, "look": look}[sys.argv[1]](sys.argv[2], sys.argv[3])
