"""Schemas for a worker: what is known is given at once, what is not is fetched beside.

Admission runs in the poll loop and must not wait for a registry. It asks this source,
which answers from memory or says at once that it cannot; the partition is paused, a
thread fetches the text with back-off, and the partition goes on.

A registry may lag behind the one that registered a schema, so an id that it does not know
is asked for again. Whoever may write to a topic can name an id that never was: after
`UNKNOWN_AFTER_MS` of such answers nobody waits for it any more.
"""

import logging
import threading
import time
from collections.abc import Iterable

from foldline.errors import RegistryUnavailableError
from foldline.schemas.registry_client import RegistryClient

_logger = logging.getLogger("foldline.worker")

BACK_OFF_MS = 250
"""The first pause between two tries to fetch a text; then twice as long each time."""

BACK_OFF_MAX_MS = 10_000

UNKNOWN_AFTER_MS = 10_000
"""How long a registry must have said that it has no such id, until that is believed."""

DENIED_MAX = 1_000
"""How many ids that a registry does not know are remembered."""


class FetchedSchemas:
    """A `SchemaSource` that never waits. Any thread may ask."""

    def __init__(
        self, registry: RegistryClient, *, unknown_after_ms: int = UNKNOWN_AFTER_MS
    ) -> None:
        self._registry = registry
        self._unknown_after_s = unknown_after_ms / 1000
        self._texts: dict[int, str] = {}
        self._wanted: set[int] = set()
        self._denied: dict[int, tuple[float, float]] = {}  # first and last time
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(
            target=self._fetch_wanted, name="foldline-schemas", daemon=True
        )
        self._thread.start()

    def schema_of(self, schema_id: int) -> str:
        """The text of a schema, if it is here; else it is fetched from now on.

        Raises:
            RegistryUnavailableError: not here yet.
            KeyError: the registry has said for long enough that it has no such id.
        """
        text = self._texts.get(schema_id)
        if text is not None:
            return text
        self.want((schema_id,))
        if self._is_unknown(schema_id):
            raise KeyError(schema_id)
        raise RegistryUnavailableError(
            self._registry.url, f"the text of schema {schema_id} is not here yet"
        )

    def want(self, schema_ids: Iterable[int]) -> None:
        """Have texts fetched beside, before anybody needs them."""
        with self._changed:
            self._wanted |= {i for i in schema_ids if i not in self._texts}
            self._changed.notify_all()

    def fetch(self, schema_ids: Iterable[int]) -> None:
        """Fetch texts now, waiting for the registry. Unknown ids stay unknown.

        Raises:
            RegistryUnavailableError: it gave no answer.
        """
        for schema_id in schema_ids:
            if schema_id not in self._texts:
                self._fetch(schema_id)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _fetch(self, schema_id: int) -> bool:
        try:
            text = self._registry.schema_of(schema_id)
        except KeyError:
            self._deny(schema_id)
            return False
        self._texts[schema_id] = text
        with self._changed:
            self._wanted.discard(schema_id)
            self._denied.pop(schema_id, None)
        return True

    def _deny(self, schema_id: int) -> None:
        """Note that the registry says that it has no such id.

        Once that is believed nobody asks for it, until somebody wants it again.
        """
        now_s = time.monotonic()
        with self._changed:
            first_s, _ = self._denied.get(schema_id, (now_s, now_s))
            self._denied[schema_id] = first_s, now_s
            if self._is_unknown(schema_id):
                self._wanted.discard(schema_id)
            if len(self._denied) > DENIED_MAX:
                del self._denied[next(iter(self._denied))]

    def _is_unknown(self, schema_id: int) -> bool:
        first_s, last_s = self._denied.get(schema_id, (0.0, 0.0))
        return last_s - first_s >= self._unknown_after_s

    def _fetch_wanted(self) -> None:
        pause_ms = BACK_OFF_MS
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or bool(self._wanted))
                if self._closed:
                    return
                wanted = sorted(self._wanted)
            if self._all_fetched(wanted):
                pause_ms = BACK_OFF_MS
                continue
            with self._changed:
                self._changed.wait_for(lambda: self._closed, pause_ms / 1000)
            pause_ms = min(pause_ms * 2, BACK_OFF_MAX_MS)

    def _all_fetched(self, wanted: list[int]) -> bool:
        try:
            fetched = [self._fetch(schema_id) for schema_id in wanted]
        except RegistryUnavailableError:
            return False
        except Exception as error:  # noqa: BLE001 - a refused password, an answer that is no JSON
            if not self._closed:
                _logger.warning("no schemas from %s: %r", self._registry.url, error)
            return False
        return all(fetched)
