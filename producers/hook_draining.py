"""From the spool into the log: each record of a hook once, and not before its transcript.

1. What is new in the spool is read. Transcripts that it names are followed.
2. A record whose facts are in its transcript is put behind them; one whose session ended
   without, or that waited HOLD_MAX_S, is put with all that it was told. Others wait, and
   all whose transcript is there and not read to its end.
   The end of a session waits until nothing else of it does.
3. One that no log takes is set aside; one that another mirror took away is its own. Where
   the log refuses some of a batch, nothing of it counts: the next time each record
   goes alone, and it shows which are refused.
4. After the log's acknowledgement the records are taken away. A crash before that puts
   them again, under the same ids: they are recorded once.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

from foldline.errors import AppendRefusedError, BlobError, FoldlineError, LogError
from foldline.faults import crash_point
from foldline.processors.log import Log
from foldline.producers.claude_code_records import SYSTEM
from foldline.producers.growing import Growing
from foldline.producers.hook_facts import (
    MET_BY_CONTENT,
    SESSION_END,
    Met,
    agent_transcript,
    creation_of,
    fact_of,
    meeting,
)
from foldline.producers.hook_waiting import Refused, Waiting
from foldline.producers.import_run import mirror_for
from foldline.producers.importing import ImportReport
from foldline.producers.mirror import Mirror
from foldline.producers.prepare import Draft
from foldline.producers.redaction import Redactor
from foldline.producers.spool import Spooled
from foldline.schemas.events import HookRan
from foldline.settings import Settings

HOLD_MAX_S = 3_600
"""How long a record waits for its transcript, in seconds."""

END_GRACE_S = 10
"""How long after the end of a session its transcript may still be written, in seconds."""

_US = 1_000_000

HOOK_RAN = HookRan.__name__

_Stand = tuple[int, int]
"""A transcript that is open, and how far it was read."""

NOT_YET: Final = "not yet"
"""A transcript that is there, and not read to its end by now."""

Found = Growing | Literal["not yet"] | None

Find = Callable[[Path], Found]
"""The transcript of a path, read to its end by now; NOT_YET; None if there is none."""

NO_MIRROR = "its session is in the log and is no mirror"


@dataclass(frozen=True, slots=True)
class Drained:
    """What became of the spool: `recorded` records, what was set aside, how many wait.

    `unread` is what cannot be read, or taken away, by now.
    """

    recorded: int
    refused: list[Refused]
    unread: list[Refused]
    held: int


class _Batch:
    """What one drain puts into which mirrors, and how it finds transcripts."""

    def __init__(self, log: Log, find: Find, now_us: int, *, each_alone: bool) -> None:
        self.log = log
        self.each_alone = each_alone
        self.now_us = now_us
        self.put: list[str] = []
        self.alone: Mirror | None = None  # it knows what the log held when it was made
        self._find = cache(find)  # many records name the same transcript
        self._mirrors: dict[int, tuple[Mirror, int]] = {}
        self._recorded = 0

    def transcript(self, path: str | Path | None) -> Found:
        """The transcript of a path; None if there is none."""
        return self._find(Path(path)) if path else None

    def add(self, record_id: str, mirror: Mirror, facts: list[Draft]) -> None:
        """Put the facts of a record into a mirror."""
        self._mirrors.setdefault(id(mirror), (mirror, mirror.accepted[HOOK_RAN]))
        for fact in facts:
            mirror.put(fact)
        self.put.append(record_id)

    def add_alone(self, record_id: str, mirror: Mirror, facts: list[Draft]) -> None:
        """Record the facts of a record by a mirror that is its own."""
        for fact in facts:
            mirror.put(fact)
        mirror.flush()
        self._recorded += mirror.accepted[HOOK_RAN]
        self.put.append(record_id)

    def flush(self) -> None:
        """Record what was put.

        Raises:
            LogUnavailableError: the log gave no answer.
            AppendRefusedError, BlobError: the log refused some of it.
        """
        for mirror, _ in self._mirrors.values():
            mirror.flush()

    @property
    def recorded(self) -> int:
        """How many hooks of the batch the log took in: none that it had already."""
        counts = (mirror.accepted[HOOK_RAN] - had for mirror, had in self._mirrors.values())
        return self._recorded + sum(counts)


class HookSpool:
    """The spool of one log, and what of it waits."""

    def __init__(self, folder: Path, *, settings: Settings, redactor: Redactor) -> None:
        self._settings = settings
        self._redactor = redactor
        self._waiting = Waiting(folder)
        self._ends: dict[str, int] = {}
        self._before_end: Counter[str] = Counter()
        self._read_at: dict[str, _Stand] = {}
        self._recorded = 0  # and not told yet
        self._suspects: set[str] = set()
        """A batch that was refused: as long as one of it is there, each record goes alone,
        so that they come in order, and it shows which is refused."""

    def look(self) -> set[Path]:
        """Read what is new; the transcripts that are waited for."""
        there = self._waiting.look()
        self._read_at = {name: at for name, at in self._read_at.items() if name in there}
        self._suspects &= there
        waiting = self._waiting.records.values()
        paths = {Path(one.transcript_path) for one in waiting if one.transcript_path}
        agents = {agent_transcript(one) for one in waiting}
        return paths | {path for path in agents if path is not None}

    def drain(self, log: Log, find: Find, *, now_us: int) -> Drained:
        """Record what need not wait.

        Raises:
            LogUnavailableError: the log gave no answer; nothing was taken away.
            AppendRefusedError, BlobError: the log refused some of it; nothing was taken
                away, and the next time it is found out which.
        """
        batch = _Batch(log, find, now_us, each_alone=bool(self._suspects))
        self._count()
        try:
            for record_id, spooled in self._in_order():
                self._try(batch, record_id, spooled)
            batch.flush()
        except (AppendRefusedError, BlobError):
            self._suspects.update(batch.put)
            raise
        finally:
            self._recorded += batch.recorded
        crash_point("CP_SPOOL_AFTER_RECORDED")
        self._waiting.take_away(batch.put)
        recorded, self._recorded = self._recorded, 0
        return Drained(
            recorded,
            refused=self._waiting.set_aside(),
            unread=self._waiting.unread(),
            held=len(self._waiting.records),
        )

    # --- one record ------------------------------------------------------------------

    def _try(self, batch: _Batch, record_id: str, spooled: Spooled) -> None:
        """Put a record, or leave it; a bad one stops no other."""
        try:
            if self._goes(batch, record_id, spooled):
                del self._waiting.records[record_id]
        except FileNotFoundError:
            del self._waiting.records[record_id]  # another mirror has it
        except OSError as error:
            self._before_end[spooled.session_id] += 1  # the end waits for it, too
            self._waiting.leave(record_id, error)
        except LogError:
            raise  # not about this record
        except (AppendRefusedError, BlobError) as error:
            if not batch.each_alone:
                self._suspects.add(record_id)
                raise  # not about this record alone
            self._waiting.refuse(record_id, _said(error))
        except (FoldlineError, ValueError, TypeError) as error:
            self._waiting.refuse(record_id, _said(error))

    def _goes(self, batch: _Batch, record_id: str, spooled: Spooled) -> bool:
        """Put a record into a mirror, unless it has to wait; whether it was put."""
        growing = batch.transcript(spooled.transcript_path)
        agent = batch.transcript(agent_transcript(spooled))
        if isinstance(growing, str) or isinstance(agent, str):  # NOT_YET
            return False
        met = self._meeting(record_id, spooled, growing, agent)
        if not self._may_go(spooled, met, batch.now_us):
            return False
        whole = self._waiting.whole(record_id)
        facts = [fact_of(record_id, whole, met)]
        if not _knows(growing, spooled.session_id):
            growing = None
            facts.insert(0, creation_of(record_id, whole))
        return self._put(batch, record_id, facts, growing)

    def _put(
        self, batch: _Batch, record_id: str, facts: list[Draft], growing: Growing | None
    ) -> bool:
        """Put facts into the mirror of their transcript, or into one beside it.

        Where each goes alone, into a mirror of their own, at once.
        """
        if batch.each_alone:
            mirror = self._mirror(batch.log)
        elif growing is not None:
            mirror = growing.mirror
        else:
            mirror = batch.alone = batch.alone or self._mirror(batch.log)
        if mirror.is_closed(facts[0].envelope.session_id):
            self._waiting.refuse(record_id, NO_MIRROR)
            return False
        add = batch.add_alone if batch.each_alone else batch.add
        add(record_id, mirror, facts)
        return True

    def _in_order(self) -> list[tuple[str, Spooled]]:
        """What waits, oldest first, the ends of sessions last."""
        waiting = self._waiting.records.items()
        return sorted(waiting, key=lambda item: (item[1].hook == SESSION_END, item[0]))

    def _meeting(
        self,
        record_id: str,
        spooled: Spooled,
        growing: Growing | None,
        agent: Growing | None,
    ) -> Met:
        """Where a record meets its transcript; read again only where that has grown."""
        told = growing.told if growing is not None else None
        by_agent = agent.told if agent is not None else None
        if spooled.hook not in MET_BY_CONTENT or growing is None:
            return meeting(spooled, told, by_agent, self._redact)
        stand = (id(growing), growing.offset)
        if self._read_at.get(record_id) == stand:
            return Met(there=False)
        whole = self._waiting.whole(record_id)
        met = meeting(whole, told, by_agent, self._redact)
        if not met.there:
            self._read_at[record_id] = stand
        return met

    def _may_go(self, spooled: Spooled, met: Met, now_us: int) -> bool:
        """Whether a record need not wait any more."""
        session_id = spooled.session_id
        if now_us - spooled.at_us > HOLD_MAX_S * _US:
            return True
        ended_at_us = self._ends.get(session_id, 0)
        over = 0 < ended_at_us < now_us - END_GRACE_S * _US
        if spooled.hook == SESSION_END:
            return self._before_end[session_id] == 0 and (met.there or over)
        if met.there or (over and spooled.at_us <= ended_at_us):
            self._before_end[session_id] -= 1
            return True
        return False

    def _count(self) -> None:
        """Which sessions ended, and how much of each stands before its end."""
        self._ends = {
            one.session_id: one.at_us
            for _, one in self._in_order()
            if one.hook == SESSION_END
        }
        self._before_end = Counter(
            one.session_id
            for one in self._waiting.records.values()
            if one.hook != SESSION_END
        )

    def _mirror(self, log: Log) -> Mirror:
        """A mirror for sessions whose transcripts are not there."""
        report = ImportReport(path=str(self._waiting.folder), system=SYSTEM)
        return mirror_for(log, report, settings=self._settings, redactor=self._redactor)

    def _redact(self, text: str) -> str:
        return self._redactor.redact_text(text)[0]


def _knows(growing: Growing | None, session_id: str) -> bool:
    """Whether a transcript told of a session."""
    told = growing.told if growing is not None else None
    return told is not None and told.knows(session_id)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
