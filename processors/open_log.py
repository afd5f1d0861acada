"""A log from its URL."""

from pathlib import Path

from foldline.errors import SettingsError
from foldline.places import JSONL, KAFKA, SERVICE, SQLITE, path_of
from foldline.processors.clock import Clock, wall_clock
from foldline.processors.jsonl_log import JsonlLog
from foldline.processors.memory_log import MemoryLog
from foldline.processors.open_blobs import open_blobs
from foldline.processors.sqlite_log import SqliteLog
from foldline.processors.stored import AuditableLog
from foldline.settings import Settings

WANTED = (
    "a log is memory:, sqlite:///path (sqlite:////path from the root), jsonl:///path, "
    "kafka://host:port or https://service"
)


def open_log(
    url: str, *, settings: Settings | None = None, clock: Clock = wall_clock
) -> AuditableLog:
    """Open the log of a URL; a file that is not there is made.

    Args:
        url: `memory:`, or `sqlite:///path` with a path as the shell would read it:
            `sqlite:////var/lib/x.db` is absolute, `sqlite:///x.db` is in this folder,
            `sqlite:///~/x.db` in one's home; `jsonl:///path`, the same with JSON lines in
            a file, or in a folder; `kafka://host:port[,host:port][/prefix]`, a log that
            `foldline topics create` has made; `https://host`, a log behind a read
            service.
        settings: limits and times; from the environment where not given.
        clock: gives microseconds since 1970 UTC; a log elsewhere has its own.

    Raises:
        SettingsError: a URL of no log that there is.
        LogFormatError: a file that is torn, or no log.
        NewerFormatError: a file of a newer foldline.
        LogUnavailableError: a file that cannot be opened or made, no broker that answers.
        NoLogMetaError: brokers that have no log under this prefix.
        RegistryUnavailableError: no schema registry that answers.
    """
    settings = settings or Settings()
    if url == "memory:":
        blobs = open_blobs(settings, beside=Path()) if settings.blobs else None
        return MemoryLog(settings=settings, clock=clock, blobs=blobs)
    if url.startswith((SQLITE, JSONL)):
        return _open_file(url, settings, clock)
    if url.startswith((KAFKA, *SERVICE)):
        return _open_remote(url, settings.model_copy(update={"url": url}))
    raise SettingsError("url", url, WANTED)


def _open_file(url: str, settings: Settings, clock: Clock) -> AuditableLog:
    """A log of this machine."""
    path = path_of(url)
    named = url.removeprefix(SQLITE).removeprefix(JSONL).removeprefix("///")
    if path is None or not named or named.startswith("//"):
        raise SettingsError("url", url, WANTED)
    kind = SqliteLog if url.startswith(SQLITE) else JsonlLog
    return kind(path.absolute(), settings=settings, clock=clock)


def _open_remote(url: str, settings: Settings) -> AuditableLog:
    """A log elsewhere; its clients are loaded only for it."""
    if url.startswith(SERVICE):
        from foldline.processors.http_log import HttpLog

        return HttpLog(url, settings=settings)
    from foldline.kafka import cluster_of
    from foldline.processors.kafka_log import KafkaLog

    return KafkaLog(cluster_of(settings), settings=settings)
