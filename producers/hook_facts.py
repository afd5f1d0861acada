"""What a hook adds to what its transcript tells: that it ran, when, and for which call.

The transcript is the record of the session; a hook never says again what it says. Each
hook is one HookRan, under an id of its own. What it was told goes into it only as far as
no transcript holds it; arguments, outputs and prompts are held until the transcript has
them, and are recorded from the hook only if it never does.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from foldline.producers.claude_code_mapping import AGENT_SESSION, Mapping, Told
from foldline.producers.claude_code_records import SYSTEM
from foldline.producers.claude_code_sessions import HARNESS, PROMPT_CHARS
from foldline.producers.identity import derived_id
from foldline.producers.json_fields import as_object, as_text, canonical_json
from foldline.producers.prepare import Draft
from foldline.producers.spool import Spooled
from foldline.schemas.blocks import json_block
from foldline.schemas.envelope import INFERRED, RECORDED, Envelope, Source
from foldline.schemas.events import HookRan, SessionCreated

HOOK_SYSTEM = "claude-code-hook"
"""The system in the source of what hooks told; its position is the id in the spool."""

WRITER = "hook:claude-code"

SESSION_END = "SessionEnd"

TOLD_BY_TRANSCRIPT: dict[str, frozenset[str]] = {
    "PreToolUse": frozenset({"tool_name", "tool_input"}),
    "PostToolUse": frozenset({"tool_name", "tool_input", "tool_response"}),
    "UserPromptSubmit": frozenset({"prompt"}),
}
"""What a transcript tells too, by the hooks that tell it."""

MET_BY_CONTENT = frozenset({"UserPromptSubmit"})
"""The hooks that meet their transcripts by what they were told; others do by ids."""

OF_SESSION = frozenset({"cwd"})
"""What is told of the session: it is in its creation, a transcript's or a hook's."""

Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Met:
    """Where hook and transcript meet.

    `there`: the transcript told of the session, and of all that the hook told. `call_id`
    is that of the hook's call, if it is of the same session.
    """

    there: bool
    call_id: str | None = None


def agent_transcript(spooled: Spooled) -> Path | None:
    """Where the transcript of a subagent lies that has one of its own."""
    if not spooled.agent_id or not spooled.transcript_path:
        return None
    path = Path(spooled.transcript_path)
    folder = path.parent / path.stem / "subagents"  # a root has no name to change
    return folder / f"{AGENT_SESSION}{Path(spooled.agent_id).name}.jsonl"


def meeting(
    spooled: Spooled, told: Mapping | None, agent: Mapping | None, redact: Redact
) -> Met:
    """Whether what a hook told is in its transcript by now, or in that of its agent."""
    if told is None or not told.knows(spooled.session_id):
        return Met(there=False)
    if spooled.hook in MET_BY_CONTENT:
        return Met(_is_said(spooled, told, redact))
    call = _call_of(spooled.tool_use_id, told, agent)
    if spooled.hook not in TOLD_BY_TRANSCRIPT:
        ours = call is not None and call.session_id == spooled.session_id
        return Met(there=True, call_id=call.call_id if call and ours else None)
    if call is None:
        return Met(there=False)
    ours = call.session_id == spooled.session_id
    there = call.ended or spooled.hook != "PostToolUse"
    return Met(there, call.call_id if ours else None)


def _call_of(tool_use_id: str, *tellers: Mapping | None) -> Told | None:
    if not tool_use_id:
        return None
    found = (one.call_of(tool_use_id) for one in tellers if one is not None)
    return next((call for call in found if call is not None), None)


def _is_said(spooled: Spooled, told: Mapping, redact: Redact) -> bool:
    """Whether a prompt of the transcript is the hook's, secrets left out of both."""
    prompt = as_text(_content(spooled).get("prompt")).strip()
    for raw in told.prompts_of(spooled.session_id):
        said = redact(raw).strip()
        if said == prompt:
            return True
        if len(raw) == PROMPT_CHARS and prompt.startswith(said[: PROMPT_CHARS // 2]):
            return True
    return False


def fact_of(record_id: str, spooled: Spooled, met: Met) -> Draft:
    """The fact that a hook ran, with what only the hook told."""
    content = _content(spooled)
    known = OF_SESSION
    if met.there:
        known |= TOLD_BY_TRANSCRIPT.get(spooled.hook, frozenset())
    content = {name: value for name, value in content.items() if name not in known}
    if spooled.tool_use_id and met.call_id is None:
        content["tool_use_id"] = spooled.tool_use_id
    said = (json_block(canonical_json(content)),) if content else ()
    event = HookRan(hook=spooled.hook, call_id=met.call_id, blocks=said)
    return Draft(_envelope(record_id, spooled, record_id), event)


def creation_of(record_id: str, spooled: Spooled) -> Draft:
    """The creation of a session that no transcript tells of: its id is the transcript's.

    Of its environment it knows the folder; of its relation to others nothing.
    """
    cwd = as_text(_content(spooled).get("cwd"))
    event = SessionCreated(
        agent=SYSTEM,
        mode="MIRRORED",
        relation="ROOT",
        environment_json=canonical_json({"cwd": cwd}) if cwd else None,
    )
    envelope = _envelope(record_id, spooled, "").model_copy(
        update={
            "event_id": derived_id(SYSTEM, spooled.session_id, "session"),
            "certainty": INFERRED,
        }
    )
    return Draft(envelope, event)


def _envelope(record_id: str, spooled: Spooled, key: str) -> Envelope:
    return Envelope(
        event_id=derived_id(HOOK_SYSTEM, spooled.session_id, key),
        session_id=spooled.session_id,
        occurred_at=spooled.at_us,
        writer=WRITER,
        actor=HARNESS,
        certainty=RECORDED,
        source=Source(
            system=HOOK_SYSTEM,
            stream="spool",
            position=record_id,
            sha256=hashlib.sha256(
                spooled.content.encode("utf-8", "surrogatepass")
            ).digest(),
        ),
    )


def _content(spooled: Spooled) -> dict[str, Any]:
    try:
        return as_object(cast("object", json.loads(spooled.content)))
    except (ValueError, RecursionError):
        return {"text": spooled.content}
