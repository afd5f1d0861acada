"""Which fields of an event hold what somebody said, and which are structure.

Blocks and bodies are content. Of the strings beside them, FREE_TEXT and everything that
ends in `_json` are; the others are ids, hashes, signatures, names and statuses, which
stay as they are so that what pairs by them still does.
"""

from collections import Counter
from typing import Protocol, cast

from foldline.schemas.blocks import Blob, Block, Blocks
from foldline.schemas.events import HarnessStateSet, Label
from foldline.schemas.record import Record

FREE_TEXT: frozenset[str] = frozenset(
    {
        *("reason", "problem", "error_type", "hook", "decision", "options"),
        *("cwd", "sandbox", "description", "input_schema", "preview"),
    }
)
"""Names of fields whose strings somebody wrote, or that may quote what was written."""


class Engine(Protocol):
    """What goes over the strings of an event."""

    def said(self, text: str, counts: Counter[str]) -> str:
        """What somebody said, without secrets."""
        ...

    def named(self, name: str, value: str, counts: Counter[str]) -> str | None:
        """A value replaced because of its name; None where the name says nothing."""
        ...

    def parts(self, texts: list[str], counts: Counter[str]) -> list[str]:
        """Texts that belong together, without secrets across their borders."""
        ...


def is_content(name: str) -> bool:
    """Whether a string field of this name is gone over."""
    return name in FREE_TEXT or name.endswith("_json")


def redacted_record(record: Record, engine: Engine, counts: Counter[str]) -> Record:
    """A record with everything in it gone over; itself where nothing was found."""
    if isinstance(record, Block):
        return _block(record, engine, counts)
    if isinstance(record, Label):
        value = _by_name(record.key, record.value, engine, counts)
        return record.model_copy(update={"value": value})
    update: dict[str, object] = {}
    for name, before in record.__dict__.items():
        after = _value(name, before, engine, counts)
        if after is not before:
            update[name] = after
    if isinstance(record, HarnessStateSet):
        blocks = cast("Blocks", update.get("blocks", record.blocks))
        update["blocks"] = _state_blocks(record.key, blocks, engine, counts)
    return record.model_copy(update=update) if update else record


def _value(name: str, value: object, engine: Engine, counts: Counter[str]) -> object:
    if isinstance(value, str):
        return engine.said(value, counts) if is_content(name) else value
    if isinstance(value, Record):
        return redacted_record(value, engine, counts)
    if not isinstance(value, tuple) or value == ():
        return cast("object", value)
    items = cast("tuple[object, ...]", value)
    if isinstance(items[0], Block):
        return _blocks(cast("Blocks", items), engine, counts)
    return tuple(_value(name, item, engine, counts) for item in items)


def _blocks(blocks: Blocks, engine: Engine, counts: Counter[str]) -> Blocks:
    """Blocks of one message; a secret may begin in one text and end in the next."""
    done: list[Block] = []
    run: list[Block] = []
    for block in (*blocks, None):
        if block is not None and block.kind == "text" and isinstance(block.body, str):
            run.append(block)
            continue
        done.extend(_joined(run, engine, counts))
        run = []
        if block is not None:
            done.append(block)
    return tuple(_block(block, engine, counts) for block in done)


def _joined(run: list[Block], engine: Engine, counts: Counter[str]) -> list[Block]:
    if len(run) < 2:  # noqa: PLR2004 - one text has no border
        return run
    texts = [cast("str", block.body) for block in run]
    parts = engine.parts(texts, counts)
    return [
        block if part == text else block.model_copy(update={"body": part})
        for block, text, part in zip(run, texts, parts, strict=True)
    ]


def _block(block: Block, engine: Engine, counts: Counter[str]) -> Block:
    """Its body and name; `opaque` and `signature` go back to their provider verbatim."""
    body = block.body
    if isinstance(body, str):
        body = engine.said(body, counts)
    elif isinstance(body, Blob):
        body = redacted_record(body, engine, counts)
    name = block.name and engine.said(block.name, counts)
    if body is block.body and name == block.name:
        return block
    return block.model_copy(update={"body": body, "name": name})


def _state_blocks(key: str, blocks: Blocks, engine: Engine, counts: Counter[str]) -> Blocks:
    return tuple(
        block.model_copy(update={"body": _by_name(key, block.body, engine, counts)})
        if isinstance(block.body, str)
        else block
        for block in blocks
    )


def _by_name(key: str, value: str, engine: Engine, counts: Counter[str]) -> str:
    replaced = engine.named(key, value, counts)
    return engine.said(value, counts) if replaced is None else replaced
