"""The frozen schemas: `avro/<Type>/v<N>.avsc`, written once and never edited.

`avro/frozen.sha256` lists the SHA-256 of each file in the format of `sha256sum`, so
that an edited file is found (also by `cd schemas/avro && sha256sum --check
frozen.sha256`).
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any, cast

from foldline.errors import SchemaError
from foldline.schemas.avro_io import parsed
from foldline.schemas.avsc import event_schema, record_schema
from foldline.schemas.events import EVENT_TYPES
from foldline.schemas.snapshots import snapshot_schema
from foldline.schemas.topic_records import TOPIC_RECORDS
from foldline.schemas.verdicts import Verdict

FOLDER = Path(__file__).resolve().parent / "avro"
"""Where foldline's own are."""

LEDGER = "frozen.sha256"

NO_EVENTS = frozenset({"Snapshot", "Verdict"} | {cls.__name__ for cls in TOPIC_RECORDS})
"""Records without an envelope: what topics hold beside events."""

_FILE = re.compile(r"v([1-9][0-9]*)\.avsc")

AvroSchema = dict[str, Any]


def modelled() -> dict[str, AvroSchema]:
    """The schema of every record that is published, as the models say today."""
    events = {name: event_schema(cls) for name, cls in EVENT_TYPES.items()}
    others = {cls.__name__: record_schema(cls) for cls in (Verdict, *TOPIC_RECORDS)}
    return events | {"Snapshot": snapshot_schema()} | others


def path_of(folder: Path, name: str, version: int) -> Path:
    """The file of one version."""
    return folder / name / f"v{version}.avsc"


def versions_of(folder: Path, name: str) -> list[int]:
    """The versions that are frozen, in order."""
    found = (_FILE.fullmatch(path.name) for path in (folder / name).glob("v*.avsc"))
    return sorted(int(match[1]) for match in found if match)


def names_in(folder: Path) -> set[str]:
    """The records that have a frozen version."""
    return {path.parent.name for path in folder.glob("*/v*.avsc")}


def load(path: Path) -> AvroSchema:
    """A frozen schema.

    Raises:
        SchemaError: the file holds no schema of a record.
    """
    name = f"{path.parent.name}/{path.name}"
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SchemaError(name, [f"no JSON: {error}"]) from error
    if not isinstance(schema, dict) or schema.get("type") != "record":  # pyright: ignore[reportUnknownMemberType]
        raise SchemaError(name, ["no record"])
    try:
        parsed(schema)
    except Exception as error:  # fastavro raises what it stumbles over
        raise SchemaError(name, [f"no schema: {error!r}"]) from error
    return cast("AvroSchema", schema)


def text_of(schema: AvroSchema) -> str:
    """A schema as its file holds it."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def sha256_of(path: Path) -> str:
    """The hash of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def ledger(folder: Path) -> dict[str, str]:
    """The hash of every frozen file, by its path below the folder."""
    path = folder / LEDGER
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {line[66:]: line[:64] for line in lines if line}


def write_ledger(folder: Path, hashes: dict[str, str]) -> None:
    """Write the list of hashes, sorted by path."""
    lines = [f"{digest}  {name}\n" for name, digest in sorted(hashes.items())]
    (folder / LEDGER).write_text("".join(lines), encoding="utf-8")
