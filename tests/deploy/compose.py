"""docker-compose.yml as data: read, put together with its override, taken apart."""

import json
import re
import shlex
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
BASE: Final = ROOT / "docker-compose.yml"
THREE: Final = ROOT / "docker-compose.three-brokers.yml"
PROMETHEUS: Final = ROOT / "deploy" / "observability" / "prometheus.yml"
SCHEMA: Final = Path(__file__).with_name("compose-spec.json")
"""The Compose Specification's own schema, as compose-go v2.16.2 has it: Copyright 2020
The Compose Specification Authors, Apache-2.0 (this project's LICENSE has its text)."""

HOME: Final = "/var/lib/foldline"
"""Of the image's user; only what is mounted below it can be written."""

NOT_OURS: Final = frozenset({"XDG_DATA_HOME"})
"""Variables that our services are told and that are no settings of foldline's."""

Service = dict[str, Any]

_VARIABLE = re.compile(r"(?<!\$)\$\{[A-Z_]+:-([^}]*)\}")
_LOCAL_COMMANDS = re.compile(r"^foldline .*$", re.MULTILINE)


class _Loader(yaml.SafeLoader):
    """YAML with Compose's own tag for lists that replace those of the base."""


def _overriding(loader: _Loader, node: yaml.Node) -> Any:
    assert isinstance(node, yaml.SequenceNode)
    return loader.construct_sequence(node, deep=True)


_Loader.add_constructor("!override", _overriding)


def load(path: Path) -> dict[str, Any]:
    """A file with its variables at their defaults."""
    text = _VARIABLE.sub(r"\1", path.read_text(encoding="utf-8"))
    return yaml.load(text, _Loader)  # noqa: S506 - a subclass of the safe one


def schema() -> dict[str, Any]:
    """What a Compose file must look like."""
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


def services() -> dict[str, Service]:
    """The services of one broker."""
    return load(BASE)["services"]


def services_of_three() -> dict[str, Service]:
    """The services of three brokers: as far as environments go, put together."""
    merged = services()
    for name, over in load(THREE)["services"].items():
        base = merged[over["extends"]["service"] if "extends" in over else name]
        merged[name] = base | over
        merged[name]["environment"] = base["environment"] | over.get("environment", {})
        merged[name]["depends_on"] = base.get("depends_on", {}) | over.get("depends_on", {})
    return merged


def ours(found: dict[str, Service]) -> dict[str, Service]:
    """The services that run foldline."""
    return {n: s for n, s in found.items() if s["image"].startswith("foldline:")}


def foldline_commands(service: Service) -> list[list[str]]:
    """What a service of ours runs, as words after `foldline`."""
    if "entrypoint" not in service:
        return [service["command"]]
    (script,) = service["command"]
    return [shlex.split(line)[1:] for line in _LOCAL_COMMANDS.findall(script)]


def mounts_below_home(service: Service) -> dict[str, str]:
    """The volumes of a service in its home, by the name of the folder there."""
    mounts = (mount.split(":")[:2] for mount in service.get("volumes", ()))
    below = f"{HOME}/"
    return {
        path.removeprefix(below): volume
        for volume, path in mounts
        if path.startswith(below)
    }


def prometheus_jobs() -> dict[str, dict[str, Any]]:
    """What Prometheus asks, by the job's name."""
    config = yaml.safe_load(PROMETHEUS.read_text(encoding="utf-8"))
    return {job["job_name"]: job for job in config["scrape_configs"]}


def asked(job: dict[str, Any]) -> tuple[str, int]:
    """The service of a job, and its port."""
    for found in job.get("dns_sd_configs", ()):
        return found["names"][0], found["port"]
    (target,) = job["static_configs"][0]["targets"]
    name, _, port = target.partition(":")
    return name, int(port)


def dockerfile() -> str:
    """The Dockerfile, a line for each instruction."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    return text.replace("\\\n", " ")
