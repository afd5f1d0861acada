"""topics create, check and upgrade; schemas register and check --registry."""

import json
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from foldline import kafka
from foldline.cli import main
from foldline.cli.failures import NOT_FOUND, STORAGE, USAGE
from foldline.settings import Settings
from foldline.topics import specs
from tests.cluster.logs import SUBJECTS, FreshLog, registered
from tests.cluster.processes import wait_until
from tests.cluster.shared import Broker

Run = Callable[..., str]


@pytest.fixture
def prefix(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The environment of a log that nobody has made yet."""
    name = f"t{uuid.uuid4().hex[:12]}."
    registered(broker.registry_url)
    for variable, text in {
        "URL": f"kafka://{broker.bootstrap}",
        "REGISTRY_URL": broker.registry_url,
        "SUBJECT_PREFIX": SUBJECTS,
        "TOPIC_PREFIX": name,
        "TOPIC_PARTITIONS": "3",
        "TOPIC_REPLICATION": "1",
    }.items():
        monkeypatch.setenv(f"FOLDLINE_{variable}", text)
    yield name
    delete(Settings(url=f"kafka://{broker.bootstrap}/{name}"))


def delete(settings: Any) -> None:
    """Delete what a test has made."""
    cluster = kafka.cluster_of(settings)
    client: Any = kafka.admin(cluster, settings)
    ours = [
        t for t in client.list_topics(timeout=10).topics if t.startswith(cluster.prefix)
    ]
    if ours:
        for future in client.delete_topics(ours).values():
            future.result(10)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """The command; gives what it writes, after the exit code is what was expected."""

    def runner(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        done = main(list(arguments))
        out, err = capsys.readouterr()
        assert done == code, (out, err)
        return out + err

    return runner


@pytest.mark.kafka
def test_a_log_is_made_once_and_stays_what_it_is(
    run: Run, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another number of partitions in the settings does not make it another log."""
    assert "foldline topics create" in run("topics", "check", code=NOT_FOUND)
    made = json.loads(run("topics", "create", "--json"))
    assert made["new"] is True
    assert made["partitions"] == 3
    wanted = specs(kafka.TopicNames(prefix), partitions=3, replication=1, fold_version=1)
    assert made["made"] == [spec.name for spec in wanted]
    assert json.loads(run("topics", "check", "--json")) == {
        "ok": True,
        "drift": [],
        "warnings": [],
    }
    monkeypatch.setenv("FOLDLINE_TOPIC_PARTITIONS", "5")
    again = json.loads(run("topics", "create", "--json"))
    assert again == {**made, "new": False, "made": []}
    text = run("topics", "create")
    assert "0 topics made" in text
    assert "fixed for ever" in text


@pytest.mark.kafka
def test_check_names_topic_what_wanted_and_found(
    run: Run, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("topics", "create")
    monkeypatch.setenv("FOLDLINE_TOPIC_REPLICATION", "3")
    view = json.loads(run("topics", "check", "--json", code=1))
    assert view["ok"] is False
    events = {d["what"]: d for d in view["drift"] if d["topic"] == f"{prefix}events"}
    assert events["min.insync.replicas"] == {
        "topic": f"{prefix}events",
        "what": "min.insync.replicas",
        "wanted": "2",
        "found": "1",
    }
    text = run("topics", "check", code=1)
    assert f"{prefix}events min.insync.replicas: is 1, must be 2" in text
    assert "not ok" in text


@pytest.mark.kafka
def test_create_does_not_adopt_topics_that_are_not_as_they_must_be(
    run: Run, prefix: str, broker: Broker
) -> None:
    """A log that would lose records gets no identity."""
    from confluent_kafka.cimpl import NewTopic

    settings = Settings(url=f"kafka://{broker.bootstrap}/{prefix}")
    client: Any = kafka.admin(kafka.cluster_of(settings), settings)
    topic = NewTopic(f"{prefix}events", num_partitions=3, replication_factor=1)
    for future in client.create_topics([topic]).values():
        future.result(10)
    text = run("topics", "create", code=STORAGE)
    assert f"{prefix}events: retention.ms" in text
    run("topics", "check", code=NOT_FOUND)


@pytest.mark.kafka
def test_a_log_that_lost_its_events_gets_no_empty_ones(run: Run, prefix: str) -> None:
    """It would look like a log in which nothing happened; the other topics are made."""
    run("topics", "create")
    settings = Settings(url=f"{os.environ['FOLDLINE_URL']}/{prefix}")
    client: Any = kafka.admin(kafka.cluster_of(settings), settings)
    for future in client.delete_topics([f"{prefix}leases"]).values():
        future.result(10)
    assert f"{prefix}leases" in run("topics", "create")
    for future in client.delete_topics([f"{prefix}events"]).values():
        future.result(10)
    text = run("topics", "create", code=STORAGE)
    assert f"{prefix}events is missing, with all that was ever recorded" in text


@pytest.mark.kafka
def test_a_log_is_not_founded_on_topics_of_more_partitions(
    run: Run, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where `meta` was lost, another number would place sessions elsewhere than before."""
    run("topics", "create")
    settings = Settings(url=f"{os.environ['FOLDLINE_URL']}/{prefix}")
    client: Any = kafka.admin(kafka.cluster_of(settings), settings)
    client.delete_topics([f"{prefix}meta"])[f"{prefix}meta"].result(10)

    def gone() -> bool:
        return f"{prefix}meta" not in client.list_topics(timeout=5).topics

    wait_until(gone, timeout_s=30, what=lambda: "the topic is still there")
    monkeypatch.setenv("FOLDLINE_TOPIC_PARTITIONS", "2")
    text = run("topics", "create", code=STORAGE)
    assert f"{prefix}events: partitions is 3, must be 2" in text
    monkeypatch.setenv("FOLDLINE_TOPIC_PARTITIONS", "3")
    assert json.loads(run("topics", "create", "--json"))["new"] is True


@pytest.mark.kafka
def test_rules_are_put_in_force_once(run: Run, prefix: str) -> None:
    assert "no log in" in run("topics", "upgrade", code=NOT_FOUND)
    run("topics", "create")
    first = json.loads(run("topics", "upgrade", "--json"))
    assert first["written"] is True
    assert first["partitions"] == 3
    assert len(first["schema_ids"]) > 60
    assert "nothing to do" in run("topics", "upgrade")
    assert json.loads(run("topics", "upgrade", "--json")) == {**first, "written": False}
    assert json.loads(run("topics", "upgrade", "--force", "--json")) == first
    assert prefix


@pytest.mark.kafka
def test_without_registered_schemas_no_log_is_made(
    run: Run, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it says what to do first."""
    monkeypatch.setenv("FOLDLINE_SUBJECT_PREFIX", prefix)
    assert "foldline schemas register" in run("topics", "create", code=1)


@pytest.mark.parametrize("command", ["create", "check", "upgrade"])
def test_a_log_that_is_not_on_kafka_has_no_topics(
    run: Run, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDLINE_REGISTRY_URL", "http://127.0.0.1:9")
    text = run("--log", "sqlite:///x.db", "topics", command, code=USAGE)
    assert "kafka://host:port" in text


def test_a_registry_that_must_be_named_is_asked_for(run: Run) -> None:
    text = run("--log", "kafka://127.0.0.1:9", "topics", "create", code=USAGE)
    assert "FOLDLINE_REGISTRY_URL" in text


def test_a_registry_that_is_down_is_waited_for_and_given_up(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDLINE_REGISTRY_WAIT_MS", "2000")
    text = run("schemas", "register", "--registry", "http://127.0.0.1:9", code=STORAGE)
    assert "waiting" in text
    assert "http://127.0.0.1:9 does not answer" in text


@pytest.mark.kafka
@pytest.mark.slow
def test_schemas_are_registered_once_and_checked(
    run: Run, prefix: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDLINE_SUBJECT_PREFIX", prefix)
    registry = ("--registry", broker.registry_url)
    before = json.loads(run("schemas", "check", *registry, "--json", code=1))
    assert any("is not registered" in p["reason"] for p in before["problems"])
    assert run("schemas", "check").startswith("ok")  # offline, nothing is asked
    first = json.loads(run("schemas", "register", *registry, "--json"))
    assert first["already_registered"] == 0
    assert {"subject", "name", "version", "schema_id", "new"} == first["registered"][
        0
    ].keys()
    again = json.loads(run("schemas", "register", *registry, "--json"))
    assert again == {"registered": [], "already_registered": len(first["registered"])}
    assert "0 new" in run("schemas", "register", *registry)
    assert run("schemas", "check", *registry).startswith("ok")


@pytest.mark.kafka
def test_an_incompatible_schema_fails_the_check_with_subject_field_and_reason(
    run: Run, fresh_log: FreshLog, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """B42: a field that may be null, without a default: said before a deployment."""
    for name, value in fresh_log.environment.items():
        monkeypatch.setenv(name, value)
    from foldline.schemas.freeze import freeze

    folder = tmp_path / "avro"
    folder.mkdir()
    freeze(folder)
    schema = json.loads((folder / "GoalSet" / "v1.avsc").read_text(encoding="utf-8"))
    schema["fields"].append({"name": "extra", "type": ["null", "long"]})
    schema["foldline_schema_version"] = 2
    (folder / "GoalSet" / "v2.avsc").write_text(json.dumps(schema), encoding="utf-8")
    where = ("--folder", str(folder), "--registry", fresh_log.settings.registry_url)
    view = json.loads(run("schemas", "check", *where, "--json", code=1))
    said = [p for p in view["problems"] if "version 1 of" in p["reason"]]
    assert {problem["name"] for problem in said} == {"GoalSet"}
    assert {problem["field"] for problem in said} == {"extra"}
    assert any(f"{SUBJECTS}events-foldline.events.GoalSet" in p["reason"] for p in said)
    missing = [
        p["reason"] for p in view["problems"] if "v2 is not registered" in p["reason"]
    ]
    assert len(missing) == 2
