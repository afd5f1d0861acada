"""Redaction: what must not be recorded is replaced before anything is durable.

A secret becomes a placeholder, `‹secret:github-pat:7f3a91c2›`: the kind, and eight hex
digits of an HMAC under the log's key, so that one secret has one placeholder everywhere
and nobody can try guesses without the key. Redacting twice is redacting once.

Text that is JSON is taken apart: names of fields then say which values are secret, no
escape hides one, and what comes out is JSON again. Structure (ids, hashes, signatures)
is never touched. An engine that fails lets nothing through.

The rules are data (`foldline.producers.redaction_rules`): add your own with
`Redactor(key, rules=(*DEFAULT_RULES, Rule(...)))`, or register values that are known.
"""

import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from foldline.errors import RedactionError
from foldline.producers.redaction_engines import Finds
from foldline.producers.redaction_fields import is_content, redacted_record
from foldline.producers.redaction_json import redacted_json
from foldline.producers.redaction_known import REGISTERED_MIN
from foldline.producers.redaction_rule import Rule
from foldline.producers.redaction_rules import DEFAULT_RULES
from foldline.producers.redaction_streams import TAIL_CHARS
from foldline.producers.redaction_text import WITHHELD, TextRedactor, is_placeholder
from foldline.producers.redaction_values import secret_by_name
from foldline.schemas.blocks import Block
from foldline.schemas.events import KnownEvent
from foldline.schemas.record import Record
from foldline.settings import default_data_dir

NESTED_MAX = 4
"""How deep JSON inside strings of JSON is taken apart."""

SHORT_CHARS = 32
"""Of strings that are no longer than this, those without a secret are remembered."""

CLEAN_MAX = 4_096
"""How many of them."""

KEY_BYTES = 32

KEY_NAME_CHARS = 16
"""How much of the hash of a log's URL names the file of its key."""

BY_NAME = "named"
"""The rule of what was replaced because of the name of its field."""


class Redactor:
    """Replaces secrets in texts and events; each call by itself, from any thread.

    Args:
        key: what placeholders are keyed with; without one they are stable within this
            process only. `key_of_log` keeps one beside a log.
        rules: what a secret looks like.
        engines: what else looks for secrets, behind the port of
            `foldline.producers.redaction_engines`.
        enabled: False lets everything through.
    """

    def __init__(
        self,
        key: bytes | None = None,
        rules: Sequence[Rule] = DEFAULT_RULES,
        *,
        engines: Sequence[Finds] = (),
        enabled: bool = True,
    ) -> None:
        key = os.urandom(KEY_BYTES) if key is None else key
        self._text = TextRedactor(key, rules, engines)
        self._clean: set[str] = set()
        self._enabled = enabled

    def register(self, value: str, name: str) -> None:
        """Replace this value wherever it occurs, however it is written.

        As JSON, a URL, base64 and hex write it, and as two of these in each other do.

        Raises:
            RedactionError: the value is too short to be told from ordinary text.
        """
        if len(value) < REGISTERED_MIN:
            raise RedactionError(name, f"shorter than {REGISTERED_MIN} characters")
        self._text.register(value, name)
        self._clean.clear()

    def redact_text(self, text: str) -> tuple[str, Mapping[str, int]]:
        """The text without secrets, and how often each rule fired.

        Raises:
            RedactionError: the engine failed; the text may not be recorded.
        """
        counts: Counter[str] = Counter()
        if not self._enabled:
            return text, counts
        try:
            return _Pass(self._text, self._clean).said(text, counts), counts
        except Exception as error:  # noqa: BLE001 - fails closed, whatever it was
            raise _failed(error) from None

    def redact_rest(self, before: str, text: str) -> tuple[str, Mapping[str, int]]:
        """The text without the end of a secret that begins in what stood before it.

        Of both, TAIL_CHARS are looked at.

        Raises:
            RedactionError: the engine failed; the text may not be recorded.
        """
        counts: Counter[str] = Counter()
        if not self._enabled:
            return text, counts
        head, behind = text[:TAIL_CHARS], text[TAIL_CHARS:]
        try:
            rest = self._text.redact_rest(before[-TAIL_CHARS:], head, counts)
        except Exception as error:  # noqa: BLE001 - fails closed, whatever it was
            raise _failed(error) from None
        return rest + behind, counts

    def redact_event(self, event: KnownEvent) -> tuple[KnownEvent, Mapping[str, int]]:
        """The event without secrets in what anybody said, and how often each rule fired.

        Raises:
            RedactionError: the engine failed; the event may not be recorded.
        """
        counts: Counter[str] = Counter()
        if not self._enabled:
            return event, counts
        try:
            redacted = redacted_record(event, _Pass(self._text, self._clean), counts)
        except Exception as error:  # noqa: BLE001 - fails closed, whatever it was
            raise _failed(error) from None
        return cast("KnownEvent", redacted), counts


class _Pass:
    """One pass over an event: how deep in JSON inside JSON it is.

    `clean` are short strings in which there is nothing, like the names of fields.
    """

    def __init__(self, text: TextRedactor, clean: set[str]) -> None:
        self._text = text
        self._clean = clean
        self._depth = 0

    def said(self, text: str, counts: Counter[str]) -> str:
        """What somebody said, without secrets."""
        if self._depth < NESTED_MAX and text[:64].lstrip()[:1] in ("{", "["):
            self._depth += 1
            try:
                redacted = redacted_json(text, self.said, self.named, counts)
            finally:
                self._depth -= 1
            if redacted is not None:
                return redacted
        return (
            self._short(text, counts)
            if len(text) <= SHORT_CHARS
            else (self._text.redact(text, counts))
        )

    def _short(self, text: str, counts: Counter[str]) -> str:
        if text in self._clean:
            return text
        redacted = self._text.redact(text, counts)
        if redacted == text:
            if len(self._clean) >= CLEAN_MAX:
                self._clean.clear()
            self._clean.add(text)
        return redacted

    def named(self, name: str, value: str, counts: Counter[str]) -> str | None:
        """A value replaced because of its name; None where the name says nothing."""
        if is_placeholder(value) or not secret_by_name(name, value):
            return None
        counts[BY_NAME] += 1
        return self._text.placeholder(BY_NAME, value)

    def parts(self, texts: list[str], counts: Counter[str]) -> list[str]:
        """Texts that belong together, without secrets across their borders."""
        return self._text.redact_parts(texts, counts)


def _failed(error: Exception) -> RedactionError:
    # Its message may quote the text: only its type is passed on.
    return RedactionError("engine", type(error).__name__)


def withheld(event: KnownEvent) -> KnownEvent:
    """The event with everything that anybody said replaced by `‹redaction-failed›`.

    For an importer, which goes on where the engine fails: that the event happened is
    kept, and nothing of its content.
    """
    return cast("KnownEvent", _withheld("", event))


def _withheld(name: str, value: object) -> object:
    if isinstance(value, str):
        if name.endswith("_json"):
            return f'"{WITHHELD}"'
        return WITHHELD if is_content(name) else value
    if isinstance(value, Block):
        return Block(kind=value.kind, call_id=value.call_id, body=WITHHELD)
    if isinstance(value, tuple):
        return tuple(_withheld(name, item) for item in cast("tuple[object, ...]", value))
    if isinstance(value, Record):
        fields = {key: _withheld(key, item) for key, item in value.__dict__.items()}
        return type(value).trusted(fields)
    return value


# --- the key of a log ------------------------------------------------------------


def key_of_log(url: str) -> bytes:
    """The key of a log's placeholders; a fresh one for memory:.

    It is kept beside a file's log, and in this user's data folder for a log elsewhere:
    there, equal secrets have equal placeholders as far as they come from one machine.

    Raises:
        RedactionError: the key cannot be read or made.
    """
    scheme, _, path = url.partition(":///")
    if path and scheme != "memory":
        database = Path(path).expanduser()
        return _kept_key(database.with_name(f"{database.name}.redaction-key"))
    if "://" not in url:
        return os.urandom(KEY_BYTES)
    folder = default_data_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RedactionError("key", f"{folder}: {error.strerror}") from error
    name = hashlib.sha256(url.encode()).hexdigest()[:KEY_NAME_CHARS]
    return _kept_key(folder / f"{name}.redaction-key")


def _kept_key(path: Path) -> bytes:
    """Read the key, or make it: whole or not at all, and never over another's."""
    try:
        if not path.exists():
            _make_key(path)
        key = path.read_bytes()
    except OSError as error:
        raise RedactionError("key", f"{path}: {error.strerror}") from error
    if len(key) != KEY_BYTES:
        raise RedactionError("key", f"{path} does not hold {KEY_BYTES} bytes")
    return key


def _make_key(path: Path) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:  # mkstemp makes it for its owner only
            file.write(os.urandom(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(name, path)
        except FileExistsError:
            return  # another process was first: its key is the log's
    finally:
        Path(name).unlink()
