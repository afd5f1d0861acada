"""A gate: what may be used by many threads until one closes it, once nobody is within."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager


class Gate:
    """Open until it is closed. Whoever closes waits for those within to leave."""

    def __init__(self, refusal: Callable[[], Exception]) -> None:
        self._refusal = refusal
        self._changed = threading.Condition()
        self._within = 0
        self._closed = False

    @contextmanager
    def inside(self) -> Generator[None]:
        """Be within; raises the refusal where the gate is closed."""
        with self._changed:
            if self._closed:
                raise self._refusal()
            self._within += 1
        try:
            yield
        finally:
            with self._changed:
                self._within -= 1
                self._changed.notify_all()

    def close(self) -> bool:
        """Let nobody in any more, and wait until all have left; False if it was closed."""
        with self._changed:
            if self._closed:
                return False
            self._closed = True
            self._changed.wait_for(lambda: not self._within)
        return True
