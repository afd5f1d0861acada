"""Where a command that runs on says over HTTP whether it is well: HOST:PORT, an option."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from foldline.cli.failures import UsageError

if TYPE_CHECKING:
    from foldline.processors.worker_health import Health, HealthServer

PORT_MAX = 65_535


@contextmanager
def told_health(option: str, address: str | None) -> "Generator[Health]":
    """What a command tells of itself; nobody can ask where there is no address.

    Raises:
        UsageError: no HOST:PORT, or one where nothing can listen.
    """
    from foldline.processors.worker_health import Health  # late: --help does without

    health = Health()
    if address is None:
        yield health
        return
    server = serve_health(option, address, health)
    try:
        yield health
    finally:
        server.close()


def serve_health(option: str, address: str, health: "Health") -> "HealthServer":
    """Listen at HOST:PORT; without a host, on this machine only.

    Raises:
        UsageError: no HOST:PORT, or one where nothing can listen.
    """
    from foldline.processors.worker_health import HealthServer  # late: see above

    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > PORT_MAX:
        raise UsageError(option, f"HOST:PORT with a port from 0 to {PORT_MAX}")
    try:
        return HealthServer(host or "127.0.0.1", int(port), health=health)
    except OSError as error:
        raise UsageError(option, f"{address}: {error.strerror}") from error
