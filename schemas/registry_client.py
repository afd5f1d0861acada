"""The schema registry of a log on Kafka: ids for writing, texts for reading.

Nothing here registers: `foldline schemas register` does, in a deployment
(`foldline.schemas.registration`). Every lookup is kept for the life of the process, so
a registry that is down stops only whoever meets a schema for the first time.

Subjects are `<topic>-foldline.events.<record>` (TopicRecordName), named here: the
strategies of confluent-kafka's serializers are not used. Events are looked up under
the topic `appends`; they are registered under `events` too, with the same text.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from foldline.errors import RegistryUnavailableError, SchemaError, SettingsError
from foldline.schemas.avsc import NAMESPACE, without_docs
from foldline.schemas.frozen import FOLDER, NO_EVENTS, load, names_in, path_of, versions_of
from foldline.schemas.state import FOLD_VERSION
from foldline.settings import Settings
from foldline.topics import TopicNames, prefix_in

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

AT_ONCE = 8
"""How many requests are made at the same time, where there are many to make."""

RETRIES = 2
"""How often a request that failed is made again, with jitter."""

RETRY_WAIT_MS = 100
RETRY_MAX_WAIT_MS = 1_000

PAUSE_MS = 500
"""The pause between two looks whether the registry is there."""

SAY_EVERY_MS = 10_000
"""How often one that waits for the registry says so."""

_URL = "FOLDLINE_REGISTRY_URL"

_SERVERS_OWN = 500
_TOO_MANY = 429
_REFUSED = frozenset({401, 403})

_ABSENT = frozenset({40401, 40402, 40403})
"""What a registry says where it has no such subject, version or schema."""

_log = logging.getLogger(__name__)


class RegistryClient:
    """A `SchemaSource`, and the ids that records are written with. Any thread may ask.

    Args:
        url: the registry's Confluent API; user and password may stand in it.
        names: the topics that subjects are named after.
        timeout_ms: how long one request may take; it is made RETRIES times more.
    """

    def __init__(self, url: str, *, names: TopicNames, timeout_ms: int = 5_000) -> None:
        self.url = without_user(url)
        self.names = names
        self._url = url
        self._timeout_ms = timeout_ms
        self._making = threading.Lock()
        self._rest: SchemaRegistryClient | None = None
        self._ids: dict[tuple[str, int | None], int] = {}
        self._texts: dict[int, str] = {}

    @property
    def rest(self) -> "SchemaRegistryClient":
        """confluent-kafka's client; made at the first need (its import takes 0.3 s)."""
        with self._making:
            if self._rest is None:
                self._rest = self._made()
            return self._rest

    def _made(self) -> "SchemaRegistryClient":
        from confluent_kafka.schema_registry import SchemaRegistryClient

        return SchemaRegistryClient(
            {
                "url": self._url,
                "timeout": self._timeout_ms / 1_000,
                "max.retries": RETRIES,
                "retries.wait.ms": RETRY_WAIT_MS,
                "retries.max.wait.ms": RETRY_MAX_WAIT_MS,
            }
        )

    def schema_of(self, schema_id: int) -> str:
        """The schema as JSON text.

        Raises:
            KeyError: the registry answered that it has no such id.
            RegistryUnavailableError: it gave no answer.
        """
        text = self._texts.get(schema_id)
        if text is None:
            with self._asking_beside(), _absent(KeyError(schema_id)):
                text = self.rest.get_schema(schema_id).schema_str
            if text is None:
                raise RegistryUnavailableError(self.url, f"schema {schema_id} has no text")
            self._texts[schema_id] = text
        return text

    def id_of(self, name: str, *, version: int | None = None) -> int:
        """The id of a frozen version of a record, which must have been registered.

        Args:
            name: the record.
            version: by default the newest, which is what the models write.

        Raises:
            KeyError: foldline has no such record, or no such version of it.
            SchemaError: it is not registered.
            RegistryUnavailableError: the registry gave no answer.
        """
        schema_id = self._ids.get((name, version))
        if schema_id is None:
            number = version or max(versions_of(FOLDER, name), default=1)
            text = frozen_text(name, number)
            schema_id = self._look_up(subject_of(name, self.names), name, number, text)
            self._ids[name, version] = schema_id
            self._texts[schema_id] = text
        return schema_id

    def event_ids(self) -> tuple[int, ...]:
        """The ids of every frozen version of every event, in order: for `RulesInForce`."""
        events = [(n, v) for n, v in frozen_versions() if n not in NO_EVENTS]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = [pool.submit(self.id_of, n, version=v) for n, v in events]
            return tuple(sorted(future.result() for future in found))

    def wait_ready(self, wait_ms: int, *, say: Callable[[str], None] | None = None) -> None:
        """Wait until the registry answers, and say so while waiting.

        Raises:
            RegistryUnavailableError: it did not in that time.
        """
        end = time.monotonic() + wait_ms / 1_000
        said = -float("inf")
        while True:
            try:
                with self.asking():
                    self.rest.get_compatibility()
            except RegistryUnavailableError as error:
                now = time.monotonic()
                if now >= end:
                    raise
                if now - said >= SAY_EVERY_MS / 1_000:
                    said = now
                    (say or _log.warning)(f"{error}; waiting {end - now:.0f} s more for it")
                time.sleep(min(PAUSE_MS / 1_000, end - now))
            else:
                return

    def close(self) -> None:
        """Let go of connections."""
        with self._making:
            if self._rest is not None:
                self._rest.close()

    def _look_up(self, subject: str, name: str, version: int, text: str) -> int:
        missing = f"v{version} is not registered under {subject} in {self.url}"
        unknown = SchemaError(name, [f"{missing}; run `foldline schemas register`"])
        with self.asking(), _absent(unknown):
            found = self.rest.lookup_schema(subject, avro(text)).schema_id
        if found is None:
            raise RegistryUnavailableError(self.url, f"{subject} was found without an id")
        return found

    @contextmanager
    def asking(self) -> Generator[None]:
        """Tell an answer from an outage: only a registry's own errors come through.

        Raises:
            RegistryUnavailableError: no answer, not now, a server's error, or not a
                registry's.
            SettingsError: it refuses the user, or that it has none.
        """
        import httpx2  # late: with the client
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            yield
        except httpx2.HTTPError as error:
            reason = f"{type(error).__name__}: {error}"
            raise RegistryUnavailableError(self.url, reason) from error
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status >= _SERVERS_OWN or status == _TOO_MANY or not _own_words(error):
                raise RegistryUnavailableError(self.url, str(error)) from error
            if status in _REFUSED:
                wanted = f"an URL with a user that the registry takes; it says: {error}"
                raise SettingsError(_URL, self.url, wanted) from error
            raise

    @contextmanager
    def _asking_beside(self) -> Generator[None]:
        """The same for a text that work under way waits for: that does not end by it.

        Raises:
            RegistryUnavailableError: it refuses the user, too.
        """
        try:
            with self.asking():
                yield
        except SettingsError as error:
            raise RegistryUnavailableError(self.url, error.wanted) from error


@contextmanager
def _absent(instead: Exception) -> Generator[None]:
    """Raise another error where the registry says that it has no such thing."""
    from confluent_kafka.schema_registry import SchemaRegistryError

    try:
        yield
    except SchemaRegistryError as error:
        if is_absent(error):
            raise instead from error
        raise


def is_absent(error: Exception) -> bool:
    """Whether a registry says that it has no such thing."""
    return getattr(error, "error_code", None) in _ABSENT


def _own_words(error: "Exception") -> bool:
    """Whether a registry says it: what a proxy or another service says has no code."""
    code = getattr(error, "error_code", None)
    return isinstance(code, int) and code >= 0  # the client's own for none is -1


def registry_of(settings: Settings) -> RegistryClient:
    """The registry that the settings name.

    Raises:
        SettingsError: they name none.
    """
    if not settings.registry_url:
        wanted = (
            "a log on Kafka needs a schema registry: its Confluent API, for example "
            "http://host:8081, or http://host:8080/apis/ccompat/v7 for Apicurio"
        )
        raise SettingsError(_URL, "", wanted)
    return RegistryClient(
        settings.registry_url,
        names=TopicNames(
            settings.subject_prefix or prefix_in(settings.url) or settings.topic_prefix
        ),
        timeout_ms=settings.registry_timeout_ms,
    )


def avro(text: str) -> "Schema":
    """A text as the registry's client takes it."""
    from confluent_kafka.schema_registry import Schema  # late: with the client

    return Schema(text, "AVRO")


def subject_of(name: str, names: TopicNames) -> str:
    """The subject under which a record is looked up."""
    return f"{_topic_of(name, names)}-{NAMESPACE}.{name}"


def subjects_of(name: str, names: TopicNames) -> list[str]:
    """Every subject of a record: events stand in two topics."""
    first = subject_of(name, names)
    return [first] if name in NO_EVENTS else [first, f"{names.events}-{NAMESPACE}.{name}"]


def _topic_of(name: str, names: TopicNames) -> str:
    return {
        "Snapshot": names.snapshots(FOLD_VERSION),
        "LowWater": names.snapshots(FOLD_VERSION),
        "LostSession": names.snapshots(FOLD_VERSION),
        "Verdict": names.verdicts,
        "DeadLetter": names.rejected,
        "RefusedAppend": names.rejected,
        "LeaseRenewal": names.leases,
        "RecoveryAction": names.recovery,
        "LogMeta": names.meta,
    }.get(name, names.appends)  # events and the control record


def frozen_versions() -> list[tuple[str, int]]:
    """Every record that is published, with each of its frozen versions."""
    return [(n, v) for n in sorted(names_in(FOLDER)) for v in versions_of(FOLDER, n)]


def frozen_text(name: str, version: int, *, folder: Path = FOLDER) -> str:
    """A frozen schema as it is registered: compact, without its docs.

    Raises:
        KeyError: there is no such record, or no such version of it.
    """
    path = path_of(folder, name, version)
    if not path.exists():
        raise KeyError(f"{name} v{version}")
    text = json.dumps(without_docs(load(path)), separators=(",", ":"))
    # Apicurio takes the default "{}" of a string for a default {} of a record, and then
    # refuses the schema; escaped, it is the same JSON.
    return text.replace('"{}"', r'"\u007b\u007d"')


def without_user(url: str) -> str:
    """An URL without the user and password that may stand in it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
