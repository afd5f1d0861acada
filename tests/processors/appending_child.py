"""A process that appends until it is killed, and says what was acknowledged.

Prints `acked <event_id>` after each verdict and `refused <reason>` after an error.
"""

import resource
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager

from foldline.errors import LogUnavailableError
from foldline.processors.open_log import open_log
from foldline.testing import LogStory
from foldline.testing.samples import created, said


def say(line: str) -> None:
    """Print a line, at once."""
    print(line, flush=True)  # noqa: T201 - the parent reads it


def append_events(url: str, session_id: str, count: int) -> None:
    """Create a session and append so many events, one by one."""
    story = LogStory(open_log(url), session_id=session_id)
    for number in range(count):
        append = story.append(said(str(number)) if number else created())
        say(f"sent {append.envelope.event_id}")
        verdict = story.send([append]).then("ACCEPTED")
        say(f"acked {verdict.event_id}")


def append_stubbornly(url: str, session_id: str, count: int) -> None:
    """The same, and what gets no answer is sent again until it has one."""
    story = LogStory(open_log(url), session_id=session_id)
    for number in range(count):
        append = story.append(said(str(number)) if number else created(), known_seq=number)
        while not story.verdicts or story.verdicts[0].event_id != append.envelope.event_id:
            try:
                story.send([append])
            except LogUnavailableError as error:
                say(f"refused {error}")
        say(f"acked {append.envelope.event_id}")


@contextmanager
def little_room(limit_bytes: int) -> Generator[None]:
    """No file of this process may grow beyond a size: writing more is an error."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def fill_the_disk(url: str, session_id: str, limit_bytes: int) -> None:
    """Append under a limit of file size until it fails, then without it."""
    story = LogStory(open_log(url), session_id=session_id).given(created())
    failed = None
    with little_room(limit_bytes):
        while failed is None:
            append = story.append(said("x" * 1000))
            try:
                story.send([append]).then("ACCEPTED")
            except LogUnavailableError as error:
                failed = append
                say(f"refused {error.reason}")
    before = story.seq
    verdict = story.send([failed]).then("ACCEPTED", seq=before + 1)
    say(f"acked {verdict.event_id}")


def starve_a_blob(url: str, size: int) -> None:
    """Put a blob where there is no room for it, then where there is."""
    log = open_log(url)
    try:
        with little_room(size // 2):
            log.blobs.put(b"b" * size)
    except LogUnavailableError as error:
        say(f"refused {error.reason}")


def put_blob(url: str, size: int) -> None:
    """Put one blob."""
    say(f"acked {open_log(url).blobs.put(b'b' * size).hex()}")


COMMANDS = {
    "append": append_events,
    "insist": append_stubbornly,
    "fill": fill_the_disk,
}

if __name__ == "__main__":
    if sys.argv[1] == "blob":
        put_blob(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1] == "starved-blob":
        starve_a_blob(sys.argv[2], int(sys.argv[3]))
    else:
        COMMANDS[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
