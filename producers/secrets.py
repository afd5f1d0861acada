"""Secrets of tools: a tool receives what it declares, and gives none of it away.

1. A `Tool` names its secrets, each with what fetches it. No other can be had through its
   context: asking for it raises UndeclaredSecretError.
2. A secret is fetched when the tool asks for it, in the process that runs it. Neither the
   name nor the value is part of a call, a declaration or an event.
3. What was handed out is replaced in everything that the tool says (output, error,
   evidence) before it leaves this process: in the log, and to the model. Also as JSON, a
   URL and base64 write it.

The redaction rules of the log come on top, for secrets that nobody declared.
"""

import base64
import json
import threading
from collections.abc import Callable, Mapping
from urllib.parse import quote

from foldline.errors import UndeclaredSecretError
from foldline.schemas.blocks import Block, Blocks

Fetch = Callable[[], str]
"""Gives a secret's value: `lambda: os.environ["GITHUB_TOKEN"]`."""

CONCEALED_MIN_CHARS = 4
"""A shorter value is not replaced: it would be found in what is none."""


class Secrets:
    """The secrets that one execution may receive, and those that it has."""

    def __init__(self, declared: Mapping[str, Fetch]) -> None:
        self._declared = declared
        self._given: dict[str, str] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> str:
        """Hand a declared secret out; safe to call from any thread.

        Raises:
            UndeclaredSecretError: the tool does not declare it.
        """
        fetch = self._declared.get(name)
        if fetch is None:
            raise UndeclaredSecretError(name, sorted(self._declared))
        value = fetch()
        with self._lock:
            self._given[value] = name
        return value

    def conceal(self, blocks: Blocks) -> Blocks:
        """The same blocks with a placeholder for whatever was handed out."""
        forms = self._forms()
        if not forms:
            return blocks
        return tuple(_without(block, forms) for block in blocks)

    def conceal_text(self, text: str) -> str:
        """The same text with a placeholder for whatever was handed out."""
        return _replaced(text, self._forms())

    def _forms(self) -> list[tuple[str, str]]:
        """What to look for, and what stands there instead: the longest first."""
        with self._lock:
            given = dict(self._given)
        found = {
            form: f"[secret {name}]"
            for value, name in given.items()
            if len(value) >= CONCEALED_MIN_CHARS
            for form in _written(value)
        }
        return sorted(found.items(), key=lambda pair: (-len(pair[0]), pair[0]))


def _written(value: str) -> set[str]:
    """A value as it may be written."""
    data = value.encode("utf-8", "surrogatepass")
    as_json = json.dumps(value), json.dumps(value, ensure_ascii=False)
    encoded = base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()
    return {
        value,
        *(text[1:-1] for text in as_json),
        quote(data, safe=""),
        *(text.rstrip("=") for text in encoded),
    }


def _without(block: Block, forms: list[tuple[str, str]]) -> Block:
    changed = {
        name: _replaced(text, forms)
        for name in ("body", "opaque")
        if isinstance(text := getattr(block, name), str)
    }
    return block.model_copy(update=changed) if changed else block


def _replaced(text: str, forms: list[tuple[str, str]]) -> str:
    for form, placeholder in forms:
        text = text.replace(form, placeholder)
    return text
