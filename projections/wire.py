"""What requests to every API have in common: ids, names, arguments, images. Pure.

Nothing here depends on what comes later in a conversation, so that a longer history
renders to what a shorter one did, and more behind it.
"""

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple, cast

from foldline.errors import BlobError
from foldline.projections.context import Context, Part
from foldline.schemas.blocks import Blob, clean_text

ReadBlob = Callable[[bytes], bytes]
Json = dict[str, Any]

GLUED = 1
"""The first version of requests: nothing stood between texts in a row, nobody was said to
have said them, and what a provider compacted itself was left out."""

VERSION = 2
"""The version that is made now. Those before are made as ever, so that requests which are
kept by reference can be rebuilt."""

GO_ON = "Go on."
"""What the user says where an API wants a user's message and nobody said anything."""

UNPARSED = "_unparsed"
"""The key under which arguments stand that are no JSON object, as the model wrote them."""

DEPTH_MAX = 100
"""How deep JSON from a model may be nested before it is shown as text."""

_SHORT_HASH = 8
_ID_HASH = 24

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ALTERED = re.compile(
    "\ufffd"  # a lone surrogate was here
    r"|‹(?:secret:[a-z0-9-]+:[0-9a-f]+|redaction-failed)›"
    r"|\[\d+ bytes of [^\]]*, not shown\]\Z"
    r"|\A\[sealed\]\Z"
)
_DATED = re.compile(r"-(?:latest|\d{8}|\d{4}-\d{2}-\d{2})\Z")
_MAGIC = {
    b"\x89PNG": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}


class FormatLimits(NamedTuple):
    """How long ids and names may be, in characters, and how large an image, in bytes."""

    id_max: int
    name_max: int
    image_bytes_max: int


class Image(NamedTuple):
    """An image as an API takes it: base64 of the bytes, and what those really are."""

    media_type: str
    data: str

    @property
    def url(self) -> str:
        """The content as a data URL."""
        return f"data:{self.media_type};base64,{self.data}"


@dataclass(frozen=True, slots=True)
class Wire:
    """One rendering of a context: for whom, within which limits, with which ids."""

    limits: FormatLimits
    ids: Mapping[str, str]
    provider: str = ""
    model: str = ""
    read_blob: ReadBlob | None = None
    version: int = VERSION

    def text(self, part: Part, *, below: bool = False) -> str:
        """What a part says in words; nothing where it speaks to its own model only.

        Args:
            part: any but a call or a result.
            below: whether it is an image that is shown further down.
        """
        if part.kind == "reasoning":
            return ""
        if part.kind == "server_tool":
            return f"[server tool: {part.text}]" if part.text.strip() else ""
        if part.blob is None:
            is_data = part.kind in ("image", "file") and part.text.startswith("data:")
            said = part.text if self.version == GLUED else part.spoken
            return f"[{part.kind}]" if is_data or not part.text else said
        where = ", shown below" if below else ""
        return f"[{part.kind}: {part.blob.size} bytes of {part.blob.media_type}{where}]"

    def lines(self, texts: Iterable[str]) -> str:
        """Texts that are apart, as one; nothing where all are blank."""
        return joined(texts if self.version == GLUED else parted(texts))

    def is_own(self, part: Part) -> bool:
        """Whether this provider and model said it, and so may get it back."""
        same = part.provider == self.provider
        return same and same_model(part.model or "", self.model)

    def name(self, tool: str) -> str:
        """The name of a tool as every API takes it: itself, or one made of it."""
        longest = self.limits.name_max
        if _PLAIN.fullmatch(tool) and len(tool) <= longest:
            return tool
        short = _FOREIGN.sub("_", tool)[: longest - _SHORT_HASH - 1]
        return f"{short}_{_digest(tool)[:_SHORT_HASH]}"

    def image(self, part: Part) -> Image | None:
        """The image that a part is; None if it cannot be shown, and then it is named."""
        blob = part.blob
        if part.kind != "image" or blob is None or self.read_blob is None:
            return None
        if blob.size > self.limits.image_bytes_max:
            return None
        data = read_of(self.read_blob, blob)
        media_type = None if data is None else _media_type(data)
        if data is None or media_type is None:
            return None
        return Image(media_type, base64.b64encode(data).decode())


# --- ids -----------------------------------------------------------------------------


def call_ids(context: Context, limits: FormatLimits) -> dict[str, str]:
    """The id of each call on the wire: the provider's if it fits and is new, else ours.

    They are given in the order of the calls: a longer history keeps those of a shorter.
    """
    ids: dict[str, str] = {}
    used: set[str] = set()
    for message in context.messages:
        for part in message.parts:
            if part.kind == "call":
                ids[part.call_id] = _free_id(part, used, limits.id_max)
                used.add(ids[part.call_id])
    return ids


def _free_id(part: Part, used: set[str], longest: int) -> str:
    wanted = (part.provider_call_id, f"call_{part.call_id.replace(':', '_')}")
    for candidate in wanted:
        fits = _PLAIN.fullmatch(candidate) and len(candidate) <= longest
        if fits and candidate not in used:
            return candidate
    made = _hashed_id(part.call_id)
    while made in used:
        made = _hashed_id(part.call_id + made)
    return made


def _hashed_id(text: str) -> str:
    return f"call_{_digest(text)[:_ID_HASH]}"


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


def same_model(said: str, asked: str) -> bool:
    """Whether two names mean one model: equal, or one is the other without its date.

    No name means none.
    """
    return bool(said) and (
        asked in (said, _DATED.sub("", said)) or said == _DATED.sub("", asked)
    )


def provider_of(format: str, provider: str) -> str:  # noqa: A002 - the word for it
    """Who serves a request: as it is said, or else whose format it is."""
    return provider or format.partition("-")[0]


# --- text ----------------------------------------------------------------------------


def system_text(context: Context, wire: Wire) -> str:
    """What leads the conversation."""
    return wire.lines(
        wire.text(part)
        for message in context.messages
        if message.role == "system"
        for part in message.parts
    )


def parted(texts: Iterable[str]) -> Iterator[str]:
    """Texts with a line break between those that no white space parts."""
    last = " "
    for text in filter(None, texts):
        yield text if last.isspace() or text[0].isspace() else f"\n{text}"
        last = text[-1]


def joined(texts: Iterable[str]) -> str:
    """Texts in a row; nothing where all are blank, which no API takes."""
    text = "".join(texts)
    return text if text.strip() else ""


def is_whole(text: str) -> bool:
    """Whether a text is as the model wrote it: not redacted, shortened or repaired."""
    return _ALTERED.search(text) is None


# --- JSON ----------------------------------------------------------------------------


def parsed(text: str) -> object:
    """JSON that every API can take; ValueError where it is none.

    No NaN, nothing infinite, no lone surrogate, not too deep.
    """
    try:
        value: object = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deep") from None
    return cleaned(value)


def parsed_item(text: str | None) -> Json:
    """The JSON object in a text; an empty one where there is none."""
    try:
        value = parsed(text or "")
    except ValueError:
        return {}
    return cast("Json", value) if isinstance(value, dict) else {}


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is too large")
    return value


def cleaned(value: object, depth: int = 0) -> object:
    """JSON without lone surrogates, as new dicts and lists."""
    if depth > DEPTH_MAX:
        raise ValueError("nested too deep")
    if isinstance(value, str):
        return clean_text(value)[0]
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, object]", value).items()
        return {clean_text(key)[0]: cleaned(item, depth + 1) for key, item in pairs}
    if isinstance(value, (list, tuple)):
        return [cleaned(item, depth + 1) for item in cast("list[object]", value)]
    return value


def arguments_object(text: str) -> Json:
    """Arguments as an object; what is none stands in one, as the model wrote it."""
    if not text.strip():
        return {}
    try:
        value = parsed(text)
    except ValueError:
        return {UNPARSED: text}
    return cast("Json", value) if isinstance(value, dict) else {UNPARSED: text}


def arguments_text(text: str) -> str:
    """Arguments as the text of an object: the model's own wherever it is one."""
    found = arguments_object(text)
    if not text.strip() or UNPARSED in found or _ESCAPED_SURROGATE.search(text):
        return compact(found)
    return text


def compact(value: object) -> str:
    """JSON in one way: no blanks, keys in their order, text as it is."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


# --- images -----------------------------------------------------------------------


def _media_type(data: bytes) -> str | None:
    """What an image's bytes are, whatever they were called; None: no API shows it."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    found = (kind for magic, kind in _MAGIC.items() if data.startswith(magic))
    return next(found, None)


def read_of(read_blob: ReadBlob, blob: Blob) -> bytes | None:
    """The bytes of a blob; None where they are gone: the request is made without them."""
    try:
        return read_blob(blob.sha256)
    except BlobError:
        return None
