"""Looking once more, with newer rules, for secrets in what is stored. Nothing is changed.

Everything that an event says is gone over as if it were recorded now, behind what its
stream said before it, and beyond that its ids and names, what goes back to a provider, and
the blobs that it refers to. Files beside a log (a spool, a log file) are looked at as
bytes. What is found is named by its kind and its place; what it is, is never said. What
cannot be read is named too, and the others are looked at all the same.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

from foldline.errors import BlobError, DecodeError, LineageError, LogError
from foldline.processors.log import Log
from foldline.processors.named_blobs import blobs_in
from foldline.producers.prepare import redacted
from foldline.producers.redaction import Redactor
from foldline.producers.redaction_streams import Tails
from foldline.schemas.blocks import Blob
from foldline.schemas.events import UnknownEvent, type_of
from foldline.schemas.record import Record
from foldline.schemas.recorded import Recorded

FILE_CHARS = 1024 * 1024
"""How much of a file is looked at at once."""

OVERLAP_CHARS = 16 * 1024
"""How much of it is looked at twice, so that no secret is cut by its border.

What is found there alone is counted with the part before."""

LISTED_MAX = 10_000
"""How many findings a report lists; beyond that they are only counted."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A kind of secret at a place, and how often: never what it is.

    Where: `event`, `structure` (ids, names, what goes back to a provider), `blob`
    (`sha256` says which) or `file` (`path`).
    """

    where: str
    rule: str
    count: int
    session_id: str = ""
    seq: int = 0
    event_type: str = ""
    sha256: str = ""
    path: str = ""


@dataclass(slots=True)
class ScanReport:
    """What was looked at and what was found.

    `unread` names what could not be looked at, and why: blobs, sessions, files.
    """

    sessions: int = 0
    events: int = 0
    blobs: int = 0
    files: int = 0
    found: int = 0
    findings: list[Finding] = field(default_factory=list[Finding])
    unread: list[str] = field(default_factory=list[str])

    def add(self, finding: Finding) -> None:
        """Count a finding, and list it while there is room."""
        self.found += finding.count
        if len(self.findings) < LISTED_MAX:
            self.findings.append(finding)

    def add_all(
        self, counts: Mapping[str, int], place: Callable[[str, int], Finding]
    ) -> None:
        """Count what the rules found at one place."""
        for rule, count in sorted(counts.items()):
            self.add(place(rule, count))


class Scanner:
    """Goes over sessions and files with one redactor; each blob is looked at once."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._blobs: set[bytes] = set()
        self.report = ScanReport()

    def session(self, log: Log, session_id: str) -> None:
        """Look at every event of a session, and at its blobs, as far as it can be read.

        Raises:
            RedactionError: the redactor failed.
        """
        self.report.sessions += 1
        tails = Tails()
        try:
            for recorded in log.events(session_id):
                self.report.events += 1
                self._event(log, session_id, recorded, tails)
        except (LogError, DecodeError, LineageError) as error:
            self.report.unread.append(f"session {session_id}: {error}")

    def _event(self, log: Log, session_id: str, recorded: Recorded, tails: Tails) -> None:
        event = recorded.event
        name = type_of(event)
        said: Counter[str] = Counter()
        if not isinstance(event, UnknownEvent):
            said = redacted(recorded.envelope, event, self._redactor, tails)[1]
        around: Counter[str] = Counter()
        for text in _strings((event, recorded.envelope)):
            around.update(self._redactor.redact_text(text)[1])
        for where, counts in (("event", said), ("structure", around - said)):
            place = partial(
                Finding, where, session_id=session_id, seq=recorded.seq, event_type=name
            )
            self.report.add_all(counts, place)
        for blob in blobs_in(event):
            self._blob(log, blob, session_id, recorded.seq, name)

    def _blob(self, log: Log, blob: Blob, session_id: str, seq: int, name: str) -> None:
        if blob.sha256 in self._blobs:
            return
        self._blobs.add(blob.sha256)
        sha256 = blob.sha256.hex()
        try:
            data = log.blobs.get(blob.sha256)
        except BlobError:
            self.report.unread.append(f"blob {sha256}")
            return
        self.report.blobs += 1
        place = partial(
            Finding, "blob", session_id=session_id, seq=seq, event_type=name, sha256=sha256
        )
        text = data.decode("utf-8", "replace")
        self.report.add_all(self._redactor.redact_text(text)[1], place)

    def file(self, path: Path) -> None:
        """Look at a file as bytes, whatever it is, as far as it can be read.

        One that is gone by now (a record of a spool that a mirror took) is nothing that is
        stored there.
        """
        counts: Counter[str] = Counter()
        try:
            for before, text in _pieces(path):
                twice = self._found(before) if before else Counter[str]()
                counts.update(self._found(before + text) - twice)
        except FileNotFoundError:
            return
        except OSError as error:
            self.not_read(error, path)
        self.report.files += 1
        self.report.add_all(counts, partial(Finding, "file", path=str(path)))

    def not_read(self, error: OSError, path: Path) -> None:
        """Name a file or folder that cannot be read."""
        reason = error.strerror or type(error).__name__
        self.report.unread.append(f"{error.filename or path}: {reason}")

    def _found(self, text: str) -> Counter[str]:
        return Counter(self._redactor.redact_text(text)[1])


def _pieces(path: Path) -> Iterator[tuple[str, str]]:
    """The text of a file, a part at a time, each with the end of the one before."""
    before = ""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        while piece := file.read(FILE_CHARS):
            yield before, piece
            before = (before + piece)[-OVERLAP_CHARS:]


def _strings(value: object) -> Iterator[str]:
    """Every string in a record, wherever it stands."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in cast("tuple[object, ...]", value):
            yield from _strings(item)
    elif isinstance(value, dict):
        yield from _strings(tuple(cast("dict[str, object]", value).values()))
    elif isinstance(value, UnknownEvent):
        yield from _strings(value.fields)
    elif isinstance(value, Record):
        yield from _strings(tuple(value.__dict__.values()))
