"""The local registry: ids are stable, and stored with the log."""

import json

import pytest

from foldline.schemas.avsc import event_schema
from foldline.schemas.events import EVENT_TYPES, UserMessage
from foldline.schemas.registry import LocalRegistry, SchemaTable, published_text


@pytest.fixture
def table() -> SchemaTable:
    return SchemaTable()


def test_an_id_is_given_once_and_found_again_by_another_registry(
    table: SchemaTable,
) -> None:
    registry = LocalRegistry(table)
    ids = {name: registry.id_of(name) for name in EVENT_TYPES}
    assert sorted(ids.values()) == list(range(1, len(EVENT_TYPES) + 1))
    assert {name: registry.id_of(name) for name in EVENT_TYPES} == ids
    later = LocalRegistry(table)
    assert {name: later.id_of(name) for name in reversed(EVENT_TYPES)} == ids
    assert json.loads(later.schema_of(ids["UserMessage"]))["name"] == "UserMessage"


def test_a_text_says_the_same_as_the_published_schema_without_its_docs() -> None:
    published = event_schema(UserMessage)
    stored = json.loads(published_text("UserMessage"))
    assert [f["name"] for f in stored["fields"]] == [f["name"] for f in published["fields"]]
    assert '"doc"' not in published_text("UserMessage")
    assert stored["foldline_type"] == "UserMessage"


def test_what_nobody_knows_has_no_id_and_no_text(table: SchemaTable) -> None:
    registry = LocalRegistry(table)
    with pytest.raises(KeyError):
        registry.id_of("FromTheFuture")
    with pytest.raises(KeyError):
        registry.schema_of(1)


def test_a_schema_that_a_newer_writer_stored_has_an_id_here(table: SchemaTable) -> None:
    schema = event_schema(UserMessage) | {"name": "FromTheFuture"}
    schema_id = LocalRegistry(table).add(json.dumps(schema))
    registry = LocalRegistry(table)
    assert registry.id_of("FromTheFuture") == schema_id
    assert registry.add(json.dumps(schema)) == schema_id


def test_another_versions_text_of_the_same_name_has_an_id_of_its_own(
    table: SchemaTable,
) -> None:
    registry = LocalRegistry(table)
    schema = json.loads(published_text("UserMessage"))
    schema["fields"].append({"name": "later", "type": "long", "default": 0})
    theirs = registry.add(json.dumps(schema))
    ours = registry.id_of("UserMessage")
    assert ours != theirs
    assert registry.schema_of(ours) == published_text("UserMessage")
