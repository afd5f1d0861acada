"""The writer's end of an import: facts into mirrored sessions, each of them once.

1. Before the first fact of a session its stored event ids are read.
2. A fact whose id is stored is skipped; its RedactionApplied goes with it.
3. The others go out in batches, in order. `known_seq` is the head at which the ids were
   read or the last batch ended, so a batch holds fewer facts of a session than the log
   remembers ids: what somebody else recorded meanwhile is answered DUPLICATE or TOO_OLD.
4. Where an answer shows somebody else at work on a session, its ids are read again.
5. At the end, what is stored from this source and was not seen in it raises an alarm:
   the source shrank or was rewritten. Both are kept.
"""

import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from foldline.errors import AppendRefusedError, RedactionError
from foldline.faults import crash_point
from foldline.processors.log import Log
from foldline.producers.identity import derived_id
from foldline.producers.importing import Alarm, ImportedSession, ImportReport
from foldline.producers.prepare import Draft, Prepared, Preparer
from foldline.producers.redaction import withheld
from foldline.schemas import verdicts as kinds
from foldline.schemas.events import RedactionApplied, SessionCreated, type_of
from foldline.schemas.recorded import Append
from foldline.schemas.state import MIRRORED, WINDOW
from foldline.schemas.verdicts import Verdict

BATCH_BYTES = 4 * 1024 * 1024
"""A batch goes out at this size even if it holds few events."""

PER_SESSION_MAX = WINDOW - 28
"""A batch goes out when it holds so many facts of one session: below the log's window,
by a margin for a few appends of others."""

RESYNCS_MAX = 100
"""How often a batch is made anew because somebody else appends to the same sessions."""


@dataclass(slots=True)
class _Session:
    """What is known of a session.

    `unseen` are ids stored but not yet met in the source, with their seqs. `head` is
    where the session will stand when all that waits is recorded, `known` where its
    ids are known up to, `stored_head` where it stood before the import. `closed`: not
    to be written to, it is no mirror.
    """

    unseen: dict[int, int] = field(default_factory=dict[int, int])
    head: int = 0
    known: int = 0
    stored_head: int = 0
    added: int = 0
    closed: bool = False


class Mirror:
    """Takes the facts of one source and records what is new of them."""

    def __init__(
        self,
        log: Log,
        preparer: Preparer,
        *,
        report: ImportReport,
        batch_max: int,
        on_batch: Callable[[], None],
    ) -> None:
        self._log = log
        self._preparer = preparer
        self._report = report
        self._batch_max = batch_max
        self._on_batch = on_batch
        self._sessions: dict[str, _Session] = {}
        self._waiting: list[Prepared] = []
        self._waiting_bytes = 0
        self.accepted = Counter[str]()
        """How many facts of each type the log took in: none that it had already."""

    def put(self, draft: Draft) -> int:
        """Record a fact unless it is recorded; the seq at which it stands, or will."""
        session = self._session(draft.envelope.session_id)
        seq = session.unseen.pop(_number(draft.envelope.event_id), 0)
        if not seq and isinstance(draft.event, SessionCreated) and session.stored_head:
            return 1
        if session.closed:
            return session.head
        if seq:
            self._skip(session, draft, seq)
            return seq
        main, *redaction = self._prepared(draft)
        self._add(session, main)
        seq = session.head
        for prepared in redaction:
            self._add(session, prepared)
        return seq

    def place_of(self, session_id: str, event_id: str) -> int:
        """The seq at which a fact stands, or will stand if it is put next."""
        session = self._session(session_id)
        return session.unseen.get(_number(event_id)) or session.head + 1

    def is_closed(self, session_id: str) -> bool:
        """Whether a session is in the log and is no mirror: nothing of it is recorded."""
        return self._session(session_id).closed

    @property
    def heads(self) -> dict[str, int]:
        """Where each session stands that was written to or looked at."""
        return {name: session.head for name, session in self._sessions.items()}

    def close(self, *, system: str, stream: str) -> None:
        """Record what waits, and look for what the source no longer holds."""
        self.flush()
        for session_id, session in self._sessions.items():
            self._report.sessions.append(
                ImportedSession(session_id, session.head, session.added)
            )
            if session.unseen and not session.closed:
                self._look_for_loss(session_id, session, system, stream)

    # --- sessions --------------------------------------------------------------------

    def _session(self, session_id: str) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = self._read(session_id)
        return session

    def _read(self, session_id: str) -> _Session:
        state = self._log.state(session_id)
        if state is not None and state.mode != MIRRORED:
            detail = "a session of this id is in the log and is no mirror"
            self._report.alarms.append(Alarm("OWNED", session_id, detail))
            return _Session(head=state.seq, stored_head=state.seq, closed=True)
        stored = self._stored(session_id)
        head = len(stored)
        return _Session(unseen=stored, head=head, known=head, stored_head=head)

    def _stored(self, session_id: str) -> dict[int, int]:
        """The ids of a session and the seqs at which they stand."""
        ids = enumerate(self._log.event_ids(session_id), start=1)
        return {_number(event_id): seq for seq, event_id in ids}

    def _skip(self, session: _Session, draft: Draft, seq: int) -> None:
        """It is stored: so is its redaction, unless a crash came in between."""
        self._preparer.remember(draft)
        envelope = draft.envelope
        redaction = derived_id("redaction", envelope.session_id, envelope.event_id)
        stored = session.unseen.pop(_number(redaction), 0)
        if not stored and seq == session.stored_head == session.head:
            for prepared in self._prepared(draft)[1:]:
                self._add(session, prepared)

    # --- appending -------------------------------------------------------------------

    def _prepared(self, draft: Draft) -> list[Prepared]:
        """Prepared; with nothing of its content where the redactor failed."""
        try:
            return self._preparer.prepare(draft)
        except RedactionError:
            blank = Draft(draft.envelope, withheld(draft.event))
            self._report.redactions["failed"] += 1
            return self._preparer.prepare(blank)

    def _add(self, session: _Session, prepared: Prepared) -> None:
        session.head += 1
        self._waiting.append(prepared)
        self._waiting_bytes += len(prepared.content)
        if isinstance(prepared.event, RedactionApplied):
            for rule in prepared.event.rules:
                self._report.redactions[rule.rule] += rule.count
        if (
            session.head - session.known >= PER_SESSION_MAX
            or len(self._waiting) >= self._batch_max
            or self._waiting_bytes >= BATCH_BYTES
        ):
            self.flush()

    def flush(self) -> None:
        """Record what waits.

        Raises:
            LogUnavailableError: no answer. What waited is given up: the same facts, put
                into another mirror, are recorded once.
        """
        waiting, self._waiting = self._waiting, []
        self._waiting_bytes = 0
        resyncs = 0
        while waiting:
            verdicts = self._log.append(self._appends(waiting))
            crash_point("CP_IMPORT_AFTER_BATCH")
            waiting = self._answered(waiting, verdicts)
            self._on_batch()
            if waiting and (resyncs := resyncs + 1) > RESYNCS_MAX:
                raise _refused(waiting[0], verdicts[-1])

    def _appends(self, waiting: list[Prepared]) -> list[Append]:
        return [
            Append(
                prepared.envelope,
                prepared.event,
                prepared.content,
                known_seq=self._sessions[prepared.envelope.session_id].known,
                requires=prepared.requires,
                schema_name=type_of(prepared.event),
            )
            for prepared in waiting
        ]

    def _answered(self, waiting: list[Prepared], verdicts: list[Verdict]) -> list[Prepared]:
        """Take the answers in; what has to be sent again because others append too.

        Raises:
            AppendRefusedError: the first that was refused; the others are counted.
        """
        again: list[Prepared] = []
        refused: AppendRefusedError | None = None
        heads: dict[str, int] = {}
        shared: set[str] = set()
        for prepared, verdict in zip(waiting, verdicts, strict=True):
            session = self._sessions[verdict.session_id]
            before = heads.get(verdict.session_id, session.known)
            heads[verdict.session_id] = verdict.current_seq
            if verdict.kind == kinds.ACCEPTED:
                session.added += 1
                self._report.events += 1
                self.accepted[type_of(prepared.event)] += 1
            elif verdict.kind == kinds.TOO_OLD:
                again.append(prepared)
            elif verdict.kind not in (kinds.DUPLICATE, kinds.EXISTS):
                refused = refused or _refused(prepared, verdict)
            if verdict.kind != kinds.ACCEPTED or verdict.seq != before + 1:
                shared.add(verdict.session_id)
        if refused is not None:
            raise refused
        for session_id, head in heads.items():
            self._sessions[session_id].known = self._sessions[session_id].head = head
        return self._resynced(shared, again) if shared else again

    def _resynced(self, shared: set[str], again: list[Prepared]) -> list[Prepared]:
        """Somebody else is at work on these sessions: read what they hold by now."""
        left: list[Prepared] = again
        for session_id in shared:
            session = self._sessions[session_id]
            stored = self._stored(session_id)
            # What stood there before the import is listed already, or was met. Of the
            # rest, ids that were met do not come again: it does no harm to list them.
            for number, seq in stored.items():
                if seq > session.stored_head:
                    session.unseen[number] = seq
            session.known = session.head = len(stored)
            mine = [p for p in left if p.envelope.session_id == session_id]
            new = [p for p in mine if _number(p.envelope.event_id) not in stored]
            left = [p for p in left if p.envelope.session_id != session_id] + new
            session.head += len(new)
        return left

    # --- loss ------------------------------------------------------------------------

    def _look_for_loss(
        self, session_id: str, session: _Session, system: str, stream: str
    ) -> None:
        """Raise an alarm for what came from this source and is no longer in it."""
        gone: list[int] = []
        last = 0
        for recorded in self._log.structure(session_id, upto_seq=session.stored_head):
            source = recorded.envelope.source
            if source is None or (source.system, source.stream) != (system, stream):
                continue
            if isinstance(recorded.event, RedactionApplied):
                continue
            if _number(recorded.envelope.event_id) in session.unseen:
                gone.append(recorded.seq)
            else:
                last = recorded.seq
        if not gone:
            return
        kind = "SHRUNK" if gone[0] > last and not session.added else "REWRITTEN"
        self._report.alarms.append(
            Alarm(
                kind,
                session_id,
                f"{len(gone)} events were imported from this file and are no longer in "
                f"it; they are kept",
                len(gone),
                gone[0],
                gone[-1],
            )
        )


def _refused(prepared: Prepared, verdict: Verdict) -> AppendRefusedError:
    session_id = prepared.envelope.session_id
    return AppendRefusedError(type_of(prepared.event), session_id, verdict)


def _number(event_id: str) -> int:
    return uuid.UUID(event_id).int
