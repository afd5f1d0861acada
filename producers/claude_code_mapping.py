"""What becomes of each record of a Claude Code transcript, one after another.

Which session, branch and parent it has, whether it is a copy or noise, and its facts.
"""

from dataclasses import dataclass
from typing import NamedTuple

from foldline.processors.anomalies import MISSING_PARENT_ID
from foldline.producers.claude_code_harness import (
    map_attachment,
    map_permission_mode,
    map_queue,
    map_system,
)
from foldline.producers.claude_code_messages import map_assistant, map_user
from foldline.producers.claude_code_records import SYSTEM, Record
from foldline.producers.claude_code_sessions import (
    FOREIGN,
    HARNESS,
    MAIN,
    MAPPED,
    NOTHING,
    WRITER,
    Scribe,
    Thread,
)
from foldline.producers.identity import derived_id
from foldline.producers.importing import ImportReport, Piece
from foldline.producers.json_fields import ID_MAX, as_object, as_text, canonical_json
from foldline.producers.mirror import Mirror
from foldline.producers.overflow import Overflow, Remembered
from foldline.producers.prepare import Draft
from foldline.schemas.blocks import json_block, text_block
from foldline.schemas.envelope import INFERRED, Envelope
from foldline.schemas.events import ForeignRecord, SessionCreated, ToolBackgrounded

NOISE: frozenset[str] = frozenset(
    {
        "summary",  # may be about another session, and no other record refers to it
        "file-history-snapshot",  # backups of files that the harness keeps for itself
        "progress/hook_progress",
        "progress/bash_progress",
        "progress/mcp_progress",
        "progress/query_update",
        "progress/search_results_received",
        "ai-title",
        "custom-title",
        "agent-name",
        "last-prompt",  # repeats a prompt that is there
        "mode",
        "bridge-session",
    }
)
"""Types of records that say nothing about what happened: counted, not recorded."""

AGENT_SESSION = "agent-"
"""How the id of a session begins that a subagent has in a file of its own."""


class _Asked(NamedTuple):
    """How many calls of one id are open, and whether one of them has a result."""

    open: int = 0
    closed: bool = False


class _Counts:
    """Calls and results as the records hold them, whatever becomes of these."""

    def __init__(self, overflow: Overflow) -> None:
        self.calls = 0
        self.results = 0
        self.orphans = 0
        self.duplicates = 0
        self.compactions = 0
        self.open = 0
        self._asked = Remembered(_Asked, overflow)

    def take(self, record: Record) -> None:
        """Count a record, copies included."""
        if record.type == "system" and record.subtype == "compact_boundary":
            self.compactions += 1
        for block in record.blocks:
            if block.get("type") == "tool_use" and block.get("id"):
                self._call(str(block["id"]))
            elif block.get("type") == "tool_result" and block.get("tool_use_id"):
                self._result(str(block["tool_use_id"]))

    def _call(self, call: str) -> None:
        self.calls += 1
        self.open += 1
        asked = self._asked.get(call) or _Asked()
        self._asked[call] = asked._replace(open=asked.open + 1)

    def _result(self, call: str) -> None:
        self.results += 1
        asked = self._asked.get(call) or _Asked()
        if asked.open > 0:
            self.open -= 1
            self._asked[call] = _Asked(asked.open - 1, closed=True)
        elif asked.closed:
            self.duplicates += 1
        else:
            self.orphans += 1


class _Seen(NamedTuple):
    """A record that was read, and the fact that stands for it."""

    event_id: str | None
    session_id: str
    branch: str | None


@dataclass(frozen=True, slots=True)
class Told:
    """A call that the file told of; `ended` says that of its result too."""

    session_id: str
    call_id: str
    ended: bool


class Mapping:
    """Takes the pieces of one file, in order, and gives their facts to a mirror."""

    def __init__(
        self, mirror: Mirror, report: ImportReport, *, stream: str, first_session: str
    ) -> None:
        self._mirror = mirror
        self._report = report
        self._stream = stream
        self._session = first_session
        self._overflow = Overflow()
        self._counts = _Counts(self._overflow)
        self._threads: dict[str, Thread] = {}
        self._seen = Remembered(_Seen, self._overflow)
        self._digests = Remembered(bool, self._overflow)
        self._occurred = Remembered(int, self._overflow)
        self._agent_calls: dict[str, str] = {}

    def take(self, piece: Piece) -> None:
        """Take the next piece; a torn tail is reported and may still grow."""
        if piece.record is not None:
            self._report.records += 1
            self._take_record(Record(piece, piece.record))
            return
        self._report.reject(piece)
        if not piece.torn:
            record = Record(piece, {})
            scribe = self._scribe(record, self._session, None, None, again=False)
            _keep(scribe, "undecodable", piece.reason)
            self._put(scribe, None)

    def knows(self, session_id: str) -> bool:
        """Whether the file told of this session, so that it is created."""
        thread = self._threads.get(session_id)
        return thread is not None and thread.created

    def call_of(self, provider_call_id: str) -> Told | None:
        """The call of a provider's id, in whichever session of the file."""
        for thread in self._threads.values():
            if call_id := thread.calls.get(provider_call_id):
                ended = provider_call_id not in thread.open_calls
                return Told(thread.session_id, call_id, ended=ended)
        return None

    def prompts_of(self, session_id: str) -> list[str]:
        """The begins of the newest prompts of a session, secrets and all."""
        thread = self._threads.get(session_id)
        return list(thread.prompts) if thread is not None else []

    def close(self) -> None:
        """Write the counts of the whole file into the report."""
        counts = self._counts
        self._report.tool_calls = counts.calls
        self._report.tool_results = counts.results
        self._report.open_tool_calls = counts.open
        self._report.orphan_results = counts.orphans
        self._report.duplicate_results = counts.duplicates
        self._report.compactions = counts.compactions

    def _take_record(self, record: Record) -> None:
        """One record becomes exactly one of: a copy, noise, foreign, mapped."""
        self._counts.take(record)
        self._session = session_id = self._session_of(record)
        if record.uuid and self._is_copy(record):
            self._report.copies += 1
            return
        before = self._seen.get(record.uuid)
        parent = self._seen.get(record.parent)
        event_id = parent.event_id if parent else None
        if record.parent and parent is None:
            self._report.missing_parents += 1
            event_id = MISSING_PARENT_ID
        branch = self._branch(record, session_id, parent)
        if record.label in NOISE:
            self._report.noise[record.label] += 1
        else:
            again = before is not None
            self._report.flagged += again
            scribe = self._scribe(record, session_id, event_id, branch, again=again)
            self._map(scribe)
            event_id = self._put(scribe, parent) or event_id
        if record.uuid and before is None:
            self._seen[record.uuid] = _Seen(event_id, session_id, branch)

    def _is_copy(self, record: Record) -> bool:
        """Whether its id was seen with equal content, be it the first of that id or not."""
        digest = record.content_digest()  # the id is part of it
        seen = digest in self._digests
        self._digests[digest] = True
        return seen

    # --- where a record belongs ------------------------------------------------------

    def _session_of(self, record: Record) -> str:
        """The record's own session, else that of the record before it."""
        if not record.agent:
            return record.session or self._session
        own = AGENT_SESSION + record.agent
        base = record.session or self._session
        if base == own or base.endswith(f"/{own}"):
            return base
        return f"{base}/{own}"[-ID_MAX:]

    def _branch(self, record: Record, session_id: str, parent: _Seen | None) -> str | None:
        """The branch of a sidechain: the uuid of its root. A child session has none."""
        if not record.sidechain or _is_child(session_id):
            return None
        if parent is not None and parent.branch is not None:
            return parent.branch
        return record.uuid or record.piece.sha256.hex()

    def _scribe(
        self,
        record: Record,
        session_id: str,
        parent_event_id: str | None,
        branch: str | None,
        *,
        again: bool,
    ) -> Scribe:
        thread = self._threads.get(session_id)
        if thread is None:
            thread = Thread(session_id, self._overflow, child=_is_child(session_id))
            thread.cwd = as_text(record.fields.get("cwd"))
            self._threads[session_id] = thread
        key = record.uuid
        if again or not key:
            # Nothing tells it from others but its bytes, and which one of these it is.
            sha256 = record.piece.sha256
            before = self._occurred.get(sha256) or 0
            key = f"{sha256.hex()}:{before}"
            self._occurred[sha256] = before + 1
        return Scribe(record, thread, key, self._stream, parent_event_id, branch)

    # --- what becomes of it ----------------------------------------------------------

    def _map(self, scribe: Scribe) -> None:
        try:
            became = self._became(scribe)
        except RecursionError:
            scribe.facts.clear()
            became = FOREIGN
        if became == NOTHING:
            self._report.noise[scribe.record.label] += 1
        elif became == MAPPED:
            self._report.mapped += 1
        else:
            self._report.foreign[scribe.record.label] += 1
            _keep(scribe, scribe.record.label, "")

    def _became(self, scribe: Scribe) -> str:
        record = scribe.record
        match record.type:
            case "user":
                became = map_user(scribe)
                self._note_agents(scribe)
            case "assistant":
                became = map_assistant(scribe)
            case "system":
                place = self._mirror.place_of(
                    scribe.thread.session_id, scribe.event_id(MAIN)
                )
                became = map_system(scribe, place)
            case "queue-operation":
                became = map_queue(scribe)
            case "attachment":
                became = map_attachment(scribe)
            case "permission-mode":
                became = map_permission_mode(scribe)
            case _:
                self._note_agent_progress(scribe)
                became = FOREIGN
        return became

    def _note_agents(self, scribe: Scribe) -> None:
        """A background agent has the handle that its session will be named after."""
        for fact in scribe.facts:
            if isinstance(fact.event, ToolBackgrounded):
                self._agent_calls[fact.event.handle] = fact.event.call_id

    def _note_agent_progress(self, scribe: Scribe) -> None:
        """Progress of an agent is kept as it is; it tells which call the agent is of."""
        fields = scribe.record.fields
        agent = as_text(as_object(fields.get("data")).get("agentId"))
        call = scribe.thread.calls.get(as_text(fields.get("parentToolUseID")))
        if agent and call:
            self._agent_calls[agent] = call

    def _call_of(self, record: Record, session_id: str) -> str | None:
        """The call of an agent: as its progress or launch says, or its prompt."""
        named = self._agent_calls.get(record.agent)
        parent = self._threads.get(session_id.rpartition("/")[0])
        if named is not None or parent is None:
            return named
        return parent.call_of_agent(record.parent, record.text)

    def _put(self, scribe: Scribe, parent: _Seen | None) -> str | None:
        """Give the facts to the mirror; the id of the one that stands for the record."""
        if not scribe.facts:
            return None
        if not scribe.thread.created:
            scribe.thread.created = True
            self._mirror.put(self._creation(scribe, parent))
        for fact in scribe.facts:
            self._mirror.put(fact)
        return scribe.main_event_id()

    def _creation(self, scribe: Scribe, parent: _Seen | None) -> Draft:
        """The session's creation: the same id whichever file tells of it first."""
        record = scribe.record
        session_id = scribe.thread.session_id
        relation, parent_session_id = _relation(record, session_id, parent)
        event = SessionCreated(
            agent=SYSTEM,
            mode="MIRRORED",
            relation=relation,
            parent_session_id=parent_session_id,
            parent_call_id=self._call_of(record, session_id) if record.agent else None,
            environment_json=_environment(record),
        )
        envelope = Envelope(
            event_id=derived_id(SYSTEM, session_id, "session"),
            session_id=session_id,
            occurred_at=record.occurred_at,
            writer=WRITER,
            actor=HARNESS,
            certainty=INFERRED,
            source=scribe.source(),
        )
        return Draft(envelope, event)


def _is_child(session_id: str) -> bool:
    """Whether a session is a subagent's: in its own file, or with its agent's id."""
    return session_id.rpartition("/")[2].startswith(AGENT_SESSION)


def _relation(
    record: Record, session_id: str, parent: _Seen | None
) -> tuple[str, str | None]:
    """How a session began: from its first record, and the session of that one's parent."""
    if _is_child(session_id):
        own = record.session
        return "SUBAGENT", own if own and own != session_id else None
    forked = as_text(as_object(record.fields.get("forkedFrom")).get("sessionId"))
    if forked and forked != session_id:
        return "CONTINUATION", forked[:ID_MAX]
    if parent is not None and parent.session_id != session_id:
        return "CONTINUATION", parent.session_id
    return "ROOT", None


def _environment(record: Record) -> str | None:
    named = {
        "cwd": as_text(record.fields.get("cwd")),
        "git_branch": as_text(record.fields.get("gitBranch")),
        "version": as_text(record.fields.get("version")),
        "entrypoint": as_text(record.fields.get("entrypoint")),
    }
    known = {name: value for name, value in named.items() if value}
    return canonical_json(known) if known else None


def _keep(scribe: Scribe, record_type: str, reason: str) -> None:
    """Keep what cannot be mapped as it is, in its place."""
    record = scribe.record
    raw = record.piece.raw
    event = ForeignRecord(
        system=SYSTEM,
        record_type=record_type,
        record_id=record.uuid or None,
        parent_record_id=record.parent or None,
        reason=reason,
        blocks=(text_block(raw) if reason else json_block(raw),),
    )
    scribe.write(MAIN, event, HARNESS)
