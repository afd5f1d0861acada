"""What every append passes: redacted before it is hashed, stored, or anywhere durable."""

import base64
import hashlib
from collections.abc import Mapping

import pytest

from foldline.errors import RedactionError
from foldline.processors.memory_blobs import MemoryBlobs
from foldline.producers.client import connect
from foldline.producers.prepare import (
    Draft,
    Prepared,
    Preparer,
    args_hash,
)
from foldline.schemas.blocks import Blob, Block, json_block, text_block
from foldline.schemas.codec import MAX_EVENT_BYTES
from foldline.schemas.envelope import Actor, Envelope
from foldline.schemas.events import (
    KnownEvent,
    PermissionGranted,
    RedactionApplied,
    ToolCallRequested,
    ToolDeclaration,
    ToolExecutionCompleted,
    ToolsDeclared,
    UserMessage,
)
from tests.harness import client, memory

INLINE_MAX = 1_000


class Blacklist:
    """A redactor of one word, that fails on another."""

    def redact_event(self, event: KnownEvent) -> tuple[KnownEvent, Mapping[str, int]]:
        """Replace SECRET in blocks; UNSURE cannot be judged."""
        text = event.model_dump_json()
        if "UNSURE" in text:
            raise RedactionError("unsure", "told to fail")
        count = text.count("SECRET")
        if not count:
            return event, {}
        return type(event).model_validate_json(text.replace("SECRET", "‹x›")), {"w": count}


def prepare(event: KnownEvent, blobs: MemoryBlobs | None = None) -> list[Prepared]:
    """Prepare one event with an inline limit of 1,000 bytes."""
    store = blobs or MemoryBlobs(max_bytes=10_000_000)
    envelope = Envelope(
        event_id="00000000-0000-7000-8000-000000000001",
        session_id="s",
        writer="w",
        actor=Actor(kind="AGENT", id="a"),
    )
    preparer = Preparer(Blacklist(), store, INLINE_MAX)
    return preparer.prepare(Draft(envelope, event))


def body_of(prepared: Prepared) -> object:
    """The body of the first block."""
    event = prepared.event
    assert isinstance(event, UserMessage | ToolExecutionCompleted)
    blocks = event.blocks if isinstance(event, UserMessage) else event.output
    return blocks[0].body


def message(*blocks: Block) -> UserMessage:
    """A message of blocks."""
    return UserMessage(message_id="m", blocks=blocks)


def requested(arguments: str) -> ToolCallRequested:
    """A request with these arguments, its hash not yet known."""
    return ToolCallRequested(
        call_id="c",
        tool="t",
        args_hash="",
        message_id="m",
        position=0,
        arguments=(json_block(arguments),),
    )


def test_what_was_redacted_is_counted_in_an_event_that_needs_the_first() -> None:
    """Counts and rules, never what it was; under the same id when it comes again."""
    first, second = prepare(message(text_block("the SECRET is SECRET")))
    assert body_of(first) == "the ‹x› is ‹x›"
    assert isinstance(second.event, RedactionApplied)
    assert second.event.target_event_id == first.envelope.event_id
    assert [(rule.rule, rule.count) for rule in second.event.rules] == [("w", 2)]
    assert second.requires == (first.envelope.event_id,)
    again = prepare(message(text_block("the SECRET is SECRET")))[1]
    assert again.envelope.event_id == second.envelope.event_id


def test_arguments_are_hashed_as_they_are_stored() -> None:
    """Redacted first: no hash tells what the secret was."""
    first = prepare(requested('{"key": "SECRET"}'))[0].event
    assert isinstance(first, ToolCallRequested)
    assert first.args_hash == args_hash((json_block('{"key": "‹x›"}'),))
    assert first.args_hash != args_hash((json_block('{"key": "SECRET"}'),))


def test_the_hash_is_over_canonical_json_or_over_the_bytes_as_they_are() -> None:
    """RFC 8785 where the arguments parse; numbers it cannot hold and junk stay bytes."""
    one = args_hash((json_block('{"b": 1.0, "a": 2}'),))
    assert one == args_hash((json_block('{"a":2,"b":1}'),))
    assert one == hashlib.sha256(b'{"a":2,"b":1}').hexdigest()
    for raw in ("{bad", '{"n": 123456789012345678901}', '{"n": NaN}', "[" * 5_000):
        expected = hashlib.sha256(raw.encode()).hexdigest()
        assert args_hash((json_block(raw),)) == expected


def test_edited_arguments_of_a_grant_get_a_hash_of_their_own() -> None:
    """The call runs with these instead of the model's."""
    granted = PermissionGranted(
        decided_by="PERSON", grant_id="g", edited_arguments=(json_block('{"a": 1}'),)
    )
    event = prepare(granted)[0].event
    assert isinstance(event, PermissionGranted)
    assert event.edited_args_hash == args_hash((json_block('{"a":1}'),))


def test_a_body_above_the_limit_becomes_a_blob_and_one_at_it_does_not() -> None:
    """After redaction, in bytes of UTF-8."""
    blobs = MemoryBlobs(max_bytes=1_000_000)
    assert body_of(prepare(message(text_block("x" * INLINE_MAX)))[0]) == "x" * INLINE_MAX
    text = "SECRET" + "ü" * INLINE_MAX
    blob = body_of(prepare(message(text_block(text)), blobs)[0])
    assert isinstance(blob, Blob)
    stored = blobs.get(blob.sha256)
    assert stored.decode() == "‹x›" + "ü" * INLINE_MAX
    assert blob.size == len(stored)
    assert blob.sha256 == hashlib.sha256(stored).digest()
    assert blob.preview == stored.decode()[: INLINE_MAX // 4]


def test_many_bodies_below_the_limit_still_fit_into_one_event() -> None:
    """Case B10: the size is checked after it is written, and made to fit."""
    blobs = MemoryBlobs(max_bytes=1_000_000)
    blocks = tuple(text_block("x" * 990) for _ in range(1_200))
    prepared = prepare(message(*blocks), blobs)[0]
    assert len(prepared.content) < MAX_EVENT_BYTES


def test_binary_media_is_a_blob_over_its_decoded_bytes_whatever_its_size() -> None:
    """No text rule mangles it, no base64 is hashed."""
    blobs = MemoryBlobs(max_bytes=1_000_000)
    data = b"\x89PNG SECRET"
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    blob = body_of(prepare(message(Block(kind="image", body=url)), blobs)[0])
    assert isinstance(blob, Blob)
    assert (blob.media_type, blob.size, blob.preview) == ("image/png", len(data), None)
    assert blobs.get(blob.sha256) == data


@pytest.mark.parametrize("kind", ["file", "image", "audio", "video"])
def test_a_secret_in_a_document_that_is_text_is_redacted_before_it_is_a_blob(
    kind: str,
) -> None:
    """Base64 is how documents are sent, and no reason to store what they say."""
    blobs = MemoryBlobs(max_bytes=1_000_000)
    text = '{"note": "SECRET", "ü": 1}\n'
    encoded = base64.b64encode(text.encode()).decode()
    block = Block(kind=kind, body=f"data:application/json;base64,{encoded}")
    prepared = prepare(message(block), blobs)
    blob = body_of(prepared[0])
    assert isinstance(blob, Blob)
    stored = blobs.get(blob.sha256)
    assert stored.decode() == text.replace("SECRET", "‹x›")
    assert (blob.media_type, blob.size) == ("application/json", len(stored))
    event = prepared[0].event
    assert isinstance(event, UserMessage)
    assert event.blocks[0].media_type == "application/json"
    assert prepared[1].envelope.event_id != prepared[0].envelope.event_id


def test_a_data_url_that_is_none_stays_the_text_that_it_is() -> None:
    """Not every image is well-formed."""
    body = "data:image/png;base64,not base64!"
    assert body_of(prepare(message(Block(kind="image", body=body)))[0]) == body


def test_lone_surrogates_become_the_replacement_character_and_are_marked() -> None:
    """Case B38: before a rule or a hash sees them."""
    cut = Block(kind="text", body="cut \ud83d")
    event = prepare(message(cut))[0].event
    assert isinstance(event, UserMessage)
    assert event.blocks[0] == Block(kind="text", body="cut \ufffd", lossy=True)
    call = prepare(requested('{"d":"현\ud99c"}'))[0].event
    assert isinstance(call, ToolCallRequested)
    assert call.args_hash == args_hash((json_block('{"d":"현\ufffd"}'),))


def test_large_schemas_of_tools_are_stored_as_blobs_too() -> None:
    """A declaration holds bodies, not only blocks."""
    tool = ToolDeclaration(
        name="t", effect="UNSAFE", description="d" * 2_000, input_schema="{}"
    )
    event = prepare(ToolsDeclared(tools=(tool,)))[0].event
    assert isinstance(event, ToolsDeclared)
    assert isinstance(event.tools[0].description, Blob)
    assert event.tools[0].input_schema == "{}"


async def test_an_event_that_the_redactor_cannot_judge_is_not_recorded() -> None:
    """It fails closed: nothing of it is in the log or among the blobs."""
    log = memory()
    async with connect(log, redactor=Blacklist()) as own:
        owned = await own.create(agent="a")
        with pytest.raises(RedactionError):
            await owned.message("UNSURE" + "x" * 100_000)
        assert (await owned.state()).seq == 1
        await owned.message("fine")


async def test_secrets_are_redacted_unless_somebody_decides_otherwise() -> None:
    """The default client redacts; the log holds a placeholder and the count."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        token = "ghp_" + "a1B2" * 9
        await owned.message(f"use {token} please")
        events = [recorded async for recorded in owned.events()]
        assert [recorded.type for recorded in events[1:]] == [
            "UserMessage",
            "RedactionApplied",
        ]
        assert all(token.encode() not in recorded.body for recorded in events)
