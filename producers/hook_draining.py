"""From the spool into the log: each record of a hook once, and not before its transcript.

1. What is new in the spool is read. Transcripts that it names are followed.
2. A record whose facts are in its transcript is put behind them; one whose session ended
   without, or that waited HOLD_MAX_S, is put with all that it was told. Others wait, and
   all whose transcript is there and not read to its end.
   The end of a session waits until nothing else of it does.
3. One that no log takes is set aside; one that another mirror took away is its own.
4. After the log's acknowledgement the records are taken away. A crash before that puts
   them again, under the same ids: they are recorded once.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Final, Literal

from foldline.errors import AppendRefusedError, BlobError, FoldlineError, LogError
from foldline.faults import crash_point
from foldline.processors.log import Log
from foldline.producers import spool
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
from foldline.producers.import_run import mirror_for
from foldline.producers.importing import ImportReport
from foldline.producers.json_fields import as_session_id
from foldline.producers.mirror import Mirror
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

NO_RECORD = "no record of a hook"
NO_SESSION = "a hook that names no session"


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that was set aside, or cannot even be; and why."""

    path: Path
    reason: str


@dataclass(slots=True)
class Drained:
    """What became of the spool: `recorded` and `refused` records, and how many wait."""

    recorded: int = 0
    refused: list[Refused] = field(default_factory=list[Refused])
    held: int = 0


class HookSpool:
    """The spool of one log, and what of it waits."""

    def __init__(self, folder: Path, *, settings: Settings, redactor: Redactor) -> None:
        self._folder = folder
        self._settings = settings
        self._redactor = redactor
        self._waiting: dict[str, Spooled] = {}
        self._ends: dict[str, int] = {}
        self._before_end: Counter[str] = Counter()
        self._alone: Mirror | None = None
        self._odd: dict[str, str] = {}
        self._read_at: dict[str, _Stand] = {}

    def look(self) -> set[Path]:
        """Read what is new; the transcripts that are waited for."""
        spool.forget_parts(self._folder)
        known = self._waiting
        self._waiting = {}
        there = set(spool.record_ids(self._folder))
        for record_id in there:
            if record_id in self._odd:
                continue
            found = known.get(record_id) or self._read(record_id)
            if found is not None:
                self._waiting[record_id] = found
        self._odd = {name: why for name, why in self._odd.items() if name in there}
        self._read_at = {name: at for name, at in self._read_at.items() if name in there}
        waiting = self._waiting.values()
        paths = {Path(one.transcript_path) for one in waiting if one.transcript_path}
        agents = {agent_transcript(one) for one in waiting}
        return paths | {path for path in agents if path is not None}

    def drain(self, log: Log, find: Find, *, now_us: int) -> Drained:
        """Record what need not wait.

        Raises:
            LogUnavailableError: the log gave no answer; nothing was taken away.
        """
        done = Drained()
        put: list[str] = []
        used: dict[int, tuple[Mirror, int]] = {}
        self._alone = None  # it knows what the log held when it was made
        self._count()
        find = cache(find)  # many records name the same transcript
        for record_id, spooled in self._in_order():
            mirror = self._tried(log, record_id, spooled, find, now_us)
            if mirror is not None:
                put.append(record_id)
                used.setdefault(id(mirror), (mirror, mirror.accepted[HOOK_RAN]))
                del self._waiting[record_id]
        for mirror, before in used.values():
            mirror.flush()
            done.recorded += mirror.accepted[HOOK_RAN] - before
        crash_point("CP_SPOOL_AFTER_RECORDED")
        for record_id in put:
            spool.take_away(self._folder, record_id)
        self._set_aside(done)
        done.held = len(self._waiting)
        return done

    # --- one record ------------------------------------------------------------------

    def _read(self, record_id: str) -> Spooled | None:
        """A record without its content, which is read again when it is wanted."""
        try:
            read = spool.read(self._folder, record_id)
        except FileNotFoundError:
            return None  # another mirror has it
        except OSError as error:
            self._odd[record_id] = str(error)
            return None
        if read is None:
            self._odd[record_id] = NO_RECORD
            return None
        if not as_session_id(read.session_id):
            self._odd[record_id] = NO_SESSION
            return None
        return replace(read, content="")

    def _tried(
        self, log: Log, record_id: str, spooled: Spooled, find: Find, now_us: int
    ) -> Mirror | None:
        """Give a record to a mirror, or leave it; a bad one stops no other."""
        try:
            return self._put(log, record_id, spooled, find, now_us)
        except FileNotFoundError:
            del self._waiting[record_id]  # another mirror has it
        except (AppendRefusedError, BlobError, LogError):
            raise  # not about this record alone
        except (FoldlineError, OSError, ValueError, TypeError) as error:
            del self._waiting[record_id]
            self._odd[record_id] = f"{type(error).__name__}: {error}"
        return None

    def _set_aside(self, done: Drained) -> None:
        """Put what no log takes out of the way, and say so; once where that fails."""
        for record_id, reason in self._odd.items():
            if not reason:
                continue  # said before
            try:
                path = spool.set_aside(self._folder, record_id)
            except FileNotFoundError:
                continue  # another mirror was first
            except OSError as error:
                refused = Refused(self._folder / record_id, f"{reason}; {error}")
            else:
                refused = Refused(path, reason)
            done.refused.append(refused)
        self._odd = dict.fromkeys(self._odd, "")

    def _in_order(self) -> list[tuple[str, Spooled]]:
        """What waits, oldest first, the ends of sessions last."""
        return sorted(
            self._waiting.items(), key=lambda item: (item[1].hook == SESSION_END, item[0])
        )

    def _put(
        self, log: Log, record_id: str, spooled: Spooled, find: Find, now_us: int
    ) -> Mirror | None:
        """Give a record to a mirror; None if it has to wait."""
        growing = find(Path(spooled.transcript_path)) if spooled.transcript_path else None
        agent = find(path) if (path := agent_transcript(spooled)) is not None else None
        if isinstance(growing, str) or isinstance(agent, str):  # NOT_YET
            return None
        met = self._meeting(record_id, spooled, growing, agent)
        if not self._may_go(spooled, met, now_us):
            return None
        whole = spool.read(self._folder, record_id) or spooled
        fact = fact_of(record_id, whole, met)
        told = growing.told if growing is not None else None
        if growing is not None and told is not None and told.knows(spooled.session_id):
            growing.mirror.put(fact)
            return growing.mirror
        alone = self._alone = self._alone or self._mirror(log)
        alone.put(creation_of(record_id, whole))
        alone.put(fact)
        return alone

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
        whole = spool.read(self._folder, record_id) or spooled
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
            one.session_id for one in self._waiting.values() if one.hook != SESSION_END
        )

    def _mirror(self, log: Log) -> Mirror:
        """A mirror for sessions whose transcripts are not there."""
        report = ImportReport(path=str(self._folder), system=SYSTEM)
        return mirror_for(log, report, settings=self._settings, redactor=self._redactor)

    def _redact(self, text: str) -> str:
        return self._redactor.redact_text(text)[0]
