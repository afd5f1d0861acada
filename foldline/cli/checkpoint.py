"""`foldline checkpoint`: a copy of a read node's store, from which another one starts."""

from typing import Annotated, Any

from cyclopts import Parameter

from foldline.cli.context import Context
from foldline.cli.failures import OK, UsageError

COPY_MS = 10 * 60_000
"""How long a copy may take: on one file system it is made of links, else of bytes."""


def checkpoint(
    folder: str, /, *, context: Annotated[Context, Parameter(parse=False)]
) -> int:
    """Have a read node write a copy of its store, from which another one can start.

    That one is told by `foldline serve --checkpoint FOLDER`. The node is --log
    http://..., else FOLDLINE_READ_URL; FOLDLINE_TOKEN needs the scope admin. The node
    goes on answering meanwhile. A copy that fails leaves nothing.

    Args:
        folder: A name below the node's own FOLDLINE_CHECKPOINT_DIR, or the whole path of
            one, that does not exist yet.
        context: Where to read and write.
    """
    from foldline.processors.http_calls import Calls  # late: an HTTP client

    settings = context.settings()
    url = _node_of(settings.url, settings.read_url)
    calls = Calls(url, settings=settings)
    try:
        given = {"folder": folder}
        # A second request would find the folder that the first one made.
        answer = calls.send("POST", "/admin/checkpoint", json=given, wait_ms=COPY_MS)
    finally:
        calls.close()
    copied: dict[str, Any] = answer.json()
    if context.out.json:
        context.out.record(copied)
        return OK
    listed = ", ".join(str(partition) for partition in copied["partitions"]) or "none yet"
    context.out.line((copied["folder"], "bold"), (f": partitions {listed}", ""))
    return OK


def _node_of(url: str, read_url: str) -> str:
    """The read node's address.

    Raises:
        UsageError: nothing names one.
    """
    from foldline.processors.open_log import SERVICE  # late: see above

    for named in (url, read_url):
        if named.startswith(SERVICE) and "," not in named:
            return named
    raise UsageError(
        "--log", "one read node's address, http://...; or set FOLDLINE_READ_URL"
    )
