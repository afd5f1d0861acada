"""Blocks as the parts of a message, with the whole text where it is known. Pure."""

from collections.abc import Iterable, Mapping

from foldline.projections.calls import is_empty
from foldline.projections.context import Part, is_text
from foldline.schemas.blocks import Blob, Block, Blocks, Body, clean_text

SPEAKERS = frozenset({"user", "assistant", "developer", "system"})
"""How a text can be named after who said it: the roles of a history that was replaced."""

_OURS = {"call": "tool_call", "result": "tool_result"}
"""Kinds of parts that only requests and ends of calls make, not what a block is called."""


class Pieces:
    """Makes parts of blocks.

    Args:
        texts: the whole text of blobs, by their hash; of others the preview is shown.
    """

    def __init__(self, texts: Mapping[bytes, str]) -> None:
        self._texts = texts

    def parts(self, blocks: Blocks) -> list[Part]:
        """The parts of blocks that say something."""
        made = (self._part(block) for block in blocks if not is_empty(block))
        return [part for part in made if not part.is_empty]

    def _part(self, block: Block) -> Part:
        texts = self._texts
        body = block.body
        media = body if isinstance(body, Blob) and not is_text(body) else None
        return Part(
            kind=_OURS.get(block.kind, block.kind),
            text="" if media else clean_text(_text(body, texts))[0],
            media_type=block.media_type,
            blob=media,
            provider=block.provider,
            model=block.model,
            signature=block.signature,
            opaque=None if block.opaque is None else _text(block.opaque, texts),
            speaker=_speaker(block),
        )


def _speaker(block: Block) -> str:
    named = block.name if block.kind == "text" else None
    return named if named in SPEAKERS else ""


def whole_text(body: Body, texts: Mapping[bytes, str]) -> str | None:
    """The whole text of a body, where it is known."""
    if isinstance(body, str):
        return body
    return texts.get(body.sha256) if isinstance(body, Blob) else None


def plain_text(blocks: Iterable[Block], texts: Mapping[bytes, str]) -> str:
    """What blocks say, in lines: a preview where there is no more, media by its type."""
    return "\n".join(_plain(block.body, texts) for block in blocks)


def _plain(body: Body, texts: Mapping[bytes, str]) -> str:
    known = whole_text(body, texts)
    if known is not None or not isinstance(body, Blob):
        return known or ""
    return (body.preview or "") if is_text(body) else f"[{body.media_type}]"


def _text(body: Body, texts: Mapping[bytes, str]) -> str:
    known = whole_text(body, texts)
    if known is not None:
        return known
    if not isinstance(body, Blob):
        return "[sealed]"
    size = f"[{body.size} bytes of {body.media_type}, not shown]"
    return f"{body.preview}\n{size}" if body.preview else size
