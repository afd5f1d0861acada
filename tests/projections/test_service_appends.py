"""Appends over HTTP: stamped with who the token is, held to what it may, answered."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foldline.errors import AccessRefusedError, BlobError
from foldline.processors.clock import wall_clock
from foldline.processors.file_blobs import FileBlobs
from foldline.processors.memory_log import MemoryLog
from foldline.schemas.blocks import Blob, Block
from foldline.schemas.events import (
    PermissionGranted,
    SessionResumed,
    SteeringReceived,
    ToolOutcomeUnknown,
    UserMessage,
)
from foldline.settings import Settings
from foldline.testing import LogStory, make_append
from foldline.testing.log_story import new_id
from foldline.testing.samples import created, said, started
from tests.serving import Served, TokenBook, serving

SETTINGS = Settings(inline_max_bytes=1_000)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("served")
    book = TokenBook(folder / "tokens.json")
    book.add("alice", "read", "append", kind="PERSON")
    book.add("boss", "read", "append", "approve", kind="PERSON")
    book.add("harness", "read", "append", "own", kind="HARNESS")
    book.add("robot", "read", "append", kind="SERVICE")
    book.add("other", "read", "append", "own", tenant="other", kind="PERSON")
    log = MemoryLog(settings=SETTINGS, clock=wall_clock)
    uploads = {
        tenant: FileBlobs(folder / tenant, max_bytes=1 << 20)
        for tenant in ("default", "other")
    }
    with serving(
        log, tokens=book.open(), settings=SETTINGS, uploads=uploads.__getitem__
    ) as served:
        yield served
    log.close()


@pytest.fixture
def story(served: Served) -> LogStory:
    return LogStory(served.node.log).given(created(), started())


def post(served: Served, who: str, story: LogStory, given: dict[str, Any]) -> Any:
    with served.http(f"fl_{who}") as http:
        return http.post(f"/sessions/{story.session_id}/appends", json=given)


def steering(text: str = "left") -> dict[str, Any]:
    return {"type": "SteeringReceived", "fields": {"blocks": text}}


def test_an_event_as_json_is_recorded_and_answered(served: Served, story: LogStory) -> None:
    answer = post(served, "alice", story, steering("turn left"))
    assert answer.status_code == 200
    verdict = answer.json()
    assert (verdict["kind"], verdict["recorded"], verdict["seq"]) == ("ACCEPTED", True, 3)
    (recorded,) = story.log.events(story.session_id, after_seq=2)
    assert isinstance(recorded.event, SteeringReceived)
    assert recorded.event.blocks[0].body == "turn left"
    assert recorded.envelope.event_id == verdict["event_id"]


def test_every_verdict_is_status_200(served: Served, story: LogStory) -> None:
    for more, kind in (
        ({"expected_seq": 1}, "CONFLICT"),
        ({"known_seq": 99}, "ILLEGAL"),
        ({"requires": [new_id()]}, "ILLEGAL"),
        ({"event_id": "7", "known_seq": 2}, "UNDECODABLE"),
    ):
        answer = post(served, "alice", story, steering() | more)
        assert (answer.status_code, answer.json()["kind"]) == (200, kind)
        assert answer.json()["recorded"] is False


def test_the_same_append_again_is_a_duplicate(served: Served, story: LogStory) -> None:
    given = steering() | {"event_id": new_id().upper(), "known_seq": 2}
    first = post(served, "alice", story, given).json()
    again = post(served, "alice", story, given).json()
    assert (first["kind"], again["kind"]) == ("ACCEPTED", "DUPLICATE")
    assert again["seq"] == first["seq"]
    assert again["recorded"]


def test_an_event_that_can_be_sent_again_says_where_it_belongs(
    served: Served, story: LogStory
) -> None:
    answer = post(served, "alice", story, steering() | {"event_id": new_id()})
    assert (answer.status_code, answer.json()["kind"]) == (422, "no_known_seq")
    assert "event_id comes with known_seq" in answer.json()["detail"]
    assert story.state.seq == 2


def test_a_resend_behind_more_events_than_are_remembered_is_no_second_event(
    served: Served, story: LogStory
) -> None:
    given = steering() | {"event_id": new_id(), "known_seq": 2}
    assert post(served, "alice", story, given).json()["kind"] == "ACCEPTED"
    story.given(*(said(f"{number}") for number in range(129)))
    answer = post(served, "alice", story, given).json()
    assert (answer["kind"], answer["recorded"]) == ("TOO_OLD", False)


@pytest.mark.parametrize(
    ("who", "kind"), [("alice", "PERSON"), ("robot", "SERVICE"), ("harness", "HARNESS")]
)
def test_who_acts_is_who_the_token_says(
    served: Served, story: LogStory, who: str, kind: str
) -> None:
    post(served, who, story, steering())
    (recorded,) = story.log.events(story.session_id, after_seq=2)
    actor = recorded.envelope.actor
    assert (actor.kind, actor.id) == (kind, f"{who}@example")
    assert recorded.envelope.tenant == "default"


def test_a_client_cannot_say_who_it_is(served: Served, story: LogStory) -> None:
    client = served.log("fl_robot")
    append = make_append(story.session_id, said(), known_seq=2, epoch=0, writer="alice")
    client.append([append])
    client.close()
    (recorded,) = story.log.events(story.session_id, after_seq=2)
    assert append.envelope.actor.kind == "PERSON"
    assert (recorded.envelope.actor.kind, recorded.envelope.actor.id) == (
        "SERVICE",
        "robot@example",
    )


def test_a_harness_speaks_for_its_agent_and_never_for_a_person(
    served: Served, story: LogStory
) -> None:
    client = served.log("fl_harness")
    for kind, wanted in (("AGENT", "AGENT"), ("POLICY", "POLICY"), ("PERSON", "HARNESS")):
        append = make_append(story.session_id, said(), known_seq=story.seq)
        actor = append.envelope.actor.model_copy(update={"kind": kind})
        envelope = append.envelope.model_copy(update={"actor": actor})
        client.append([type(append)(envelope, append.event, append.content, story.seq)])
        *_, last = story.log.events(story.session_id)
        assert last.envelope.actor.kind == wanted
    client.close()


def test_without_scope_own_nobody_decides(served: Served, story: LogStory) -> None:
    for given in (
        {"type": "TurnEnded", "fields": {"outcome": "DONE"}},
        {"type": "SessionResumed", "fields": {"reason": "mine now"}, "expected_seq": 2},
        steering() | {"epoch": 1, "writer": story.writer},
    ):
        answer = post(served, "alice", story, given)
        assert (answer.status_code, answer.json()["kind"]) == (403, "no_scope")
    client = served.log("fl_alice")
    claim = make_append(
        story.session_id,
        SessionResumed(reason="stolen"),
        known_seq=2,
        epoch=2,
        expected_seq=2,
    )
    with pytest.raises(AccessRefusedError, match="scope own"):
        client.append([claim])
    client.close()
    assert story.seq == 2


def test_with_scope_own_a_harness_owns_a_session(served: Served) -> None:
    client = served.log("fl_harness")
    story = LogStory(client).given(created(), started())
    assert (story.state.owner, story.state.epoch) == (story.writer, 1)
    client.close()


def test_a_persons_answer_needs_a_scope_of_its_own(served: Served, story: LogStory) -> None:
    grant = PermissionGranted(request_id="r", decided_by="PERSON", grant_id="g")
    fields = grant.model_dump(mode="json")
    given = {"type": "PermissionGranted", "fields": fields}
    answer = post(served, "harness", story, given)
    assert (answer.status_code, answer.json()["kind"]) == (403, "no_scope")
    answer = post(served, "boss", story, given)
    assert (answer.status_code, answer.json()["kind"]) == (200, "ILLEGAL")


def test_one_who_may_not_append_one_of_a_batch_appends_none(
    served: Served, story: LogStory
) -> None:
    client = served.log("fl_alice")
    external = make_append(story.session_id, said(), known_seq=2, epoch=0)
    decision = make_append(story.session_id, started(), known_seq=2, epoch=0)
    with pytest.raises(AccessRefusedError):
        client.append([external, decision])
    client.close()
    assert story.seq == 2


def test_a_session_belongs_to_the_tenant_of_who_made_it(served: Served) -> None:
    client = served.log("fl_other")
    story = LogStory(client, tenant="default").given(created())
    assert story.state.tenant == "other"
    with served.http("fl_alice") as http:
        assert http.get(f"/sessions/{story.session_id}").status_code == 404
    client.close()


def test_a_batch_that_names_another_tenants_session_tells_nothing_of_it(
    served: Served, story: LogStory
) -> None:
    client = served.log("fl_other")
    appends = [
        make_append(story.session_id, event, known_seq=0, epoch=0)
        for event in (created(), said())
    ]
    verdicts = client.append(appends)
    client.close()
    assert [v.kind for v in verdicts] == ["NO_SESSION", "NO_SESSION"]
    assert {(v.current_seq, v.epoch, v.detail) for v in verdicts} == {(0, 0, "")}
    assert story.seq == 2


def test_secrets_are_redacted_before_they_are_recorded(
    served: Served, story: LogStory
) -> None:
    secret = "ghp_" + "a1B2" * 9
    post(served, "alice", story, steering(f"use {secret}"))
    bodies = [event.body for event in story.log.events(story.session_id)]
    assert not any(secret.encode() in body for body in bodies)
    assert story.state.counts["RedactionApplied"] == 1


def test_a_large_body_goes_to_the_blob_store(served: Served, story: LogStory) -> None:
    text = "many words " * 500
    post(served, "alice", story, steering(text))
    (recorded,) = story.log.events(story.session_id, after_seq=2)
    assert isinstance(recorded.event, SteeringReceived)
    body = recorded.event.blocks[0].body
    assert isinstance(body, Blob)
    assert story.log.blobs.get(body.sha256) == text.encode()


def test_a_blob_is_its_tenants_whatever_others_know(served: Served) -> None:
    data = b"a secret drawing"
    mine, theirs = served.log("fl_alice"), served.log("fl_other")
    sha256 = mine.blobs.put(data)
    assert mine.blobs.get(sha256) == data
    with pytest.raises(BlobError):
        theirs.blobs.get(sha256)
    mine.close()
    theirs.close()


def test_naming_a_blob_in_an_event_of_ones_own_opens_it_to_nobody(
    served: Served,
) -> None:
    data = b"another secret drawing"
    mine, theirs = served.log("fl_alice"), served.log("fl_other")
    sha256 = mine.blobs.put(data)
    story = LogStory(theirs).given(created())
    blob = Blob(sha256=sha256, size=len(data), media_type="image/png")
    naming = UserMessage(message_id="m", blocks=(Block(kind="image", body=blob),))
    with served.http("fl_other") as http:
        given = {"type": "UserMessage", "fields": naming.model_dump(mode="json")}
        answer = http.post(f"/sessions/{story.session_id}/appends", json=given)
        assert (answer.status_code, answer.json()["kind"]) == (422, "no_blob")
        params = {"session_id": story.session_id, "seq": 1}
        assert http.get(f"/blobs/{sha256.hex()}", params=params).status_code == 404
    with pytest.raises(Exception, match="was not uploaded"):
        story.when(naming)
    mine.close()
    theirs.close()


def test_a_blob_that_a_trusted_writer_named_is_read_through_its_event(
    served: Served, story: LogStory
) -> None:
    data = b"put there by a harness beside the service"
    sha256 = story.log.blobs.put(data)
    blob = Blob(sha256=sha256, size=len(data), media_type="text/plain")
    story.given(UserMessage(message_id="m", blocks=(Block(kind="file", body=blob),)))
    mine, theirs = served.log("fl_alice"), served.log("fl_other")
    with pytest.raises(BlobError):
        mine.blobs.get(sha256)
    list(mine.events(story.session_id))
    assert mine.blobs.get(sha256) == data
    params = {"session_id": story.session_id, "seq": 3}
    with served.http("fl_other") as http:
        assert http.get(f"/blobs/{sha256.hex()}", params=params).status_code == 404
    mine.close()
    theirs.close()


def test_a_blob_is_stored_under_its_own_hash_only(served: Served) -> None:
    with served.http("fl_alice") as http:
        name = hashlib.sha256(b"one").hexdigest()
        answer = http.put(f"/blobs/{name}", content=b"two")
    assert (answer.status_code, answer.json()["kind"]) == (422, "other_bytes")


def test_a_schema_that_the_service_does_not_know_is_undecodable(
    served: Served, story: LogStory
) -> None:
    client = served.log("fl_alice")
    event = ToolOutcomeUnknown(call_id="c", attempt=1, reason="?")
    append = make_append(story.session_id, event, known_seq=2, epoch=0)
    strange = type(append)(
        append.envelope, event, append.content, 2, schema_name="FromTheFuture"
    )
    (verdict,) = client.append([strange])
    assert (verdict.kind, verdict.session_id) == ("UNDECODABLE", story.session_id)
    assert "upgrade" in verdict.detail
    client.close()


def test_content_that_is_none_is_undecodable_and_the_rest_is_recorded(
    served: Served, story: LogStory
) -> None:
    client = served.log("fl_alice")
    good = make_append(story.session_id, said(), known_seq=2, epoch=0)
    junk = type(good)(good.envelope, good.event, b"\xff\xff", 2)
    kinds = [verdict.kind for verdict in client.append([junk, good])]
    assert kinds == ["UNDECODABLE", "ACCEPTED"]
    client.close()
