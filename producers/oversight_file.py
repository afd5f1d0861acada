"""Rules of policies from a file.

A file of policies is TOML:

    policy = "house"                # the name of the set, in every violation

    [[rule]]
    name = "spend"                  # unique; its findings are recorded under it
    kind = "budget"
    tokens = 2_000_000              # also output_tokens, cost and currency, turns,
    minutes = 90                    # model_calls, tool_calls, turn_minutes
    action = "cancel"               # none, steer or cancel
    target = "turn"                 # what cancel stops: session, turn or call

    [[rule]]
    name = "no-production"
    kind = "forbidden-tool"
    tools = ["deploy*", "prod/*"]   # globs of names, or of namespace/name
    exceptions = ["deploy_preview"]

    [[rule]]
    name = "stubborn"
    kind = "repeated-denial"
    times = 3
    any_call = false

    [[rule]]
    name = "loops"
    kind = "loop"
    times = 4
    kinds = ["SAME_*"]
    detect = true                   # by itself; without it, what a detector recorded
    action = "steer"
    message = "Stop, and ask a person."     # in the place of the rule's own words

    [[rule]]
    name = "mine"
    use = "my_rules:judge"          # a function (seen, recorded) -> events, or a Policy
    options = { }                   # given to it first, where there are any

A rule that is changed so that it means something else gets a higher `version`.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

from foldline.errors import SettingsError
from foldline.projections.oversight import SEVERITIES, Action, Policy, Rule
from foldline.projections.oversight_rules import (
    Budget,
    ForbiddenTool,
    Limits,
    Loop,
    Reaction,
    RepeatedDenial,
)
from foldline.schemas.choices import CancelTarget, SteeringMode

Load = Callable[[str], Any]
"""Gives what `module:attribute` names."""

DEFAULT_POLICY = "default"

TEXT_MAX = 4_000
"""The longest text in a rule, in characters: a message is told in every event it wants."""

VERSION_MAX = 2**31 - 1
"""The highest version of a rule: an event has no room for a higher one."""

_NAME = re.compile(r"[a-z0-9-]{1,40}")
_WORDS: Mapping[str, tuple[str, ...]] = {
    "action": get_args(Action),
    "target": get_args(CancelTarget),
    "severity": SEVERITIES,
    "mode": get_args(SteeringMode),
}
"""What those fields of a reaction may be, in small letters too."""

_WANTED: Mapping[type, str] = {
    tuple: "{} is a list of texts",
    bool: "{} is true or false",
    str: "{} is a text",
    float: "{} is a number from {} on",
    int: "{} is a whole number from {} on",
}
"""What a field of each type wants."""

_LEAST: Mapping[type, int] = {RepeatedDenial: 1, Loop: 2}
"""The least `times` with which a rule means something: once is no loop; else 0."""

_REACTION = frozenset(f.name for f in fields(Reaction))
_LIMITS = frozenset(f.name for f in fields(Limits))
_GENERAL = frozenset({"name", "kind", "version", "policy", "content", "reaction", "limits"})
_KINDS: Mapping[str, type[ForbiddenTool] | type[RepeatedDenial] | type[Loop]] = {
    "forbidden-tool": ForbiddenTool,
    "repeated-denial": RepeatedDenial,
    "loop": Loop,
}
KINDS = ("budget", *_KINDS)
"""The kinds of rules that foldline has."""


def read_policies(path: Path, *, load: Load) -> tuple[Policy, ...]:
    """The rules of a file, in its order.

    Args:
        path: the file.
        load: gives what a rule's `use` names.

    Raises:
        SettingsError: the file cannot be read, or something in it means nothing.
    """
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # no text, no TOML, or too deep
        raise SettingsError("policies", str(path), str(error)) from error
    problem = _problem_of_file(said)
    if problem:
        raise SettingsError("policies", str(path), problem)
    policy = str(said.get("policy", DEFAULT_POLICY))
    return tuple(
        rule_of(entry, policy=policy, load=load, where=str(path))
        for entry in cast("list[dict[str, Any]]", said["rule"])
    )


def _problem_of_file(said: dict[str, Any]) -> str:
    unknown = sorted(set(said) - {"policy", "rule"})
    if unknown:
        return f"{unknown[0]!r} means nothing here"
    entries: Any = said.get("rule")
    if not isinstance(entries, list) or not entries:
        return "it has no rule: write [[rule]]"
    rules = cast("list[Any]", entries)
    if not all(isinstance(entry, dict) for entry in rules):
        return "rule is no list of tables: write [[rule]]"
    names = [str(cast("dict[str, Any]", entry).get("name", "")) for entry in rules]
    twice = sorted({name for name in names if names.count(name) > 1})
    return f"two rules are called {twice[0]!r}" if twice else ""


class _MeaninglessError(ValueError):
    """Says what of a rule means nothing."""


def rule_of(entry: Mapping[str, Any], *, policy: str, load: Load, where: str) -> Policy:
    """A rule by what is said of it.

    Args:
        entry: its fields, as in a file.
        policy: the set that it belongs to.
        load: gives what `use` names.
        where: for the message.

    Raises:
        SettingsError: something in it means nothing.
    """
    name = str(entry.get("name", ""))
    try:
        if "use" in entry:
            return _user_rule(_checked(name), entry, policy, load)
        return _own_rule(_checked(name), dict(entry), policy)
    except _MeaninglessError as error:
        raise SettingsError("policies", where, f"rule {name!r}: {error}") from error


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        problem = "its name is not of a-z, 0-9 and -, at most 40 characters"
        raise _MeaninglessError(problem)
    return name


# --- rules of users ------------------------------------------------------------------


def _user_rule(name: str, entry: Mapping[str, Any], policy: str, load: Load) -> Policy:
    _refuse_others(entry, {"name", "use", "version", "content", "options"})
    found = load(str(entry["use"]))
    options: Any = entry.get("options")
    if options is not None:
        found = _made(found, options)
    if isinstance(found, type) or not callable(getattr(found, "judge", found)):
        problem = f"{entry['use']} is no function (seen, recorded), and has no `judge`"
        raise _MeaninglessError(problem)
    content = entry.get("content", getattr(found, "content", False))
    if not isinstance(content, bool):
        raise _MeaninglessError(_WANTED[bool].format("content"))
    return Rule(
        name,
        getattr(found, "judge", found),
        version=_number(entry.get("version", getattr(found, "version", 1))),
        content=content,
        policy=policy,
        made_of=json.dumps([entry["use"], options], default=str, sort_keys=True),
    )


def _made(maker: Any, options: object) -> Any:
    """What a maker of rules makes of its options."""
    if not isinstance(options, dict):
        problem = "options is no table"
        raise _MeaninglessError(problem)
    try:
        return maker(**cast("dict[str, Any]", options))
    except (TypeError, ValueError) as error:
        raise _MeaninglessError(str(error)) from error


def _number(value: object) -> int:
    whole = not isinstance(value, bool)
    if whole and isinstance(value, int) and 1 <= value <= VERSION_MAX:
        return value
    problem = f"version is a number from 1 on, to {VERSION_MAX}"
    raise _MeaninglessError(problem)


# --- our own rules -------------------------------------------------------------------


def _own_rule(name: str, entry: dict[str, Any], policy: str) -> Policy:
    kind = entry.get("kind")
    version = _number(entry.get("version", 1))
    reaction = _reaction({key: entry.pop(key) for key in _REACTION & entry.keys()})
    if kind == "budget":
        return Budget(name, _limits(entry), reaction, version, policy=policy)
    made = _KINDS.get(str(kind))
    if made is None:
        problem = f"kind is one of {', '.join(KINDS)}; or `use` names your own"
        raise _MeaninglessError(problem)
    own = {f.name: f for f in fields(made) if f.name not in _GENERAL}
    _refuse_others(entry, {"name", "kind", "version", *own})
    missing = [n for n, f in own.items() if f.default is MISSING and n not in entry]
    if missing:
        problem = f"it has no {missing[0]}"
        raise _MeaninglessError(problem)
    least = _LEAST.get(made, 0)
    given = {n: _value(f, entry[n], least=least) for n, f in own.items() if n in entry}
    rule = made(name=name, version=version, policy=policy, **given)
    return replace(rule, reaction=reaction)


def _limits(entry: Mapping[str, Any]) -> Limits:
    _refuse_others(entry, {"name", "kind", "version", *_LIMITS})
    given = {f.name: _value(f, entry[f.name]) for f in fields(Limits) if f.name in entry}
    if not given.keys() - {"currency"}:
        problem = "a budget has a limit: tokens, cost, turns, minutes, ..."
        raise _MeaninglessError(problem)
    return Limits(**given)


def _reaction(said: dict[str, Any]) -> Reaction:
    given = {f.name: _value(f, said[f.name]) for f in fields(Reaction) if f.name in said}
    for name, allowed in _WORDS.items():
        if name in given:
            given[name] = str(given[name]).upper().replace("-", "_")
            if given[name] not in allowed:
                problem = f"{name} is one of {', '.join(allowed).lower()}"
                raise _MeaninglessError(problem)
    return Reaction(**given)


def _refuse_others(entry: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(entry.keys() - known)
    if unknown:
        problem = f"{unknown[0]!r} means nothing here"
        raise _MeaninglessError(problem)


def _value(field: Field[Any], value: Any, *, least: int = 0) -> Any:
    """A value of a field's type; a number is not below `least`."""
    if get_origin(field.type) is tuple:
        listed: Any = [value] if isinstance(value, str) else value
        texts = cast("list[object]", listed) if isinstance(listed, list) else []
        if texts and all(isinstance(text, str) for text in texts):
            return tuple(texts)
        raise _MeaninglessError(_WANTED[tuple].format(field.name))
    is_word = get_origin(field.type) is Literal
    kinds = (str,) if is_word else get_args(field.type) or (field.type,)
    kind = next(k for k in (bool, str, float, int) if k in kinds)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind in (int, float):
        fits = is_number and value >= least and (kind is float or isinstance(value, int))
    else:
        fits = isinstance(value, kind)
    if not fits:
        raise _MeaninglessError(_WANTED[kind].format(field.name, least))
    if isinstance(value, str) and len(value) > TEXT_MAX:
        problem = f"{field.name} has {len(value)} characters, and may have {TEXT_MAX}"
        raise _MeaninglessError(problem)
    return value
