"""A request by reference: the same bytes from the same events, or a word about why not."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from foldline.errors import BlobError, SettingsError
from foldline.projections.building import build
from foldline.projections.context import Context, Sources
from foldline.projections.render import FORMATS
from foldline.projections.render_anthropic import Caching
from foldline.projections.request import (
    OTHER_BYTES,
    VERSIONS,
    Form,
    Rebuilt,
    body_of,
    bytes_of,
    form_of,
    rebuilt,
    reference,
)
from foldline.schemas.blocks import Blob, Block, json_block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    CompactionCompleted,
    ConstraintSet,
    GoalSet,
    InstructionsSet,
    ModelCallStarted,
    RequestRef,
    ToolDeclaration,
    ToolExecutionCompleted,
    ToolsDeclared,
    UserMessage,
)
from tests.happenings import ask, deny, in_turn, request, start
from tests.story import Story

GOLDEN = Path(__file__).parents[1] / "golden" / "requests.json"

PIXEL = bytes.fromhex("89504e470d0a1a0a0000000d49484452")
IMAGE = Blob(sha256=hashlib.sha256(PIXEL).digest(), size=16, media_type="image/png")

PARAMETERS: dict[str, Any] = {
    "temperature": 0.5,
    "max_tokens": 100,
    "metadata": {"z": [1, {"b": None}], "a": "grüße"},
}

FORMS = [
    Form(model="m", provider="p"),
    *(Form(name, "m", "p", PARAMETERS) for name in FORMATS),
    Form("anthropic", "m", "anthropic", {"max_tokens": 9}, Caching("1h")),
]


def blob(sha256: bytes) -> bytes:
    if sha256 != IMAGE.sha256:
        raise BlobError(sha256.hex(), "it is not in the store")
    return PIXEL


def told() -> Story:
    """A history with one of each: of what is said, called, shown and denied."""
    tool = ToolDeclaration(name="t", effect="SAFE", description="does", input_schema="{}")
    thought = Block(
        kind="reasoning", body="hm", provider="anthropic", model="m", signature="s"
    )
    story = in_turn().given(
        InstructionsSet(role="system", blocks=(text_block("be brief"),)),
        GoalSet(blocks=(text_block("all green"),)),
        ConstraintSet(constraint_id="k", blocks=(text_block("no network"),)),
        ToolsDeclared(tools=(tool,)),
        UserMessage(
            message_id="u", blocks=(text_block("gö"), Block(kind="image", body=IMAGE))
        ),
        AssistantMessage(message_id="m", blocks=(thought, text_block("I look."))),
    )
    for call in "ab":
        arguments = (json_block('{"path": "a.py"}'),)
        story.given(request(call, message_id="m", tool="t", arguments=arguments))
    story.given(start("a"), ToolExecutionCompleted(call_id="a", output=(text_block("x"),)))
    story.given(ask("r", call_id="b"), deny("r", call_id="b"))
    return story


def asked(context: Context, form: Form) -> ModelCallStarted:
    """The start of a call that is shown this."""
    body = body_of(context, form, read_blob=blob)
    return ModelCallStarted(
        model_call_id="c",
        provider=form.provider,
        model=form.model,
        request=reference(context, form, body),
    )


def changed(call: ModelCallStarted, **fields: Any) -> ModelCallStarted:
    """The same call with another reference."""
    assert isinstance(call.request, RequestRef)
    reference = call.request.model_copy(update=fields)
    return call.model_copy(update={"request": reference})


def stored(call: ModelCallStarted) -> ModelCallStarted:
    """The same call as it is read again from its bytes."""
    story = in_turn().given(call)
    last = story.events[-1]
    event = story.codec.decode(last.schema_id, last.body).event
    assert isinstance(event, ModelCallStarted)
    return event


def again(call: ModelCallStarted, sources: Sources) -> Rebuilt:
    return rebuilt("c", call, sources, read_blob=blob)


# --- the same -------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.renderer)
def test_a_request_is_rebuilt_byte_for_byte_at_every_cut(form: Form) -> None:
    """Whatever comes later: the events of its reference are all that it is made of."""
    events = told().events
    for end in range(1, len(events) + 1):
        context = build(Sources(events[:end]))
        call = asked(context, form)
        sent = bytes_of(context, body_of(context, form, read_blob=blob))
        found = again(stored(call), Sources(list(events[:end])))
        assert (found.ok, found.problems, found.data) == (True, (), sent)
        assert hashlib.sha256(sent).digest() == found.sha256


def test_a_request_begins_with_its_parameters_and_holds_them_all() -> None:
    for form in FORMS[1:]:
        body = body_of(build(Sources(told().events)), form, read_blob=blob)
        assert form.parameters.items() <= body.items()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.renderer)
def test_how_it_was_rendered_is_read_off_the_reference(form: Form) -> None:
    call = asked(build(Sources(told().events)), form)
    assert isinstance(call.request, RequestRef)
    assert form_of(call, call.request) == form
    assert call.request.renderer_version == VERSIONS[form.renderer]


def test_a_context_without_events_has_no_reference() -> None:
    assert asked(build(Sources(())), Form()).request is None


def of_apart() -> dict[str, str]:
    """What hashes the versions that are made now give for it."""
    context = build(Sources(apart().events))
    return {
        f"{form.renderer}/{VERSIONS[form.renderer]}": hashlib.sha256(
            bytes_of(context, body_of(context, form, read_blob=blob))
        ).hexdigest()
        for form in OLD_FORMS
    }


def test_other_bytes_for_the_same_events_are_a_new_version() -> None:
    """What was recorded by a renderer must be rebuilt by it for ever.

    If the bytes have to change: raise the version of the renderer, and keep the old line.
    """
    golden: dict[str, str] = json.loads(GOLDEN.read_text())
    context = build(Sources(told().events))
    now = {f"{name}/apart": sha256 for name, sha256 in of_apart().items()}
    for form in FORMS[:-1]:
        call = asked(context, form)
        assert isinstance(call.request, RequestRef)
        name = f"{form.renderer}/{VERSIONS[form.renderer]}"
        now[name] = call.request.sha256.hex()
    assert now.items() <= golden.items(), json.dumps(golden | now, indent=1)


# --- not the same ---------------------------------------------------------------------


def test_parameters_that_are_no_json_are_refused_before_the_call() -> None:
    context = build(Sources(told().events))
    for value in (float("nan"), object(), {1, 2}):
        with pytest.raises(SettingsError, match="JSON"):
            asked(context, Form("openai-chat", "m", parameters={"x": value}))


def test_an_event_that_is_gone_is_named() -> None:
    events = told().events
    call = asked(build(Sources(events)), Form("anthropic", "m"))
    without = [recorded for recorded in events if recorded.seq not in (4, 5)]
    found = again(call, Sources(without))
    assert found.problems == ("2 of its events are gone, the first at seq 4",)
    assert again(call, Sources(events[:-1])).problems == (
        f"1 of its events are gone, the first at seq {len(events)}",
    )


def test_a_range_that_nobody_can_have_ends() -> None:
    call = asked(build(Sources(told().events)), Form())
    assert isinstance(call.request, RequestRef)
    far = call.request.ranges[0].model_copy(update={"to_seq": 2**62})
    (problem,) = again(changed(call, ranges=(far,)), Sources(told().events)).problems
    assert "are gone" in problem


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"renderer_version": 99}, "by version 99 of anthropic, newer than 2"),
        ({"renderer_version": 1}, OTHER_BYTES),
        ({"renderer": "theirs"}, "'theirs', which is not known here"),
        (
            {"parameters_json": '{"api_key":"‹secret:generic:12ab›"}'},
            "its parameters held a secret",
        ),
        ({"parameters_json": "nonsense"}, OTHER_BYTES),
        ({"parameters_json": '{"messages":[]}'}, "it cannot be rendered"),
        ({"sha256": b"other"}, OTHER_BYTES),
    ],
)
def test_why_it_is_another_request_is_said(fields: dict[str, Any], word: str) -> None:
    sources = Sources(told().events)
    call = asked(build(sources), Form("anthropic", "m", parameters={"max_tokens": 5}))
    if "renderer_version" in fields:
        fields = fields | {"sha256": b"of another version"}
    found = again(changed(call, **fields), sources)
    assert not found.ok
    assert any(word in problem for problem in found.problems), found.problems


def test_an_older_renderer_that_gave_the_same_bytes_is_no_problem() -> None:
    sources = Sources(told().events)
    call = asked(build(sources), Form("anthropic", "m"))
    assert again(changed(call, renderer_version=1), sources).ok


THOUGHT = Block(
    kind="reasoning",
    provider="openai",
    model="m",
    opaque='{"type":"compaction","id":"cmp","encrypted_content":"gAAA","summary":[]}',
)


def apart() -> Story:
    """A history with all that a later version renders otherwise."""
    two = (text_block("one.py"), text_block("two.py"))
    named = tuple(
        text_block(f"of {role}").model_copy(update={"name": role})
        for role in ("user", "assistant")
    )
    return in_turn().given(
        InstructionsSet(role="system", blocks=two),
        UserMessage(message_id="u", blocks=(text_block("hm"),)),
        CompactionCompleted(
            compaction_id="c",
            from_seq=1,
            to_seq=4,
            base_seq=4,
            strategy="theirs",
            blocks=(*named, THOUGHT),
        ),
        UserMessage(message_id="v", blocks=two),
        AssistantMessage(message_id="m", blocks=(text_block("I look."),)),
        request("a", message_id="m", tool="t", arguments=(json_block("{}"),)),
        start("a"),
        ToolExecutionCompleted(call_id="a", output=two),
    )


THINKING: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 8_000}}

OLD_FORMS = [
    Form("anthropic", "m", parameters=THINKING | {"metadata": {"user_id": "u"}}),
    Form("openai-chat", "m"),
    Form("openai-responses", "m"),
]


@pytest.mark.parametrize("form", OLD_FORMS, ids=lambda form: form.renderer)
def test_a_request_of_an_older_version_is_rebuilt_as_it_was_sent(form: Form) -> None:
    """The bytes that version gave stand in the golden file; they are other ones now."""
    sources = Sources(apart().events)
    context = build(sources)
    body = body_of(context, form, read_blob=blob, version=1)
    sent = hashlib.sha256(bytes_of(context, body)).digest()
    golden: dict[str, str] = json.loads(GOLDEN.read_text())
    assert sent.hex() == golden[f"{form.renderer}/1/apart"]
    call = asked(context, form)
    found = again(changed(call, renderer_version=1, sha256=sent), sources)
    assert (found.ok, found.data) == (True, bytes_of(context, body))
    assert isinstance(call.request, RequestRef)
    assert call.request.sha256 != sent


def test_an_image_that_is_gone_is_named() -> None:
    def nothing(sha256: bytes) -> bytes:
        raise BlobError(sha256.hex(), "it is not in the store")

    sources = Sources(told().events)
    call = asked(build(sources), Form("anthropic", "m"))
    (problem,) = rebuilt("c", call, sources, read_blob=nothing).problems
    assert IMAGE.sha256.hex() in problem


def test_a_request_without_an_image_that_was_gone_already_is_what_was_sent() -> None:
    def nothing(sha256: bytes) -> bytes:
        raise BlobError(sha256.hex(), "it is not in the store")

    sources = Sources(told().events)
    for form in FORMS:
        context = build(sources)
        body = body_of(context, form, read_blob=nothing)
        sent = ModelCallStarted(
            model_call_id="c",
            provider=form.provider,
            model=form.model,
            request=reference(context, form, body),
        )
        assert rebuilt("c", sent, sources, read_blob=nothing).ok


def test_a_text_that_is_gone_is_named() -> None:
    """What was sent had it; what is built now has its preview."""
    data = b"a long text"
    sha256 = hashlib.sha256(data).digest()
    body = Blob(sha256=sha256, size=11, media_type="text/plain", preview="a lo")
    block = Block(kind="text", body=body)
    story = in_turn().given(UserMessage(message_id="u", blocks=(block,)))
    whole = Sources(story.events, texts={sha256: data.decode()})
    call = asked(build(whole), Form("anthropic", "m"))
    assert again(call, whole).ok
    (problem,) = again(call, Sources(story.events)).problems
    assert sha256.hex() in problem


def test_a_request_that_was_kept_as_it_was_is_read() -> None:
    call = ModelCallStarted(model_call_id="c", provider="p", model="m", request=IMAGE)
    found = rebuilt("c", call, None, read_blob=blob)
    assert (found.ok, found.data) == (True, PIXEL)
    gone = call.model_copy(update={"request": IMAGE.model_copy(update={"sha256": b"0"})})
    assert not rebuilt("c", gone, None, read_blob=blob).ok


def test_a_call_without_a_request_has_nothing_to_rebuild() -> None:
    call = ModelCallStarted(model_call_id="c", provider="p", model="m")
    for started in (call, None):
        assert not rebuilt("c", started, None, read_blob=blob).ok
