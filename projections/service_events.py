"""Routes that read events: a range, a wait for the next ones, their schemas."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, Field

from foldline.errors import DecodeError, SessionTruncatedError
from foldline.processors.http_wire import EVENTS, INT64_MAX, MORE, NEXT, pack_events
from foldline.processors.lineage import Lineage, joined_events, joined_stored
from foldline.processors.log import FOLLOW_MAX_EVENTS
from foldline.processors.stored import StoredEvent
from foldline.projections.service_access import Reader
from foldline.projections.service_forks import lineage_for
from foldline.projections.service_node import Int64, Node, Serving, SessionId
from foldline.projections.service_problems import Problem, no_session
from foldline.projections.tokens import Caller
from foldline.projections.views import event_view
from foldline.schemas.recorded import Recorded

router = APIRouter(tags=["events"])

PAGE_MAX = 1_000
"""How many events one page holds; `http_stream_buffer_bytes` may end it before."""

SCANNED_MAX = 100_000
"""How many events a page of some types looks through; then the next page goes on."""

WAIT_MAX_MS = 30_000
"""How long one request waits for the next event."""

NEVER_SEQ = 2**62
"""A seq that no session comes to."""

Types = Annotated[
    str, Query(max_length=4_096, description="Event types, separated by commas.")
]


Read = TypeVar("Read", StoredEvent, Recorded)
"""An event as it is stored, or decoded."""


class RangeIn(BaseModel):
    """Which events, and how many of them at once."""

    after_seq: Int64 = 0
    upto_seq: Int64 | None = None
    types: Types = ""
    limit: Annotated[int, Field(ge=1, le=PAGE_MAX)] = 100
    wait_ms: Annotated[int, Field(ge=0, le=WAIT_MAX_MS)] = 0
    min_seq: Annotated[int, Field(ge=0, le=INT64_MAX)] = 0
    joined: bool = False


class Events(BaseModel):
    """A page of events."""

    events: list[dict[str, Any]]
    next_after_seq: int
    """Where the next page begins: its `after_seq`."""
    more: bool
    """Whether there is more now."""


@router.get(
    "/sessions/{session_id}/events",
    response_model=Events,
    responses={200: {"content": {EVENTS: {"schema": {"format": "binary"}}}}},
)
async def list_events(
    node: Serving,
    caller: Reader,
    session_id: SessionId,
    given: Annotated[RangeIn, Query()],
    accept: Annotated[str, Header()] = "",
) -> Any:
    """List a session's events, in order, a page at a time.

    `wait_ms` waits for the first where there is none yet; `min_seq` waits until the
    session has come so far, as for a state. `joined` puts a fork's ancestors' events in
    front, up to the fork point, each with the id of its own session. With `Accept:
    application/vnd.foldline.events` they come as they are stored: frames of seq (8
    bytes), schema id and length (4 bytes each, big-endian), and the Avro body; where
    there is more, the header `foldline-next-after-seq` says where the next page begins.
    """
    if given.min_seq:
        await node.state(caller, session_id, min_seq=given.min_seq)
    node.check_served(session_id)
    page = _Page(node, session_id, given)
    owner = await node.tenant_of(session_id)
    if given.joined:
        page.lineage = await lineage_for(node, caller, session_id)
    if owner == caller.tenant:
        answer = await node.reading.run(page.read, accept)
        if not (given.wait_ms and page.empty):
            return answer
    elif not given.wait_ms:
        raise no_session(session_id)
    until_s = time.monotonic() + given.wait_ms / 1000
    if owner in (None, caller.tenant):
        await _wait(node, caller, session_id, given.after_seq, given.wait_ms)
        owner = await node.tenant_of(session_id)
    if owner == caller.tenant:
        return await node.reading.run(page.read, accept)
    # Another tenant's is waited for like one that is yet to come, and never comes.
    left_ms = round((until_s - time.monotonic()) * 1000)
    await _wait(node, caller, session_id, NEVER_SEQ, left_ms)
    return page.nothing(accept)


async def _wait(
    node: Node, caller: Caller, session_id: str, after_seq: int, wait_ms: int
) -> None:
    """Wait for the next event, as one of a bounded number of waiters."""
    with node.waiting(caller):
        await node.hub.wait(session_id, after_seq=after_seq, timeout_ms=wait_ms)


class _Page:
    """One page of events, read in a thread."""

    def __init__(self, node: Node, session_id: str, given: RangeIn) -> None:
        self._node = node
        self._session_id = session_id
        self._after_seq = given.after_seq
        self._upto_seq = given.upto_seq
        self._limit = given.limit
        self._names = frozenset(name for name in given.types.split(",") if name)
        self.empty = True
        self.lineage: Lineage | None = None

    def read(self, accept: str) -> Any:
        """The page, in the form that is accepted."""
        return self._frames() if EVENTS in accept else self._views()

    def nothing(self, accept: str) -> Any:
        """The page of a session that is not there yet."""
        if EVENTS in accept:
            return Response(b"", media_type=EVENTS)
        return Events(events=[], next_after_seq=self._after_seq, more=False)

    def _frames(self) -> Response:
        page, last_seq, more = self._bounded(self._stored(), self._is_wanted)
        self._node.note_schemas(event.schema_id for event in page)
        headers = {MORE: "1", NEXT: str(last_seq)} if more else {}
        return Response(pack_events(page), media_type=EVENTS, headers=headers)

    def _stored(self) -> Iterator[StoredEvent]:
        log, after, upto = self._node.log, self._after_seq, self._upto_seq
        if self.lineage is not None:
            return joined_stored(log, self.lineage, after_seq=after, upto_seq=upto)
        return log.stored_events(self._session_id, after_seq=after, upto_seq=upto)

    def _found(self) -> Iterator[Recorded]:
        log, after, upto = self._node.log, self._after_seq, self._upto_seq
        if self.lineage is not None:
            return joined_events(log, self.lineage, after_seq=after, upto_seq=upto)
        return log.events(self._session_id, after_seq=after, upto_seq=upto)

    def _is_wanted(self, event: StoredEvent) -> bool:
        if not self._names:
            return True
        return type_of_schema(self._node, event.schema_id) in self._names

    def _views(self) -> Events:
        page, last_seq, more = self._bounded(
            self._found(), lambda event: not self._names or event.type in self._names
        )
        views = [event_view(recorded) for recorded in page]
        return Events(events=views, next_after_seq=last_seq, more=more)

    def _bounded(
        self, found: Iterable[Read], is_wanted: Callable[[Read], bool]
    ) -> tuple[list[Read], int, bool]:
        """As many as a page takes; the last seq that was looked at; whether more are."""
        page: list[Read] = []
        size, last_seq, more = 0, self._after_seq, False
        for scanned, event in enumerate(found):
            full = size >= self._node.settings.http_stream_buffer_bytes
            if len(page) == self._limit or full or scanned == SCANNED_MAX:
                more = True
                break
            last_seq = event.seq
            if is_wanted(event):
                page.append(event)
                size += len(event.body)
        self.empty = not page
        return page, last_seq, more


def read_some(node: Node, session_id: str, after_seq: int) -> list[Recorded]:
    """The next events that are there, as many as a stream holds at once."""

    def some() -> Iterator[Recorded]:
        size = 0
        try:
            for recorded in node.log.events(session_id, after_seq=after_seq):
                yield recorded
                size += len(recorded.body)
                if size >= node.settings.http_stream_buffer_bytes:
                    return
        except SessionTruncatedError:
            if not size:
                raise  # else what is there before the hole goes out first

    return list(islice(some(), FOLLOW_MAX_EVENTS))


def type_of_schema(node: Node, schema_id: int) -> str:
    """The logical type of events of a schema."""
    try:
        schema = json.loads(node.log.codec.schema_of(schema_id))
    except KeyError as error:
        raise DecodeError(f"unknown schema id {schema_id}") from error
    return str(schema.get("foldline_type") or schema["name"])


@router.get("/schemas")
async def list_schemas(node: Serving, caller: Reader) -> dict[str, str]:  # noqa: ARG001 - who may read
    """List the schemas of events that were asked for here, by their ids in this log."""
    return await node.reading.run(_texts_of, node)


def _texts_of(node: Node) -> dict[str, str]:
    """In a thread, for a registry may be asked; what it does not know is left out."""
    found: dict[str, str] = {}
    for number in sorted(node.schema_ids | node.warm.schema_ids):
        with suppress(KeyError):
            found[str(number)] = node.log.codec.schema_of(number)
    return found


@router.get("/schemas/{schema_id}", response_model=dict[str, Any])
async def show_schema(node: Serving, caller: Reader, schema_id: Int64) -> Response:  # noqa: ARG001 - who may read
    """Show the Avro schema that events of this id were written with."""
    try:
        text = await node.reading.run(node.log.codec.schema_of, schema_id)
    except KeyError as error:
        raise Problem(404, "no_schema", f"no schema {schema_id}") from error
    return Response(text, media_type="application/json")
