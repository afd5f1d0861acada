"""What becomes of each record of a Codex rollout, one after another."""

from foldline.producers.codex_events import (
    COPY,
    Progress,
    instruct,
    map_compacted,
    map_event,
    map_turn_context,
)
from foldline.producers.codex_forks import Copied, Keys, parent_of, spawned_by
from foldline.producers.codex_records import COUNTED_BY, SYSTEM, Record
from foldline.producers.identity import derived_id
from foldline.producers.importing import ImportReport, Piece
from foldline.producers.json_fields import Json, as_id, as_object, as_text, canonical_json
from foldline.producers.mirror import Mirror
from foldline.producers.openai_facts import (
    FOREIGN,
    MAIN,
    MAPPED,
    NOTHING,
    Counts,
    Scribe,
    Thread,
)
from foldline.producers.openai_items import count_item, map_item
from foldline.producers.prepare import Draft
from foldline.schemas.blocks import json_block, text_block
from foldline.schemas.envelope import INFERRED, Envelope, Source
from foldline.schemas.events import ForeignRecord, SessionCreated

NOISE: frozenset[str] = frozenset(
    {
        "state",  # a filler of the bare form, without content
        "event_msg/user_message",  # items say the same
        "event_msg/agent_message",
        "event_msg/agent_reasoning",
        "event_msg/agent_reasoning_raw_content",
        "event_msg/agent_reasoning_section_break",
        "event_msg/context_compacted",  # `compacted` says it, and with what
        "event_msg/item_started",
        "event_msg/item_completed",
        "event_msg/thread_name_updated",
    }
)
"""Records that say nothing, or again what others say: counted, not recorded."""


class Mapping:
    """Takes the pieces of one rollout, in order, and gives their facts to a mirror."""

    def __init__(
        self,
        mirror: Mirror,
        report: ImportReport,
        *,
        stream: str,
        session_id: str,
        head: Json,
        copied: Copied,
    ) -> None:
        self._mirror = mirror
        self._report = report
        self._stream = stream
        self._head = head
        self._thread = Thread(SYSTEM, session_id, child=bool(spawned_by(head)))
        self._progress = Progress(copied)
        self._keys = Keys()
        self._counts = Counts()
        self._metas: set[str] = set()

    def take(self, piece: Piece) -> None:
        """Take the next piece; a torn tail is reported and may still grow."""
        if piece.record is not None:
            self._report.records += 1
            self._take_record(Record(piece, piece.record))
            return
        self._report.reject(piece)
        if not piece.torn:
            record = Record(piece, {"undecodable": piece.sha256.hex()})
            scribe = self._scribe(record)
            _keep(scribe, record, "undecodable", piece.reason)
            self._put(scribe)

    def close(self) -> None:
        """Write the counts of the whole file into the report."""
        self._counts.write_into(self._report)

    def _take_record(self, record: Record) -> None:
        """One record becomes exactly one of: a copy, noise, foreign, mapped."""
        if record.kind == "response_item":
            count_item(self._counts, record.payload)
        self._counts.compactions += record.kind == "compacted"
        scribe = self._scribe(record)
        became = self._became(scribe, record)
        if became == NOTHING:
            self._report.noise[record.label] += 1
        elif became == COPY:
            self._report.copies += 1
            if record.subtype == "token_count":
                reason = f"{COUNTED_BY}{self._progress.copied.parent}"
                _keep(scribe, record, record.label, reason)
        elif became == MAPPED:
            self._report.mapped += 1
        else:
            self._report.foreign[record.label] += 1
            _keep(scribe, record, record.label, "")
        self._put(scribe, creates=became == MAPPED)

    def _became(self, scribe: Scribe, record: Record) -> str:
        if record.label in NOISE:
            return NOTHING
        try:
            return self._mapped(scribe, record)
        except RecursionError:
            scribe.facts.clear()
            return FOREIGN

    def _mapped(self, scribe: Scribe, record: Record) -> str:
        match record.kind:
            case "session_meta":
                return self._meta(scribe, record)
            case "turn_context":
                return map_turn_context(scribe, record, self._progress)
            case "response_item":
                return map_item(scribe, record.payload)
            case "event_msg":
                return map_event(scribe, record, self._progress)
            case "compacted":
                place = self._mirror.place_of(
                    self._thread.session_id, scribe.event_id(MAIN)
                )
                return map_compacted(scribe, record, place)
            case _:
                return FOREIGN

    def _meta(self, scribe: Scribe, record: Record) -> str:
        """The first record about this session creates it; others are kept or copies."""
        if record.digest() in self._metas:
            return COPY
        self._metas.add(record.digest())
        if record.payload is not self._head and record.payload != self._head:
            return FOREIGN
        base = record.payload.get("base_instructions")
        system = as_text(as_object(base).get("text", base))
        own = as_text(record.payload.get("instructions"))
        if system:
            instruct(scribe, "system", system)
        elif own:
            instruct(scribe, "developer", own)
        return MAPPED

    # --- writing ---------------------------------------------------------------------

    def _scribe(self, record: Record) -> Scribe:
        piece = record.piece
        source = Source(
            system=SYSTEM,
            stream=self._stream,
            position=str(piece.offset),
            sha256=piece.sha256,
        )
        return Scribe(self._thread, self._keys.of(record), source, record.occurred_at)

    def _put(self, scribe: Scribe, *, creates: bool = False) -> None:
        """Give the facts to the mirror, the session's creation before the first."""
        if not self._thread.created and (creates or scribe.facts):
            self._thread.created = True
            self._mirror.put(self._creation(scribe))
        for fact in scribe.facts:
            self._progress.prompts.note(fact.event, self._mirror.put(fact))

    def _creation(self, scribe: Scribe) -> Draft:
        session_id = self._thread.session_id
        parent = parent_of(self._head)
        relation = "FORK" if parent else "ROOT"
        event = SessionCreated(
            agent=SYSTEM,
            mode="MIRRORED",
            relation="SUBAGENT" if self._thread.child else relation,
            parent_session_id=parent or None,
            environment_json=_environment(self._head),
        )
        envelope = Envelope(
            event_id=derived_id(SYSTEM, session_id, "session"),
            session_id=session_id,
            occurred_at=scribe.occurred_at,
            writer=f"import:{SYSTEM}",
            actor=self._thread.harness,
            certainty=INFERRED,
            source=scribe.source,
        )
        return Draft(envelope, event)


def _environment(head: Json) -> str | None:
    git = as_object(head.get("git"))
    named = {
        "cwd": as_text(head.get("cwd")),
        "version": as_text(head.get("cli_version")),
        "originator": as_text(head.get("originator")),
        "model_provider": as_text(head.get("model_provider")),
        "git_branch": as_text(git.get("branch")),
        "git_commit": as_text(git.get("commit_hash")),
        "repository_url": as_text(git.get("repository_url")),
        "forked_from": as_id(head.get("forked_from_id")),
        "agent": as_text(head.get("agent_nickname")),
    }
    known = {name: value for name, value in named.items() if value}
    return canonical_json(known) if known else None


def _keep(scribe: Scribe, record: Record, record_type: str, reason: str) -> None:
    """Keep what cannot be mapped as it is, in its place."""
    raw = record.piece.raw
    event = ForeignRecord(
        system=SYSTEM,
        record_type=record_type,
        record_id=as_id(record.payload.get("id")) or None,
        reason=reason,
        blocks=(text_block(raw) if record.piece.record is None else json_block(raw),),
    )
    scribe.write(MAIN, event, scribe.thread.harness)
