"""`foldline demo` finds the example beside the source, or says where it is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foldline.cli import demo as module
from foldline.cli.demo import demo_folder
from foldline.cli.failures import NoDemoError


def test_the_example_is_beside_the_source_tree() -> None:
    assert (demo_folder() / "__main__.py").is_file()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree in which foldline/cli/demo.py would be, with an example or without."""
    monkeypatch.setattr(module, "__file__", str(tmp_path / "foldline/cli/demo.py"))
    return tmp_path / "examples" / "demo"


@pytest.mark.usefixtures("elsewhere")
def test_an_installed_wheel_says_how_to_get_the_demo(run: Callable[..., Any]) -> None:
    with pytest.raises(NoDemoError):
        demo_folder()
    done = run("demo")
    assert done.code == 3
    assert "clone the repository" in done.err


def test_the_example_gets_the_options_and_gives_the_exit_code(
    run: Callable[..., Any], elsewhere: Path, tmp_path: Path
) -> None:
    seen = tmp_path / "arguments"
    elsewhere.mkdir(parents=True)
    (elsewhere / "__main__.py").write_text(
        "import pathlib, sys\n"
        f"pathlib.Path({str(seen)!r}).write_text(' '.join(sys.argv[1:]))\n"
        "sys.exit(7)\n"
    )
    options = ("--log", "sqlite:///x.db", "--json", "--crash-at", "CP_X:2")
    assert run("demo", *options).code == 7
    assert set(seen.read_text().split()) == {
        "--log=sqlite:///x.db",
        "--crash-at=CP_X:2",
        "--json",
    }
