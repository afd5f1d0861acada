"""What the processes of a race run: they must be importable to be started anew."""

from collections.abc import Callable
from typing import Protocol

from foldline.processors.log import Log
from foldline.testing.log_story import make_append
from foldline.testing.samples import said

OpenLog = Callable[[str], Log]
ROUND_TIMEOUT_S = 60.0


class Barrier(Protocol):
    """Where processes wait for each other."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all are here."""
        ...


def race(
    open_log: OpenLog, url: str, session_id: str, rounds: int, barrier: Barrier
) -> list[str]:
    """Append once per round with the round's seq expected; gives the verdicts' kinds."""
    log = open_log(url)
    kinds: list[str] = []
    for seq in range(1, rounds + 1):
        append = make_append(session_id, said(), known_seq=seq, expected_seq=seq, epoch=0)
        barrier.wait(ROUND_TIMEOUT_S)
        kinds.append(log.append([append])[0].kind)
    log.close()
    return kinds


def lean_on_a_lease(
    open_log: OpenLog, url: str, session_id: str, ready: Barrier, ttl_ms: int
) -> None:
    """Take a lease, say so, and wait to be killed."""
    log = open_log(url)
    log.leases.renew(session_id, epoch=1, writer="leaning", ttl_ms=ttl_ms)
    ready.wait(ROUND_TIMEOUT_S)
    while True:
        log.follow(session_id, after_seq=1 << 30, timeout_ms=60_000)
