"""From what a hook was told to a spooled record without secrets."""

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any, cast

from foldline.errors import FoldlineError, RedactionError, SettingsError
from foldline.places import default_url, make_private, path_of
from foldline.producers.redaction_file import SETTING, RuleFile, read_rules
from foldline.producers.redaction_key import key_of_log
from foldline.producers.redaction_pass import Pass, failing_closed
from foldline.producers.redaction_rules import DEFAULT_RULES
from foldline.producers.redaction_text import WITHHELD, TextRedactor
from foldline.producers.spool import (
    SPOOL_MAX_BYTES,
    Spooled,
    SpoolFullError,
    make_spool,
    put,
    say_failed,
    spool_of,
)

URL_VARIABLE = "FOLDLINE_URL"

_ID = re.compile(r"[A-Za-z0-9._:/-]{1,200}")
_KEPT_APART = ("hook_event_name", "session_id", "tool_use_id", "transcript_path")

# What the records around it say better, or what is in the envelope.
_LEFT_OUT = frozenset({*_KEPT_APART, "permission_mode", "last_assistant_message"})

RELATIVE = "the log's URL is relative: name it from the root, hooks run in any folder"


def keep(told: bytes, *, at_us: int, url: str | None, told_max_bytes: int) -> None:
    """Take the secrets out and put the rest into the spool; say there what went wrong.

    Raises:
        OSError: there can be no spool.
    """
    url = url or os.environ.get(URL_VARIABLE) or default_url()
    if wrong := _wrong_with(url):
        folder = spool_of(default_url())  # where somebody looks
        make_spool(folder)
        say_failed(folder, at_us, wrong)
        return
    folder = spool_of(url)
    make_spool(folder)
    try:
        put(folder, _spooled(_decoded(told, told_max_bytes), at_us, _pass_for(url)))
    except SpoolFullError:
        say_failed(folder, at_us, f"the spool holds more than {SPOOL_MAX_BYTES} bytes")
    except _NotToldError as error:
        say_failed(folder, at_us, str(error))
    except (FoldlineError, OSError) as error:
        say_failed(folder, at_us, f"{type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001 - its message may quote what was told
        say_failed(folder, at_us, type(error).__name__)


class _NotToldError(Exception):
    """Raised when stdin held nothing that a hook is told."""


def _wrong_with(url: str) -> str:
    """Why hooks cannot be for the log of a URL; empty where they can."""
    try:
        path = path_of(url)
    except SettingsError as error:
        return str(error)
    return RELATIVE if path is not None and not path.is_absolute() else ""


def _decoded(told: bytes, told_max_bytes: int) -> dict[str, Any]:
    if len(told) > told_max_bytes:
        reason = f"told more than {told_max_bytes} bytes"
        raise _NotToldError(reason)
    try:
        fields: Any = json.loads(told.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        reason = "stdin held no JSON object: foldline hook is run by Claude Code"
        raise _NotToldError(reason)
    return cast("dict[str, Any]", fields)


def _pass_for(url: str) -> Pass:
    """What takes the secrets out: by the log's key and rules, as the log's writers do.

    Raises:
        RedactionError, SettingsError: there is no telling what is a secret.
    """
    path = path_of(url)
    if path is not None:
        make_private(path.parent)
    rules = os.environ.get(SETTING)
    file = read_rules(Path(rules)) if rules else RuleFile(DEFAULT_RULES, {})
    text = TextRedactor(key_of_log(url), file.rules)
    for name, value in file.values.items():
        text.register(value, name)
    return Pass(text, set())


def _spooled(fields: dict[str, Any], at_us: int, redaction: Pass) -> Spooled:
    rest = {name: value for name, value in fields.items() if name not in _LEFT_OUT}
    hook, session_id, tool_use_id, path = (_text(fields, name) for name in _KEPT_APART)
    return Spooled(
        at_us=at_us,
        hook=_id(hook, redaction) or "unknown",
        session_id=_id(session_id, redaction),
        tool_use_id=_id(tool_use_id, redaction),
        agent_id=_id(_text(fields, "agent_id"), redaction),
        transcript_path=_redacted(path, redaction),
        content=_redacted(json.dumps(rest, ensure_ascii=False), redaction),
    )


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _id(value: str, redaction: Pass) -> str:
    """An id as it is, or empty: what could be a secret is none."""
    same = _ID.fullmatch(value) and _redacted(value, redaction) == value
    return value if same else ""


def _redacted(text: str, redaction: Pass) -> str:
    """Without secrets; with nothing of it where the engine fails."""
    try:
        with failing_closed():
            return redaction.said(text, Counter())
    except RedactionError:
        return json.dumps({"withheld": WITHHELD})
