"""`foldline serve`: the read service of a log, over HTTP."""

import ipaddress
import socket
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foldline.cli.clean import clean_line
from foldline.cli.context import Context, must_exist
from foldline.cli.failures import OK, UsageError
from foldline.cli.health import told_health

if TYPE_CHECKING:
    from foldline.processors.blobs import BlobStore
    from foldline.processors.stored import AuditableLog
    from foldline.processors.worker_health import Health
    from foldline.projections.service_node import Node
    from foldline.projections.service_replica import ReplicaNode
    from foldline.projections.service_warm import WarmContexts
    from foldline.projections.tokens import Tokens
    from foldline.settings import Settings

KAFKA = "kafka://"
UPLOADS = ".uploads"
"""Where, below the blobs, it is noted which tenant uploaded which."""

PORT_MAX = 65_535

BACKLOG = 2_048
"""How many connections wait to be taken."""

PROGRESS_EVERY_S = 5.0
"""How often a node that catches up says how far it is."""


def serve(
    *,
    host: str | None = None,
    port: int | None = None,
    partitions: str = "",
    checkpoint: Path | None = None,
    insecure: bool = False,
    health: str | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Serve a log over HTTP until SIGTERM or Ctrl-C: reads, streams, appends, approvals.

    Clients open it with its address as their log's URL. Of a log on Kafka it keeps a
    replica: partitions answer reads once they are caught up, and it says how far they
    are. Tokens are those of FOLDLINE_TOKENS_FILE (`foldline tokens add`); without any,
    only this machine is served.

    Args:
        host: Where to listen (FOLDLINE_HTTP_HOST).
        port: The port, 0 for any free one (FOLDLINE_HTTP_PORT).
        partitions: Serve only these of a log on Kafka, as in 0-7.
        checkpoint: Start partitions that are not here yet from the copies in this folder.
        insecure: Serve other machines without tokens. Whoever reaches it may do all.
        health: Say at HOST:PORT, without a token, under /healthz and /readyz whether
            it is well, and under /metrics what it counts.
        context: Where to read and write.
    """
    _check_extra()
    settings = context.settings()
    host = settings.http_host if host is None else host
    port = settings.http_port if port is None else port
    tokens = tokens_of(settings)
    check_host(host, tokens, insecure=insecure)
    with (
        told_health("--health", health) as said,
        _node(context, settings, tokens, partitions, checkpoint) as node,
    ):
        _run(context, node, said, host, port, insecure=insecure)
    return OK


def _check_extra() -> None:
    from importlib.util import find_spec  # late: only this command needs it

    for name in ("fastapi", "uvicorn"):
        if find_spec(name) is None:
            wanted = f"pip install 'foldline[serve]' ({name} is missing)"
            raise UsageError("serve", wanted)


def tokens_of(settings: "Settings") -> "Tokens":
    """The tokens of the settings' file, or none."""
    from foldline.projections.tokens import NoTokens, TokenFile  # late: an extra

    if not settings.tokens_file:
        return NoTokens(roles=settings.roles_of_operator)
    return TokenFile(Path(settings.tokens_file).expanduser())


def check_host(host: str, tokens: "Tokens", *, insecure: bool) -> None:
    """Refuse to serve other machines without tokens.

    Raises:
        UsageError: it says what is needed.
    """
    if tokens.needed or insecure or is_loopback(host):
        return
    wanted = (
        f"{host} is open to other machines: set FOLDLINE_TOKENS_FILE "
        "(`foldline tokens add` makes one), or say --insecure"
    )
    raise UsageError("--host", wanted)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _run(
    context: Context,
    node: "Node",
    health: "Health",
    host: str,
    port: int,
    *,
    insecure: bool,
) -> None:
    from foldline.projections.service_server import server_of, telling  # late: an extra

    out = context.out
    with _listening(host, port) as listening:
        bound = listening.getsockname()[1]
        url = f"http://{f'[{host}]' if ':' in host else host}:{bound}"

        def started() -> None:
            if out.json:
                out.record({"serving": node.log.url, "url": url})
            else:
                out.line((f"serving {clean_line(node.log.url)} at {url}", "bold"))
            if not node.tokens.needed:
                out.remark(_of_operator(node.settings))
            out.flush()

        server = server_of(node, insecure=insecure, **telling(node, health))
        server.on_started = started
        server.run(sockets=[listening])


def _of_operator(settings: "Settings") -> str:
    """What a service without tokens can check of whoever answers a request."""
    roles = ", ".join(sorted(settings.roles_of_operator))
    said = f"the roles: {roles}" if roles else "every role (FOLDLINE_OPERATOR_ROLES)"
    return f"foldline: no tokens: whoever reaches it may approve, and has {said}"


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens, before anything else is begun.

    Raises:
        UsageError: the address is taken, or not this machine's.
    """
    if not 0 <= port <= PORT_MAX:
        raise UsageError("--port", f"0 to {PORT_MAX}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise UsageError("--host, --port", f"{host}:{port}: {error.strerror}") from error
    # What it accepts inherits this. asyncio sets it for its own sockets only, and every
    # answer but the first on a connection would wait 40 ms for the client's ACK.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


@contextmanager
def _node(
    context: Context,
    settings: "Settings",
    tokens: "Tokens",
    partitions: str,
    checkpoint: Path | None,
) -> Generator["Node"]:
    """A node of the log, with its replica where the log is on Kafka."""
    from foldline.producers.preparing import preparer_of  # late: an extra
    from foldline.projections.service_node import Node

    with ExitStack() as closing:
        replica: ReplicaNode | None = None
        contexts: WarmContexts | None = None
        if settings.url.startswith(KAFKA):
            log, replica, contexts = _replicated(closing, settings, partitions)
        else:
            if partitions or checkpoint:
                wanted = "a log on Kafka; any other is served whole"
                raise UsageError("--partitions, --checkpoint", wanted)
            must_exist_or_memory(settings.url)
            log = closing.enter_context(context.writing())
        node = Node(
            log,
            settings,
            tokens,
            preparer_of(log, settings),
            uploads_of(settings, log.url),
            replicated=replica,
            checkpoint=replica.checkpoint if replica else None,
            contexts=contexts,
        )
        if replica is not None:
            replica.start(checkpoint=checkpoint, say=_sayer(context))
        yield node


def must_exist_or_memory(url: str) -> None:
    """Refuse a log that is not there; an empty one in memory is for trying things out."""
    if url != "memory:":
        must_exist(url)


def _replicated(
    closing: ExitStack, settings: "Settings", partitions: str
) -> tuple["AuditableLog", "ReplicaNode", "WarmContexts"]:
    """A log on Kafka that reads from a replica of this node's partitions.

    The replica begins no partition by itself, so that one may start from a copy. What
    comes into it keeps the next contexts warm.
    """
    from foldline.kafka import cluster_of  # late: clients of Kafka
    from foldline.processors.kafka_log import KafkaLog
    from foldline.processors.replica import Replica
    from foldline.processors.replica_reads import ReplicaReads
    from foldline.projections.service_replica import ReplicaNode, range_of
    from foldline.projections.service_warm import WarmContexts
    from foldline.projections.service_warmer import Warmer

    cluster = cluster_of(settings)
    log = KafkaLog(cluster, settings=settings, make_reads=lambda _: reads)
    closing.callback(log.close)
    try:
        served = range_of(partitions, log.partitions)
    except ValueError as error:
        raise UsageError("--partitions", str(error)) from error
    folder = settings.state_dir / "serve" / log.log_id
    contexts = WarmContexts(log, settings)
    warmer = Warmer(contexts, log, settings=settings)
    replica = Replica(
        cluster,
        settings,
        folder=folder,
        codec=log.codec,
        within=served,
        on_change=warmer.told,
    )
    reads = ReplicaReads(replica, settings=settings)
    log.warm_up()  # from here on the log closes the replica with itself
    node = ReplicaNode(replica, served)
    closing.callback(node.close)
    warmer.start(replica.at_hand, is_ready=lambda: node.caught_up)
    closing.callback(warmer.close)
    return log, node, contexts


def uploads_of(settings: "Settings", url: str) -> "Callable[[str], BlobStore]":
    """Where it is noted which blobs a tenant has uploaded: one store for each tenant.

    It lies below the blobs where they have a place of their own, so that every node
    sees it, else beside the log.
    """
    from foldline.processors.memory_blobs import MemoryBlobs  # late: an extra
    from foldline.processors.open_blobs import open_blobs

    stores: dict[str, BlobStore] = {}

    def opened(tenant: str) -> "BlobStore":
        if settings.blobs:
            below = f"{settings.blobs.rstrip('/')}/{UPLOADS}/{tenant}"
            where = settings.model_copy(update={"blobs": below})
            return open_blobs(where, beside=Path())
        if url == "memory:":
            return MemoryBlobs(max_bytes=settings.blob_max_bytes)
        return open_blobs(settings, beside=_beside(settings, url) / tenant)

    def of_tenant(tenant: str) -> "BlobStore":
        if tenant not in stores:
            stores[tenant] = opened(tenant)
        return stores[tenant]

    return of_tenant


def _beside(settings: "Settings", url: str) -> Path:
    from foldline.processors.open_log import path_of  # late: an extra

    path = path_of(url)
    if path is not None:
        return path.with_name(f"{path.name}{UPLOADS}")
    return settings.state_dir / "serve" / UPLOADS


def _sayer(context: Context) -> Callable[[str], None]:
    """Says how far a node is: ready at once, progress now and then."""
    said_at: dict[str, float] = {}

    def say(line: str) -> None:
        now = time.monotonic()
        about = line.partition(":")[0]
        if (
            "ready" in line
            or now - said_at.get(about, -PROGRESS_EVERY_S) >= PROGRESS_EVERY_S
        ):
            said_at[about] = now
            context.out.remark(clean_line(line))
            context.out.flush()

    return say
