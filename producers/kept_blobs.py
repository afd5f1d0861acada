"""Blobs that a client reads again with each request: images. Kept up to a size."""

import threading
from collections import OrderedDict
from collections.abc import Callable

KEPT_MAX_BYTES = 64 * 1024 * 1024
"""How many bytes of images one client keeps; those that were longest unused go."""

ReadBlob = Callable[[bytes], bytes]


class KeptBlobs:
    """What was read lately, by its hash; for any number of threads."""

    def __init__(self, max_bytes: int = KEPT_MAX_BYTES) -> None:
        self._left = max_bytes
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def through(self, read: ReadBlob) -> ReadBlob:
        """The same way to blobs, which asks only for those that are not kept."""

        def read_blob(sha256: bytes) -> bytes:
            known = self._known(sha256)
            return self._keep(sha256, read(sha256)) if known is None else known

        return read_blob

    def _known(self, sha256: bytes) -> bytes | None:
        with self._lock:
            if sha256 in self._kept:
                self._kept.move_to_end(sha256)
            return self._kept.get(sha256)

    def _keep(self, sha256: bytes, data: bytes) -> bytes:
        with self._lock:
            if sha256 not in self._kept:
                self._kept[sha256] = data
                self._left -= len(data)
            while self._left < 0:
                _, gone = self._kept.popitem(last=False)
                self._left += len(gone)
        return data
