"""The schema gate: what may change, what may not, and that it says field and reason."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from foldline.errors import SchemaError
from foldline.schemas.compat import Problem, check
from foldline.schemas.freeze import freeze
from foldline.schemas.frozen import (
    FOLDER,
    LEDGER,
    AvroSchema,
    modelled,
    names_in,
    path_of,
    text_of,
)

NAME = "ModelCallStarted"
"""A record with nullable fields, defaults, a union of records and nested arrays."""

Edit = Callable[[AvroSchema], None]


def field_of(schema: AvroSchema, path: str) -> dict[str, Any]:
    """The field at a path; a part `[Blob]` goes into a branch, `[]` into items."""
    at: Any = schema
    for part in path.split("."):
        if part.startswith("["):
            at = inside(at["type"], part[1:-1])
        else:
            at = next(f for f in fields_of(at) if f["name"] == part)
    return at


def fields_of(at: Any) -> list[dict[str, Any]]:
    """The fields of a record, or of the record that a field holds."""
    return at["fields"] if "fields" in at else fields_of(at["type"])


def inside(type_: Any, name: str) -> Any:
    """A branch of a union by name, or the items of an array."""
    if not isinstance(type_, list):
        return type_["items"]
    branches = cast("list[Any]", type_)
    return next(b for b in branches if b != "null" and b["name"] == name)


def edited(*edits: Edit, name: str = NAME) -> AvroSchema:
    """The schema of a record after some edits."""
    schema = copy.deepcopy(modelled()[name])
    for edit in edits:
        edit(schema)
    return schema


def add(path: str, position: int | None = None, **field: Any) -> Edit:
    """Add a field to the record at a path."""

    def edit(schema: AvroSchema) -> None:
        fields = fields_of(field_of(schema, path) if path else schema)
        fields.insert(len(fields) if position is None else position, field)

    return edit


def remove(path: str, name: str) -> Edit:
    """Take a field away."""

    def edit(schema: AvroSchema) -> None:
        fields = fields_of(field_of(schema, path) if path else schema)
        fields[:] = [f for f in fields if f["name"] != name]

    return edit


def put(path: str, **changed: Any) -> Edit:
    """Change attributes of a field."""
    return lambda schema: field_of(schema, path).update(changed)


def drop_default(path: str) -> Edit:
    """Take a default away."""

    def edit(schema: AvroSchema) -> None:
        del field_of(schema, path)["default"]

    return edit


NULL_LONG = ["null", "long"]
INTO_FRONT = 24
"""Where the event's own structure is; content comes at the end."""

ALLOWED: dict[str, Edit] = {
    "a new nullable field": add("", INTO_FRONT, name="n", type=NULL_LONG, default=None),
    "a new string": add("", INTO_FRONT, name="n", type="string", default="x"),
    "a field of the envelope before prev_hash": add(
        "", 19, name="shard", type=NULL_LONG, default=None
    ),
    "a field with a default taken away": remove("", "purpose"),
    "a new field in a record within a union": add(
        "request.[Blob]", name="n", type=NULL_LONG, default=None
    ),
    "another doc": lambda schema: schema.update(doc="other words"),
}

FORBIDDEN: dict[str, tuple[Edit, str, str]] = {
    "optional without default": (
        add("", INTO_FRONT, name="n", type=NULL_LONG),
        "n",
        "added without a default",
    ),
    "required": (
        add("", INTO_FRONT, name="n", type="string"),
        "n",
        "added without a default",
    ),
    "removed without default": (
        remove("", "provider"),
        "provider",
        "taken away and had no default",
    ),
    "renamed with default": (
        put("purpose", name="aim"),
        "purpose",
        "renamed to aim",
    ),
    "required to nullable": (
        put("provider", type=["null", "string"]),
        "provider",
        "its type changed from string to null or string",
    ),
    "single to list": (
        put("model", type={"type": "array", "items": "string"}),
        "model",
        "its type changed from string to array",
    ),
    "long to double": (put("attempt", type="double"), "attempt", "from long to double"),
    "a new union branch": (
        put("deadline_ms", type=["null", "long", "string"]),
        "deadline_ms",
        "union branches changed",
    ),
    "a union branch taken away": (
        put("deadline_ms", type=["null"]),
        "deadline_ms",
        "union branches changed",
    ),
    "a default taken away": (
        drop_default("purpose"),
        "purpose",
        "its default was taken away",
    ),
    "another default": (put("purpose", default="X"), "purpose", "its default changed"),
    "another logical type": (
        put("recorded_at", type={"type": "long", "logicalType": "timestamp-millis"}),
        "recorded_at",
        "logicalType changed from timestamp-micros to timestamp-millis",
    ),
    "a logical type taken away": (
        put("event_id", type="string"),
        "event_id",
        "logicalType changed from uuid to None",
    ),
    "an enum": (
        put("purpose", type={"type": "enum", "name": "E", "symbols": ["TURN"]}),
        "purpose",
        "an enum cannot grow",
    ),
    "a map": (
        add("", INTO_FRONT, name="n", type={"type": "map", "values": "long"}, default={}),
        "n",
        "a map has no order",
    ),
    "items without size": (
        add("", INTO_FRONT, name="n", type={"type": "array", "items": "null"}, default=[]),
        "n",
        "null takes no bytes",
    ),
    "structure behind content": (
        add("", name="n", type=NULL_LONG, default=None),
        "n",
        "structure after the content request",
    ),
    "a union inside a record of a union": (
        put("request.[Blob].preview", type=["null", "string", "bytes"]),
        "request.preview",
        "union branches changed",
    ),
    "optional without default in a record of a union": (
        add("request.[Blob]", name="n", type=NULL_LONG),
        "request.n",
        "added without a default",
    ),
    "a type inside an array inside a union": (
        put("request.[RequestRef].ranges.[].from_seq", type="string"),
        "request.ranges.[].from_seq",
        "its type changed from long to string",
    ),
    "another record in its place": (
        put("actor", type={**modelled()[NAME]["fields"][9]["type"], "name": "Doer"}),
        "actor",
        "the record Actor became Doer",
    ),
}


def frozen(folder: Path, *edits: Edit) -> dict[str, AvroSchema]:
    """Freeze one record as version 1; the models after some edits."""
    freeze(folder, models={NAME: edited()})
    return {NAME: edited(*edits)}


def words(problems: list[Problem]) -> list[tuple[str, str]]:
    """Field and reason of each problem."""
    return [(problem.field, problem.reason) for problem in problems]


@pytest.mark.parametrize("what", ALLOWED)
def test_what_is_compatible_is_frozen_as_the_next_version(
    what: str, tmp_path: Path
) -> None:
    """And the gate is silent afterwards."""
    models = frozen(tmp_path, ALLOWED[what])
    before = check(tmp_path, models=models)
    written = freeze(tmp_path, models=models)
    if what == "another doc":
        assert (before, written) == ([], [])
    else:
        assert [p.reason for p in before] == [
            "the model differs from v1: run `foldline schemas freeze`"
        ]
        assert written == [path_of(tmp_path, NAME, 2)]
    assert check(tmp_path, models=models) == []


@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_is_not_compatible_is_named_by_field_and_reason_and_not_frozen(
    what: str, tmp_path: Path
) -> None:
    """B42: an optional field without default, a change hidden in a union."""
    edit, field, reason = FORBIDDEN[what]
    models = frozen(tmp_path, edit)
    found = words(check(tmp_path, models=models))
    assert any(field == f and reason in r for f, r in found), found
    with pytest.raises(SchemaError, match="(?s)" + NAME):
        freeze(tmp_path, models=models)
    assert not path_of(tmp_path, NAME, 2).exists()


@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_was_frozen_by_hand_all_the_same_is_found(what: str, tmp_path: Path) -> None:
    """As a version that is there, in the ledger or not."""
    models = frozen(tmp_path, FORBIDDEN[what][0])
    path_of(tmp_path, NAME, 2).write_text(text_of(models[NAME]))
    reasons = [r for _, r in words(check(tmp_path, models=models))]
    assert f"it is not in {LEDGER}: was it frozen?" in reasons
    assert len(reasons) > 1


def test_avros_own_checker_speaks_in_both_directions(tmp_path: Path) -> None:
    """With the name of the field."""
    models = frozen(tmp_path, FORBIDDEN["required"][0])
    said = [(f, r) for f, r in words(check(tmp_path, models=models)) if "cannot" in r]
    assert said == [
        (
            "n",
            "the model cannot read v1: reader_field_missing_default_value (n)",
        )
    ]
    models = {NAME: edited(remove("", "provider"))}
    said = [(f, r) for f, r in words(check(tmp_path, models=models)) if "cannot" in r]
    assert said == [
        (
            "provider",
            "v1 cannot read the model: reader_field_missing_default_value (provider)",
        )
    ]


def test_versions_are_compared_with_all_others_not_only_the_last(
    tmp_path: Path,
) -> None:
    """TRANSITIVE: taken away in 2, added in 3 as another type."""
    models = frozen(tmp_path, remove("", "purpose"))
    freeze(tmp_path, models=models)
    again = add("", INTO_FRONT, name="purpose", type="long", default=1)
    models = {NAME: edited(remove("", "purpose"), again)}
    found = words(check(tmp_path, models=models))
    assert ("purpose", "its type changed from string to long (from v1 to the model)") in (
        found
    )


@pytest.mark.parametrize("place", [0, 5, 20])
def test_the_envelope_is_one_run_that_ends_in_prev_hash(place: int, tmp_path: Path) -> None:
    """A field of it never comes later, and nothing of the event comes earlier."""

    def move(schema: AvroSchema) -> None:
        fields = schema["fields"]
        fields.insert(place + 2, fields.pop(place))

    problems = check(tmp_path, models={NAME: edited(move)})
    if place == 20:  # two of the event's own fields
        assert [p.reason for p in problems] == [
            "it was never frozen: run `foldline schemas freeze`"
        ]
    else:
        assert "the envelope is not one run that ends in prev_hash" in [
            p.reason for p in problems
        ]


def test_an_envelope_field_after_prev_hash_is_named(tmp_path: Path) -> None:
    """It would be read as the event's own."""

    def move(schema: AvroSchema) -> None:
        schema["fields"].append(schema["fields"].pop(10))

    found = words(check(tmp_path, models={NAME: edited(move)}))
    assert ("turn_id", "a field of the envelope comes after prev_hash") in found


def test_an_edited_file_is_caught_whatever_was_edited(tmp_path: Path) -> None:
    """Also where the edit would be compatible, or is only a blank."""
    freeze(tmp_path)
    assert check(tmp_path) == []
    path = path_of(tmp_path, "GoalSet", 1)
    path.write_text(path.read_text() + "\n")
    expected = [Problem("GoalSet/v1.avsc", "", "the frozen file was edited")]
    assert check(tmp_path) == expected
    with pytest.raises(SchemaError, match="the frozen file was edited"):
        freeze(tmp_path)


def test_a_lost_file_and_a_gap_are_caught(tmp_path: Path) -> None:
    """Versions are 1, 2, 3 and so on."""
    models = frozen(tmp_path, ALLOWED["a new string"])
    freeze(tmp_path, models=models)
    path_of(tmp_path, NAME, 1).unlink()
    reasons = [p.reason for p in check(tmp_path, models=models)]
    assert f"it is in {LEDGER}, but the file is gone" in reasons
    assert "there is a gap in its versions [2]" in reasons


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "\x00", '"string"', "{}", '{"type": "record"}']
)
def test_a_file_that_is_no_schema_is_a_problem_not_a_crash(
    text: str, tmp_path: Path
) -> None:
    """Whatever somebody wrote there."""
    freeze(tmp_path, models={NAME: edited()})
    path_of(tmp_path, NAME, 1).write_text(text)
    assert check(tmp_path, models={NAME: edited()})


def test_a_type_without_a_model_needs_an_upcaster(tmp_path: Path) -> None:
    """A stored event must stay readable."""
    freeze(tmp_path, models={NAME: edited()})
    assert check(tmp_path, models={}) == [
        Problem(NAME, "", "it has neither a model nor an upcaster any more")
    ]


def test_freezing_again_writes_nothing(tmp_path: Path) -> None:
    """A version is written once."""
    first = freeze(tmp_path)
    assert len(first) == len(modelled())
    assert names_in(tmp_path) == modelled().keys()
    assert freeze(tmp_path) == []


def test_the_committed_schemas_are_those_of_the_models() -> None:
    """What `foldline schemas check` says in every build."""
    assert check() == []
    assert (FOLDER / LEDGER).exists()
