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

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

from foldline.producers.redaction_engines import Finds
from foldline.producers.redaction_fields import is_content, redacted_record
from foldline.producers.redaction_key import KEY_BYTES
from foldline.producers.redaction_pass import Pass, failing_closed
from foldline.producers.redaction_rule import Rule
from foldline.producers.redaction_rules import DEFAULT_RULES
from foldline.producers.redaction_streams import TAIL_CHARS
from foldline.producers.redaction_text import WITHHELD, TextRedactor
from foldline.schemas.blocks import Block
from foldline.schemas.events import KnownEvent
from foldline.schemas.record import Record


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
        with failing_closed():
            return Pass(self._text, self._clean).said(text, counts), counts

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
        with failing_closed():
            rest = self._text.redact_rest(before[-TAIL_CHARS:], head, counts)
            return rest + behind, counts

    def redact_event(self, event: KnownEvent) -> tuple[KnownEvent, Mapping[str, int]]:
        """The event without secrets in what anybody said, and how often each rule fired.

        Raises:
            RedactionError: the engine failed; the event may not be recorded.
        """
        counts: Counter[str] = Counter()
        if not self._enabled:
            return event, counts
        with failing_closed():
            redacted = redacted_record(event, Pass(self._text, self._clean), counts)
            return cast("KnownEvent", redacted), counts


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
