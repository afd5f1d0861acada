"""The gate: whether the schemas may be published as they are. It says field and reason.

1. No frozen file was edited, lost, or left out of the ledger; versions have no gap.
2. Every model matches its newest frozen version.
3. Every schema has the shape that the codec needs (`foldline.schemas.shape`).
4. Of all versions of a record each reads what each other wrote: FULL_TRANSITIVE, by
   Apache Avro's own checker, and nothing changed its meaning
   (`foldline.schemas.changes`).
"""

import functools
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityType,
)
from avro.schema import parse

from foldline.errors import SchemaError
from foldline.schemas.avsc import without_docs
from foldline.schemas.changes import changes
from foldline.schemas.frozen import (
    FOLDER,
    LEDGER,
    NO_EVENTS,
    AvroSchema,
    ledger,
    load,
    modelled,
    names_in,
    path_of,
    sha256_of,
    versions_of,
)
from foldline.schemas.shape import misshapen
from foldline.schemas.upcasters import UPCASTERS


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why the schemas may not be published.

    `name` is the record, or the frozen file; `field` the path of the field, empty where
    it is about the whole.
    """

    name: str
    field: str
    reason: str


def check(
    folder: Path | None = None, *, models: dict[str, AvroSchema] | None = None
) -> list[Problem]:
    """Every reason why the schemas may not be published; none if they may.

    Args:
        folder: where the frozen ones are kept; default: foldline's own.
        models: the schemas by name; default: those of the models.
    """
    folder = folder or FOLDER
    models = modelled() if models is None else models
    problems = tampered(folder)
    for name in sorted(models.keys() | names_in(folder)):
        try:
            problems += _record(folder, name, models.get(name))
        except SchemaError as error:
            problems += [Problem(error.name, "", reason) for reason in error.problems]
    return problems


def tampered(folder: Path) -> list[Problem]:
    """Files that are not as they were frozen."""
    written = ledger(folder)
    there = {path.relative_to(folder).as_posix(): path for path in folder.glob("*/*.avsc")}
    problems = [
        Problem(name, "", f"it is in {LEDGER}, but the file is gone")
        for name in sorted(written.keys() - there.keys())
    ]
    for name, path in sorted(there.items()):
        if name not in written:
            problems.append(Problem(name, "", f"it is not in {LEDGER}: was it frozen?"))
        elif written[name] != sha256_of(path):
            problems.append(Problem(name, "", "the frozen file was edited"))
    return problems


def _record(folder: Path, name: str, model: AvroSchema | None) -> Iterator[Problem]:
    versions = versions_of(folder, name)
    if versions != list(range(1, len(versions) + 1)):
        yield Problem(name, "", f"there is a gap in its versions {versions}")
    schemas = [(f"v{v}", load(path_of(folder, name, v))) for v in versions]
    if model is None:
        if name not in UPCASTERS:
            yield Problem(name, "", "it has neither a model nor an upcaster any more")
    elif not schemas:
        yield Problem(name, "", "it was never frozen: run `foldline schemas freeze`")
    elif without_docs(schemas[-1][1]) != without_docs(model):
        newest = schemas[-1][0]
        yield Problem(
            name, "", f"the model differs from {newest}: run `foldline schemas freeze`"
        )
    if model is not None and not _is_newest(schemas, model):
        schemas.append(("the model", model))
    for _, schema in schemas:
        yield from broken_shape(name, schema)
    for (one, old), (two, new) in itertools.combinations(schemas, 2):
        yield from broken_between(name, old, new, one, two)


def _is_newest(schemas: list[tuple[str, AvroSchema]], model: AvroSchema) -> bool:
    return bool(schemas) and without_docs(schemas[-1][1]) == without_docs(model)


def broken_shape(name: str, schema: AvroSchema) -> list[Problem]:
    """The places where a schema has not the shape that the codec needs."""
    is_event = name not in NO_EVENTS
    found = misshapen(schema, is_event=is_event)
    return [Problem(name, field, reason) for field, reason in found]


def broken_between(
    name: str, old: AvroSchema, new: AvroSchema, one: str, two: str
) -> list[Problem]:
    """Why two versions are not FULL: by our rules, and by Avro's in both directions."""
    found = [
        Problem(name, field, f"{reason} (from {one} to {two})")
        for field, reason in changes(old, new)
    ]
    for reader, writer, said in (
        (old, new, f"{one} cannot read {two}"),
        (new, old, f"{two} cannot read {one}"),
    ):
        found += [
            Problem(name, field, f"{said}: {reason}")
            for field, reason in _unreadable(json.dumps(reader), json.dumps(writer))
        ]
    return found


@functools.cache
def _unreadable(reader: str, writer: str) -> tuple[tuple[str, str], ...]:
    """What Avro's checker says against this reader of that writer."""
    checker = ReaderWriterCompatibilityChecker()
    result = checker.get_compatibility(parse(reader), parse(writer))
    if result.compatibility is SchemaCompatibilityType.compatible:
        return ()
    kinds = sorted({kind.value for kind in result.incompatibilities})
    said = sorted(str(message) for message in result.messages)
    where = [_field_at(json.loads(reader), place) for place in sorted(result.locations)]
    field = ", ".join(dict.fromkeys(path for path in where if path))
    return ((field, f"{', '.join(kinds)} ({', '.join(said)})"),)


def _field_at(schema: AvroSchema, location: str) -> str:
    """The field of the record that a location of the checker is in: `/fields/3/...`."""
    steps = [step for step in location.split("/") if step]
    if len(steps) > 1 and steps[0] == "fields":
        return str(schema["fields"][int(steps[1])]["name"])
    return ""
