"""Registering the frozen schemas, in a deployment: never from a producer or a worker.

Each subject is FULL_TRANSITIVE, and holds every frozen version of its record, in order.
Registering again changes nothing.
"""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from foldline.errors import SchemaError
from foldline.schemas.compat import Problem, broken_between
from foldline.schemas.frozen import FOLDER, names_in, versions_of
from foldline.schemas.registry_client import (
    AT_ONCE,
    RegistryClient,
    avro,
    frozen_text,
    is_absent,
    subjects_of,
)

LEVEL = "FULL_TRANSITIVE"

_NO_LEVEL = 40408

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Registered:
    """One version of a record under one subject; `new`: it was not there before."""

    subject: str
    name: str
    version: int
    schema_id: int
    new: bool


def register(registry: RegistryClient, *, folder: Path = FOLDER) -> list[Registered]:
    """Register every frozen version of every record under each of its subjects.

    Raises:
        SchemaError: the registry refuses one; it names the subject and says why.
        RegistryUnavailableError: the registry gives no answer.
    """

    def one(name: str, subject: str) -> list[Registered]:
        return _register(registry, folder, name, subject)

    return _each(one, registry, folder)


def check_registered(registry: RegistryClient, *, folder: Path = FOLDER) -> list[Problem]:
    """What is frozen and not registered, and why the registry would not take it.

    Raises:
        RegistryUnavailableError: the registry gives no answer.
    """

    def one(name: str, subject: str) -> list[Problem]:
        return _check(registry, folder, name, subject)

    return _each(one, registry, folder)


def _each(
    one: Callable[[str, str], list[Row]], registry: RegistryClient, folder: Path
) -> list[Row]:
    """Do one thing for every subject, several at once; in the order of the subjects."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [
            pool.submit(one, name, subject)
            for name in sorted(names_in(folder))
            for subject in subjects_of(name, registry.names)
        ]
        return [row for future in futures for row in future.result()]


def _register(
    registry: RegistryClient, folder: Path, name: str, subject: str
) -> list[Registered]:
    """The versions of one subject, in order.

    1. A new subject has no level to set before its first version is there.
    2. From the second on, the registry itself refuses what is not compatible.
    """
    rows: list[Registered] = []
    levelled = level_of(registry, subject) == LEVEL
    for version in versions_of(folder, name):
        text = frozen_text(name, version, folder=folder)
        known = id_under(registry, subject, text)
        schema_id = _put(registry, name, subject, text) if known is None else known
        rows.append(Registered(subject, name, version, schema_id, known is None))
        if not levelled:
            _set_level(registry, name, subject)
            levelled = True
    return rows


def _set_level(registry: RegistryClient, name: str, subject: str) -> None:
    """Set it; where another one does at the same time, one of the two is told off."""
    from confluent_kafka.schema_registry import SchemaRegistryError  # late: with the client

    try:
        with registry.asking():
            registry.rest.set_compatibility(subject, LEVEL)
    except SchemaRegistryError as error:
        if level_of(registry, subject) != LEVEL:
            reason = f"{subject} cannot be made {LEVEL}: {error.error_message}"
            raise SchemaError(name, [reason]) from error


def _put(registry: RegistryClient, name: str, subject: str, text: str) -> int:
    from confluent_kafka.schema_registry import SchemaRegistryError  # late: with the client

    try:
        with registry.asking():
            return registry.rest.register_schema(subject, avro(text))
    except SchemaRegistryError as error:
        raise SchemaError(name, [f"{subject} refuses it: {error.error_message}"]) from error


def _check(
    registry: RegistryClient, folder: Path, name: str, subject: str
) -> list[Problem]:
    level = level_of(registry, subject)
    if level is None:
        return [Problem(name, "", f"{subject} is not registered")]
    problems: list[Problem] = []
    if level != LEVEL:
        problems.append(
            Problem(name, "", f"{subject} is {level or 'not set'}, must be {LEVEL}")
        )
    for version in versions_of(folder, name):
        text = frozen_text(name, version, folder=folder)
        if id_under(registry, subject, text) is None:
            missing = f"v{version} is not registered under {subject}"
            problems.append(Problem(name, "", missing))
            problems += refusals(registry, name, subject, text)
    return problems


def refusals(registry: RegistryClient, name: str, subject: str, text: str) -> list[Problem]:
    """Why the registry would refuse a candidate; none if it would take it.

    The registry decides. It seldom names a field, so our own comparison with what it
    holds does.

    Raises:
        RegistryUnavailableError: the registry gives no answer.
    """
    with registry.asking():
        if registry.rest.test_compatibility_all_versions(subject, avro(text)):
            return []
    found: list[Problem] = []
    for number, old in _versions(registry, subject):
        one = f"version {number} of {subject}"
        found += broken_between(name, json.loads(old), json.loads(text), one, "this")
    return found or [Problem(name, "", f"{subject} would refuse it")]


def _versions(registry: RegistryClient, subject: str) -> list[tuple[int, str]]:
    with registry.asking():
        numbers = registry.rest.get_versions(subject)
        versions = [(n, registry.rest.get_version(subject, n)) for n in numbers]
    return [(number, found.schema.schema_str or "{}") for number, found in versions]


def level_of(registry: RegistryClient, subject: str) -> str | None:
    """The subject's level of compatibility; empty: not its own; None: no such subject."""
    from confluent_kafka.schema_registry import SchemaRegistryError  # late: with the client

    try:
        with registry.asking():
            return registry.rest.get_compatibility(subject)
    except SchemaRegistryError as error:
        if error.error_code == _NO_LEVEL:
            return ""
        if is_absent(error):
            return None
        raise


def id_under(registry: RegistryClient, subject: str, text: str) -> int | None:
    """The id of a text under a subject; None where it is not registered there."""
    from confluent_kafka.schema_registry import SchemaRegistryError  # late: with the client

    try:
        with registry.asking():
            return registry.rest.lookup_schema(subject, avro(text)).schema_id
    except SchemaRegistryError as error:
        if is_absent(error):
            return None
        raise
