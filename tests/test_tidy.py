"""Style that a machine can check: sizes, names, docstrings, links, leftovers."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("schemas", "processors", "projections", "producers")

PACKAGED = frozenset([*ROOMS, "foldline"])

PURE_CONTRACT = "Events, folds and plans touch no broker, disk, clock, chance or thread"

FILE_LINES_MAX = 1_000
FUNCTION_LINES_MAX = 100
TEST_NAME_WORDS_MIN = 4

TEXT_SUFFIXES = frozenset(
    f".{suffix}"
    for suffix in ("avsc", "json", "jsonl", "lock", "md", "py", "sh", "sql", "toml", "yml")
)
TEXT_NAMES = frozenset(
    [
        ".dockerignore",
        ".editorconfig",
        ".gitattributes",
        ".gitignore",
        "Dockerfile",
        "LICENSE",
        "Makefile",
        "run",
    ]
)
UNTRACKED = frozenset(["build", "dist", "__pycache__"])

# Recorded transcripts are kept as they were written, byte for byte.
VERBATIM_SUFFIXES = frozenset([".jsonl"])
TABS_ALLOWED = frozenset(["Makefile"])

# Spelled in two halves, so that this file does not find itself.
LEFTOVERS = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
MACHINE_PATHS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?<![\w.])/" + r"work/",  # a path of somebody's machine
        r"(?<![\w-])" + "shar" + r"ed/",  # a folder that no clone has
    )
)
DRAWERS = frozenset(["common", "helper", "helpers", "misc", "util", "utils"])


def _tracked() -> Iterator[Path]:
    """Yield what git would commit, or without git everything that is not built."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        ).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        yield from _walked(ROOT)
        return
    for name in listed.split("\0"):
        path = ROOT / name
        if name and (path.is_symlink() or path.is_file()):
            yield path


def _walked(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or path.is_file():
            yield path
        elif path.name == ".ci" or not (
            path.name.startswith(".")
            or path.name in UNTRACKED
            or path.name.endswith(".egg-info")
        ):
            yield from _walked(path)


def _is_text(path: Path) -> bool:
    return path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES


FILES = sorted(_tracked())
TEXTS = [path for path in FILES if _is_text(path) and not path.is_symlink()]
MODULES = [path for path in TEXTS if path.suffix == ".py"]
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}


def _at(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    return enumerate(path.read_text(encoding="utf-8").split("\n"), start=1)


def _functions(
    tree: ast.Module,
) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_the_tidy_test_sees_the_rooms() -> None:
    """A listing that came back empty would make every other test here pass."""
    seen = {path.relative_to(ROOT).parts[0] for path in MODULES}
    assert seen >= {"foldline", "tests", *ROOMS}


def test_no_python_file_is_longer_than_the_limit() -> None:
    """What does not fit in a reader's head is two files."""
    lengths = {path: len(list(_lines(path))) - 1 for path in MODULES}
    assert [
        f"{path.relative_to(ROOT)}: {length} lines"
        for path, length in lengths.items()
        if length > FILE_LINES_MAX
    ] == []


def test_no_function_is_longer_than_the_limit() -> None:
    """A function is read in one look; numbered steps may take a long one."""
    assert [
        f"{_at(path, function.lineno)} {function.name}: {length} lines"
        for path, tree in TREES.items()
        for function in _functions(tree)
        if (length := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES_MAX
    ] == []


def test_no_text_has_tabs_or_trailing_whitespace() -> None:
    """Editors differ about both, and diffs then show nothing but that."""
    assert [
        _at(path, number)
        for path in TEXTS
        if path.suffix not in VERBATIM_SUFFIXES
        for number, line in _lines(path)
        if line != line.rstrip() or ("\t" in line and path.name not in TABS_ALLOWED)
    ] == []


def test_every_text_ends_with_one_newline() -> None:
    """A last line without its end joins the next file's first one."""
    assert [
        str(path.relative_to(ROOT))
        for path in TEXTS
        if path.suffix not in VERBATIM_SUFFIXES
        and (content := path.read_bytes())
        and (not content.endswith(b"\n") or content.endswith(b"\n\n"))
    ] == []


def test_nothing_is_left_to_be_done_in_a_comment() -> None:
    """An intention belongs in an issue, where somebody looks."""
    assert [
        _at(path, number)
        for path in TEXTS
        if path.suffix not in VERBATIM_SUFFIXES
        for number, line in _lines(path)
        if LEFTOVERS.search(line)
    ] == []


def test_no_text_names_a_path_of_one_machine() -> None:
    """What a clone does not have, its reader cannot open."""
    assert [
        _at(path, number)
        for path in TEXTS
        for number, line in _lines(path)
        if any(pattern.search(line) for pattern in MACHINE_PATHS)
    ] == []


def test_every_module_has_a_docstring() -> None:
    """The first line of a file says what it is for."""
    assert [
        str(path.relative_to(ROOT))
        for path, tree in TREES.items()
        if not ast.get_docstring(tree)
    ] == []


def test_no_file_or_folder_is_a_drawer() -> None:
    """A name that fits everything says nothing."""
    assert [
        str(path.relative_to(ROOT))
        for path in FILES
        if DRAWERS.intersection(re.split(r"[/._]", path.relative_to(ROOT).as_posix()))
    ] == []


def test_a_module_says_that_it_is_pure_and_import_linter_holds_it_to_that() -> None:
    """A claim that nothing checks is true until the next import."""
    said = {
        _dotted(path)
        for path, tree in TREES.items()
        if path.relative_to(ROOT).parts[0] in PACKAGED
        and "Pure." in (ast.get_docstring(tree) or "")
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (held,) = (
        contract["source_modules"]
        for contract in project["tool"]["importlinter"]["contracts"]
        if contract["name"] == PURE_CONTRACT
    )
    assert said == set(held)


def _dotted(path: Path) -> str:
    """What a module is imported as."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "foldline" else ("foldline", *parts))


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_is_linked_into_the_package(room: str) -> None:
    """Type checkers and import-linter find the rooms through these links."""
    link = ROOT / "foldline" / room
    assert link.is_symlink()
    assert link.readlink() == Path("..") / room


def test_every_link_stays_inside_the_tree() -> None:
    """A link out of the tree works on one machine only."""
    assert [
        str(path.relative_to(ROOT))
        for path in FILES
        if path.is_symlink() and not (path.exists() and path.resolve().is_relative_to(ROOT))
    ] == []


def test_decisions_are_numbered_without_a_gap() -> None:
    """A gap is a decision that was lost, or two that were made at once."""
    folder = ROOT / "docs" / "decisions"
    names = sorted(path.name for path in FILES if path.parent == folder)
    decisions = [name for name in names if name != "README.md"]
    assert [
        name for name in decisions if not re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", name)
    ] == []
    assert [int(name[:4]) for name in decisions] == list(range(1, len(decisions) + 1))


def test_the_name_of_every_test_is_a_sentence() -> None:
    """A failing test's name is the first thing read, often the only one."""
    assert [
        f"{_at(path, function.lineno)} {function.name}"
        for path, tree in TREES.items()
        if path.is_relative_to(ROOT / "tests")
        for function in _functions(tree)
        if function.name.startswith("test_")
        and len(function.name.split("_")) - 1 < TEST_NAME_WORDS_MIN
    ] == []
