"""Blocks as the parts of a message, with the whole text where it is known. Pure."""

from collections.abc import Mapping

from foldline.projections.calls import says
from foldline.projections.context import Part, is_text
from foldline.schemas.blocks import Blob, Block, Blocks, Body, Sealed, clean_text


class Pieces:
    """Makes parts of blocks.

    Args:
        texts: the whole text of blobs, by their hash; of others the preview is shown.
    """

    def __init__(self, texts: Mapping[bytes, str]) -> None:
        self._texts = texts

    def parts(self, blocks: Blocks) -> list[Part]:
        """The parts of blocks that say something."""
        return [self._part(block) for block in says(blocks)]

    def _part(self, block: Block) -> Part:
        texts = self._texts
        body = block.body
        media = body if isinstance(body, Blob) and not is_text(body) else None
        return Part(
            kind=block.kind,
            text="" if media else clean_text(_text(body, texts))[0],
            media_type=block.media_type,
            blob=media,
            provider=block.provider,
            model=block.model,
            signature=block.signature,
            opaque=None if block.opaque is None else _text(block.opaque, texts),
        )


def _text(body: Body, texts: Mapping[bytes, str]) -> str:
    match body:
        case str():
            return body
        case Blob() if body.sha256 in texts:
            return texts[body.sha256]
        case Blob():
            size = f"[{body.size} bytes of {body.media_type}, not shown]"
            return f"{body.preview}\n{size}" if body.preview else size
        case Sealed():
            return "[sealed]"
