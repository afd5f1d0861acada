"""docker-compose.yml: a Compose file, of settings and commands that there are."""

import re
import tomllib
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest

from foldline.cli.app import app
from foldline.kafka_admin import BROKER_SETTINGS
from foldline.producers.oversight_file import read_policies
from foldline.settings import PREFIX, Settings
from tests.cluster.broker_settings import (
    CONTAINER_CONTROLLER_PORT,
    CONTAINER_DATA,
    CONTAINER_PORT,
    QUICK,
    Node,
    as_environment,
    broker_settings,
)
from tests.cluster.containers import KAFKA_IMAGE, REGISTRY_IMAGE
from tests.deploy import compose
from tests.deploy.compose import Service

BOTH = pytest.mark.parametrize(
    "services", [compose.services(), compose.services_of_three()], ids=["one", "three"]
)
NOT_THE_BROKERS = {"CLUSTER_ID", "KAFKA_HEAP_OPTS"}
WITHOUT_A_SHELL = {"collector", "tempo"}
"""Their images hold one program, which asks nobody over HTTP."""
FOR_THE_REGISTRY = {"KAFKA_DEFAULT_REPLICATION_FACTOR", "KAFKA_MIN_INSYNC_REPLICAS"}


@pytest.mark.parametrize("path", [compose.BASE, compose.THREE], ids=lambda p: p.name)
def test_the_file_is_what_the_compose_specification_wants(path: Path) -> None:
    validator: Any = cast("Any", jsonschema).Draft202012Validator(compose.schema())
    problems = [
        f"{'/'.join(str(p) for p in error.absolute_path)}: {error.message}"
        for error in validator.iter_errors(compose.load(path))
    ]
    assert problems == []


@BOTH
def test_every_foldline_variable_is_a_setting_with_a_value_that_it_takes(
    services: dict[str, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    for service in compose.ours(services).values():
        given = service["environment"]
        assert set(given) - known == compose.NOT_OURS
        with monkeypatch.context() as patched:
            for name, value in given.items():
                patched.setenv(name, value)
            Settings()


@BOTH
def test_every_command_is_one_that_foldline_has(services: dict[str, Service]) -> None:
    commands = [
        words
        for s in compose.ours(services).values()
        for words in compose.foldline_commands(s)
    ]
    assert len(commands) >= 5
    for words in commands:
        app.parse_args(words, exit_on_error=False, print_error=False)


def test_the_broker_is_set_as_that_of_the_tests() -> None:
    node = _node(1, "kafka")
    _check_broker(compose.services()["kafka"], node, [node], host_port=29092)


def test_three_brokers_are_set_as_three_of_the_tests() -> None:
    services = compose.services_of_three()
    nodes = [_node(1, "kafka"), _node(2, "kafka-2"), _node(3, "kafka-3")]
    for index, node in enumerate(nodes):
        service = services[node.host]
        assert service["hostname"] == node.host
        _check_broker(service, node, nodes, host_port=29092 + index)


def _node(node_id: int, host: str) -> Node:
    return Node(
        node_id,
        host,
        CONTAINER_PORT,
        CONTAINER_CONTROLLER_PORT,
        CONTAINER_DATA,
        advertised=f"{host}:{CONTAINER_PORT}",
    )


FOR_TESTS_ALONE = "KAFKA_LOG_CLEANER_BACKOFF_MS"
"""A cleaner that comes every second, so that a test sees it, is nobody else's wish."""


def _check_broker(
    service: Service, node: Node, nodes: list[Node], *, host_port: int
) -> None:
    """The same settings, and one more listener: for programs of the host."""
    wanted = as_environment(broker_settings(node, nodes))
    of_logs = as_environment(dict(BROKER_SETTINGS))
    for name in as_environment(QUICK):  # tests would only wait for these
        if name in of_logs:
            wanted[name] = of_logs[name]
        elif name not in service["environment"]:
            del wanted[name]
    del wanted[FOR_TESTS_ALONE]
    wanted["KAFKA_LISTENERS"] += f",HOST://0.0.0.0:{host_port}"
    wanted["KAFKA_ADVERTISED_LISTENERS"] += f",HOST://localhost:{host_port}"
    wanted["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"] += ",HOST:PLAINTEXT"
    found = dict(service["environment"])
    more = {name: found.pop(name) for name in NOT_THE_BROKERS}
    if len(nodes) > 1:
        more |= {name: found.pop(name) for name in FOR_THE_REGISTRY}
        assert (
            more["KAFKA_DEFAULT_REPLICATION_FACTOR"],
            more["KAFKA_MIN_INSYNC_REPLICAS"],
        ) == ("3", "2")
    assert found == wanted
    assert service["ports"] == [f"127.0.0.1:{host_port}:{host_port}"]


def test_brokers_and_registry_are_the_versions_of_the_tests() -> None:
    services = compose.services()
    assert services["kafka"]["image"] == KAFKA_IMAGE
    assert services["registry"]["image"] == REGISTRY_IMAGE


@BOTH
def test_every_replica_is_on_as_many_brokers_as_there_are(
    services: dict[str, Service],
) -> None:
    brokers = [name for name in services if re.fullmatch(r"kafka(-\d)?", name)]
    for service in compose.ours(services).values():
        given = service["environment"]
        assert given["FOLDLINE_TOPIC_REPLICATION"] == str(len(brokers))
        assert given["FOLDLINE_URL"] == "kafka://" + ",".join(f"{b}:9092" for b in brokers)


@BOTH
def test_whatever_is_waited_for_can_come(services: dict[str, Service]) -> None:
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            waited_for = services[other]
            assert set(service["profiles"]) <= set(waited_for["profiles"]), (name, other)
            match how["condition"]:
                case "service_healthy":
                    assert "healthcheck" in waited_for
                case "service_completed_successfully":
                    assert waited_for["restart"] == "on-failure"
                case condition:
                    assert condition == "service_started"


@BOTH
def test_every_service_gives_up_what_it_does_not_need(
    services: dict[str, Service],
) -> None:
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "user" not in service, name  # the images' own users are none of them root
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        asked = "healthcheck" in service or name in WITHOUT_A_SHELL
        assert asked or service["restart"] == "on-failure", name
    for service in compose.ours(services).values():
        assert service["read_only"]
        assert service["tmpfs"] == ["/tmp"]  # noqa: S108 - the container's


def test_the_rules_that_come_with_it_record_and_do_nothing_else() -> None:
    (mount,) = [m for m in compose.services()["policies"]["volumes"] if m[0] == "."]
    path = compose.ROOT / mount.partition(":")[0]
    held = read_policies(path, load=pytest.fail)
    given = tomllib.loads(path.read_text(encoding="utf-8"))["rule"]
    assert [rule.name for rule in held] == [rule["name"] for rule in given]
    assert {rule["action"] for rule in given} == {"none"}


@BOTH
def test_whoever_writes_content_shares_the_key_of_its_placeholders(
    services: dict[str, Service],
) -> None:
    """Else one of them cannot start, for the rest of a container cannot be written."""
    for name, service in compose.ours(services).items():
        mounted = compose.mounts_below_home(service)
        assert (mounted.get("data") == "data") == ("blobs" in mounted), name
        assert service["environment"]["XDG_DATA_HOME"] == f"{compose.HOME}/data"


def test_no_secret_is_inside() -> None:
    named = re.compile(r"PASSWORD|SECRET|_KEY|TOKEN$")
    for path in (compose.BASE, compose.THREE):
        assert named.search(path.read_text(encoding="utf-8")) is None


def test_every_volume_that_is_used_is_declared() -> None:
    declared = set(compose.load(compose.BASE)["volumes"])
    declared |= set(compose.load(compose.THREE)["volumes"])
    used = {
        mount.partition(":")[0]
        for services in (compose.services(), compose.services_of_three())
        for service in services.values()
        for mount in service.get("volumes", ())
    }
    of_the_tree = {name for name in used if name.startswith("./")}
    assert all((compose.ROOT / name).exists() for name in of_the_tree)
    assert used - of_the_tree == declared
