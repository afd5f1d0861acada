"""Schemas for a worker: what is known is given at once, what is not is fetched beside.

Admission runs in the poll loop and must not wait for a registry. It asks this source,
which answers from memory or says at once that it cannot; the partition is paused, a
thread fetches the text with back-off, and the partition goes on.
"""

import threading
from collections.abc import Iterable

from foldline.errors import RegistryUnavailableError
from foldline.schemas.registry_client import RegistryClient

BACK_OFF_MS = 250
"""The first pause between two tries to fetch a text; then twice as long each time."""

BACK_OFF_MAX_MS = 10_000


class FetchedSchemas:
    """A `SchemaSource` that never waits. Any thread may ask."""

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self._texts: dict[int, str] = {}
        self._wanted: set[int] = set()
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
        """
        text = self._texts.get(schema_id)
        if text is not None:
            return text
        with self._changed:
            self._wanted.add(schema_id)
            self._changed.notify_all()
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
            return False  # the control record names it: it will be there, or nobody knows
        self._texts[schema_id] = text
        with self._changed:
            self._wanted.discard(schema_id)
        return True

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
        return all(fetched)
