"""An append that came as JSON, made as every client makes its own: redacted, stored."""

import threading
from collections.abc import Callable, Sequence

from foldline.processors.log import Log
from foldline.producers.prepare import Draft, Preparer, check_edit
from foldline.producers.redaction_file import redactor_for
from foldline.schemas.events import KnownEvent
from foldline.schemas.recorded import Append
from foldline.settings import Settings


def preparer_of(log: Log, settings: Settings) -> Callable[[Append], Sequence[Append]]:
    """What prepares appends of a log; any thread may call it, one does at a time.

    It refuses a grant that would be stored with other arguments (`check_edit`).
    """
    redactor = redactor_for(log.url, settings.redaction_rules)
    preparer = Preparer(redactor, log.blobs, settings.inline_max_bytes)
    lock = threading.Lock()

    def prepare(append: Append) -> Sequence[Append]:
        event: KnownEvent = append.event  # type: ignore[assignment] - made of a model
        draft = Draft(append.envelope, event, append.expected_seq, append.requires)
        with lock:
            check_edit(event, redactor)
            found = preparer.prepare(draft)
        return [
            Append(
                prepared.envelope,
                prepared.event,
                prepared.content,
                known_seq=append.known_seq,
                expected_seq=prepared.expected_seq,
                requires=prepared.requires,
            )
            for prepared in found
        ]

    return prepare
