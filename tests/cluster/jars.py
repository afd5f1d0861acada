"""Kafka and a schema registry as Java programs: fetched once by Maven, kept in a cache.

The cache is outside the tree ($XDG_CACHE_HOME/foldline). A folder in it appears by a
rename, whole: a run that is interrupted leaves nothing half done, and runs side by side
need no lock.
"""

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.cluster.broker_settings import KAFKA_VERSION

REGISTRY_VERSION = "3.3.3"
REGISTRY_ARTIFACT = f"io.apicurio:apicurio-registry-app:{REGISTRY_VERSION}:tar.gz:all"

BROKER_JAVA = 17
REGISTRY_JAVA = 21

FETCH_TIMEOUT_S = 600

_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>foldline.tests</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


class MissingError(Exception):
    """What this machine would need and has not; its text goes into the summary."""


def kafka_jars() -> Path:
    """The folder with Kafka's jars, fetched if it is not there."""
    return _cached(f"kafka-{KAFKA_VERSION}", _fetch_kafka)


def registry_home() -> Path:
    """The folder of the registry's program, fetched if it is not there."""
    return _cached(f"apicurio-{REGISTRY_VERSION}", _fetch_registry)


def java(at_least: int) -> Path:
    """The newest Java of this machine, of that version or newer.

    Raises:
        MissingError: there is none.
    """
    found = [(version_of(home), home) for home in _homes()]
    good = sorted((version, home) for version, home in found if version >= at_least)
    if not good:
        raise MissingError(f"no Java {at_least} or newer (JAVA_HOME, PATH, /usr/lib/jvm)")
    return good[-1][1] / "bin" / "java"


def java_or_none(at_least: int) -> Path | None:
    """The same; None where there is none."""
    try:
        return java(at_least)
    except MissingError:
        return None


def version_of(home: Path) -> int:
    """The version that a Java home's `release` file says; 0 where it says none."""
    release = home / "release"
    if not (home / "bin" / "java").exists() or not release.exists():
        return 0
    match = re.search(r'JAVA_VERSION="(\d+)', release.read_text(encoding="utf-8"))
    return int(match[1]) if match else 0


def _homes() -> Iterator[Path]:
    named = os.environ.get("JAVA_HOME")
    if named:
        yield Path(named)
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parent.parent
    yield from Path("/usr/lib/jvm").glob("*")
    yield from Path("/Library/Java/JavaVirtualMachines").glob("*/Contents/Home")
    yield from (Path.home() / ".sdkman/candidates/java").glob("*")


def _cached(name: str, fetch: Callable[[Path], None]) -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "foldline"
    folder = base / name
    if folder.exists():
        return folder
    base.mkdir(parents=True, exist_ok=True)
    new = base / f".{name}-{uuid.uuid4().hex}"
    new.mkdir()
    try:
        fetch(new)
        new.rename(folder)
    except OSError:
        if not folder.exists():  # else another run was sooner
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return folder


def _fetch_kafka(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as work:
        pom = Path(work) / "pom.xml"
        pom.write_text(_POM, encoding="utf-8")
        _maven("dependency:copy-dependencies", f"-DoutputDirectory={folder}", pom=pom)


def _fetch_registry(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as work:
        pom = Path(work) / "pom.xml"
        pom.write_text(_POM, encoding="utf-8")
        target = f"-DoutputDirectory={work}"
        _maven("dependency:copy", f"-Dartifact={REGISTRY_ARTIFACT}", target, pom=pom)
        (archive,) = Path(work).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")


def _maven(*arguments: str, pom: Path) -> None:
    if not shutil.which("mvn"):
        raise MissingError("no Maven (mvn)")
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(pom), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise MissingError(f"Maven could not fetch: {(done.stdout + done.stderr)[-500:]}")
