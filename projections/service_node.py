"""One node of the read service: what its routes share.

A node serves one log, the whole of it or a range of partitions. All of its requests go
through one log object: a thousand clients are one client of the broker.
"""

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Protocol, cast

from fastapi import Depends, Query, Request
from pydantic import Field

from foldline.errors import DecodeError, SessionTruncatedError
from foldline.processors.blobs import BlobStore
from foldline.processors.http_wire import INT64_MAX, of_list_cursor, of_path_part
from foldline.processors.log import ListPlace
from foldline.processors.stored import AuditableLog
from foldline.projections.approvals import Inbox
from foldline.projections.service_hub import Hub
from foldline.projections.service_limits import (
    SHAPED_WAITING_MAX,
    Lane,
    Places,
    Rates,
    Turns,
)
from foldline.projections.service_metrics import Metrics
from foldline.projections.service_problems import Problem, no_session
from foldline.projections.service_warm import WarmContexts
from foldline.projections.tokens import Caller, Tokens
from foldline.schemas.recorded import Append
from foldline.schemas.state import SessionState
from foldline.settings import Settings

UPLOADS_MAX = 4
"""How many blobs are taken in at once: each may take `blob_max_bytes` of memory."""

TENANT_UPLOADS_MAX = 2
"""How many of these are one tenant's."""

DOWNLOADS_MAX = 8
"""How many blobs are given out at once, each until its client has read it."""

TENANT_DOWNLOADS_MAX = 4
"""How many of these are one tenant's."""

TENANTS_REMEMBERED = 100_000
"""How many sessions a node remembers with their tenant, which never changes."""

SCHEMAS_MAX = 10_000
"""How many schemas a node remembers that clients asked for."""

RETRY_READ_S = 2
"""When to ask again for a partition that is not there yet, or no longer."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far one partition is: `position` of `end` is read; `problem` keeps it there.

    `skipped` are records that no worker wrote, since the start. `stopped`: it goes on with
    none of its events before somebody has looked after it; no read is answered.
    """

    partition: int
    position: int
    end: int
    caught_up: bool
    problem: str = ""
    read_bytes: int = 0
    skipped: int = 0
    stopped: bool = False


class Replicated(Protocol):
    """Which partitions a node serves, and how far each is."""

    @property
    def partitions(self) -> int:
        """How many the log has."""
        ...

    @property
    def served(self) -> range:
        """Those that this node serves."""
        ...

    def partition_of(self, session_id: str) -> int:
        """The partition of a session."""
        ...

    def standings(self) -> Sequence[Standing]:
        """How far each served partition is. It asks nobody: it is quick."""
        ...


INBOXES_REMEMBERED = 1_000
"""How many tenants are remembered with what waited when somebody looked last."""

Prepare = Callable[[Append], Sequence[Append]]
"""Makes of an append that came as JSON what is recorded: redacted, large bodies stored.
The first is the append itself."""

Checkpoint = Callable[[Path], Sequence[int]]
"""Writes a copy of each served partition's store below a folder; gives the partitions."""


@dataclass(slots=True)
class Node:
    """What a node is made of."""

    log: AuditableLog
    settings: Settings
    tokens: Tokens
    prepare: Prepare
    uploads: Callable[[str], BlobStore]
    """Where it is kept which blobs a tenant has uploaded."""
    replicated: Replicated | None = None
    checkpoint: Checkpoint | None = None
    contexts: WarmContexts | None = None
    """What somebody else keeps warm; without, it is kept when it is asked for."""
    warm: WarmContexts = field(init=False)
    metrics: Metrics = field(default_factory=Metrics)
    reading: Lane = field(init=False)
    appending: Lane = field(init=False)
    shaping: Lane = field(init=False)
    hub: Hub = field(init=False)
    token_rates: Rates = field(init=False)
    tenant_rates: Rates = field(init=False)
    waiters: Places = field(init=False)
    uploading: Turns = field(
        default_factory=lambda: Turns(most=UPLOADS_MAX, of_tenant=TENANT_UPLOADS_MAX)
    )
    downloading: Turns = field(
        default_factory=lambda: Turns(most=DOWNLOADS_MAX, of_tenant=TENANT_DOWNLOADS_MAX)
    )
    stopping: bool = False
    schema_ids: set[int] = field(default_factory=set[int])
    """Schemas of events that were asked for, for a client that starts."""
    _tenants: OrderedDict[str, str] = field(default_factory=OrderedDict[str, str])
    _inboxes: OrderedDict[str, Inbox] = field(default_factory=OrderedDict[str, Inbox])

    def __post_init__(self) -> None:
        settings, waiting_max = self.settings, self.settings.http_waiting_max
        self.warm = self.contexts or WarmContexts(self.log, settings)
        self.reading = Lane("read", threads=settings.http_readers, waiting_max=waiting_max)
        self.appending = Lane(
            "append", threads=settings.http_appenders, waiting_max=waiting_max
        )
        self.shaping = Lane("shape", threads=1, waiting_max=SHAPED_WAITING_MAX)
        self.hub = Hub(self.log, Lane("look", threads=1, waiting_max=1))
        self.token_rates = Rates(per_s=settings.token_rate_per_s, what="by one token")
        self.tenant_rates = Rates(per_s=settings.tenant_rate_per_s, what="by one tenant")
        self.waiters = Places(
            most=settings.http_streams_max, of_tenant=settings.tenant_streams_max
        )

    def note_schemas(self, schema_ids: Iterable[int]) -> None:
        """Remember schemas that were asked for, for clients that start."""
        if len(self.schema_ids) < SCHEMAS_MAX:
            self.schema_ids.update(schema_ids)

    def stop(self) -> None:
        """Let go of whoever waits: streams end after their last whole event."""
        self.stopping = True
        self.hub.stop()

    def close(self) -> None:
        """Begin nothing new. The log is closed by whoever opened it."""
        self.stop()
        for lane in (self.reading, self.appending, self.shaping, self.hub.lane):
            lane.close()

    def charge(self, caller: Caller, count: int) -> None:
        """Count requests or events against token and tenant.

        Raises:
            Problem: 429.
        """
        self.token_rates.take(caller.token_id, count)
        self.tenant_rates.take(caller.tenant, count)

    @property
    def streams(self) -> int:
        """How many wait for events: streams, long polls, reads of a seq."""
        return self.waiters.taken

    def check_waiters(self, caller: Caller) -> None:
        """Refuse one more that waits for events.

        Raises:
            Problem: 503, 429 where the tenant has its share.
        """
        if self.stopping:
            raise Problem(503, "busy", "the node is stopping", retry_after_s=1)
        self.waiters.check(caller.tenant)

    @contextmanager
    def waiting(self, caller: Caller) -> Generator[None]:
        """Count whoever waits for events, among a bounded number.

        Raises:
            Problem: as `check_waiters`.
        """
        self.check_waiters(caller)
        with self.waiters.take(caller.tenant):
            yield

    def standings(self) -> Sequence[Standing]:
        """Where its replica stands, by partition; nothing where it has none."""
        return self.replicated.standings() if self.replicated else ()

    def check_served(self, session_id: str) -> None:
        """Refuse a session that is another node's, or not yet here.

        Raises:
            Problem: 421 with the range that is served here, 503 with how far it is.
        """
        if self.replicated is None:
            return
        partition = self.replicated.partition_of(session_id)
        served = self.replicated.served
        if partition not in served:
            place = {
                "partition": partition,
                "partitions": self.replicated.partitions,
                "served": [served.start, served.stop - 1],
            }
            detail = (
                f"session {session_id!r} is in partition {partition}; here are "
                f"{served.start}-{served.stop - 1}"
            )
            raise Problem(421, "another_node", detail, extra=place)
        for standing in self.replicated.standings():
            if standing.partition == partition:
                check_read(standing)

    def check_whole(self) -> None:
        """Refuse what goes over all sessions while a partition is not here yet.

        Raises:
            Problem: 503 with how far it is.
        """
        for standing in self.standings():
            check_read(standing)

    async def state(
        self, caller: Caller, session_id: str, *, min_seq: int = 0
    ) -> SessionState:
        """The state of a session of the caller's tenant, once it has come to `min_seq`.

        Raises:
            Problem: 404, also where the session is another tenant's; 421; 503, also
                where it does not come so far in time, or too many wait already.
        """
        self.check_served(session_id)
        state = await self._head(caller, session_id)
        if state.seq >= min_seq:
            return state
        timeout_ms = self.settings.read_wait_ms
        with self.waiting(caller):
            await self.hub.wait(session_id, after_seq=min_seq - 1, timeout_ms=timeout_ms)
        state = await self._head(caller, session_id)
        if state.seq < min_seq:
            detail = f"the session is at seq {state.seq}, not at {min_seq}"
            raise Problem(503, "not_so_far", detail, retry_after_s=1)
        return state

    async def _head(self, caller: Caller, session_id: str) -> SessionState:
        try:
            state = await self.reading.run(self.log.state, session_id)
        except SessionTruncatedError as error:
            if error.tenant != caller.tenant:
                raise no_session(session_id) from error
            raise
        if state is None or state.tenant != caller.tenant:
            raise no_session(session_id)
        self._remember(session_id, state.tenant)
        return state

    async def check_visible(self, caller: Caller, session_id: str) -> None:
        """Refuse a session that is not the caller's.

        Raises:
            Problem: 404, also where there is none; 421; 503.
        """
        self.check_served(session_id)
        if await self.tenant_of(session_id) != caller.tenant:
            raise no_session(session_id)

    async def tenant_of(self, session_id: str) -> str | None:
        """Whose a session is; None where there is none."""
        tenant = self._tenants.get(session_id)
        if tenant is None:
            try:
                state = await self.reading.run(self.log.state, session_id)
            except SessionTruncatedError as error:
                return error.tenant  # its events can be read
            if state is None:
                return None
            tenant = state.tenant
        self._remember(session_id, tenant)
        return tenant

    def inbox(self, tenant: str) -> Inbox:
        """What waits for the people of a tenant, shared by all who ask."""
        inbox = self._inboxes.pop(tenant, None) or Inbox(self.log, tenant=tenant)
        self._inboxes[tenant] = inbox
        if len(self._inboxes) > INBOXES_REMEMBERED:
            self._inboxes.popitem(last=False)
        return inbox

    def _remember(self, session_id: str, tenant: str) -> None:
        self._tenants[session_id] = tenant
        self._tenants.move_to_end(session_id)
        if len(self._tenants) > TENANTS_REMEMBERED:
            self._tenants.popitem(last=False)


def where_it_is(standing: Standing) -> str:
    """How far a partition is, in words, and what stops it."""
    detail = f"partition {standing.partition} is at {standing.position} of {standing.end}"
    return f"{detail}: {standing.problem}" if standing.problem else detail


def check_read(standing: Standing) -> None:
    """Refuse reads of a partition that is still being read, or is read no further.

    Raises:
        Problem: 503 with how far it is.
    """
    detail = where_it_is(standing)
    place = {
        "partition": standing.partition,
        "position": standing.position,
        "end": standing.end,
    }
    if standing.stopped:
        raise Problem(503, "stopped", detail, retry_after_s=RETRY_READ_S, extra=place)
    if not standing.caught_up:
        raise Problem(503, "catching_up", detail, retry_after_s=RETRY_READ_S, extra=place)


async def node_of(request: Request) -> Node:
    """The node that serves a request.

    A dependency that is no coroutine would take a thread's turn.
    """
    return cast("Node", request.app.state.node)


Serving = Annotated[Node, Depends(node_of)]


async def session_of(session_id: str) -> str:
    """The session's id of a path.

    It stands there as it is, or as `~` and base64url.

    Raises:
        Problem: 400, where it is neither, or what no session can be called.
    """
    try:
        name = of_path_part(session_id)
        name.encode()
    except DecodeError as error:
        raise Problem(400, "bad_session_id", error.reason) from error
    except UnicodeEncodeError as error:
        raise Problem(400, "bad_session_id", "half of a surrogate pair") from error
    if not name:
        raise Problem(400, "bad_session_id", "it is empty")
    return name


SessionId = Annotated[str, Depends(session_of)]

Int64 = Annotated[int, Field(ge=-INT64_MAX - 1, le=INT64_MAX)]
"""A number that every log can be asked for."""

CURSOR_MAX = 4_096
"""How long a cursor may be: a time and the longest id, in base64."""

Cursor = Annotated[str | None, Query(max_length=CURSOR_MAX)]


def place_of(cursor: str) -> ListPlace:
    """The place that a cursor stands for.

    Raises:
        Problem: 400, where it is none of this service's.
    """
    try:
        return of_list_cursor(cursor)
    except DecodeError as error:
        raise Problem(400, "bad_cursor", error.reason) from error
