"""A mirrored session back in the format of its source, checked by importing it again.

1. Its facts are grouped by the record that told them.
2. The format's exporter makes the records again; they are written to a file.
3. The file is imported into a log in memory, and compared fact by fact.

The caller decides what to do about what differs; see `Exported.lossless`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from foldline.errors import ExportRefusedError
from foldline.processors.log import Log
from foldline.producers import claude_code_export, codex_export, openai_agents_export
from foldline.producers.detect import CLAUDE_CODE, CODEX, OPENAI_AGENTS
from foldline.producers.source_bodies import Bodies
from foldline.producers.source_check import Compared, compare, losses
from foldline.producers.source_groups import Grouped, border_at, grouped
from foldline.producers.source_lines import Exporter, Line
from foldline.schemas.state import MIRRORED, SessionState

EVENTS_MAX = 200_000
"""How many events a session may have: it is compared in memory."""

LOOKED_AT_EVENTS = 1_000
"""Among how many of its first events the source of a session is looked for."""

EXPORTERS: dict[str, Exporter] = {
    CLAUDE_CODE: claude_code_export.records,
    CODEX: codex_export.records,
    OPENAI_AGENTS: openai_agents_export.items,
}
"""The exporters by the names of the formats that have a way back."""

DOCUMENTS: frozenset[str] = frozenset({OPENAI_AGENTS})
"""Formats that are one list of records, not a line for each."""

PARENT = "parent.jsonl"
"""The file beside an export that stands for the rollout of a fork's parent, for a while."""

ANY_SESSION = "jsonl, anthropic, openai-chat and openai-responses take any session"


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export holds, and how it differs from its session.

    `upto_seq` is the last seq that it tells. `redacted` counts places that hold a
    placeholder, as the log does: no loss.
    """

    system: str
    upto_seq: int
    records: int
    lost: dict[str, int] = field(default_factory=dict[str, int])
    examples: list[str] = field(default_factory=list[str])
    outside: int = 0
    redacted: int = 0

    @property
    def lossless(self) -> bool:
        """Whether it comes back as it is."""
        return not self.lost


def source_of(log: Log, state: SessionState) -> str:
    """The system that a session was read from; empty where foldline's own wrote it.

    What hooks told before their transcript was read has a source of its own.
    """
    first = ""
    events = log.structure(state.session_id, upto_seq=state.fork_seq + LOOKED_AT_EVENTS)
    for recorded in events:
        source = recorded.envelope.source
        if source is not None and source.system in EXPORTERS:
            return source.system
        first = first or (source.system if source else "")
    return first if state.mode == MIRRORED else ""


def check_way_back(session_id: str, found: str, wanted: str) -> None:
    """Refuse a format that a session did not come from, or that has no way back.

    Raises:
        ExportRefusedError: that.
    """
    if not found:
        reason = f"it was not read from another harness; {ANY_SESSION}"
    elif found not in EXPORTERS:
        reason = f"{found} has no way back, {', '.join(EXPORTERS)} have; {ANY_SESSION}"
    elif wanted not in ("source", found):
        reason = f"it was read from {found}; {ANY_SESSION}"
    else:
        return
    raise ExportRefusedError(session_id, wanted, reason)


def export_source(
    log: Log,
    session_id: str,
    path: Path,
    *,
    system: str,
    upto_seq: int,
) -> Exported:
    """Write a session into a file in its source's format, and compare what that tells.

    The file is to be in a folder of its own. Where `upto_seq` is in the middle of a
    record, the records before that are written: half of one is none.

    Raises:
        ExportRefusedError: it has more events than can be compared, or no whole record.
        BlobError: a blob is missing.
        OSError: the file cannot be written.
    """
    if upto_seq > EVENTS_MAX:
        reason = f"it has {upto_seq} events, {EVENTS_MAX} can be compared; jsonl takes it"
        raise ExportRefusedError(session_id, system, reason)
    border, told = _whole_records(log, session_id, system=system, upto_seq=upto_seq)
    lines = EXPORTERS[system](told, Bodies(log.blobs))
    write = _write_list if system in DOCUMENTS else _write
    places, longest = write(path, lines)
    parent = path.with_name(PARENT)
    outside = _write_parent(parent, told, Bodies(log.blobs))
    compared = compare(told, log.blobs, path, places=places, record_max_bytes=longest)
    compared.outside += outside
    parent.unlink(missing_ok=True)
    losses(compared, told.added)
    return _exported(told, compared, border)


def _whole_records(
    log: Log, session_id: str, *, system: str, upto_seq: int
) -> tuple[int, Grouped]:
    """What the records up to a seq tell that are whole there, and up to which seq."""
    border, end = border_at(log.structure(session_id), upto_seq)
    events = log.events(session_id, upto_seq=border) if border else ()
    told = grouped(events, session_id=session_id, system=system)
    if border < upto_seq and not told.groups:
        reason = f"its first record is whole at seq {end}, and not yet at seq {upto_seq}"
        raise ExportRefusedError(session_id, system, reason)
    return border, told


def _write(path: Path, lines: Iterator[Line]) -> tuple[dict[int, int | None], int]:
    """Write lines; which group begins at which byte, and the length of the longest."""
    places: dict[int, int | None] = {}
    at = longest = 0
    with path.open("wb") as file:
        for line in lines:
            if line.data is not None:
                places[at] = line.index
                at += file.write(line.data + b"\n")
                longest = max(longest, len(line.data) + 1)
    return places, longest


def _write_list(path: Path, lines: Iterator[Line]) -> tuple[dict[int, int | None], int]:
    """The same as one list: which group is the item of which number, and the length."""
    told = [line for line in lines if line.data is not None]
    size = path.write_bytes(b"[" + b",\n".join(line.data or b"" for line in told) + b"]\n")
    return {number: line.index for number, line in enumerate(told)}, size


def _write_parent(path: Path, told: Grouped, bodies: Bodies) -> int:
    """What the rollout of a fork's parent must hold; how many records of it are named.

    A fork is compared as it was imported: with its parent's rollout beside it.
    """
    lines = list(codex_export.of_the_parent(told, bodies)) if told.system == CODEX else []
    if lines:
        _write(path, iter(lines))
    return max(len(lines) - 1, 0)


def _exported(told: Grouped, compared: Compared, upto_seq: int) -> Exported:
    return Exported(
        system=told.system,
        upto_seq=upto_seq,
        records=compared.records,
        lost=dict(compared.lost.most_common()),
        examples=compared.examples,
        outside=compared.outside,
        redacted=len(told.redacted),
    )
