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

Every repetition in a pattern has an upper bound, so that no text can make it slow.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from foldline.errors import SettingsError
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
_UNBOUNDED = re.compile(r"(?<![}?(])[*+](?!\+)|\{\d+,\}")


@dataclass(frozen=True, slots=True)
class RuleFile:
    """What a file says: all rules, the default ones included, and known values by name."""

    rules: tuple[Rule, ...]
    values: Mapping[str, str]


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
    personal = PII_RULES if said.get("pii") is True else ()
    return RuleFile((*own, *DEFAULT_RULES, *personal), dict(_values(path, said)))


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


def _rule(path: Path, entry: dict[str, Any]) -> Rule:
    name = str(entry.get("name", ""))
    problem = _problem(entry, name)
    if problem:
        raise SettingsError(SETTING, str(path), f"rule {name!r}: {problem}")
    exact = bool(entry.get("exact_case", True))
    pattern = str(entry["pattern"])
    try:
        compiled = re.compile(
            pattern if "(?P<s>" in pattern else f"(?P<s>{pattern})",
            re.NOFLAG if exact else re.IGNORECASE,
        )
    except re.error as error:
        raise SettingsError(
            SETTING, str(path), f"rule {name!r}: its pattern: {error}"
        ) from error
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
    if unbounded_in(entry["pattern"]):
        return "a repetition in its pattern has no upper bound: write {0,200} for *"
    return ""


def unbounded_in(pattern: str) -> list[str]:
    """The repetitions of a pattern that have no upper bound."""
    escaped = re.sub(r"\\.", "", pattern)
    return _UNBOUNDED.findall(re.sub(r"\[\^?\]?[^\]]*\]", "c", escaped))


def _values(path: Path, said: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for entry in _entries(path, said, "value"):
        name, variable = entry.get("name"), entry.get("env")
        if not isinstance(name, str) or not isinstance(variable, str):
            raise SettingsError(
                SETTING, str(path), "a value has a `name`, and `env` that holds it"
            )
        if value := os.environ.get(variable, ""):
            yield name, value
