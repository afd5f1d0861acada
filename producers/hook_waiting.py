"""What lies in the spool of a mirror: what waits, what cannot be read, what no log takes.

Nothing that goes wrong with one record, or with the folder, stops the others. What may be
otherwise the next time (a file that cannot be read by now) is left where it is and tried
again; what never will be is set aside.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from foldline.producers import spool
from foldline.producers.json_fields import as_session_id
from foldline.producers.spool import Spooled

NO_RECORD = "no record of a hook"
NO_SESSION = "a hook that names no session"


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that was set aside, or cannot even be, or a path in the way; and why."""

    path: Path
    reason: str


class Waiting:
    """The records of one spool, without their contents, which are read when wanted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records: dict[str, Spooled] = {}
        self._odd: dict[str, str] = {}  # why; empty once that was said
        self._recorded: set[str] = set()  # in the log, and not taken away yet
        self._unread: dict[Path, str] = {}

    def look(self) -> set[str]:
        """Read what is new; the ids of all that is there."""
        self._unread.clear()
        try:
            spool.forget_parts(self.folder)
            there = set(spool.record_ids(self.folder))
        except OSError as error:
            self._unread[self.folder] = str(error)
            return set(self.records)
        known, self.records = self.records, {}
        self._odd = {name: why for name, why in self._odd.items() if name in there}
        self._recorded &= there
        for record_id in there - self._odd.keys() - self._recorded:
            found = known.get(record_id) or self._read(record_id)
            if found is not None:
                self.records[record_id] = found
        return there

    def whole(self, record_id: str) -> Spooled:
        """A record with its content.

        Raises:
            FileNotFoundError: somebody took it away.
            OSError: it cannot be read by now.
        """
        return spool.read(self.folder, record_id) or self.records[record_id]

    def refuse(self, record_id: str, reason: str) -> None:
        """No log takes it: `set_aside` puts it out of the way."""
        self.records.pop(record_id, None)
        self._odd[record_id] = reason

    def leave(self, record_id: str, error: OSError) -> None:
        """It cannot be read by now: it stays, and is tried again."""
        self._unread[spool.record_path(self.folder, record_id)] = str(error)

    def take_away(self, record_ids: Iterable[str]) -> None:
        """Forget what the log has; what stays for now is not read again."""
        self._recorded.update(record_ids)
        for record_id in sorted(self._recorded):
            try:
                spool.take_away(self.folder, record_id)
            except OSError as error:
                self.leave(record_id, error)
            else:
                self._recorded.discard(record_id)

    def set_aside(self) -> list[Refused]:
        """Put what no log takes out of the way; what was, each once."""
        refused: list[Refused] = []
        for record_id, reason in self._odd.items():
            if not reason:
                continue  # said before
            try:
                path = spool.set_aside(self.folder, record_id)
            except FileNotFoundError:
                continue  # another mirror was first
            except OSError as error:
                refused.append(
                    Refused(spool.record_path(self.folder, record_id), f"{reason}; {error}")
                )
            else:
                refused.append(Refused(path, reason))
        self._odd = dict.fromkeys(self._odd, "")
        return refused

    def unread(self) -> list[Refused]:
        """What cannot be read, or taken away, by now."""
        return [Refused(path, reason) for path, reason in self._unread.items()]

    def _read(self, record_id: str) -> Spooled | None:
        try:
            read = spool.read(self.folder, record_id)
        except FileNotFoundError:
            return None  # another mirror has it
        except OSError as error:
            self.leave(record_id, error)
            return None
        if read is None:
            self.refuse(record_id, NO_RECORD)
            return None
        if not as_session_id(read.session_id):
            self.refuse(record_id, NO_SESSION)
            return None
        return replace(read, content="")
