"""A file of the OpenAI Agents SDK: a run state, or a list of items, read as a whole.

Both are one JSON document that is written anew each time. Fields are in snake case from
Python and in camel case from JavaScript.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from foldline.errors import ImportSourceError
from foldline.producers.json_fields import (
    Json,
    as_count,
    as_id,
    as_list,
    as_object,
    as_session_id,
    as_text,
    canonical_json,
)
from foldline.producers.openai_items import CALLS, OUTPUTS, SERVER_TOOLS, call_id_of
from foldline.schemas.events import Usage

SYSTEM = "openai-agents"

VERSION = "$schemaVersion"
NEWEST = 17
"""The newest minor version of a run state that is read; all before it are."""

LOOKED_AT_BYTES = 4_096
"""How much of a file is looked at before all of it is read."""

ITEMS: frozenset[str] = frozenset({"message", "reasoning", *CALLS, *OUTPUTS, *SERVER_TOOLS})
"""Types of items; a list is one of items if one of it has such a type."""

_KNOWN_VERSION = re.compile(r"1\.(\d{1,3})")


def looks_like_one(path: Path, *, record_max_bytes: int) -> bool:
    """Whether a file holds a run state, of whatever version, or a list of items.

    Raises:
        ImportSourceError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            begin = file.read(LOOKED_AT_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError as error:
        raise ImportSourceError(str(path), error.strerror or str(error)) from error
    marked = begin.startswith(b"{") and f'"{VERSION}"'.encode() in begin
    if not marked and not begin.startswith(b"["):
        return False
    document = _document(path, record_max_bytes)
    if isinstance(document, dict):
        return VERSION in document
    return any(as_object(i).get("type") in ITEMS for i in as_list(document))


def read_document(path: Path, *, record_max_bytes: int) -> Json | list[object]:
    """The run state or the items of a file.

    Raises:
        ImportSourceError: it is neither, or a run state of a version that is not known.
    """
    document = _document(path, record_max_bytes)
    if isinstance(document, list):
        return cast("list[object]", document)
    state = as_object(document)
    if VERSION not in state:
        raise ImportSourceError(str(path), "no run state and no list of items")
    known = _KNOWN_VERSION.fullmatch(as_text(state[VERSION]))
    if known is None or int(known[1]) > NEWEST:
        named = str(state[VERSION])[:40]
        reason = f"a run state of version {named}; versions 1.0 to 1.{NEWEST} are read"
        raise ImportSourceError(str(path), reason)
    return state


def _document(path: Path, record_max_bytes: int) -> object:
    try:
        if path.stat().st_size > record_max_bytes:
            reason = f"a document of over {record_max_bytes} bytes, record_max_bytes"
            raise ImportSourceError(str(path), reason)
        text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
        document: object = json.loads(text)
        json.dumps(document, sort_keys=True)  # too deep to read is too deep to write
    except OSError as error:
        raise ImportSourceError(str(path), error.strerror or str(error)) from error
    except (ValueError, RecursionError):
        return None
    return document


# --- a run state ---------------------------------------------------------------------


def field_of(value: Json, name: str) -> object:
    """A field by its name in snake case, whichever case it is written in."""
    if name in value:
        return value[name]
    first, *rest = name.split("_")
    return value.get(first + "".join(part.capitalize() for part in rest))


@dataclass(frozen=True, slots=True)
class Entry:
    """A part of a document: where it stands, what it is, and what it says.

    `kind` is item (bare), run_item (with the agent of it), covered (a run item that an
    answer holds), response, nested (a run that a call waits for) or rest (what is left of
    the state).
    """

    place: str
    kind: str
    value: Json


def entries_of(document: Json | list[object]) -> Iterator[Entry]:
    """The parts of a document in the order in which they happened."""
    if isinstance(document, list):
        for at, item in enumerate(document):
            yield Entry(str(at), "item", as_object(item) or {"unreadable": item})
        return
    given = field_of(document, "original_input")
    if isinstance(given, list):
        for at, item in enumerate(as_list(cast("object", given))):
            value = as_object(item) or {"unreadable": item}
            yield Entry(f"original_input/{at}", "item", value)
    elif given is not None:
        message = {"type": "message", "role": "user", "content": given}
        yield Entry("original_input", "item", message)
    yield from _happened(document)
    nested = as_object(field_of(document, "pending_agent_tool_runs"))
    for name, state in nested.items():
        yield Entry(f"pending/{name}", "nested", {"name": name, "state": state})
    yield Entry("state", "rest", _rest(document))


def items_name(state: Json) -> str:
    """Where the items of a run stand: those of its session are all that there were."""
    return "session_items" if field_of(state, "session_items") else "generated_items"


def _happened(state: Json) -> Iterator[Entry]:
    """Answers of the model, each before the first item of it, and what is between them.

    A call stands in its answer and in an item; it is the item that says when.
    """
    responses = [as_object(r) for r in as_list(field_of(state, "model_responses"))]
    answered: dict[str, list[int]] = {}
    for at, response in enumerate(responses):
        for output in as_list(response.get("output")):
            answered.setdefault(_identity(as_object(output)), []).append(at)
    told = 0
    name = items_name(state)
    for at, item in enumerate(as_list(field_of(state, name))):
        run_item = as_object(item)
        raw = as_object(field_of(run_item, "raw_item"))
        within = [] if _says_more(run_item) else answered.get(_identity(raw), [])
        upto = within.pop(0) + 1 if within else 0
        for number in range(told, upto):
            yield Entry(f"model_responses/{number}", "response", responses[number])
        told = max(told, upto)
        kind = "covered" if upto else "run_item"
        yield Entry(f"{name}/{at}", kind, run_item or {"unreadable": item})
    for number in range(told, len(responses)):
        yield Entry(f"model_responses/{number}", "response", responses[number])


def _says_more(run_item: Json) -> bool:
    """Whether an item tells of a call something that the answer does not."""
    return run_item.get("type") == "tool_approval_item"


def _identity(item: Json) -> str:
    """What tells that an item is the same as an output of an answer."""
    named = as_id(item.get("id")) or call_id_of(item)
    return f"{item.get('type')}:{named}" if named else json.dumps(item, sort_keys=True)


def _rest(state: Json) -> Json:
    """What is left: the context, guardrails, and where the run stands."""
    told = ("original_input", "model_responses", "session_items", "generated_items")
    twice = ("last_model_response", "last_processed_response", "pending_agent_tool_runs")
    left = dict(state)
    for name in (*told, *twice):
        first, *rest = name.split("_")
        left.pop(name, None)
        left.pop(first + "".join(part.capitalize() for part in rest), None)
    return left


# --- its session ---------------------------------------------------------------------


def session_of(document: Json | list[object]) -> str:
    """The id of the session: the run's trace, else a digest of how it began.

    It began with everything up to the first id that a model gave: that stays the same
    while the run goes on, and is of no other run. Before there is such an id nothing
    tells two runs apart but all that they say.
    """
    if isinstance(document, dict):
        trace = as_session_id(as_id(as_object(document.get("trace")).get("id")))
        if trace:
            return trace
    begin: list[Json] = []
    for entry in entries_of(document):
        begin.append(entry.value)
        if entry.kind != "rest" and _has_id(entry.value):
            break
    return hashlib.sha256(json.dumps(begin, sort_keys=True).encode()).hexdigest()


def _has_id(value: Json) -> bool:
    raw = as_object(field_of(value, "raw_item")) or value
    return bool(
        as_id(field_of(value, "response_id")) or as_id(raw.get("id")) or call_id_of(raw)
    )


# --- parts of a run ------------------------------------------------------------------


def nested_state(value: Json) -> Json | None:
    """The state of a nested run, which is written as text; None for what is none."""
    state: object = value.get("state")
    if isinstance(state, str):
        try:
            state = json.loads(state)
        except (ValueError, RecursionError):
            return None
    return as_object(state) or None


def usage_of(usage: Json) -> Usage | None:
    """The tokens of an answer as its provider counts them; null where it counts none."""
    total = as_count(field_of(usage, "total_tokens"))
    if not usage or not (total or as_count(usage.get("requests"))):
        return None
    read = _details(field_of(usage, "input_tokens_details"))
    written = _details(field_of(usage, "output_tokens_details"))
    return Usage(
        input_tokens=as_count(field_of(usage, "input_tokens")),
        output_tokens=as_count(field_of(usage, "output_tokens")),
        cache_read_input_tokens=as_count(field_of(read, "cached_tokens")),
        cache_write_input_tokens=as_count(field_of(read, "cache_write_tokens")),
        reasoning_output_tokens=as_count(field_of(written, "reasoning_tokens")),
        extra_json=canonical_json({"total_tokens": total}) if total else None,
    )


def _details(value: object) -> Json:
    """Details stand alone, or in a list, one for each request."""
    return as_object(value) or as_object(next(iter(as_list(value)), None))
