"""One pass of redaction over what somebody said: as JSON where it is that, else as text.

Hooks use it as it is, so this loads nothing that is slow to load.
"""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from foldline.errors import RedactionError
from foldline.producers.redaction_json import redacted_json
from foldline.producers.redaction_text import TextRedactor, is_placeholder
from foldline.producers.redaction_values import secret_by_name

NESTED_MAX = 4
"""How deep JSON inside strings of JSON is taken apart."""

SHORT_CHARS = 32
"""The longest string that is remembered as one without a secret, in characters."""

CLEAN_MAX = 4_096
"""How many of them."""

BY_NAME = "named"
"""The rule of what was replaced because of the name of its field."""


class Pass:
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


@contextmanager
def failing_closed() -> Generator[None]:
    """Whatever fails in it, nothing is recorded; only the type of the error is passed on.

    Its message may quote the text.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - fails closed, whatever it was
        raise RedactionError("engine", type(error).__name__) from None
