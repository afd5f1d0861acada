"""What people and models say in a Claude Code transcript, as facts."""

import base64
import json
from typing import Any

import pytest

from foldline.schemas.blocks import Blob, text_of
from foldline.schemas.envelope import INFERRED
from foldline.schemas.events import (
    AssistantMessage,
    ConfigChanged,
    ModelCallCompleted,
    ModelCallFailed,
    SystemObservation,
    ToolCallRequested,
    TurnStarted,
    UsageCorrected,
    UserMessage,
)
from tests.transcripts import (
    MODEL,
    SESSION,
    Import,
    Transcript,
    called,
    text,
    tool_use,
)


def test_a_prompt_begins_a_turn_and_the_next_one_ends_it(
    script: Transcript, into: Import
) -> None:
    script.user("one")
    script.user([text("two")])
    into.take(script)
    assert into.order() == [
        "SessionCreated",
        *("TurnStarted", "UserMessage"),
        *("TurnEnded", "TurnStarted", "UserMessage"),
    ]
    assert [text_of(one.blocks) for one in into.of(UserMessage)] == ["one", "two"]
    assert [one.turn_id for one in (e.envelope for e in into.events())] == [
        None,
        *("r1", "r1", "r1", "r2", "r2"),
    ]


def test_only_creation_and_turns_are_inferred(script: Transcript, into: Import) -> None:
    called(script).result("c1")
    script.user("more")
    into.take(script)
    inferred = {e.type for e in into.events() if e.envelope.certainty == INFERRED}
    assert inferred == {"SessionCreated", "TurnStarted", "TurnEnded"}


def test_facts_say_where_they_were_read(script: Transcript, into: Import) -> None:
    script.user("one")
    into.take(script)
    for event in into.events():
        source = event.envelope.source
        assert source is not None
        assert (source.system, source.position) == ("claude-code", "0")
        assert source.stream == str((into.folder / "session.jsonl").resolve())
        assert event.envelope.occurred_at == 1_767_322_801_000_000


def test_the_records_of_one_message_are_its_parts(script: Transcript, into: Import) -> None:
    script.user("go")
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    script.assistant("m1", thought)
    script.assistant("m1", text("I will"))
    script.assistant("m1", tool_use("c1", path="a"))
    script.assistant("m1", tool_use("c2", path="b"))
    into.take(script)
    parts = into.of(AssistantMessage)
    assert [(one.message_id, one.part, one.final) for one in parts] == [
        ("m1", part, None) for part in range(4)
    ]
    reasoning = parts[0].blocks[0]
    assert (reasoning.kind, reasoning.signature, reasoning.model) == (
        *("reasoning", "sig"),
        MODEL,
    )
    calls = into.of(ToolCallRequested)
    assert [one.call_id for one in calls] == ["m1:2", "m1:3"]
    assert [one.position for one in calls] == [2, 3]
    assert [one.provider_call_id for one in calls] == ["c1", "c2"]
    assert json.loads(text_of(calls[0].arguments)) == {"path": "a"}
    assert [b.call_id for part in parts for b in part.blocks] == [
        *(None, None),
        *("m1:2", "m1:3"),
    ]


def test_usage_is_counted_once_per_message_and_the_last_record_holds(
    script: Transcript, into: Import
) -> None:
    """B43."""
    script.user("go")
    for output in (1, 1, 250):
        usage = {"input_tokens": 10, "output_tokens": output}
        script.assistant("m1", text("x"), usage=usage)
    script.assistant("m2", text("y"), usage={"input_tokens": 5, "output_tokens": 2})
    into.take(script)
    assert [one.model_call_id for one in into.of(ModelCallCompleted)] == ["m1", "m2"]
    (corrected,) = into.of(UsageCorrected)
    assert corrected.usage.output_tokens == 250
    state = into.log.state(SESSION)
    assert state is not None
    assert (state.usage.input_tokens, state.usage.output_tokens) == (15, 252)


def test_all_that_usage_says_is_kept(script: Transcript, into: Import) -> None:
    usage = {
        "input_tokens": 1,
        "cache_read_input_tokens": 2,
        "cache_creation_input_tokens": 3,
        "output_tokens": 4,
        "output_tokens_details": {"thinking_tokens": 5},
        "service_tier": "standard",
        "cache_creation": {"b": 2**60, "a": 1.0},
    }
    script.assistant("m1", text("x"), usage=usage)
    into.take(script)
    (call,) = into.of(ModelCallCompleted)
    assert call.usage is not None
    kept = call.usage.model_dump(exclude={"extra_json"})
    assert list(kept.values()) == [1, 4, 2, 3, 5]
    extra = json.loads(call.usage.extra_json or "")
    assert (extra["service_tier"], extra["cache_creation"]["b"]) == ("standard", 2**60)


def test_a_text_among_blocks_is_a_block(script: Transcript, into: Import) -> None:
    script.assistant("m1", "bare", text("and not"))  # type: ignore[arg-type]
    into.take(script)
    assert text_of(into.of(AssistantMessage)[0].blocks) == "bareand not"


def test_configuration_is_told_where_it_changes(script: Transcript, into: Import) -> None:
    script.user("a", permissionMode="default")
    script.assistant("m1", text("x"))
    script.assistant("m2", text("x"))
    script.user("b", permissionMode="plan", cwd="/elsewhere")
    script.bare("permission-mode", permissionMode="acceptEdits")
    script.bare("permission-mode", permissionMode="acceptEdits")
    report = into.take(script)
    assert into.of(ConfigChanged) == [
        ConfigChanged(permission_mode="default"),
        ConfigChanged(model=MODEL),
        ConfigChanged(permission_mode="plan", cwd="/elsewhere"),
        ConfigChanged(permission_mode="acceptEdits"),
    ]
    assert report.noise == {"permission-mode": 1}


def test_an_image_becomes_a_blob_of_its_decoded_bytes(
    script: Transcript, into: Import
) -> None:
    pixels = bytes(range(256)) * 4
    data = base64.b64encode(pixels).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    script.user([{"type": "image", "source": source}, text("look")])
    into.take(script)
    image = into.of(UserMessage)[0].blocks[0]
    assert isinstance(image.body, Blob)
    assert (image.kind, image.body.size, image.body.media_type) == (
        *("image", len(pixels)),
        "image/png",
    )
    assert into.log.blobs.get(image.body.sha256) == pixels


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64", "media_type": "image/png", "data": "not base64!"},
        {"type": "url", "url": "https://example.org/x.png"},
        None,
    ],
)
def test_an_image_without_bytes_is_kept_as_json(
    script: Transcript, into: Import, source: Any
) -> None:
    script.user([{"type": "image", "source": source}])
    into.take(script)
    (block,) = into.of(UserMessage)[0].blocks
    assert (block.kind, block.name) == ("json", "image")
    assert json.loads(str(block.body))["source"] == source


@pytest.mark.parametrize(
    ("said", "fields", "origin"),
    [
        (
            "Caveat: The messages below were generated by the user while running",
            {},
            "local",
        ),
        ("<local-command-stdout>Bye</local-command-stdout>", {}, "local"),
        ("anything", {"isMeta": True}, "meta"),
        ("anything", {"isVisibleInTranscriptOnly": True}, "meta"),
        ("anything", {"origin": {"kind": "channel"}}, "channel"),
    ],
)
def test_what_the_harness_says_as_the_user_is_no_prompt(
    script: Transcript, into: Import, said: str, fields: dict[str, Any], origin: str
) -> None:
    script.user(said, **fields)
    into.take(script)
    (observed,) = into.of(SystemObservation)
    assert observed.origin.startswith(origin)
    assert text_of(observed.blocks) == said
    assert into.of(TurnStarted) == []


def test_a_command_of_the_harness_is_said_by_the_user_and_begins_no_turn(
    script: Transcript, into: Import
) -> None:
    script.user("<command-name>/exit</command-name>")
    into.take(script)
    assert into.types() == {"SessionCreated": 1, "UserMessage": 1}


def test_what_the_harness_says_as_the_model_is_no_model_call(
    script: Transcript, into: Import
) -> None:
    record = script.assistant("x", text("No response requested."))
    record["message"]["model"] = "<synthetic>"
    failed = script.assistant("y", text("API Error: 500"), isApiErrorMessage=True)
    failed["message"]["model"] = "<synthetic>"
    into.take(script)
    assert into.of(ModelCallCompleted) == []
    assert [one.origin for one in into.of(SystemObservation)] == ["synthetic"]
    (error,) = into.of(ModelCallFailed)
    assert (error.model_call_id, text_of(error.blocks)) == ("y", "API Error: 500")
