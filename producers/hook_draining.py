"""From the spool into the log: each record of a hook once, and not before its transcript.

1. What is new in the spool is read. Transcripts that it names are followed.
2. A record whose facts are in its transcript is put behind them; one whose session ended
   without, or that waited HOLD_MAX_S, is put with all that it was told. Others wait.
   The end of a session waits until nothing else of it does.
3. After the log's acknowledgement the records are taken away. A crash before that puts
   them again, under the same ids: they are recorded once.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from foldline.faults import crash_point
from foldline.processors.log import Log
from foldline.producers import spool
from foldline.producers.growing import Growing
from foldline.producers.hook_facts import (
    SESSION_END,
    TOLD_BY_TRANSCRIPT,
    Met,
    agent_transcript,
    creation_of,
    fact_of,
    meeting,
)
from foldline.producers.importing import ImportReport
from foldline.producers.json_fields import as_session_id
from foldline.producers.mirror import Mirror
from foldline.producers.prepare import Preparer
from foldline.producers.redaction import Redactor
from foldline.producers.spool import Spooled
from foldline.settings import Settings

HOLD_MAX_S = 3_600
"""How long a record waits for its transcript, in seconds."""

END_GRACE_S = 10
"""How long after the end of a session its transcript may still be written, in seconds."""

_US = 1_000_000

Find = Callable[[Path], Growing | None]
"""The transcript of a path, read to its end by now; None if there is none."""


@dataclass(slots=True)
class Drained:
    """What became of the spool: `recorded` and `refused` records, and how many wait."""

    recorded: int = 0
    refused: list[Path] = field(default_factory=list[Path])
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

    def look(self) -> set[Path]:
        """Read what is new; the transcripts that are waited for."""
        there = list(spool.record_ids(self._folder))
        self._waiting = {
            record_id: self._waiting.get(record_id) or self._read(record_id)
            for record_id in there
        }
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
        used: list[Mirror] = []
        self._alone = None  # it knows what the log held when it was made
        self._count()
        for record_id, spooled in self._in_order():
            if not as_session_id(spooled.session_id):
                done.refused.append(spool.set_aside(self._folder, record_id))
            elif (mirror := self._put(log, record_id, spooled, find, now_us)) is not None:
                put.append(record_id)
                used.append(mirror)
                del self._waiting[record_id]
        for mirror in used:
            mirror.flush()
        crash_point("CP_SPOOL_AFTER_RECORDED")
        for record_id in put:
            spool.take_away(self._folder, record_id)
        done.recorded = len(put)
        done.held = len(self._waiting) - len(done.refused)
        return done

    # --- one record ------------------------------------------------------------------

    def _read(self, record_id: str) -> Spooled:
        """A record without its content, which is read again when it is wanted."""
        read = spool.read(self._folder, record_id)
        return Spooled(0, "unknown", "") if read is None else replace(read, content="")

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
        told = growing.told if growing is not None else None
        whole = spooled
        if spooled.hook in TOLD_BY_TRANSCRIPT:
            whole = spool.read(self._folder, record_id) or spooled
        agent = find(path) if (path := agent_transcript(spooled)) is not None else None
        met = meeting(whole, told, agent.told if agent is not None else None, self._redact)
        if not self._may_go(spooled, met, now_us):
            return None
        whole = spool.read(self._folder, record_id) or whole
        fact = fact_of(record_id, whole, met)
        if growing is not None and told is not None and told.knows(spooled.session_id):
            growing.mirror.put(fact)
            return growing.mirror
        alone = self._alone = self._alone or self._mirror(log)
        alone.put(creation_of(record_id, spooled))
        alone.put(fact)
        return alone

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
        return Mirror(
            log,
            Preparer(self._redactor, log.blobs, self._settings.inline_max_bytes),
            report=ImportReport(path=str(self._folder), system="claude-code"),
            batch_max=self._settings.batch_max,
            on_batch=lambda: None,
        )

    def _redact(self, text: str) -> str:
        return self._redactor.redact_text(text)[0]
