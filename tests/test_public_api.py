"""What users import: public modules, with everything that they take and give."""

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from foldline.cli.reference_api import (
    PARTS,
    PUBLIC,
    WHOLE,
    Found,
    definition_of,
    homes,
    imports_of,
    names_of,
    tree_of,
)
from foldline.processors.rules import (
    BACKGROUND_OUTCOMES,
    SCOPES,
    STEERING_MODES,
    TURN_OUTCOMES,
)
from foldline.projections.recovery import OUTCOMES_SCHEMA
from foldline.schemas import choices
from foldline.schemas.events import EVENT_TYPES

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
TEXTS = sorted(
    path
    for path in [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *ROOT.glob("examples/*.md")]
    if path.name not in {"design.md", "modules.md"}  # for whoever works on the inside
)
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))

OF_THE_DEMO = {
    "foldline.cli.clean": "it is a command of foldline, and prints as one",
    "foldline.cli.failures": "... and fails as one",
    "foldline.kafka": "... and says before it begins what a cluster lacks",
    "foldline.kafka_ready": "... as each command does",
}
"""What `examples/demo` has beyond the public modules, and why."""

_PATH = re.compile(r"`{1,2}(foldline(?:\.[A-Za-z_]+)+)")
_CODE = re.compile(
    r"^(?:async (?:with|def|for) .*:|(?:def|class|with|for|while|if|match) .*:"
    r"|import \w+$|from [\w.]+ import .*|(?:\w+ = )?await .*|\w+(?:, \w+)* = \w.*)$"
)


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                for alias in names:
                    whole = f"{module}.{alias.name}"
                    yield whole if whole in PUBLIC else module
            case _:
                pass


def _of_foldline(modules: Iterator[str]) -> set[str]:
    return {module for module in modules if module.partition(".")[0] == "foldline"}


def _blocks(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


# --- imports -------------------------------------------------------------------------


def test_every_import_in_the_texts_is_of_a_public_module() -> None:
    """What people copy keeps working."""
    named = {
        f"{path.name}: {module}"
        for path in TEXTS
        for block in _blocks(path)
        for module in _of_foldline(_imported(ast.parse(block)))
        if module not in PUBLIC
    }
    assert named == set()


def test_every_path_in_the_texts_is_a_public_module_or_a_name_in_one() -> None:
    """Who reads `foldline.x.y` imports it."""
    wrong: set[str] = set()
    for path in TEXTS:
        prose = re.sub(
            r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
        )
        for named in _PATH.findall(prose):
            module, _, name = named.rpartition(".")
            if _is_module(named) and named not in PUBLIC and not _has(module, name):
                wrong.add(f"{path.name}: {named}")
    assert wrong == set()


def _is_module(named: str) -> bool:
    """Whether it begins with a module: topics and spans have such names, too."""
    place = ROOT / "foldline" / named.split(".")[1]
    return place.is_dir() or place.with_suffix(".py").is_file()


def _has(module: str, name: str) -> bool:
    return module in PUBLIC and hasattr(import_module(module), name)


def test_every_example_imports_public_modules() -> None:
    """The demo is a command of foldline besides: what it has of those is listed."""
    wrong: set[str] = set()
    for path in EXAMPLES:
        allowed = {*PUBLIC, *(OF_THE_DEMO if path.parent.name == "demo" else ())}
        tree = ast.parse(path.read_text(encoding="utf-8"))
        wrong |= {f"{path.name}: {m}" for m in _of_foldline(_imported(tree)) - allowed}
    assert wrong == set()


# --- modules -------------------------------------------------------------------------


@pytest.mark.parametrize("module", WHOLE)
def test_every_public_name_is_there_and_documented(module: str) -> None:
    """An alias or a constant says by its value what it is."""
    names = names_of(module)
    loaded = import_module(module)
    assert names
    assert [name for name in names if not hasattr(loaded, name)] == []
    assert loaded.__all__ == list(names)
    undocumented = [
        name
        for name in names
        if not (found := definition_of(module, name)).doc
        and not isinstance(found.node, ast.Assign | ast.AnnAssign)
    ]
    assert undocumented == []


def test_every_public_name_has_one_meaning_in_all_public_modules() -> None:
    """`foldline` repeats what is used most; two things of one name are two meanings."""
    meanings: dict[str, set[str]] = {}
    for module in WHOLE:
        for name in names_of(module):
            meanings.setdefault(name, set()).add(definition_of(module, name).module)
    assert {name: found for name, found in meanings.items() if len(found) > 1} == {}
    homeless = [
        name
        for number, module in enumerate(WHOLE[1:])
        for name in names_of(module)
        if any(name in names_of(other) for other in WHOLE[1:][:number])
    ]
    assert homeless == []


def test_what_public_functions_take_and_give_is_public() -> None:
    """A type that cannot be imported cannot be written down."""
    known = {*homes()}
    for module in PARTS:
        known |= {n.name for n in tree_of(module).body if isinstance(n, ast.ClassDef)}
    wanted = {
        f"{name}: {word}"
        for module in WHOLE
        if module != "foldline.testing"
        for name in names_of(module)
        for found in _with_bases(definition_of(module, name))
        for word in _types_of(found)
        if word not in known
    }
    assert wanted == set()


def _with_bases(found: Found) -> Iterator[Found]:
    yield found
    if isinstance(found.node, ast.ClassDef):
        for base in found.node.bases:
            if isinstance(base, ast.Name) and _is_ours(found.module, base.id):
                yield from _with_bases(definition_of(found.module, base.id))


def _types_of(found: Found) -> Iterator[str]:
    """Foldline's own types in the annotations of public functions, methods and fields."""
    match found.node:
        case ast.ClassDef(name="SessionState" | "Call" | "AuditableLog"):
            return  # data that is looked at and handed to nobody; raw rows for `verify`
        case ast.ClassDef(body=body):
            nodes = [node for node in body if _is_public(node)]
        case ast.Assign(value=ast.Call() | ast.Dict() | ast.DictComp()):
            return
        case node:
            nodes = [node]
    for node in nodes:
        for annotation in _annotations(node):
            for name in _names_in(annotation):
                if not name.isupper() and _is_ours(found.module, name):
                    yield name


def _is_public(node: ast.stmt) -> bool:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return not name.startswith("_")
        case ast.AnnAssign(target=ast.Name(id=name)):
            return not name.startswith("_")
        case _:
            return False


def _annotations(node: ast.stmt) -> Iterator[ast.expr]:
    match node:
        case ast.FunctionDef(args=args) | ast.AsyncFunctionDef(args=args):
            given = (*args.posonlyargs, *args.args, *args.kwonlyargs)
            yield from (arg.annotation for arg in given if arg.annotation)
            if node.returns is not None:
                yield node.returns
        case ast.AnnAssign(annotation=annotation):
            yield annotation
        case ast.Assign(value=value):
            yield value
        case _:
            pass


def _names_in(annotation: ast.expr) -> Iterator[str]:
    match annotation:
        case ast.Subscript(value=ast.Name(id="Literal")):
            return
        case _:
            pass
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\b[A-Z]\w+", node.value)


def _is_ours(module: str, name: str) -> bool:
    if name in imports_of(module):
        return True
    try:
        return definition_of(module, name).module.startswith("foldline")
    except LookupError:
        return False


def test_every_type_of_event_is_in_foldline_events() -> None:
    """Whoever matches on one imports it from there."""
    assert EVENT_TYPES.keys() - set(names_of("foldline.events")) == set()


def test_the_words_to_choose_from_are_those_of_the_rules() -> None:
    """A word that the types allow and the log refuses helps nobody."""
    assert get_args(choices.SteeringMode) == STEERING_MODES
    assert get_args(choices.GrantScope) == SCOPES
    assert get_args(choices.TurnOutcome) == TURN_OUTCOMES
    assert get_args(choices.BackgroundOutcome) == BACKGROUND_OUTCOMES
    words = '","'.join(get_args(choices.ResolvedOutcome))
    assert f'{{"enum":["{words}"]}}' == OUTCOMES_SCHEMA


def test_to_import_foldline_loads_none_of_its_modules() -> None:
    """A hook has milliseconds; `foldline --help` waits for nothing."""
    code = (
        "import sys, foldline; print([m for m in sys.modules if m.startswith('foldline.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


# --- samples in docstrings -----------------------------------------------------------


def _docstrings() -> Iterator[tuple[str, str]]:
    rooms = ("schemas", "processors", "projections", "producers", "foldline")
    for path in (p for room in rooms for p in sorted((ROOT / room).glob("**/*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(
                node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            ):
                doc = ast.get_docstring(node)
                if doc:
                    yield path.name, doc


def test_every_python_in_a_docstring_compiles() -> None:
    """A sample that lost its indentation is none."""
    samples = 0
    for name, doc in _docstrings():
        for paragraph in doc.split("\n\n"):
            code = textwrap.dedent(paragraph) + "\n"
            looks = [bool(_CODE.match(line)) for line in code.splitlines()]
            is_indented = paragraph.startswith("    ")
            if not (any(looks) if is_indented else all(looks)):
                continue
            samples += 1
            compile(code, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert samples > 10
