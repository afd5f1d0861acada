"""Types not known here, versions newer and older, and the upcaster chain."""

import io
import json
from pathlib import Path
from typing import Any, cast

import avro.io
import avro.schema
import pytest

from foldline.errors import DecodeError, NewerFormatError
from foldline.processors.fold import evolve
from foldline.schemas.avro_io import parsed, write
from foldline.schemas.avsc import event_schema
from foldline.schemas.codec import Codec, encode_content, encode_envelope
from foldline.schemas.compat import check
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import (
    EVENT_TYPES,
    ModelCallCompleted,
    ToolCallRequested,
    UnknownEvent,
    UserMessage,
)
from foldline.schemas.readers import plain
from foldline.schemas.registry import LocalRegistry, SchemaTable
from foldline.schemas.upcasters import MAX_CHAIN, Upcaster
from tests import happenings as h
from tests.samples import BARE_ENVELOPE, ENVELOPE, SAMPLES

Fields = dict[str, Any]


class Schemas:
    """A registry of schemas as somebody else published them."""

    def __init__(self, *schemas: Fields) -> None:
        self.texts = [json.dumps(schema) for schema in schemas]

    def schema_of(self, schema_id: int) -> str:
        """The text; KeyError where there is none."""
        if not 0 <= schema_id < len(self.texts):
            raise KeyError(schema_id)
        return self.texts[schema_id]


def written(schema: Fields, fields: Fields) -> bytes:
    """Bytes as a writer with that schema writes them."""
    envelope = {k: v for k, v in ENVELOPE.model_dump().items() if k in names(schema)}
    return write(parsed(plain(schema)), envelope | fields, what="test")


def names(schema: Fields) -> set[str]:
    """The names of the fields."""
    return {own["name"] for own in schema["fields"]}


def like(name: str, record: str, version: int = 1, **kinds: str) -> Fields:
    """A schema like a type's, under another record name, with fields of its own."""
    schema = event_schema(EVENT_TYPES[name], version=version)
    own = [{"name": field, "type": kind} for field, kind in kinds.items()]
    return schema | {"name": record, "fields": schema["fields"][:20] + own}


# --- unknown types ---------------------------------------------------------------------

MOON = like("GoalSet", "MoonPhaseChanged", phase="string", brightness="double") | {
    "foldline_type": "MoonPhaseChanged"
}


def test_a_type_not_known_here_is_shown_with_its_fields() -> None:
    """B40: one custom kind made a whole conversation unreadable."""
    codec = Codec(Schemas(MOON))
    body = written(MOON, {"phase": "full", "brightness": 0.5})
    for decode in (codec.decode, codec.decode_structure):
        recorded = decode(0, body)
        assert recorded.event == UnknownEvent(
            "MoonPhaseChanged", {"phase": "full", "brightness": 0.5}
        )
        assert (recorded.body, recorded.envelope) == (body, ENVELOPE)
        assert recorded.type == "MoonPhaseChanged"


@pytest.mark.parametrize("place", [0, 57, 199])
def test_an_unknown_event_keeps_its_place_in_the_chain_and_its_bytes(
    place: int,
) -> None:
    """B40: 199 folded, 1 opaque; it round-trips unchanged."""
    registry = LocalRegistry(SchemaTable())
    moon_id = registry.add(json.dumps(MOON))
    codec = Codec(registry)
    story = h.session(mode="MIRRORED")
    state, head = story.state, story.state.chain_head
    for number in range(200):
        envelope = ENVELOPE.model_copy(
            update={
                "event_id": story.fresh_id(),
                "session_id": story.session_id,
                "seq": state.seq + 1,
                "prev_hash": head,
            }
        )
        if number == place:
            fields = {"phase": "new", "brightness": 0.0}
            body = write(parsed(plain(MOON)), envelope.model_dump() | fields, what="t")
            schema_id = moon_id
        else:
            body = encode_envelope(envelope) + encode_content(h.user())
            schema_id = registry.id_of("UserMessage")
        recorded = codec.decode_structure(schema_id, body)
        assert recorded.body == body
        state = evolve(state, recorded)
        head = state.chain_head
    assert state.counts["MoonPhaseChanged"] == 1
    assert state.counts["UserMessage"] == 199
    assert state.seq == 201


# --- newer versions --------------------------------------------------------------------

NEWER = like("ToolCallRequested", "ToolCallRequestedV2", 2, call_id="string", why="string")


def test_a_newer_version_of_a_known_type_is_not_folded_as_if_it_were_known() -> None:
    """B41: written by newer code, misread or overwritten by older."""
    codec = Codec(Schemas(NEWER))
    body = written(NEWER, {"call_id": "m:0", "why": "x"})
    with pytest.raises(NewerFormatError, match="upgrade") as raised:
        codec.decode_structure(0, body)
    assert (raised.value.found, raised.value.known) == (2, 1)


def test_a_newer_version_of_a_known_type_is_shown_as_it_is() -> None:
    """B41: for people and tools, with its bytes."""
    codec = Codec(Schemas(NEWER))
    body = written(NEWER, {"call_id": "m:0", "why": "x"})
    recorded = codec.decode(0, body)
    expected = UnknownEvent("ToolCallRequested", {"call_id": "m:0", "why": "x"})
    assert (recorded.event, recorded.body) == (expected, body)


# --- compatible versions, with real bytes ------------------------------------------------


def evolved(name: str, *, later: bool) -> Fields:
    """The schema of another version: with fields that are new, or without some."""
    schema = json.loads(json.dumps(event_schema(EVENT_TYPES[name])))
    fields: list[Fields] = schema["fields"]
    new = {"name": "later", "type": ["null", "long"], "default": None}
    actor = next(f for f in fields if f["name"] == "actor")
    if later:
        actor["type"]["fields"].append(dict(new))
        fields.insert(19, dict(new))
        fields.insert(22, {"name": "later2", "type": "string", "default": "x"})
    else:
        gone = {"traceparent", "branch", "cost", "usage", "namespace", "attempt"}
        schema["fields"] = [f for f in fields if f["name"] not in gone]
    return schema


def filled(schema: Fields, event: Any, envelope: Envelope) -> Fields:
    """What a writer of that version says."""
    fields = envelope.model_dump() | event.model_dump()
    fields["actor"]["later"] = 7
    fields |= {"later": 8, "later2": "new"}
    return {name: fields[name] for name in names(schema)}


@pytest.mark.parametrize(
    "event",
    [
        ModelCallCompleted(model_call_id="m", finish_reason="stop"),
        ToolCallRequested(
            call_id="m:0",
            tool="t",
            args_hash="h",
            message_id="m",
            position=1,
            arguments=(),
        ),
        UserMessage(message_id="u", blocks=()),
    ],
    ids=lambda event: type(event).__name__,
)
@pytest.mark.parametrize("later", [True, False])
def test_events_of_compatible_versions_are_read_by_the_models_of_today(
    event: Any,
    *,
    later: bool,
) -> None:
    """B42: real bytes, of newer and of older writers, at both depths."""
    schema = evolved(type(event).__name__, later=later)
    body = write(parsed(plain(schema)), filled(schema, event, BARE_ENVELOPE), what="test")
    codec = Codec(Schemas(schema))
    for decode in (codec.decode, codec.decode_structure):
        recorded = decode(0, body)
        assert recorded.envelope == BARE_ENVELOPE
        assert recorded.event == event
        assert recorded.body == body


@pytest.mark.parametrize("name", ["ModelCallCompleted", "UserMessage"])
def test_events_of_today_are_read_by_readers_of_other_compatible_versions(
    name: str,
) -> None:
    """B42, the reverse: by Avro's own reader, with the other version's schema."""
    writer = event_schema(EVENT_TYPES[name])
    body = encode_envelope(ENVELOPE) + encode_content(SAMPLES[name])
    for later in (True, False):
        reader = evolved(name, later=later)
        datum = avro.io.DatumReader(
            avro.schema.parse(json.dumps(writer)), avro.schema.parse(json.dumps(reader))
        ).read(avro.io.BinaryDecoder(io.BytesIO(body)))
        fields = cast("Fields", datum)
        assert fields["session_id"] == ENVELOPE.session_id
        assert fields.get("later2", "x") == "x"


def test_the_gate_lets_these_versions_pass(tmp_path: Path) -> None:
    """What the bytes show and what the gate says is the same."""
    for name in ("ModelCallCompleted", "UserMessage"):
        for later in (True, False):
            found = check(tmp_path, models={name: evolved(name, later=later)})
            assert [p.reason for p in found] == [
                "it was never frozen: run `foldline schemas freeze`"
            ]


# --- upcasters ---------------------------------------------------------------------------


def to_2(fields: Fields) -> tuple[str, Fields]:
    """The first version called the message's id `id`."""
    return "UserMessageV0b", {"message": fields["id"], "text": fields["text"]}


def to_3(fields: Fields) -> tuple[str, Fields]:
    """The second had a text instead of blocks."""
    block = {"kind": "text", "body": fields["text"]}
    return "UserMessage", {"message_id": fields["message"], "blocks": [block]}


FIRST = like("UserMessage", "UserMessageV0a", 1, id="string", text="string")
SECOND = like("UserMessage", "UserMessageV0b", 2, message="string", text="string")
CHAIN: dict[str, Upcaster] = {"UserMessageV0a": to_2, "UserMessageV0b": to_3}


def test_old_versions_come_out_as_the_newest_at_one_choke_point() -> None:
    """Step by step, at both depths; the stored bytes stay what they were."""
    codec = Codec(Schemas(FIRST, SECOND), upcasters=CHAIN)
    bodies = [
        written(FIRST, {"id": "u", "text": "hello"}),
        written(SECOND, {"message": "u", "text": "hello"}),
    ]
    expected = UserMessage.model_validate(
        {"message_id": "u", "blocks": [{"kind": "text", "body": "hello"}]}
    )
    for schema_id, body in enumerate(bodies):
        for decode in (codec.decode, codec.decode_structure):
            recorded = decode(schema_id, body)
            assert (recorded.event, recorded.body) == (expected, body)
            assert recorded.type == "UserMessage"


def test_an_old_version_folds_like_the_newest() -> None:
    """The fold never sees that it was old."""
    codec = Codec(Schemas(FIRST), upcasters=CHAIN)
    story = h.session(mode="MIRRORED")
    recorded = codec.decode_structure(0, written(FIRST, {"id": "u", "text": "x"}))
    assert evolve(story.state, recorded).counts["UserMessage"] == 1


@pytest.mark.parametrize("length", [1, 2, 5])
def test_upcasters_that_go_in_a_circle_are_found(length: int) -> None:
    """Whatever its length."""
    circle: dict[str, Upcaster] = {
        f"Old{number}": lambda fields, n=number: (f"Old{(n + 1) % length}", fields)
        for number in range(length)
    }
    schema = like("UserMessage", "Old0", 1, id="string")
    codec = Codec(Schemas(schema), upcasters=circle)
    with pytest.raises(DecodeError, match="circle"):
        codec.decode(0, written(schema, {"id": "u"}))


def test_the_longest_chain_that_is_allowed_ends() -> None:
    """One step more is taken for a circle."""
    for length, ends in ((MAX_CHAIN - 1, True), (MAX_CHAIN, False)):
        steps: dict[str, Upcaster] = {
            f"Old{n}": lambda fields, n=n: (f"Old{n + 1}", fields) for n in range(length)
        }
        steps[f"Old{length - 1}"] = to_3
        schema = like("UserMessage", "Old0", 1, message="string", text="string")
        codec = Codec(Schemas(schema), upcasters=steps)
        body = written(schema, {"message": "u", "text": "x"})
        if ends:
            assert codec.decode(0, body).type == "UserMessage"
        else:
            with pytest.raises(DecodeError, match="circle"):
                codec.decode(0, body)


def test_an_upcaster_whose_fields_do_not_fit_is_a_decode_error() -> None:
    """Validation stands behind the chain."""
    wrong: dict[str, Upcaster] = {"UserMessageV0a": lambda fields: ("UserMessage", fields)}
    codec = Codec(Schemas(FIRST), upcasters=wrong)
    with pytest.raises(DecodeError, match="message_id"):
        codec.decode(0, written(FIRST, {"id": "u", "text": "x"}))
