"""The image: what is locked goes in, whole; what runs is nobody's root."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.deploy import compose

ROOT = compose.ROOT
_PIN = re.compile(r"^([a-z0-9-]+)==([^ ;\\]+)", re.MULTILINE)


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return dict(_PIN.findall(text))


def test_the_image_installs_by_hash_and_runs_as_nobody_special() -> None:
    dockerfile = compose.dockerfile()
    assert (
        "pip install --require-hashes --requirement requirements/image.lock" in dockerfile
    )
    users = re.findall(r"^USER (\d+):(\d+)$", dockerfile, re.MULTILINE)
    assert users == [("10001", "10001")]
    assert dockerfile.index("USER ") < dockerfile.index("\nENTRYPOINT ")
    assert "HEALTHCHECK" in dockerfile


def test_what_is_mounted_in_the_home_of_its_user_is_the_users() -> None:
    (made,) = re.findall(r"install --directory ([^\n]*)", compose.dockerfile())
    mounted = {
        f"{compose.HOME}/{folder}"
        for service in compose.ours(compose.services()).values()
        for folder in compose.mounts_below_home(service)
    }
    assert {word for word in made.split() if word[0] == "/"} == {compose.HOME} | mounted


def test_the_image_has_the_versions_of_every_other_installation() -> None:
    run, image, dev = _pins("run.lock"), _pins("image.lock"), _pins("dev.lock")
    assert len(run) > 20
    assert run.items() <= image.items()
    assert image.items() <= dev.items()
    assert {"fastapi", "uvicorn", "obstore"} <= set(image)


def test_the_image_is_named_by_the_version_of_the_project() -> None:
    version = _project()["project"]["version"]
    images = {service["image"] for service in compose.ours(compose.services()).values()}
    assert images == {f"foldline:{version}"}


def test_everything_that_is_installed_is_sent_to_the_builder() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    let_in = {line[1:] for line in lines if line.startswith("!")}
    setuptools = _project()["tool"]["setuptools"]
    folders = {path.partition("/")[0] for path in setuptools["package-dir"].values()}
    files = {"pyproject.toml", "README.md", "LICENSE", "requirements/image.lock"}
    assert let_in == folders | files
    assert all((ROOT / name).exists() for name in let_in)


@pytest.mark.slow
def test_what_the_builder_is_sent_makes_a_whole_package(tmp_path: Path) -> None:
    """The step of the Dockerfile that copies and installs, without a container."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    source = tmp_path / "src"
    source.mkdir()
    names = [line[1:] for line in lines if line.startswith("!")]
    subprocess.run(["cp", "-a", "--parents", *names, str(source)], cwd=ROOT, check=True)
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    where = ["--no-deps", "--no-build-isolation", "--target", str(target), "."]
    subprocess.run([*pip, *where], cwd=source, check=True)
    for package in _project()["tool"]["setuptools"]["packages"]:
        assert (target / package.replace(".", "/")).is_dir(), package
    assert list((target / "foldline" / "schemas" / "avro").rglob("*.avsc"))
