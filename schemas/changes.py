"""What may not change between two versions of a record, beyond what Avro itself says.

Avro's rules ask whether bytes can be read. These ask whether they still mean the same:
a field that was renamed reads as its default, a union that grew cannot be read by older
readers, a logical type that changed reads as another time. Each change is named by the
path of its field.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

Change = tuple[str, str]
"""The path of a field, and what is wrong about it in words."""

_MISSING = object()
_ANNOTATIONS = frozenset({"doc", "name", "namespace", "fields", "type", "items"})


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    """Every change from one version to a later one that is not allowed."""
    return list(_Pair(old, new).records(old, new, ""))


@dataclass(slots=True)
class _Pair:
    """Two versions; a named type is looked at once, where it is first used."""

    old: dict[str, Any]
    new: dict[str, Any]
    old_names: dict[str, dict[str, Any]] = field(init=False)
    new_names: dict[str, dict[str, Any]] = field(init=False)
    seen: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def __post_init__(self) -> None:
        self.old_names = dict(_named(self.old, ""))
        self.new_names = dict(_named(self.new, ""))

    def records(
        self, old: dict[str, Any], new: dict[str, Any], path: str
    ) -> Iterator[Change]:
        """Changes between two records of one place."""
        if old["name"] != new["name"]:
            yield path, f"the record {old['name']} became {new['name']}"
            return
        if (old["name"], new["name"]) in self.seen:
            return
        self.seen.add((old["name"], new["name"]))
        before = {f["name"]: f for f in old["fields"]}
        after = {f["name"]: f for f in new["fields"]}
        yield from _came_and_went(before, after, path)
        for name in before.keys() & after.keys():
            yield from self._fields(before[name], after[name], _join(path, name))

    def _fields(
        self, old: dict[str, Any], new: dict[str, Any], path: str
    ) -> Iterator[Change]:
        one, two = old.get("default", _MISSING), new.get("default", _MISSING)
        if one is not _MISSING and two is _MISSING:
            yield path, "its default was taken away"
        elif one is not _MISSING and one != two:
            yield path, f"its default changed from {one!r} to {two!r}"
        yield from self._types(old["type"], new["type"], path)

    def _types(self, old: Any, new: Any, path: str) -> Iterator[Change]:
        old, new = self._resolved(old, new)
        if isinstance(old, list) or isinstance(new, list):
            yield from self._unions(old, new, path)
            return
        kinds = _kind(old), _kind(new)
        if kinds[0] != kinds[1]:
            yield path, f"its type changed from {kinds[0]} to {kinds[1]}"
            return
        one, two = _as_dict(old), _as_dict(new)
        for key in sorted((one.keys() | two.keys()) - _ANNOTATIONS):
            if one.get(key) != two.get(key):
                yield path, f"its {key} changed from {one.get(key)} to {two.get(key)}"
        if kinds[0] == "record":
            yield from self.records(one, two, path)
        elif kinds[0] == "array":
            yield from self._types(one["items"], two["items"], _join(path, "[]"))

    def _unions(self, old: Any, new: Any, path: str) -> Iterator[Change]:
        one, two = _branches(old), _branches(new)
        names, new_names = [_branch(b) for b in one], [_branch(b) for b in two]
        if not isinstance(old, list) or not isinstance(new, list):
            one_name, two_name = " or ".join(names), " or ".join(new_names)
            yield path, f"its type changed from {one_name} to {two_name}"
            return
        if names != new_names:
            yield path, f"its union branches changed from {names} to {new_names}"
            return
        for before, after in zip(one, two, strict=True):
            yield from self._types(before, after, path)

    def _resolved(self, old: Any, new: Any) -> tuple[Any, Any]:
        """The definitions that names stand for."""
        if isinstance(old, str):
            old = self.old_names.get(_last(old), old)
        if isinstance(new, str):
            new = self.new_names.get(_last(new), new)
        return old, new


def _came_and_went(
    before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]], path: str
) -> Iterator[Change]:
    gone = [name for name in before if name not in after]
    come = [name for name in after if name not in before]
    for old in gone:
        new = _renamed_to(before, after, old, come)
        if new:
            yield _join(path, old), f"it seems to be renamed to {new}; nothing is renamed"
        elif "default" not in before[old]:
            yield _join(path, old), "it was taken away and had no default"
    for new in come:
        if "default" not in after[new]:
            yield _join(path, new), "it was added without a default"


def _renamed_to(
    before: dict[str, dict[str, Any]],
    after: dict[str, dict[str, Any]],
    old: str,
    come: list[str],
) -> str | None:
    """The new field of the same type that stands where the old one stood."""
    names, new_names = list(before), list(after)
    follows = names[names.index(old) - 1] if names.index(old) else None
    for new in come:
        place = new_names.index(new)
        predecessor = new_names[place - 1] if place else None
        if predecessor == follows and before[old]["type"] == after[new]["type"]:
            return new
    return None


def _named(schema: Any, namespace: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every type with a name, by its last part: one namespace is all there is."""
    if isinstance(schema, list):
        for branch in cast("list[Any]", schema):
            yield from _named(branch, namespace)
    elif isinstance(schema, dict):
        fields = cast("dict[str, Any]", schema)
        if "name" in fields:
            yield _last(fields["name"]), fields
        for inner in fields.get("fields", ()):
            yield from _named(inner["type"], namespace)
        for key in ("items", "values", "type"):
            if not isinstance(fields.get(key), str):
                yield from _named(fields.get(key), namespace)


def _kind(schema: Any) -> str:
    if isinstance(schema, dict):
        return _kind(cast("dict[str, Any]", schema)["type"])
    return str(schema)


def _as_dict(schema: Any) -> dict[str, Any]:
    if isinstance(schema, dict):
        return cast("dict[str, Any]", schema)
    return {"type": schema}


def _branches(schema: Any) -> list[Any]:
    return cast("list[Any]", schema) if isinstance(schema, list) else [schema]


def _branch(schema: Any) -> str:
    if isinstance(schema, dict):
        fields = cast("dict[str, Any]", schema)
        return _last(str(fields.get("name", _kind(fields))))
    return _last(str(schema))


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
