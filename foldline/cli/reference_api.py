"""The reference page of the Python API, made from the source of the public modules.

What is imported by a user stands in one of them, and nothing else is promised. The page
says of every name what its docstring says first; `help()` has the rest.
"""

import ast
import inspect
from collections.abc import Collection, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

MADE = "<!-- Made by `make docs` from the code. Do not edit. -->"

ROOT = "foldline"

WHOLE = (
    "foldline",
    "foldline.tools",
    "foldline.models",
    "foldline.context",
    "foldline.policies",
    "foldline.replay",
    "foldline.recovery",
    "foldline.events",
    "foldline.logs",
    "foldline.testing",
)
"""The public modules of which every name is shown: those in `__all__`."""

PARTS = {
    "foldline.errors": "Every error is a `FoldlineError`, built from its fields; its "
    "docstring says what to do. [Operations](operations.md) has those that an operator "
    "acts on.",
    "foldline.settings": "`Settings` has every setting: `FOLDLINE_URL` is "
    '`Settings(url="...")`. [Operations](operations.md) lists them.',
    "foldline.faults": "Named points at which a process can be made to die "
    "(`FOLDLINE_CRASH_AT`), for tests of a harness.",
}
"""The other public modules, and what is to be said of them."""

PUBLIC = (*WHOLE, *PARTS)
"""Every module that a user imports from."""

MADE_BY_OTHERS = frozenset(
    {"Client", "MirroredSession", "ModelCall", "OwnedSession", "SessionView", "Turn"}
)
"""Classes of which nobody but foldline makes an object."""

EVENTS = "foldline.schemas.events"

RECORD = "Record"
"""The base of all records: what it has is none of a reader's business."""

SAID_MAX = 200
"""How long an alias may be that is written out."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = ast.ClassDef | _Function | ast.Assign | ast.AnnAssign


class Found(NamedTuple):
    """A name's definition: the module that has it, the statement, its docstring."""

    module: str
    node: _Definition
    doc: str


# --- the source of a name ------------------------------------------------------------


@cache
def tree_of(module: str) -> ast.Module:
    """The parsed source of a module."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module)
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


@cache
def names_of(module: str) -> tuple[str, ...]:
    """The names in a module's `__all__`."""
    for node in tree_of(module).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=listed)):
                return tuple(str(e.value) for e in listed if isinstance(e, ast.Constant))
            case _:
                pass
    return ()


@cache
def imports_of(module: str) -> dict[str, str]:
    """Names that a module imports from foldline, each with the module it comes from."""
    return {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.ImportFrom)
        and node.module is not None
        and node.module.partition(".")[0] == ROOT
        for alias in node.names
    }


@cache
def definition_of(module: str, name: str) -> Found:
    """Where a name is defined, followed through imports.

    Raises:
        LookupError: it is not.
    """
    body = tree_of(module).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, _Definition) and _name_of(node) == name:
            return Found(module, node, _doc_of(node, following))
    home = imports_of(module).get(name)
    if home is None:
        raise LookupError(module, name)
    return definition_of(home, name)


def _name_of(node: _Definition) -> str:
    match node:
        case ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
        case _:
            return ""


def _doc_of(node: _Definition, following: ast.stmt | None) -> str:
    """A docstring; of an assignment the text behind it."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return ast.get_docstring(node) or ""
    match following:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
        case _:
            return ""


@cache
def homes() -> dict[str, str]:
    """Every public name with its home; `foldline` is that of what no other module has."""
    ordered = (*WHOLE[1:], *WHOLE[:1])
    found: dict[str, str] = {}
    for module in ordered:
        for name in names_of(module):
            of = imports_of(module).get(name, "")
            found.setdefault(name, of if of in PARTS else module)
    return found


# --- the page ------------------------------------------------------------------------


def api_page() -> str:
    """Every public module with its names."""
    lines = ["# Python API", "", MADE, ""]
    lines += [
        "What is imported from these modules is public. Everything else may move. `help()`",
        "of a name has its arguments and errors.",
        "",
        *(f"- [{module}](#{module.replace('.', '')})" for module in PUBLIC),
    ]
    for module in WHOLE:
        lines += ["", f"## {module}", "", *_module(module)]
    for module, said in PARTS.items():
        lines += ["", f"## {module}", "", said, "", *_part(module)]
    return "\n".join(lines).rstrip() + "\n"


def _module(module: str) -> Iterator[str]:
    yield from (ast.get_docstring(tree_of(module)) or "").splitlines()
    own = [n for n in names_of(module) if module != ROOT or homes()[n] == ROOT]
    found = {name: definition_of(module, name) for name in own}
    listed = [name for name in own if _is_listed(found[name])]
    for name in own:
        if name not in listed:
            yield from ("", f"### {name}", "", *_entry(found[name]))
    if listed:
        yield from ("", f"### Words of {module}", "")
        yield from (_line(found[name]) for name in listed)
    elsewhere = [name for name in names_of(module) if name not in own]
    if elsewhere:
        yield from ("", "### Also here", "", "Each with the module that says more:", "")
        yield from (f"- `{name}`: {homes()[name]}" for name in elsewhere)


def _is_told(node: ast.ClassDef | _Function) -> bool:
    """Whether it is a user's: not private, no protocol that only annotates errors."""
    is_protocol = isinstance(node, ast.ClassDef) and "Protocol" in map(
        ast.unparse, node.bases
    )
    return not node.name.startswith("_") and not is_protocol


def _is_listed(found: Found) -> bool:
    """Whether a line is enough: constants and aliases, and what docs/schemas.md shows."""
    is_value = isinstance(found.node, ast.Assign | ast.AnnAssign)
    return is_value or (found.module == EVENTS and isinstance(found.node, ast.ClassDef))


def _line(found: Found) -> str:
    """A name in one line, with what it stands for where that is short."""
    node, said = found.node, ""
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        said = f" = {_quoted(ast.unparse(node.value))}"
        if (
            isinstance(node.value, ast.Dict | ast.Call | ast.DictComp)
            or len(said) > SAID_MAX
        ):
            said = ""
    about = f": {_first(found.doc)}" if found.doc else ""
    return f"- `{_name_of(node)}{said}`{about}"


def _part(module: str) -> Iterator[str]:
    for node in tree_of(module).body:
        if isinstance(node, ast.ClassDef | _Function) and _is_told(node):
            yield f"- `{node.name}`: {_first(ast.get_docstring(node) or '')}"


def _entry(found: Found) -> Iterator[str]:
    """What is said of one name."""
    match found.node:
        case ast.ClassDef():
            yield from _class(found, found.node)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from (f"`{_signature(found.node)}`", "")
            yield from _about(found.doc)
        case ast.Assign() | ast.AnnAssign():
            yield _line(found)


def _class(found: Found, node: ast.ClassDef) -> Iterator[str]:
    yield from _about(found.doc)
    members = [*_members(found.module, node)]
    if members:
        yield from ("", *members)
    for base in _bases(found.module, node):
        if homes().get(_name_of(base.node)):
            yield from ("", f"Besides, all that `{_name_of(base.node)}` has.")


def _members(
    module: str, node: ast.ClassDef, shown: Collection[ast.ClassDef] = ()
) -> Iterator[str]:
    """A line per field, property and method, those of private bases included."""
    for member, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(member, _Definition) and _is_shown(node, _name_of(member)):
            line = _member(member, _doc_of(member, following))
            if line:
                yield line
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            yield from _attributes(member)
    own = {_name_of(m) for m in node.body if isinstance(m, _Definition)}
    elsewhere = {*shown, *_shown_with_bases(module, node)}
    for base in _bases(module, node):
        if base.node not in elsewhere and isinstance(base.node, ast.ClassDef):
            for line in _members(base.module, base.node, elsewhere):
                if _word_of(line) not in own:
                    yield line


def _shown_with_bases(module: str, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """The public bases of a class, and all that is shown with them."""
    for base in _bases(module, node):
        if isinstance(base.node, ast.ClassDef) and homes().get(base.node.name):
            yield base.node
            yield from _all_bases(base.module, base.node)


def _all_bases(module: str, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    for base in _bases(module, node):
        if isinstance(base.node, ast.ClassDef):
            yield base.node
            yield from _all_bases(base.module, base.node)


def _attributes(function: ast.FunctionDef) -> Iterator[str]:
    """A line per public attribute that `__init__` sets."""
    types = {a.arg: a.annotation for a in (*function.args.args, *function.args.kwonlyargs)}
    for node, following in zip(function.body, [*function.body[1:], None], strict=True):
        match node:
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=value):
                kind = types.get(value.id) if isinstance(value, ast.Name) else None
            case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=kind):
                pass
            case _:
                continue
        if not name.startswith("_"):
            doc = _first(_doc_of(node, following))
            said = f"{name}: {_type(kind)}" if kind else name
            yield f"- `{said}`{': ' if doc else ''}{doc}"


def _is_shown(node: ast.ClassDef, name: str) -> bool:
    if name == "__init__":
        return node.name not in MADE_BY_OTHERS
    return bool(name) and not name.startswith(("_", "test_"))


def _word_of(line: str) -> str:
    """The name of a member in its line."""
    head = line.removeprefix("- `").removeprefix("async ")
    return head.partition("(")[0].partition(":")[0].partition("`")[0]


def _bases(module: str, node: ast.ClassDef) -> Iterator[Found]:
    """The bases of a class that are foldline's."""
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id != RECORD:
            try:
                yield definition_of(module, base.id)
            except LookupError:
                continue


def _member(node: _Definition, doc: str) -> str:
    said = f": {_first(doc)}" if doc else ""
    match node:
        case ast.ClassDef():
            return ""
        case ast.FunctionDef(decorator_list=[ast.Name(id="property")], returns=given):
            return f"- `{node.name}: {_type(given)}`{said}"
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            signature = _signature(node).replace("def ", "", 1)
            return f"- `{signature}`{said}"
        case ast.AnnAssign(annotation=kind, value=value):
            default = ""
            if value is not None and not isinstance(value, ast.Call):
                default = f" = {_quoted(ast.unparse(value))}"
            return f"- `{_name_of(node)}: {_type(kind)}{default}`{said}"
        case ast.Assign():
            return ""


def _signature(node: _Function) -> str:
    """A function's first line, without `self` and with types as they are read."""
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    given = f" -> {_type(node.returns)}" if node.returns else ""
    return f"{word} {node.name}({', '.join(_arguments(node.args))}){given}"


def _arguments(args: ast.arguments) -> Iterator[str]:
    named = [*args.posonlyargs, *args.args]
    defaults = [*[None] * (len(named) - len(args.defaults)), *args.defaults]
    for number, (arg, default) in enumerate(zip(named, defaults, strict=True), start=1):
        if arg.arg not in {"self", "cls"}:
            yield _argument(arg, default)
        if number == len(args.posonlyargs):
            yield "/"
    if args.vararg:
        yield f"*{_argument(args.vararg, None)}"
    elif args.kwonlyargs:
        yield "*"
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield _argument(arg, default)
    if args.kwarg:
        yield f"**{_argument(args.kwarg, None)}"


def _argument(arg: ast.arg, default: ast.expr | None) -> str:
    said = f"{arg.arg}: {_type(arg.annotation)}" if arg.annotation else arg.arg
    return said if default is None else f"{said} = {_quoted(ast.unparse(default))}"


def _type(node: ast.expr | None) -> str:
    """An annotation; one that is a string is what it says."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "" if node is None else _quoted(ast.unparse(node))


def _quoted(code: str) -> str:
    """Code with the quotes that the source has."""
    return code if '"' in code else code.replace("'", '"')


def _about(doc: str) -> list[str]:
    """A docstring up to its lists of arguments and errors."""
    lines = doc.splitlines()
    ends = [i for i, line in enumerate(lines) if line.startswith(("Args:", "Raises:"))]
    return "\n".join(lines[: ends[0]] if ends else lines).rstrip().splitlines()


def _first(doc: str) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join(doc.partition("\n\n")[0].split())
