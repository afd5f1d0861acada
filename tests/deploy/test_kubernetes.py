"""deploy/kubernetes: the services of docker-compose.yml, as Kubernetes runs them.

No cluster ran these files in this test: it parses them, looks that their parts name each
other, and compares what they start with what Compose starts.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from foldline.cli.app import app
from foldline.settings import PREFIX, Settings
from tests.deploy import compose

FOLDER = compose.ROOT / "deploy" / "kubernetes"
LOG, CONSUMERS = FOLDER / "log.yml", FOLDER / "consumers.yml"

VERSIONS = {
    "ConfigMap": "v1",
    "PersistentVolumeClaim": "v1",
    "Service": "v1",
    "Job": "batch/v1",
    "StatefulSet": "apps/v1",
}
ADDRESSES = {"FOLDLINE_URL", "FOLDLINE_REGISTRY_URL"}
"""Of brokers and registry: elsewhere in each installation."""
MADE_BY_HAND = {"foldline-tokens", "foldline-policies", "foldline-kafka"}
NEEDS_A_COLLECTOR = {"traces"}

Object = dict[str, Any]


def objects(path: Path) -> list[Object]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


ALL = [*objects(LOG), *objects(CONSUMERS)]


def of_kind(kind: str) -> dict[str, Object]:
    return {o["metadata"]["name"]: o for o in ALL if o["kind"] == kind}


RUNNING = of_kind("StatefulSet")
PODS = {n: o["spec"]["template"] for n, o in {**of_kind("Job"), **RUNNING}.items()}

every_pod = pytest.mark.parametrize("name", sorted(PODS))
every_service = pytest.mark.parametrize("name", sorted(RUNNING))


def container(name: str) -> Object:
    (only,) = PODS[name]["spec"]["containers"]
    return only


def environment(name: str) -> dict[str, str]:
    """What the container is told, the shared map and its own."""
    own = {one["name"]: one["value"] for one in container(name).get("env", ())}
    (shared,) = of_kind("ConfigMap").values()
    return shared["data"] | own


def commands(name: str) -> list[list[str]]:
    """What it runs, as words after `foldline`."""
    given = container(name)
    if "command" not in given:
        return [given["args"]]
    assert given["command"] == ["/bin/sh", "-ec"]
    return [shlex.split(line)[1:] for line in given["args"][0].splitlines()]


def health_port(name: str) -> int:
    (port,) = [
        p["containerPort"] for p in container(name)["ports"] if p["name"] == "health"
    ]
    return port


def test_every_object_is_of_a_kind_and_version_and_named_once() -> None:
    assert {o["kind"] for o in ALL} == set(VERSIONS)
    for found in ALL:
        assert found["apiVersion"] == VERSIONS[found["kind"]]
        assert re.fullmatch(r"[a-z0-9-]{1,63}", found["metadata"]["name"])
    names = [(o["kind"], o["metadata"]["name"]) for o in ALL]
    assert len(set(names)) == len(names)


def test_what_compose_runs_of_foldline_runs_here() -> None:
    ours = compose.ours(compose.services_of_three())
    assert set(PODS) == set(ours) - NEEDS_A_COLLECTOR


@every_pod
def test_image_command_and_environment_are_those_of_compose(name: str) -> None:
    service = compose.services_of_three()[name]
    assert container(name)["image"] == service["image"]
    assert commands(name) == compose.foldline_commands(service)
    here, there = environment(name), service["environment"]
    assert here.keys() == there.keys()
    assert {n for n in here if here[n] != there[n]} <= ADDRESSES


@every_pod
def test_every_variable_is_a_setting_and_every_command_one_that_foldline_has(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = environment(name)
    settings = {PREFIX + field.upper() for field in Settings.model_fields}
    assert given.keys() <= settings | compose.NOT_OURS
    for variable, value in given.items():
        assert isinstance(value, str), "numbers need quotes"
        monkeypatch.setenv(variable, value)
    Settings()
    for words in commands(name):
        app.parse_args(words, exit_on_error=False, print_error=False)


@every_pod
def test_nobody_is_root_or_may_become_more(name: str) -> None:
    pod = PODS[name]["spec"]
    user = re.search(r"^USER (\d+):(\d+)$", compose.dockerfile(), re.MULTILINE)
    assert user is not None
    who = pod["securityContext"]
    assert who["runAsNonRoot"]
    assert (who["runAsUser"], who["runAsGroup"]) == tuple(map(int, user.groups()))
    assert who["fsGroup"] == who["runAsGroup"]
    assert not pod["automountServiceAccountToken"]
    assert not pod["enableServiceLinks"]
    may = container(name)["securityContext"]
    assert may["readOnlyRootFilesystem"]
    assert not may["allowPrivilegeEscalation"]
    assert may["capabilities"] == {"drop": ["ALL"]}


@every_pod
def test_whatever_a_pod_names_is_there(name: str) -> None:
    template = PODS[name]
    claims = RUNNING.get(name, {}).get("spec", {}).get("volumeClaimTemplates", ())
    volumes = {v["name"] for v in template["spec"]["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in claims}
    assert {m["name"] for m in container(name)["volumeMounts"]} == volumes
    named = re.findall(
        r"'(?:claimName|secretName|name)': '(foldline-[a-z]+)'", str(template)
    )
    assert set(named) <= MADE_BY_HAND | set(of_kind("PersistentVolumeClaim"))


@every_service
def test_a_service_finds_its_pods_and_the_probes_their_ports(name: str) -> None:
    labels = PODS[name]["metadata"]["labels"]
    spec, service = RUNNING[name]["spec"], of_kind("Service")[name]["spec"]
    assert spec["selector"]["matchLabels"] == service["selector"] == labels
    assert spec["serviceName"] == name
    ports = {p["name"]: p["containerPort"] for p in container(name)["ports"]}
    assert {p["name"]: p["port"] for p in service["ports"]} == ports
    live, ready = container(name)["livenessProbe"], container(name)["readinessProbe"]
    assert live["httpGet"] == {"path": "/healthz", "port": "health"}
    assert ready["httpGet"]["path"] == "/readyz"
    assert ready["httpGet"]["port"] in ports


@every_service
def test_ports_are_what_the_command_is_told_and_what_prometheus_asks(name: str) -> None:
    told = {*container(name)["args"], environment(name).get("FOLDLINE_HEALTH_PORT")}
    port = health_port(name)
    assert {f"0.0.0.0:{port}", str(port)} & told
    assert (name, port) in map(compose.asked, compose.prometheus_jobs().values())


@every_service
def test_it_keeps_what_compose_keeps_and_ends_as_slowly(name: str) -> None:
    service = compose.services()[name]
    kept = {
        mount.split(":")[1].removesuffix("/policies.toml") for mount in service["volumes"]
    }
    mounted = {m["mountPath"] for m in container(name)["volumeMounts"]} - set(
        service["tmpfs"]
    )
    assert mounted == kept
    grace = PODS[name]["spec"]["terminationGracePeriodSeconds"]
    assert f"{grace}s" == service["stop_grace_period"]


def test_no_secret_is_inside() -> None:
    for path in (LOG, CONSUMERS):
        values = re.findall(r"(?:PASSWORD|SECRET|_KEY|TOKEN): \S+", path.read_text())
        assert values == []
