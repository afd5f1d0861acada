"""Bodies of events as a source held them: whole texts, JSON values, bytes."""

import base64
import json
from typing import Any, cast

from foldline.processors.blobs import BlobStore
from foldline.projections.context import is_text
from foldline.schemas.blocks import Blob, Block, Blocks, Body, Sealed

NO_CHARACTER = "\ufffd"
NO_UTF_8 = "\udc80"
"""What a source held where it held no text: it is U+FFFD in the log."""


class UnbuildableError(Exception):
    """Raised within an export where no record can be made that tells these facts."""


class Bodies:
    """Reads bodies, wherever they are kept."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    def text(self, body: Body) -> str:
        """The whole text of a body.

        Raises:
            UnbuildableError: it is sealed.
            BlobError: its blob is missing.
        """
        if isinstance(body, Sealed):
            raise UnbuildableError
        if isinstance(body, Blob):
            return self._blobs.get(body.sha256).decode("utf-8", "replace")
        return body

    def raw(self, block: Block) -> str:
        """The text of a block; of a lossy one with something in it that is no text."""
        text = self.text(block.body)
        return text.replace(NO_CHARACTER, NO_UTF_8, 1) if block.lossy else text

    def value(self, block: Block) -> Any:
        """The value of a block of JSON.

        Raises:
            UnbuildableError: it is none.
        """
        return parsed(self.raw(block))

    def data_url(self, block: Block) -> tuple[str, str]:
        """The media type and the base64 of an image or a file.

        Raises:
            UnbuildableError: it has no bytes.
            BlobError: its blob is missing.
        """
        body = block.body
        if isinstance(body, Blob) and not is_text(body):
            data = base64.b64encode(self._blobs.get(body.sha256)).decode()
            return block.media_type or body.media_type, data
        head, _, data = self.text(body).partition(";base64,")
        if not head.startswith("data:"):
            raise UnbuildableError
        return head.removeprefix("data:"), data

    def one_text(self, blocks: Blocks) -> str:
        """The text of the only block, or of none."""
        return self.raw(blocks[0]) if blocks else ""


def parsed(text: str) -> Any:
    """The value of JSON text.

    Raises:
        UnbuildableError: it is none.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnbuildableError from error


def written_by(text: str) -> Any:
    """The object or list whose JSON this text is; else the text, which did not parse."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return cast("Any", value) if isinstance(value, dict | list) else text
