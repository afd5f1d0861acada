"""Registering the frozen schemas, in a deployment: never from a producer or a worker.

Each subject is FULL_TRANSITIVE, and holds every frozen version of its record, in order.
Registering again changes nothing.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from foldline.errors import SchemaError
from foldline.schemas.compat import Problem
from foldline.schemas.frozen import FOLDER, names_in, versions_of
from foldline.schemas.registry_client import (
    RegistryClient,
    avro,
    frozen_text,
    is_absent,
    subjects_of,
)

LEVEL = "FULL_TRANSITIVE"

Row = TypeVar("Row")

AT_ONCE = 8
"""How many subjects are registered or looked at at the same time."""


@dataclass(frozen=True, slots=True)
class Registered:
    """One version of a record under one subject."""

    subject: str
    name: str
    version: int
    schema_id: int
    new: bool


def register(registry: RegistryClient) -> list[Registered]:
    """Register every frozen version of every record under each of its subjects.

    Raises:
        SchemaError: the registry refuses one; it names the subject and says why.
        RegistryUnavailableError: the registry gives no answer.
    """
    return _each(_register, registry)


def check_registered(registry: RegistryClient) -> list[Problem]:
    """Where the registry differs from what is frozen, or would not take it.

    Raises:
        RegistryUnavailableError: the registry gives no answer.
    """
    return _each(_check, registry)


def _each(
    one: Callable[[RegistryClient, str, str], list[Row]], registry: RegistryClient
) -> list[Row]:
    """Do one thing for every subject, several at once; in the order of the subjects."""
    subjects = [
        (name, subject)
        for name in sorted(names_in(FOLDER))
        for subject in subjects_of(name, registry.names)
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [pool.submit(one, registry, *pair) for pair in subjects]
        return [row for future in futures for row in future.result()]


def _register(registry: RegistryClient, name: str, subject: str) -> list[Registered]:
    """The versions of one subject, in order.

    1. A new subject has no level to set before its first version is there.
    2. From the second on, the registry itself refuses what is not compatible.
    """
    rows: list[Registered] = []
    levelled = level_of(registry, subject) == LEVEL
    for version in versions_of(FOLDER, name):
        text = frozen_text(name, version)
        known = id_under(registry, subject, text)
        schema_id = _put(registry, name, subject, text) if known is None else known
        rows.append(Registered(subject, name, version, schema_id, known is None))
        if not levelled:
            with registry.asking():
                registry.rest.set_compatibility(subject, LEVEL)
            levelled = True
    return rows


def _put(registry: RegistryClient, name: str, subject: str, text: str) -> int:
    from confluent_kafka.schema_registry import SchemaRegistryError  # late: with the client

    try:
        with registry.asking():
            return registry.rest.register_schema(subject, avro(text))
    except SchemaRegistryError as error:
        raise SchemaError(name, [f"{subject} refuses it: {error.error_message}"]) from error


def _check(registry: RegistryClient, name: str, subject: str) -> list[Problem]:
    level = level_of(registry, subject)
    versions = versions_of(FOLDER, name)
    missing = [
        version
        for version in versions
        if id_under(registry, subject, frozen_text(name, version)) is None
    ]
    problems = [
        Problem(name, "", f"v{version} is not registered under {subject}")
        for version in missing
    ]
    if level is not None and level != LEVEL:
        problems.append(Problem(name, "", f"{subject} is {level}, must be {LEVEL}"))
    if level is not None and missing:
        problems += _refusals(registry, name, subject, frozen_text(name, versions[-1]))
    return problems


def _refusals(
    registry: RegistryClient, name: str, subject: str, text: str
) -> list[Problem]:
    """What the registry has against a candidate, in its own words."""
    return [
        Problem(name, field, f"{subject}: {reason}")
        for field, reason in refusals(registry, subject, text)
    ]


def refusals(registry: RegistryClient, subject: str, text: str) -> list[tuple[str, str]]:
    """Why a candidate is not compatible with every version of a subject: field, reason.

    Raises:
        RegistryUnavailableError: the registry gives no answer.
    """
    with registry.asking():
        rest: Any = registry.rest
        # The client's own method leaves out what the registry says.
        answer = rest._rest_client.post(  # noqa: SLF001
            f"compatibility/subjects/{subject}/versions?verbose=true",
            body=avro(text).to_dict(),
        )
    if answer["is_compatible"]:
        return []
    return [("", str(m)) for m in answer.get("messages") or ["not compatible"]]


def level_of(registry: RegistryClient, subject: str) -> str | None:
    """The subject's own level of compatibility, or the registry's; None: no subject."""
    from confluent_kafka.schema_registry import SchemaRegistryError  # late: with the client

    try:
        with registry.asking():
            return registry.rest.get_compatibility(subject)
    except SchemaRegistryError as error:
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
