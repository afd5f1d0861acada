"""What a fork's rollout repeats of its parent's: records with new timestamps.

They are the fork's history and are kept as that; the tokens that they count were used by
the parent, and the fork is charged only its own. They are known by the parent's rollout
where it is found, else by what the log holds of the parent, else by the age of their
turn: its id and that of the session are UUIDv7, which say when they were made. What was
decided once stays, whatever is found later: the fork's own facts say it.
"""

import re
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from foldline.processors.log import Log
from foldline.producers.codex_records import SYSTEM, Record, is_codex, session_named
from foldline.producers.identity import derived_id
from foldline.producers.importing import read_pieces
from foldline.producers.json_fields import Json, as_id, as_object
from foldline.producers.openai_facts import EXTRA, MAIN, USAGE
from foldline.schemas.state import MIRRORED

SIBLINGS_MAX = 1_000
"""How many files are looked at, by their first record, for a parent's rollout."""

DATE_FOLDERS = 3
"""Rollouts lie in folders of year, month and day, below one for all."""

_PLAIN = re.compile(r"[\w-]{1,200}", re.ASCII)
_V7 = 7
_V7_CLOCK_SHIFT = 80


class Copied:
    """Tells whether a count of tokens is one that the parent's rollout holds."""

    def __init__(
        self,
        session_id: str,
        parent: str,
        *,
        keys: set[str],
        stored: set[str],
        decided: set[str],
    ) -> None:
        """Remember what tells.

        Args:
            session_id: the fork.
            parent: what it was forked from, else empty.
            keys: of the counts in the parent's rollout, where that was found.
            stored: ids of the parent's facts, where its rollout was not found.
            decided: ids of the fork's own facts, from an import before this one.
        """
        self.parent = parent
        self._session_id = session_id
        self._keys = keys
        self._stored = stored
        self._decided = decided
        self._in_prefix = bool(parent)

    def takes(self, key: str, turn_id: str) -> bool:
        """Whether it is one; the first that is none ends the copied beginning."""
        if not self._in_prefix:
            return False
        if self._holds(self._decided, self._session_id, key, MAIN):
            return True
        self._in_prefix = not self._holds(
            self._decided, self._session_id, key, USAGE, EXTRA
        ) and self._is_parents(key, turn_id)
        return self._in_prefix

    def _is_parents(self, key: str, turn_id: str) -> bool:
        if self._keys or self._stored:
            stored = self._holds(self._stored, self.parent, key, MAIN, USAGE, EXTRA)
            return stored or key in self._keys
        return _is_older(turn_id, self._session_id)

    @staticmethod
    def _holds(facts: set[str], session_id: str, key: str, *slots: int) -> bool:
        ids = (derived_id(SYSTEM, session_id, key, str(slot)) for slot in slots)
        return bool(facts) and any(one in facts for one in ids)


def copied_from(log: Log, path: Path, head: Json, *, record_max_bytes: int) -> Copied:
    """What a rollout may have copied, by the first record about its session."""
    session_id = session_named(head)
    parent = parent_of(head)
    keys: set[str] = set()
    stored: set[str] = set()
    decided: set[str] = set()
    if parent:
        decided = set(log.event_ids(session_id)) if _is_mirrored(log, session_id) else set()
        file = _rollout_of(path, parent, record_max_bytes)
        if file is not None:
            keys = set(_token_keys(file, record_max_bytes))
        elif _is_mirrored(log, parent):
            stored = set(log.event_ids(parent))
    return Copied(session_id, parent, keys=keys, stored=stored, decided=decided)


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
    if _PLAIN.fullmatch(session_id):  # it is part of a pattern, and somebody else's word
        named = f"*{session_id}*.jsonl"
        dated = all(folder.name.isdigit() for folder in folders[:DATE_FOLDERS])
        yield from sorted(
            top.glob("*/" * DATE_FOLDERS + named) if dated else here.glob(named)
        )
    beside = sorted(here.glob("*.jsonl"))[:SIBLINGS_MAX]
    yield from (file for file in beside if session_id not in file.name)


def _token_keys(path: Path, record_max_bytes: int) -> Iterator[str]:
    keys = Keys()
    for piece in read_pieces(path, record_max_bytes=record_max_bytes):
        if piece.record is not None and "token_count" in piece.raw:
            record = Record(piece, piece.record)
            if record.subtype == "token_count":
                yield keys.of(record)
