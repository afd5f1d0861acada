"""The registry's client, and registering, on a real registry and without one."""

import json
import threading
import time
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from foldline.errors import RegistryUnavailableError, SchemaError, SettingsError
from foldline.schemas.codec import Codec
from foldline.schemas.events import EVENT_TYPES
from foldline.schemas.freeze import freeze
from foldline.schemas.frozen import NO_EVENTS
from foldline.schemas.registration import (
    LEVEL,
    check_registered,
    id_under,
    level_of,
    refusals,
    register,
)
from foldline.schemas.registry import published_text
from foldline.schemas.registry_client import (
    RegistryClient,
    avro,
    frozen_text,
    frozen_versions,
    registry_of,
    subject_of,
    subjects_of,
    without_user,
)
from foldline.settings import Settings
from foldline.topics import TopicNames
from tests.cluster.jar_cluster import JarRegistry
from tests.cluster.logs import registered
from tests.cluster.shared import Broker
from tests.samples import ENVELOPE, SAMPLES

NAMES = TopicNames("t.")

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@pytest.fixture
def client(broker: Broker) -> Generator[RegistryClient]:
    """A client of the run's registry, for subjects that nobody has used."""
    made = RegistryClient(broker.registry_url, names=TopicNames(f"t{uuid.uuid4().hex}."))
    yield made
    made.close()


@pytest.fixture
def known(broker: Broker) -> Generator[RegistryClient]:
    """A client with nothing cached, for subjects that are registered."""
    shared, _ = registered(broker.registry_url)
    made = RegistryClient(broker.registry_url, names=shared.names)
    yield made
    made.close()


# --- subjects and texts --------------------------------------------------------------


def test_an_event_has_a_subject_in_each_topic_that_holds_it() -> None:
    assert subjects_of("UserMessage", NAMES) == [
        "t.appends-foldline.events.UserMessage",
        "t.events-foldline.events.UserMessage",
    ]


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("Verdict", "t.verdicts-foldline.events.Verdict"),
        ("Snapshot", "t.snapshots.1-foldline.events.Snapshot"),
        ("LowWater", "t.snapshots.1-foldline.events.LowWater"),
        ("DeadLetter", "t.rejected-foldline.events.DeadLetter"),
        ("RefusedAppend", "t.rejected-foldline.events.RefusedAppend"),
        ("LeaseRenewal", "t.leases-foldline.events.LeaseRenewal"),
        ("LogMeta", "t.meta-foldline.events.LogMeta"),
        ("RulesInForce", "t.appends-foldline.events.RulesInForce"),
    ],
)
def test_other_records_have_one_subject(name: str, subject: str) -> None:
    assert subjects_of(name, NAMES) == [subject_of(name, NAMES)] == [subject]
    assert name in NO_EVENTS


def test_what_is_registered_means_what_a_local_log_stores() -> None:
    """Bytes of one log can be read with the schema of another."""
    for name in EVENT_TYPES:
        version = max(v for n, v in frozen_versions() if n == name)
        text = frozen_text(name, version)
        assert json.loads(text) == json.loads(published_text(name))
        assert '"doc"' not in text


def test_a_default_of_braces_is_escaped_for_apicurio() -> None:
    """Unescaped it is taken for a default of a record, and the schema is refused."""
    text = frozen_text("ToolsDeclared", 1)
    assert '"{}"' not in text
    assert '"default":"{}"' in json.dumps(json.loads(text), separators=(",", ":"))


def test_a_log_on_kafka_needs_a_registry() -> None:
    with pytest.raises(SettingsError, match="FOLDLINE_REGISTRY_URL=''"):
        registry_of(Settings())


def test_subjects_are_named_after_the_topics_or_as_the_settings_say() -> None:
    url = "http://registry:8081"
    for more, prefix in (
        ({"url": "kafka://h:1"}, "foldline."),
        ({"url": "kafka://h:1", "topic_prefix": "a."}, "a."),
        ({"url": "kafka://h:1/b.", "topic_prefix": "a."}, "b."),
        ({"url": "kafka://h:1/b.", "subject_prefix": "c."}, "c."),
    ):
        settings = Settings.model_validate({"registry_url": url, **more})
        assert registry_of(settings).names.prefix == prefix


def test_a_password_in_the_registrys_url_is_not_shown() -> None:
    assert without_user("http://me:hunter2@host:8081/x") == "http://host:8081/x"
    assert "hunter2" not in RegistryClient("http://me:hunter2@host", names=NAMES).url


# --- registering ---------------------------------------------------------------------


@pytest.mark.kafka
@pytest.mark.slow
def test_registering_again_changes_nothing(client: RegistryClient) -> None:
    """Also when two deployments do it at once."""
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(register, [client, client])
    assert [row.schema_id for row in first] == [row.schema_id for row in second]
    again = register(client)
    assert not any(row.new for row in again)
    assert [row.schema_id for row in again] == [row.schema_id for row in first]
    subjects = {s for n, _ in frozen_versions() for s in subjects_of(n, client.names)}
    assert {row.subject for row in again} == subjects
    assert {level_of(client, subject) for subject in subjects} == {LEVEL}
    assert check_registered(client) == []


@pytest.mark.kafka
def test_writers_find_the_id_of_every_version(known: RegistryClient) -> None:
    for name, version in frozen_versions():
        schema_id = known.id_of(name, version=version)
        assert schema_id > 0


@pytest.mark.kafka
def test_what_the_models_write_goes_under_the_id_of_the_newest_version(
    known: RegistryClient,
) -> None:
    """Under an older one its bytes would be undecodable."""
    for name, version in frozen_versions():
        if name not in EVENT_TYPES:
            continue
        newest = max(v for n, v in frozen_versions() if n == name)
        same = known.id_of(name) == known.id_of(name, version=version)
        assert same == (version == newest), (name, version)


@pytest.mark.kafka
def test_committed_bytes_are_read_by_the_text_that_the_registry_gives(
    known: RegistryClient, broker: Broker
) -> None:
    """A registry may say it in other words: Apicurio leaves out what is inherited."""
    ids = {name: known.id_of(name) for name in EVENT_TYPES}
    reader = RegistryClient(broker.registry_url, names=known.names)
    for name, schema_id in ids.items():
        body = bytes.fromhex((GOLDEN / f"{name}.hex").read_text(encoding="ascii"))
        recorded = Codec(reader).decode(schema_id, body)
        assert (recorded.envelope, recorded.event) == (ENVELOPE, SAMPLES[name])
        assert Codec(reader).decode_structure(schema_id, body) == Codec(
            known
        ).decode_structure(schema_id, body)
    reader.close()


@pytest.mark.kafka
def test_an_event_may_stand_in_both_topics_under_the_id_of_its_append(
    known: RegistryClient,
) -> None:
    """The worker never re-frames: whatever ids the two subjects have, each is read."""
    for subject in subjects_of("GoalSet", known.names):
        schema_id = id_under(known, subject, frozen_text("GoalSet", 1))
        assert schema_id is not None
        assert json.loads(known.schema_of(schema_id))["name"] == "GoalSet"


@pytest.mark.kafka
def test_the_ids_in_force_are_those_of_every_event_and_nothing_else(
    known: RegistryClient,
) -> None:
    ids = known.event_ids()
    assert len(ids) == len([n for n, _ in frozen_versions() if n not in NO_EVENTS])
    assert list(ids) == sorted(ids)
    assert known.id_of("Verdict") not in ids


@pytest.mark.kafka
def test_what_is_not_registered_says_so_and_registers_nothing(
    client: RegistryClient,
) -> None:
    with pytest.raises(SchemaError, match="foldline schemas register"):
        client.id_of("UserMessage")
    assert level_of(client, subject_of("UserMessage", client.names)) is None
    assert all("is not registered" in p.reason for p in check_registered(client))


@pytest.mark.kafka
def test_an_unknown_id_is_known_to_be_unknown(known: RegistryClient) -> None:
    with pytest.raises(KeyError):
        known.schema_of(2_000_000_000)
    with pytest.raises(KeyError):
        known.id_of("NoSuchEvent")
    with pytest.raises(KeyError):
        known.id_of("GoalSet", version=99)


# --- what must not be published ------------------------------------------------------

Schema = dict[str, Any]


def optional_without_default(schema: Schema) -> None:
    """B42: old readers are fine, new readers cannot read what is old."""
    schema["fields"].append({"name": "extra", "type": ["null", "long"]})


def inside_a_union(schema: Schema) -> None:
    """B42: a record that is a branch of a union changes."""
    (source,) = (f for f in schema["fields"] if f["name"] == "source")
    source["type"][1]["fields"].append({"name": "extra", "type": "string"})


def retyped(schema: Schema) -> None:
    schema["fields"][0]["type"] = "long"


def renamed(schema: Schema) -> None:
    schema["fields"][-1]["name"] = "other"


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("change", "field"),
    [
        (optional_without_default, "extra"),
        (inside_a_union, "source"),
        (retyped, "event_id"),
        (renamed, "other"),
    ],
)
def test_an_incompatible_schema_is_refused_with_field_and_reason(
    known: RegistryClient, change: Callable[[Schema], None], field: str
) -> None:
    """By `schemas check --registry`, and by the registry itself."""
    schema: Schema = json.loads(frozen_text("GoalSet", 1))
    change(schema)
    text = json.dumps(schema)
    for subject in subjects_of("GoalSet", known.names):
        found = refusals(known, "GoalSet", subject, text)
        assert any(field in problem.field for problem in found), found
        assert all(problem.reason for problem in found)
        assert id_under(known, subject, text) is None
        from confluent_kafka.schema_registry import SchemaRegistryError

        with pytest.raises(SchemaRegistryError):
            known.rest.register_schema(subject, avro(text))


@pytest.mark.kafka
def test_a_field_with_a_default_is_taken(known: RegistryClient) -> None:
    schema: Schema = json.loads(frozen_text("GoalSet", 1))
    schema["fields"].append({"name": "x", "type": ["null", "long"], "default": None})
    subject = subject_of("GoalSet", known.names)
    assert refusals(known, "GoalSet", subject, json.dumps(schema)) == []


@pytest.mark.kafka
def test_a_refusal_stops_a_deployment(client: RegistryClient, tmp_path: Any) -> None:
    """Versions before it are registered; the error names record and subject."""
    freeze(tmp_path)
    for path in tmp_path.glob("*/v1.avsc"):
        if path.parent.name != "GoalSet":
            path.unlink()
    schema: Schema = json.loads((tmp_path / "GoalSet" / "v1.avsc").read_text())
    optional_without_default(schema)
    (tmp_path / "GoalSet" / "v2.avsc").write_text(json.dumps(schema))
    with pytest.raises(SchemaError, match=r"GoalSet: .*appends.* refuses it"):
        register(client, folder=tmp_path)
    first = frozen_text("GoalSet", 1)
    assert id_under(client, subject_of("GoalSet", client.names), first) is not None


@pytest.mark.kafka
def test_a_subject_of_another_level_is_found(client: RegistryClient) -> None:
    subject = subject_of("Verdict", client.names)
    client.rest.register_schema(subject, avro(frozen_text("Verdict", 1)))
    client.rest.set_compatibility(subject, "BACKWARD")
    reasons = [p.reason for p in check_registered(client) if p.name == "Verdict"]
    assert reasons == [f"{subject} is BACKWARD, must be {LEVEL}"]


# --- a registry that is not there ----------------------------------------------------


@dataclass
class Answers:
    """What a server of the test says to the next requests; then again the last."""

    status: int = 200
    body: bytes = b"{}"
    delay_s: float = 0.0
    asked: list[str] = field(default_factory=list[str])


@contextmanager
def answering(answers: Answers) -> Generator[str]:
    """A real HTTP server that misbehaves as it is told; gives its URL."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers.asked.append(self.path)
            over.wait(answers.delay_s)
            self.send_response(answers.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answers.body)))
            self.end_headers()
            self.wfile.write(answers.body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.do_GET()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def asking(url: str, *, timeout_ms: int = 5_000) -> Generator[RegistryClient]:
    made = RegistryClient(url, names=NAMES, timeout_ms=timeout_ms)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b'{"error_code": 50001, "message": "store"}'),
        (503, b"<html>no backend</html>"),
        (502, b""),
        (404, b"<html>not here</html>"),
        (404, b'{"detail": "no such path", "status": 404}'),
        (429, b'{"error_code": 42901, "message": "too many requests"}'),
        (200, b"{}"),
    ],
)
def test_an_answer_that_is_no_registrys_never_makes_an_id_unknown(
    status: int, body: bytes
) -> None:
    """Else appends would become dead letters whenever a proxy misbehaves."""
    with answering(Answers(status, body)) as url, asking(url) as client:
        with pytest.raises(RegistryUnavailableError) as caught:
            client.schema_of(1)
        assert caught.value.retryable
        assert url in str(caught.value)
        with pytest.raises(RegistryUnavailableError):
            client.id_of("GoalSet")


@pytest.mark.parametrize("status", [401, 403])
def test_a_user_that_is_refused_is_a_wrong_setting_and_never_an_unknown_id(
    status: int,
) -> None:
    """At a start it says so; a text that work under way wants is waited for."""
    body = b'{"error_code": %d00, "message": "who are you"}' % status
    with answering(Answers(status, body)) as url, asking(url) as client:
        with pytest.raises(SettingsError, match=r"FOLDLINE_REGISTRY_URL.*who are you"):
            client.id_of("GoalSet")
        with pytest.raises(SettingsError):
            client.wait_ready(60_000)
        with pytest.raises(RegistryUnavailableError, match="who are you"):
            client.schema_of(1)


def test_a_request_is_made_again_before_it_fails() -> None:
    answers = Answers(500, b'{"error_code": 50001, "message": "store"}')
    with (
        answering(answers) as url,
        asking(url) as client,
        pytest.raises(RegistryUnavailableError),
    ):
        client.schema_of(1)
    assert len(answers.asked) == 3


def test_an_answer_that_does_not_come_is_not_waited_for() -> None:
    """30 s of silence cost the time-out and its repetitions, no more."""
    answers = Answers(delay_s=30)
    with answering(answers) as url, asking(url, timeout_ms=100) as client:
        began = time.monotonic()
        with pytest.raises(RegistryUnavailableError, match="Timeout"):
            client.schema_of(1)
        assert time.monotonic() - began < answers.delay_s
    assert len(answers.asked) == 3


def test_what_is_known_is_known_while_the_registry_is_down() -> None:
    text = frozen_text("GoalSet", 1)
    answers = Answers(body=json.dumps({"id": 7, "schema": text}).encode())
    with answering(answers) as url, asking(url) as client:
        assert client.schema_of(9) == text
        assert client.id_of("GoalSet") == 7
        answers.status, answers.body = 500, b""
        asked = len(answers.asked)
        assert client.schema_of(9) == client.schema_of(7) == text
        assert client.id_of("GoalSet") == 7
        assert len(answers.asked) == asked
        with pytest.raises(RegistryUnavailableError):
            client.schema_of(8)


def test_one_that_starts_waits_for_the_registry_and_says_so() -> None:
    answers = Answers(503, b"")
    said: list[str] = []

    def hear(text: str) -> None:
        said.append(text)
        answers.status, answers.body = 200, b'{"compatibilityLevel": "NONE"}'

    with answering(answers) as url, asking(url) as client:
        client.wait_ready(60_000, say=hear)
    (first,) = said
    assert "does not answer" in first
    assert "waiting" in first


def test_one_that_starts_gives_up_in_the_end() -> None:
    with (
        answering(Answers(503, b"")) as url,
        asking(url) as client,
        pytest.raises(RegistryUnavailableError),
    ):
        client.wait_ready(1, say=lambda _: None)


def test_nobody_there_is_an_outage() -> None:
    with (
        asking("http://127.0.0.1:9") as client,
        pytest.raises(RegistryUnavailableError, match="refused"),
    ):
        client.schema_of(1)


@pytest.mark.kafka
@pytest.mark.slow
def test_a_registry_that_hangs_and_ends_leaves_what_is_known(
    own_registry: JarRegistry,
) -> None:
    """The real one, frozen and killed under a client in use."""
    with asking(own_registry.url) as client:  # a first request may take long
        client.rest.register_schema(
            subject_of("GoalSet", NAMES), avro(frozen_text("GoalSet", 1))
        )
    with asking(own_registry.url, timeout_ms=500) as client:
        schema_id = client.id_of("GoalSet")
        own_registry.stop()
        with pytest.raises(RegistryUnavailableError):
            client.id_of("Verdict")
        own_registry.close()
        with pytest.raises(RegistryUnavailableError):
            client.id_of("Verdict")
        assert client.id_of("GoalSet") == schema_id
        assert json.loads(client.schema_of(schema_id))["name"] == "GoalSet"
