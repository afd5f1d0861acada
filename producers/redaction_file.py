"""Rules and known values from a file, for who uses redaction without writing Python.

A file of rules is TOML:

    pii = true                      # also what is personal: e-mail, IBAN, cards, ...

    [[rule]]
    name = "acme-token"             # goes into the placeholder
    anchors = ["acme_"]             # literals with one of which it begins
    pattern = "acme_[a-z0-9]{20,40}"   # of which a group `s`, if any, is replaced

    [[value]]
    name = "database"
    env = "DATABASE_PASSWORD"       # the variable that holds it; the file holds no secret

A pattern that some text could make slow is refused (`foldline.producers.redaction_bounds`):
every repetition has an upper bound, and together they leave few ways to try a text.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from foldline.errors import SettingsError
from foldline.producers.redaction_bounds import slow_in
from foldline.producers.redaction_engines import Finds
from foldline.producers.redaction_key import key_of_log
from foldline.producers.redaction_pii import PII_RULES
from foldline.producers.redaction_rule import Rule
from foldline.producers.redaction_rules import DEFAULT_RULES

if TYPE_CHECKING:
    from foldline.producers.redaction import Redactor

SETTING = "FOLDLINE_REDACTION_RULES"

ANCHOR_MIN = 2
"""Shorter anchors, in characters, stand everywhere and select nothing."""

_NAME = re.compile(r"[a-z0-9-]{1,40}")


@dataclass(frozen=True, slots=True)
class RuleFile:
    """What a file says: all rules, the default ones included, and known values by name.

    `unset` are values that cannot be looked for: by name, the variable that holds nothing.
    """

    rules: tuple[Rule, ...]
    values: Mapping[str, str]
    unset: Mapping[str, str] = field(default_factory=dict[str, str])


def read_rules(path: Path) -> RuleFile:
    """The rules of a file before the default ones, and the values that it names.

    Raises:
        SettingsError: the file cannot be read, or something in it means nothing.
    """
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(SETTING, str(path), str(error)) from error
    unknown = sorted(set(said) - {"pii", "rule", "value"})
    if unknown:
        raise SettingsError(SETTING, str(path), f"{unknown[0]!r} means nothing here")
    own = tuple(_rule(path, entry) for entry in _entries(path, said, "rule"))
    personal = PII_RULES if _is_true(path, "pii", said.get("pii", False)) else ()
    variables = dict(_variables(path, said))
    values = {name: os.environ.get(variable, "") for name, variable in variables.items()}
    return RuleFile(
        (*own, *DEFAULT_RULES, *personal),
        {name: value for name, value in values.items() if value},
        {name: variables[name] for name, value in values.items() if not value},
    )


def redactor_for(url: str, rules: Path | None) -> "Redactor":
    """What takes secrets out of all that is recorded in a log, by a file of rules.

    Raises:
        SettingsError: the file cannot be read, or something in it means nothing.
        RedactionError: the log's key cannot be read, or a value is too short.
    """
    return redactor_with(rules, key=key_of_log(url))


def redactor_with(
    rules: Path | None, *, key: bytes | None = None, engines: Sequence[Finds] = ()
) -> "Redactor":
    """What takes secrets out by a file of rules; by the default ones without a file.

    Raises:
        SettingsError: the file cannot be read, or something in it means nothing.
        RedactionError: a value is too short.
    """
    from foldline.producers.redaction import Redactor  # late: hooks read only the rules

    if rules is None:
        return Redactor(key, engines=engines)
    file = read_rules(rules)
    redactor = Redactor(key, file.rules, engines=engines)
    for name, value in file.values.items():
        redactor.register(value, name)
    return redactor


def _entries(path: Path, said: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    entries: Any = said.get(kind, [])
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) for entry in cast("list[Any]", entries)
    ):
        raise SettingsError(
            SETTING, str(path), f"{kind} is no list of tables: write [[{kind}]]"
        )
    return cast("list[dict[str, Any]]", entries)


def _is_true(path: Path, key: str, value: object) -> bool:
    """What a switch says; a word is neither true nor false."""
    if isinstance(value, bool):
        return value
    wanted = f"{key} is neither true nor false (without quotes)"
    raise SettingsError(SETTING, str(path), wanted)


def _rule(path: Path, entry: dict[str, Any]) -> Rule:
    name = str(entry.get("name", ""))
    problem = _problem(entry, name)
    if problem:
        raise SettingsError(SETTING, str(path), f"rule {name!r}: {problem}")
    exact = _is_true(path, "exact_case", entry.get("exact_case", True))
    pattern = str(entry["pattern"])
    try:
        compiled = re.compile(
            pattern if "(?P<s>" in pattern else f"(?P<s>{pattern})",
            re.NOFLAG if exact else re.IGNORECASE,
        )
        slow = slow_in(pattern)
    except re.error as error:
        raise SettingsError(
            SETTING, str(path), f"rule {name!r}: its pattern: {error}"
        ) from error
    if slow:
        raise SettingsError(SETTING, str(path), f"rule {name!r}: {slow}")
    anchors = tuple(anchor if exact else anchor.lower() for anchor in entry["anchors"])
    return Rule(name, anchors, compiled, exact_case=exact)


def _problem(entry: dict[str, Any], name: str) -> str:
    """What is wrong with a rule; empty for nothing."""
    unknown = sorted(set(entry) - {"name", "anchors", "pattern", "exact_case"})
    if unknown:
        return f"{unknown[0]!r} means nothing here"
    if not _NAME.fullmatch(name):
        return "its name is not of a-z, 0-9 and -, at most 40 characters"
    anchors: Any = entry.get("anchors")
    if not isinstance(anchors, list) or not anchors:
        return "it has no anchors"
    if any(len(str(anchor)) < ANCHOR_MIN for anchor in cast("list[Any]", anchors)):
        return f"an anchor is shorter than {ANCHOR_MIN} characters"
    if not isinstance(entry.get("pattern"), str):
        return "it has no pattern"
    return ""


def _variables(path: Path, said: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for entry in _entries(path, said, "value"):
        name, variable = entry.get("name"), entry.get("env")
        if not isinstance(name, str) or not isinstance(variable, str):
            raise SettingsError(
                SETTING, str(path), "a value has a `name`, and `env` that holds it"
            )
        yield name, variable
