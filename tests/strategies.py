"""Hypothesis strategies made from the models: any event, any envelope, any append."""

import types
import uuid
from functools import cache
from typing import Annotated, Any, Union, cast, get_args, get_origin

from hypothesis import strategies as st

from foldline.schemas.codec import encode_content
from foldline.schemas.envelope import Actor, Envelope, Source
from foldline.schemas.events import EVENT_TYPES, KnownEvent
from foldline.schemas.record import UUID, Record
from foldline.schemas.recorded import Append

INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)

WELL_FORMED = st.characters(exclude_categories=["Cs"])
"""Every character that UTF-8 has: no lone surrogates."""

FEW = ("a", "b", "c")
"""Ids that collide, so that events are about one another."""

SENSIBLE: dict[str, st.SearchStrategy[Any]] = {
    "attempt": st.integers(min_value=-1, max_value=3) | INT64,
    "call_id": st.sampled_from(FEW),
    "decided_by": st.sampled_from(("PERSON", "POLICY", "EARLIER_GRANT", "?")),
    "effect": st.sampled_from(("READ_ONLY", "IDEMPOTENT", "UNSAFE", "?")),
    "executed": st.sampled_from(("YES", "NO", "UNKNOWN", "?")),
    "grant_id": st.sampled_from(FEW),
    "handle": st.sampled_from(FEW),
    "model_call_id": st.sampled_from(FEW),
    "mode": st.sampled_from(("OWNED", "MIRRORED", "INTERRUPT", "?")),
    "operation_id": st.sampled_from(("op", "other")),
    "outcome": st.sampled_from(
        ("DONE", "ABORTED", "COMPLETED", "FAILED", "NOT_EXECUTED", "UNKNOWN", "?")
    ),
    "request_id": st.sampled_from(FEW),
    "scope": st.sampled_from(("CALL", "TURN", "SESSION", "?")),
    "relation": st.sampled_from(("ROOT", "FORK", "SUBAGENT")),
    "args_hash": st.sampled_from(("h", "h2")),
}
"""Fields whose values make events fit each other now and then."""


@cache
def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation of the models."""
    origin = get_origin(hint)
    if origin is Annotated:
        inner, *metadata = get_args(hint)
        return uuids() if UUID in metadata else of_type(inner)
    if origin in (Union, types.UnionType):
        return st.one_of([of_type(branch) for branch in get_args(hint)])
    if origin is tuple:
        return st.lists(of_type(get_args(hint)[0]), max_size=2).map(tuple)
    if isinstance(hint, type) and issubclass(hint, Record):
        return records(hint)
    return {
        str: st.text(WELL_FORMED, max_size=12),
        int: INT64,
        bool: st.booleans(),
        float: st.floats(allow_nan=False),
        bytes: st.binary(max_size=8),
        types.NoneType: st.none(),
    }[hint]


@cache
def records(cls: type[Record]) -> st.SearchStrategy[Any]:
    """Records of a model, every field of every type it may have."""
    fields = {
        name: st.none() | of_type(info.annotation) if info.default is None else _field(info)
        for name, info in cls.model_fields.items()
    }
    return st.builds(cls, **fields)


def _field(info: Any) -> st.SearchStrategy[Any]:
    return uuids() if UUID in info.metadata else of_type(info.annotation)


def uuids() -> st.SearchStrategy[str]:
    """Event ids: any UUID in lower case."""
    return st.binary(min_size=16, max_size=16).map(lambda b: str(uuid.UUID(bytes=b)))


@cache
def events_of(name: str) -> st.SearchStrategy[KnownEvent]:
    """Any event of one type."""
    return records(EVENT_TYPES[name])


@cache
def colliding_events_of(name: str) -> st.SearchStrategy[KnownEvent]:
    """Events of one type with few ids and the words that admission knows."""
    cls = EVENT_TYPES[name]
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field, info in cls.model_fields.items():
        sensible = SENSIBLE.get(field)
        if sensible is None:
            fields[field] = _field(info)
        elif info.default is None:
            fields[field] = st.none() | sensible
        else:
            fields[field] = sensible
    return cast("st.SearchStrategy[KnownEvent]", st.builds(cls, **fields))


def events() -> st.SearchStrategy[KnownEvent]:
    """Any event of any type."""
    return st.sampled_from(sorted(EVENT_TYPES)).flatmap(events_of)


def colliding_events() -> st.SearchStrategy[KnownEvent]:
    """Events of any type that are often about one another."""
    return st.sampled_from(sorted(EVENT_TYPES)).flatmap(colliding_events_of)


def envelopes() -> st.SearchStrategy[Envelope]:
    """Any envelope that a decoder could give."""
    return records(Envelope)


@st.composite
def appends(draw: st.DrawFn, *, session_id: str = "session", epochs: int = 3) -> Append:
    """Any append to one session that is syntactically an append."""
    event = draw(colliding_events())
    envelope = Envelope(
        event_id=draw(uuids()),
        session_id=session_id,
        writer=draw(st.sampled_from(("owner", "other"))),
        epoch=draw(st.integers(min_value=0, max_value=epochs)),
        actor=Actor(kind=draw(st.sampled_from(("PERSON", "HARNESS"))), id="x"),
        turn_id=draw(st.none() | st.sampled_from(FEW)),
        source=draw(st.none() | records(Source)),
        prev_hash=draw(st.none() | st.binary(min_size=32, max_size=32)),
    )
    return Append(
        envelope,
        event,
        encode_content(event),
        known_seq=draw(st.integers(min_value=0, max_value=8)),
        expected_seq=draw(st.none() | st.integers(min_value=0, max_value=8)),
        requires=draw(st.just(()) | st.tuples(uuids())),
    )
