"""Freeze the schemas of the models: what is new becomes a version, to be reviewed.

A version is written once. What would break FULL_TRANSITIVE is not written: it needs a
record of a new name and an upcaster.
"""

from pathlib import Path

from foldline.errors import SchemaError
from foldline.schemas.avsc import without_docs
from foldline.schemas.compat import broken_between, broken_shape, tampered
from foldline.schemas.frozen import (
    FOLDER,
    AvroSchema,
    ledger,
    load,
    modelled,
    path_of,
    sha256_of,
    text_of,
    versions_of,
    write_ledger,
)


def freeze(
    folder: Path | None = None, *, models: dict[str, AvroSchema] | None = None
) -> list[Path]:
    """Write a version of every schema that has none, or that differs from its newest.

    Args:
        folder: where they are kept; default: foldline's own.
        models: the schemas by name; default: those of the models.

    Returns:
        The files that were written.

    Raises:
        SchemaError: a frozen file was changed, or a new version would not be
            FULL_TRANSITIVE. Nothing was written.
    """
    folder = folder or FOLDER
    models = modelled() if models is None else models
    due = {name: schema for name, schema in models.items() if _is_due(folder, name, schema)}
    problems = tampered(folder)
    for name, schema in due.items():
        problems += broken_shape(name, schema)
        for version in versions_of(folder, name):
            old = load(path_of(folder, name, version))
            problems += broken_between(name, old, schema, f"v{version}", "the model")
    if problems:
        said = [f"{p.name} {p.field}: {p.reason}" for p in problems]
        raise SchemaError(problems[0].name, said)
    return _write(folder, due)


def _is_due(folder: Path, name: str, schema: AvroSchema) -> bool:
    versions = versions_of(folder, name)
    if not versions:
        return True
    newest = load(path_of(folder, name, versions[-1]))
    return without_docs(newest) != without_docs(schema)


def _write(folder: Path, due: dict[str, AvroSchema]) -> list[Path]:
    hashes = ledger(folder)
    written: list[Path] = []
    for name, schema in sorted(due.items()):
        path = path_of(folder, name, max(versions_of(folder, name), default=0) + 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text_of(schema))
        hashes[path.relative_to(folder).as_posix()] = sha256_of(path)
        written.append(path)
    if written:
        write_ledger(folder, hashes)
    return written
