"""Blocks: whatever a person, a model or a tool said, in order."""

from foldline.schemas.record import Record


class Sealed(Record):
    """A body encrypted with the session's key."""

    key_id: str
    nonce: bytes
    ciphertext: bytes


class Blob(Record):
    """A body kept in the content-addressed blob store, written before the append.

    `sha256` is over the stored bytes (after redaction; over the ciphertext where the
    session is sealed, and then `preview` is null). `size` is in bytes.
    """

    sha256: bytes
    size: int
    media_type: str
    preview: str | None = None
    key_id: str | None = None
    nonce: bytes | None = None


Body = str | Sealed | Blob


class Block(Record):
    """One piece of content.

    `kind` is one of text, reasoning, image, file, json, tool_call, tool_result,
    server_tool, redaction, or whatever a newer writer knows. `signature` and `opaque`
    go back to the same `provider` and `model` verbatim, or are dropped. `lossy` says
    that the text held something UTF-8 cannot hold (a lone surrogate), stored as U+FFFD.
    """

    kind: str
    media_type: str | None = None
    name: str | None = None
    body: Body = ""
    call_id: str | None = None
    provider: str | None = None
    model: str | None = None
    provider_item_id: str | None = None
    signature: str | None = None
    opaque: Body | None = None
    lossy: bool = False


Blocks = tuple[Block, ...]


def text_block(text: str) -> Block:
    """Make a text block; a lone surrogate becomes U+FFFD and marks it lossy."""
    clean, lossy = clean_text(text)
    return Block(kind="text", body=clean, lossy=lossy)


def json_block(text: str) -> Block:
    """Make a json block from JSON text, kept as it is; lone surrogates as in text."""
    clean, lossy = clean_text(text)
    return Block(kind="json", media_type="application/json", body=clean, lossy=lossy)


def clean_text(text: str) -> tuple[str, bool]:
    """Replace lone surrogates by U+FFFD; say whether there were any."""
    if text.isascii():
        return text, False
    try:
        text.encode()
    except UnicodeEncodeError:
        # A pair of surrogates written as two escapes is one character; join it first.
        joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return joined, joined.count("\ufffd") > text.count("\ufffd")
    return text, False


def text_of(blocks: Blocks) -> str:
    """The text of blocks whose bodies are inline; blobs give their preview."""
    return "".join(
        block.body
        if isinstance(block.body, str)
        else (block.body.preview or "")
        if isinstance(block.body, Blob)
        else ""
        for block in blocks
    )
