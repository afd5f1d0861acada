"""The texts say what is so: modules, links, commands, settings, errors, limits."""

import ast
import functools
import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from foldline import errors, faults
from foldline.cli.app import DEBUG, app
from foldline.cli.failures import EXIT_CODES
from foldline.cli.reference_api import homes
from foldline.processors.listing import LIMITS
from foldline.processors.open_log import open_log
from foldline.processors.rules import RULES
from foldline.schemas.state import FINISHED_KEPT, WINDOW
from foldline.schemas.verdicts import VERDICT_KINDS
from foldline.settings import Settings
from tests.cluster import backends

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
ROOMS = ("schemas", "processors", "projections", "producers", "foldline")
ROOM_LINKS = frozenset(ROOMS[:-1])

TEXTS = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("examples/*.md")])
README = ROOT / "README.md"
POSTMAN = ROOT / "examples" / "postman.py"
COMMANDS = frozenset(name for name in app if not name.startswith("-"))
DECISIONS = sorted((DOCS / "decisions").glob("[0-9]*.md"))

_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_MAP_ROW = re.compile(r"^\| `([a-z0-9_/]+\.py)` \| \S", re.MULTILINE)
_ENVIRONMENT = re.compile(r"FOLDLINE_[A-Z_]*[A-Z]")
_FOLDLINE_COMMAND = re.compile(r"(?:^|`)foldline ([a-z-][^`#|]*)")
_MAKE_COMMAND = re.compile(r"(?:^|[`$] ?)make ([a-z]+)")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _code(text: str) -> Iterator[str]:
    """Yield each line of a code block that is a shell's, and each inline code."""
    for block in re.findall(
        r"^```(?:bash|console|sh|shell)\n(.*?)^```", text, re.MULTILINE | re.DOTALL
    ):
        yield from (line.removeprefix("$ ") for line in _joined(block))
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (f"`{code}" for code in re.findall(r"`([^`\n]+)`", prose))


def _joined(block: str) -> list[str]:
    """The lines of a block; one that goes on behind a backslash is one line."""
    return block.replace("\\\n", " ").splitlines()


def _slug(heading: str) -> str:
    """The anchor that a forge gives a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def _anchors(path: Path) -> set[str]:
    return {_slug(title) for title in re.findall(r"^#+ (.+)$", _text(path), re.MULTILINE)}


def _modules() -> Iterator[str]:
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            parts = path.relative_to(ROOT).parts
            linked = parts[0] == "foldline" and parts[1] in ROOM_LINKS
            if not linked and (path.name != "__init__.py" or _has_code(path)):
                yield "/".join(parts)


def _has_code(path: Path) -> bool:
    """Whether a module holds more than a docstring."""
    return len(ast.parse(_text(path)).body) > 1


def test_every_module_is_in_the_file_map_and_the_map_names_no_other() -> None:
    """A reader finds every file in one look, and no file that is gone."""
    mapped = _MAP_ROW.findall(_text(DOCS / "design.md"))
    assert sorted(mapped) == sorted(_modules())


def test_every_relative_link_leads_to_a_file_and_a_heading() -> None:
    """A link that leads nowhere was true once."""
    broken: list[str] = []
    for path in TEXTS:
        for link in _LINK.findall(_text(path)):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            found = (path.parent / target).resolve() if target else path
            missing = not found.exists() or (
                anchor and found.suffix == ".md" and anchor not in _anchors(found)
            )
            if missing:
                broken.append(f"{_name(path)}: {link}")
    assert broken == []


def test_the_index_of_the_docs_names_every_page() -> None:
    """A page that no reader is sent to is read by nobody."""
    index = set(_LINK.findall(_text(DOCS / "README.md")))
    pages = {path.name for path in DOCS.glob("*.md")} - {"README.md"}
    assert pages - {link.partition("#")[0] for link in index} == set()


@pytest.mark.parametrize("name", ["operations.md", "design.md"])
def test_a_long_page_begins_with_all_of_its_headings(name: str) -> None:
    """In their order: a list of contents that lacks one hides it."""
    lead, *sections = re.split(r"^## ", _text(DOCS / name), flags=re.MULTILINE)
    headings = [section.splitlines()[0] for section in sections]
    assert re.findall(r"^ *- \[(.+)\]\(#", lead, re.MULTILINE) == headings


def test_every_decision_says_context_decision_and_consequences() -> None:
    """A decision without its cost is an announcement."""
    parts = ["## Context", "## Decision", "## Consequences"]
    assert [
        _name(path)
        for path in DECISIONS
        if not _text(path).startswith(f"# {int(path.name[:4])}. ")
        or "\nStatus: " not in _text(path)
        or re.findall(r"^## .*$", _text(path), re.MULTILINE) != parts
    ] == []


def test_the_index_of_decisions_lists_each_with_its_title() -> None:
    """The index is what people read."""
    listed = _text(DOCS / "decisions" / "README.md").splitlines()
    wanted = [
        f"- [{path.name[:4]}]({path.name}) "
        + _text(path).splitlines()[0].partition(". ")[2]
        for path in DECISIONS
    ]
    assert [line for line in listed if line.startswith("- ")] == wanted


def test_every_word_of_the_glossary_has_one_meaning() -> None:
    """Two rows for one word are two meanings."""
    rows = re.findall(r"^\| ([^|]+) \|", _text(DOCS / "glossary.md"), re.MULTILINE)
    words = [
        word.strip()
        for row in rows
        if row not in ("word", "---")
        for word in row.split(",")
    ]
    assert sorted(words) == sorted(set(words))


def test_every_make_target_in_the_texts_exists() -> None:
    """A command that is printed can be run."""
    targets = set(re.findall(r"^([a-z]+):", _text(ROOT / "Makefile"), re.MULTILINE))
    named = {
        match.group(1)
        for path in TEXTS
        for line in _code(_text(path))
        for match in _MAKE_COMMAND.finditer(line)
    }
    assert named - targets == set()
    assert {"demo", "test"} <= named


def test_every_foldline_command_in_the_texts_exists_with_its_options() -> None:
    """A command that is printed can be run as it is printed."""
    wrong: list[str] = []
    for path in TEXTS:
        for words in _commands(_text(path)):
            problem = _problem_of(words)
            if problem:
                wrong.append(f"{_name(path)}: {shlex.join(words)}: {problem}")
    assert wrong == []


def test_the_readme_names_every_command() -> None:
    """What is not there is not looked for."""
    named = {words[0] for words in _commands(_text(README)) if words}
    assert COMMANDS - named == set()


def _commands(text: str) -> Iterator[list[str]]:
    """The words behind each `foldline` of a text's code."""
    for line in _code(text):
        for match in _FOLDLINE_COMMAND.finditer(line):
            yield shlex.split(match.group(1).replace("`", ""))


def _problem_of(words: list[str]) -> str:
    """What is wrong with the words after `foldline`; empty if nothing is."""
    while words and words[0].startswith("--"):
        words = words[2:] if words[0] == "--log" else words[1:]
    if not words:
        return ""
    command = words[0]
    if command not in COMMANDS:
        return f"no command {command}"
    path = [command]
    if app[command].default_command is None:  # a group of commands
        if words[1:2] == [] or words[1] not in app[command]:
            return f"no {words[1]}" if words[1:2] else ""
        path.append(words[1])
    known = _options_of(*path) | {"--log", "--json", "--help", "--"}
    unknown = [word for word in words if word.startswith("--") and word not in known]
    return f"no option {unknown}" if unknown and "--" not in words else ""


@functools.cache
def _options_of(*path: str) -> set[str]:
    command = functools.reduce(lambda group, name: group[name], path, app)
    parsed = command.assemble_argument_collection(parse_docstring=False)
    return {name for argument in parsed for name in argument.names}


def test_the_docs_explain_every_exit_code_as_the_command_does() -> None:
    """Scripts rely on them."""
    explained = _text(DOCS / "command.md")
    rows = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    assert [row for row in rows if row not in explained] == []


def test_the_harness_in_the_readme_is_the_one_in_the_examples() -> None:
    """What people copy is what the next test runs: each definition as it stands there."""
    shown = re.search(r"^```python\n(.*?)^```", _text(README), re.MULTILINE | re.DOTALL)
    assert shown is not None
    parts = shown.group(1).strip().split("\n\n\n")
    assert len(parts) >= 3
    assert [part for part in parts if f"\n{part}\n" not in _text(POSTMAN)] == []


def test_the_demo_in_the_readme_says_what_the_demo_says() -> None:
    """The numbers differ from run to run; the sentences do not."""
    shown = re.search(
        r"^```text\n(An agent.*?)^```", _text(README), re.MULTILINE | re.DOTALL
    )
    assert shown is not None
    story = _text(ROOT / "examples" / "demo" / "story.py")
    headings = re.findall(r"^[A-Z][^(\n]{12,}$", shown.group(1), re.MULTILINE)
    assert len(headings) >= 3
    assert [heading for heading in headings if heading not in story] == []


@pytest.mark.crash
@pytest.mark.parametrize(
    "crash_at",
    ["CP_TOOL_AFTER_START:1", "CP_TOOL_AFTER_EFFECT:1", "CP_APPEND_AFTER_COMMIT:9"],
    ids=["begun", "done", "its turn has ended"],
)
def test_the_harness_of_the_readme_sends_one_mail_though_it_is_killed(
    tmp_path: Path, crash_at: str
) -> None:
    """The promise of the page: killed at the worst moment, resumed, one mail."""
    first = _postman(tmp_path, {"FOLDLINE_CRASH_AT": crash_at})
    assert first.returncode == -signal.SIGKILL
    session_id = first.stdout.strip()
    second = _postman(tmp_path, {}, session_id)
    assert (second.returncode, second.stderr) == (0, "")
    assert len((tmp_path / "sent-mails.txt").read_text().splitlines()) == 1
    log = open_log(f"sqlite:///{tmp_path}/sessions.db")
    try:
        state = log.state(session_id)
    finally:
        log.close()
    assert state is not None
    assert (state.status, state.epoch) == ("COMPLETED", 2)


def _postman(
    folder: Path, environment: dict[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    url = f"sqlite:///{folder}/sessions.db"
    return subprocess.run(
        [sys.executable, str(POSTMAN), *arguments],
        cwd=folder,
        env=os.environ | {"FOLDLINE_URL": url, "FOLDLINE_START_BY_MS": "800"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_python_in_the_docs_compiles() -> None:
    """A snippet with a slip in it is not copied twice."""
    for path in TEXTS:
        for block in re.findall(
            r"^```python\n(.*?)^```", _text(path), re.MULTILINE | re.DOTALL
        ):
            compile(block, _name(path), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_every_setting_in_the_texts_exists_and_every_setting_is_explained() -> None:
    """An operator finds each in the docs, and each that the docs name works."""
    settings = {f"FOLDLINE_{name.upper()}" for name in Settings.model_fields}
    of_tests = inspect.getsource(faults) + inspect.getsource(backends)
    known = settings | {DEBUG} | set(_ENVIRONMENT.findall(of_tests))
    named = {
        name.partition("__")[0]  # what follows is a key within the setting
        for path in TEXTS
        for name in _ENVIRONMENT.findall(_text(path))
    }
    assert named - known == set()
    assert settings - named == set()


def test_the_tree_of_errors_names_each_of_them_below_what_it_is_a_kind_of() -> None:
    """The first lines of the file are where people look an error up."""
    drawn: dict[str, str] = {"FoldlineError": "Exception"}
    above = ["FoldlineError"]
    rows = re.findall(
        r"^((?:│   |    )*)[├└]── *(\w+) +\S", errors.__doc__ or "", re.MULTILINE
    )
    for indent, name in rows:
        del above[len(indent) // 4 + 1 :]
        drawn[name] = above[-1]
        above.append(name)
    there = {
        name: error.__bases__[0].__name__
        for name, error in vars(errors).items()
        if inspect.isclass(error) and issubclass(error, errors.FoldlineError)
    }
    assert drawn == there


def test_operations_names_every_error_with_an_operator_action() -> None:
    """Whoever is on call searches for the error's name."""
    operations = _text(DOCS / "operations.md")
    acted_on = [
        name
        for name, error in vars(errors).items()
        if inspect.isclass(error) and "Operator action" in (error.__doc__ or "")
    ]
    assert acted_on
    assert [name for name in acted_on if f"`{name}`" not in operations] == []


def test_every_error_in_the_texts_exists() -> None:
    """An error that was renamed is not found by its old name."""
    named = {
        name
        for path in TEXTS
        for name in re.findall(r"`([A-Z][A-Za-z]+Error)`", _text(path))
    }
    public = {*homes(), *vars(errors), *vars(faults)}
    assert named - public == set()


def test_every_verdict_of_admission_is_in_the_design() -> None:
    """The table of the order of checks is complete."""
    design = _text(DOCS / "design.md")
    assert [kind for kind in VERDICT_KINDS if kind not in design] == []


def test_every_rule_that_the_texts_name_exists() -> None:
    """Rules are quoted as ILLEGAL(name), or in decisions as a list of their names."""
    named = {
        rule
        for path in TEXTS
        for rule in re.findall(r"ILLEGAL\(([a-z_]+)\)", _text(path))
        if rule != "rule"
    }
    assert named - set(RULES) == set()


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ("resend window", f"{WINDOW} events"),
        ("finished calls in the state", str(FINISHED_KEPT)),
        ("grants", str(LIMITS["grants"])),
        ("attempts of one call", str(LIMITS["attempts"])),
        ("instructions (roles)", str(LIMITS["instructions"])),
        ("open calls, subagents", f"{LIMITS['open_calls']} each"),
        ("appends under way per session", str(Settings().inflight_max)),
        ("appends in one transaction", str(Settings().batch_max)),
        ("appends in one transaction of a worker", f"{Settings().worker_batch_max:,}"),
        ("resends of one append", str(Settings().resend_max)),
    ],
)
def test_the_table_of_limits_has_the_values_of_the_code(row: str, value: str) -> None:
    """A limit in the docs that is not the limit is worse than none."""
    assert f"| {row} | {value} |" in _text(DOCS / "design.md")


def test_the_version_has_a_section_in_the_changelog() -> None:
    """Users look for the version that they have."""
    project = tomllib.loads(_text(ROOT / "pyproject.toml"))["project"]
    assert f"\n## {project['version']}" in _text(ROOT / "CHANGELOG.md")
