"""The hooks of a mirror: drained behind the transcripts that it follows."""

import time
from pathlib import Path

from foldline.errors import AppendRefusedError, BlobError, LogError
from foldline.producers.followed import Said
from foldline.producers.hook_draining import NOT_YET, Drained, Found, HookSpool
from foldline.producers.mirror_files import Files
from foldline.producers.mirror_reading import Reading


class MirrorHooks:
    """Drains one spool; what its hooks name is followed, too."""

    def __init__(self, folder: Path, files: Files, reading: Reading) -> None:
        self._files = files
        self._reading = reading
        self._more = False
        self._spool = HookSpool(
            folder, settings=reading.settings, redactor=reading.redactor
        )

    def drain(self) -> bool:
        """Record what hooks told, behind their transcripts; whether there is more to do.

        Raises:
            LogError: the log is away, or cannot be used.
        """
        self._more = False
        for path in self._spool.look():
            if (found := self._files.follow_there(path)) is not None:
                self._more |= self._files.look_at(found)
        now_us = time.time_ns() // 1000
        try:
            drained = self._spool.drain(self._reading.log, self._told_by, now_us=now_us)
        except LogError:
            self._files.release_all()
            raise
        except (AppendRefusedError, BlobError):
            self._files.release_all()
            return True  # the spool looks for the one that is refused
        self._tell(drained)
        return self._more

    def _tell(self, drained: Drained) -> None:
        totals, say = self._reading.totals, self._reading.say
        totals.hooks += drained.recorded
        totals.hooks_waiting = drained.held
        totals.hooks_refused += len(drained.refused)
        if drained.recorded:
            say(Said("hooks", events=drained.recorded))
        for refused in drained.refused:
            say(Said("failed", str(refused.path), refused.reason))
        for unread in drained.unread:
            self._files.say_odd(str(unread.path), unread.reason)

    def _told_by(self, path: Path) -> Found:
        """The transcript of a hook; what is not read to its end is read on at once."""
        if (found := self._files.follow_there(path)) is None:
            return None
        if found.growing is None and found.position is not None:
            self._files.look_again(found)
        if found.growing is None and not found.in_line:
            return None
        if found.growing is not None and self._files.is_read(found):
            return found.growing
        self._more = True
        return NOT_YET
