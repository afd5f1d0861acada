"""A read service in a thread of the test, on a free port of this machine."""

import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from foldline.processors.blobs import BlobStore
from foldline.processors.clock import wall_clock
from foldline.processors.http_log import HttpLog
from foldline.processors.http_wire import API
from foldline.processors.memory_blobs import MemoryBlobs
from foldline.processors.memory_log import MemoryLog
from foldline.processors.stored import AuditableLog
from foldline.producers.preparing import preparer_of
from foldline.projections.service_node import Node
from foldline.projections.service_server import Server, server_of
from foldline.projections.tokens import (
    Kind,
    NoTokens,
    Scope,
    Token,
    TokenFile,
    Tokens,
    digest_of,
    save,
)
from foldline.settings import Settings

WAIT_S = 20.0


@dataclass
class Uploads:
    """What tenants uploaded, in memory."""

    stores: dict[str, BlobStore] = field(default_factory=dict[str, BlobStore])

    def __call__(self, tenant: str) -> BlobStore:
        return self.stores.setdefault(tenant, MemoryBlobs(max_bytes=1 << 20))


@dataclass
class Served:
    """A service that runs."""

    node: Node
    server: Server
    url: str

    def http(self, secret: str = "") -> httpx2.Client:
        """A client of its routes, below the API's root."""
        headers = {"authorization": f"Bearer {secret}"} if secret else {}
        return httpx2.Client(base_url=f"{self.url}{API}", headers=headers, timeout=WAIT_S)

    def log(self, secret: str = "", **changed: Any) -> HttpLog:
        """A log behind it."""
        settings = Settings(token=secret, **changed)  # type: ignore[arg-type]
        return HttpLog(self.url, settings=settings)


@contextmanager
def serving(
    log: AuditableLog,
    *,
    tokens: Tokens | None = None,
    settings: Settings | None = None,
    uploads: Callable[[str], BlobStore] | None = None,
    port: int = 0,
    **given: Any,
) -> Generator[Served]:
    """Serve a log until the block ends; the log is closed by whoever opened it."""
    settings = settings or Settings()
    node = Node(
        log,
        settings,
        tokens or NoTokens(),
        preparer_of(log, settings),
        uploads or Uploads(),
        **given,
    )
    server = server_of(node, host="127.0.0.1", port=port)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the service did not start"
            thread.join(0.01)
        bound = server.servers[0].sockets[0].getsockname()[1]
        yield Served(node, server, f"http://127.0.0.1:{bound}")
    finally:
        server.should_exit = True
        thread.join(WAIT_S)
        assert not thread.is_alive(), "the service did not stop"


@contextmanager
def serving_memory(tokens: Tokens) -> Generator[Served]:
    """Serve a log in memory of its own, to who has one of these tokens."""
    with (
        closing(MemoryLog(settings=Settings(), clock=wall_clock)) as log,
        serving(log, tokens=tokens) as served,
    ):
        yield served


def people_of(folder: Path) -> Tokens:
    """Tokens of somebody who may append, one who may look, and one of another tenant."""
    book = TokenBook(folder / "tokens.json")
    book.add("ann", "read", "append", kind="PERSON")
    book.add("looker", "read", kind="PERSON")
    book.add("other", "read", "append", tenant="other", kind="PERSON")
    return book.open()


class TokenBook:
    """A file of tokens that a test writes; the secret of each is `fl_` and its id."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tokens: list[Token] = []

    def add(
        self,
        token_id: str,
        *scopes: Scope,
        tenant: str = "default",
        kind: Kind = "HARNESS",
        expires_at: int | None = None,
        actor_id: str = "",
        roles: tuple[str, ...] = (),
    ) -> str:
        secret = f"fl_{token_id}"
        self.tokens.append(
            Token(
                token_id=token_id,
                sha256=digest_of(secret),
                tenant=tenant,
                scopes=frozenset(scopes),
                kind=kind,
                actor_id=actor_id or f"{token_id}@example",
                expires_at=expires_at,
                roles=frozenset(roles),
            )
        )
        save(self.path, self.tokens)
        return secret

    def open(self) -> TokenFile:
        return TokenFile(self.path)
