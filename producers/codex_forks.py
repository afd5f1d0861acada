"""What a fork's rollout repeats of its parent's: records with new timestamps.

They are the fork's history and are kept as that; the tokens that they count were used by
the parent, and the fork is charged only its own. They are known by the parent's rollout
where it is found, else by what the log holds of the parent, else by the age of their
turn: its id and that of the session are UUIDv7, which say when they were made.
"""

import uuid
from collections import Counter
from collections.abc import Iterator
from glob import escape
from pathlib import Path

from foldline.processors.log import Log
from foldline.producers.codex_records import SYSTEM, Record, is_codex
from foldline.producers.identity import derived_id
from foldline.producers.importing import read_pieces
from foldline.producers.json_fields import Json, as_id, as_object
from foldline.producers.openai_facts import EXTRA, USAGE
from foldline.schemas.state import MIRRORED

SIBLINGS_MAX = 1_000
"""How many files are looked at, by their first record, for a parent's rollout."""

DATE_FOLDERS = 3
"""Rollouts lie in folders of year, month and day, below one for all."""

_V7 = 7
_V7_CLOCK_SHIFT = 80


class Copied:
    """Tells whether a count of tokens is one that the parent's rollout holds."""

    def __init__(
        self, session_id: str, *, keys: set[str], stored: set[str], parent: str
    ) -> None:
        self._session_id = session_id
        self._keys = keys
        self._stored = stored
        self._parent = parent
        self._in_prefix = True

    def takes(self, key: str, turn_id: str) -> bool:
        """Whether it is one; the first that is none ends the copied beginning."""
        if not self._parent or not self._in_prefix:
            return False
        known = bool(self._keys or self._stored)
        by_parent = key in self._keys or any(
            derived_id(SYSTEM, self._parent, key, str(slot)) in self._stored
            for slot in (USAGE, EXTRA)
        )
        copied = by_parent if known else _is_older(turn_id, self._session_id)
        self._in_prefix = copied
        return copied


def copied_from(log: Log, path: Path, head: Json, *, record_max_bytes: int) -> Copied:
    """What a rollout may have copied, by the first record about its session."""
    session_id = as_id(head.get("id"))
    parent = parent_of(head)
    keys: set[str] = set()
    stored: set[str] = set()
    if parent:
        file = _rollout_of(path, parent, record_max_bytes)
        if file is not None:
            keys = set(_token_keys(file, record_max_bytes))
        elif _is_mirrored(log, parent):
            stored = set(log.event_ids(parent))
    return Copied(session_id, keys=keys, stored=stored, parent=parent)


def parent_of(head: Json) -> str:
    """The session that this one was forked from, or that started it as a subagent."""
    spawned = spawned_by(head)
    parent = spawned or as_id(head.get("forked_from_id"))
    return "" if parent == as_id(head.get("id")) else parent


def spawned_by(head: Json) -> str:
    """The session that started this one as its subagent, or an empty string."""
    subagent = as_object(as_object(head.get("source")).get("subagent"))
    thread = as_object(subagent.get("thread_spawn"))
    named = as_id(thread.get("parent_thread_id"))
    return named or (as_id(head.get("parent_thread_id")) if subagent else "")


class Keys:
    """Names records by what they say and by how many of these came before."""

    def __init__(self) -> None:
        self._occurred: Counter[str] = Counter()

    def of(self, record: Record) -> str:
        """The key of the next record."""
        digest = record.digest()
        key = f"{digest}:{self._occurred[digest]}"
        self._occurred[digest] += 1
        return key


def _is_mirrored(log: Log, session_id: str) -> bool:
    state = log.state(session_id)
    return state is not None and state.mode == MIRRORED


def _is_older(turn_id: str, session_id: str) -> bool:
    turn, session = _made_ms(turn_id), _made_ms(session_id)
    return turn is not None and session is not None and turn < session


def _made_ms(text: str) -> int | None:
    """When a UUIDv7 was made, in milliseconds since 1970; None for what is none."""
    try:
        parsed = uuid.UUID(text)
    except ValueError:
        return None
    return parsed.int >> _V7_CLOCK_SHIFT if parsed.version == _V7 else None


def _rollout_of(path: Path, session_id: str, record_max_bytes: int) -> Path | None:
    """The file of a session: beside this one, or in its place among all rollouts."""
    for file in _candidates(path, session_id):
        if not file.is_file():
            continue
        for piece in read_pieces(file, record_max_bytes=record_max_bytes):
            if piece.record is not None and is_codex(piece.record):
                if Record(piece, piece.record).session == session_id:
                    return file
                break
    return None


def _candidates(path: Path, session_id: str) -> Iterator[Path]:
    """Files named after the session first, then those beside, none of them twice."""
    folders = path.resolve().parents
    here, top = folders[0], folders[min(DATE_FOLDERS, len(folders) - 1)]
    named = f"*{escape(session_id)}*.jsonl"
    dated = all(folder.name.isdigit() for folder in folders[:DATE_FOLDERS])
    yield from sorted(top.glob("*/" * DATE_FOLDERS + named) if dated else here.glob(named))
    beside = sorted(here.glob("*.jsonl"))[:SIBLINGS_MAX]
    yield from (file for file in beside if session_id not in file.name)


def _token_keys(path: Path, record_max_bytes: int) -> Iterator[str]:
    keys = Keys()
    for piece in read_pieces(path, record_max_bytes=record_max_bytes):
        if piece.record is not None and "token_count" in piece.raw:
            record = Record(piece, piece.record)
            if record.subtype == "token_count":
                yield keys.of(record)
