"""Which of the three backends gives this test run its broker and its registry.

1. `FOLDLINE_TEST_BOOTSTRAP` and `FOLDLINE_TEST_REGISTRY`: ones that are there.
2. containers, where a Docker engine answers (`docker info`).
3. Java programs from Maven Central, where Java and Maven are.

`FOLDLINE_TEST_KAFKA=required` makes an error of having none, `=off` looks for none,
`=jars` and `=containers` name one.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import Literal

from tests.cluster import jars

BOOTSTRAP = "FOLDLINE_TEST_BOOTSTRAP"
REGISTRY = "FOLDLINE_TEST_REGISTRY"
WANTED = "FOLDLINE_TEST_KAFKA"

STATE = "state.json"
"""Where the keeper of a run says where its broker and registry are."""

DOCKER_TIMEOUT_S = 20


@dataclass(frozen=True, slots=True)
class Backend:
    """What there is; `reason` says why there is none."""

    name: Literal["external", "containers", "jars", "none"]
    reason: str = ""


def required() -> bool:
    """Whether a run without a broker is an error."""
    return os.environ.get(WANTED) == "required"


def choose() -> Backend:
    """The backend of this run."""
    wanted = os.environ.get(WANTED, "")
    if wanted == "off":
        return Backend("none", f"{WANTED}=off")
    if os.environ.get(BOOTSTRAP):
        if os.environ.get(REGISTRY):
            return Backend("external")
        return Backend("none", f"{BOOTSTRAP} is set, {REGISTRY} is not")
    if wanted != "jars" and _engine_answers():
        return Backend("containers")
    if wanted == "containers":
        return Backend("none", "no Docker engine answers (docker info)")
    missing = without_jars()
    if missing:
        return Backend("none", f"no Docker engine answers (docker info), and {missing}")
    return Backend("jars")


def without_jars() -> str:
    """What is missing to run a broker and a registry as Java programs; empty: nothing."""
    if not shutil.which("mvn"):
        return "no Maven (mvn)"
    try:
        jars.java(jars.BROKER_JAVA)
        jars.java(jars.REGISTRY_JAVA)
    except jars.MissingError as error:
        return str(error)
    return ""


def _engine_answers() -> bool:
    if not shutil.which("docker"):
        return False
    command = ["docker", "info", "--format", "{{.ServerVersion}}"]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=DOCKER_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
