"""The reference pages in docs/, made from the tables that the code itself uses.

`make docs` writes them; a test fails when a committed page is not what is made here.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from foldline.cli.reference_api import api_page
from foldline.cli.reference_http import http_page
from foldline.processors.anomalies import ANOMALIES
from foldline.processors.listing import LIMITS
from foldline.processors.rules import RULES, legal_in
from foldline.schemas.authority import AUTHORITY, TAKEN_WHEN_ENDED
from foldline.schemas.avsc import event_schema
from foldline.schemas.events import EVENT_TYPES
from foldline.schemas.readers import is_content, split
from foldline.schemas.state import STATUSES, WINDOW
from foldline.schemas.verdicts import VERDICT_KINDS

MADE = "<!-- Made by `make docs` from the code. Do not edit. -->"

VERDICTS = {
    "UNDECODABLE": "what came is no append: broken bytes, ids or numbers",
    "TOO_LARGE": "the content is larger than an event may be; put it into a blob",
    "MISROUTED": "the session is of another id or tenant",
    "UNRECOVERABLE": "events of the session were deleted from the log, and nobody knows "
    "its state; fork it at a seq that a copy still has, or begin another session",
    "NO_SESSION": "the session has no event yet, and this is no SessionCreated",
    "DUPLICATE": "the event is recorded already; `seq` says where",
    "EXISTS": "the session was created already",
    "TOO_OLD": f"the session moved more than {WINDOW} events since `known_seq`: look "
    "whether the event is in the log, and if not append anew",
    "CLOSED": "the session has ended and does not take events of this type any more",
    "FENCED": "the writer may not: another owner has the session",
    "CONFLICT": "`expected_seq` is not the session's last seq: read again, decide again",
    "LIMIT": "a list below is full; `rule` names it",
    "ILLEGAL": "a rule below is broken; `rule` names it",
    "ACCEPTED": "the event is recorded at `seq`",
}
"""Every verdict in words."""


def pages() -> dict[str, str]:
    """Every page by its name."""
    return {
        "states.md": states_page(),
        "authority.md": authority_page(),
        "rules.md": rules_page(),
        "schemas.md": schemas_page(),
        "http.md": http_page(),
        "api.md": api_page(),
    }


def states_page() -> str:
    """In which status which event may be recorded."""
    header = ["event", *(status.lower().replace("_", " ") for status in STATUSES)]
    rows = [
        [f"`{name}`", *("yes" if s in legal_in(name) else "" for s in STATUSES)]
        for name in EVENT_TYPES
        if name != "SessionCreated"
    ]
    return _page(
        "States",
        """
        An owned session refuses an event that its status does not have: ILLEGAL, rule
        `status`, or CLOSED where the session has ended. A mirrored session takes every
        event in every status: what another harness did is a fact.
        """,
        [
            "```text",
            "CREATED -> RUNNING                        TurnStarted",
            "RUNNING, WAITING_APPROVAL -> IDLE         TurnEnded",
            "IDLE -> RUNNING                           TurnStarted",
            "any open but SUSPENDED -> SUSPENDED       SessionSuspended",
            "SUSPENDED -> what it was (CREATED: IDLE)  SessionResumed",
            "RUNNING, IDLE -> COMPLETED                SessionCompleted",
            "any open -> FAILED, CANCELLED             SessionFailed, SessionCancelled",
            "COMPLETED, FAILED, CANCELLED -> IDLE      SessionReopened",
            "```",
            "",
            *_prose("""
            WAITING_APPROVAL is never stepped. A session is in it when its turn is open, a
            request is pending, no model call is open and no tool of the turn may be
            running. `SessionResumed` is recorded in every open status, with a new epoch,
            and keeps the turn that was open: that is crash recovery.
            """),
            "",
            *_table(header, rows),
        ],
    )


def authority_page() -> str:
    """Who may append what."""
    rows = [
        [f"`{name}`", kind, "yes" if name in TAKEN_WHEN_ENDED else ""]
        for name, kind in AUTHORITY.items()
    ]
    return _page(
        "Authority",
        """
        Every event type has a class, which says who may append it to an owned session.
        Nobody owns a mirrored session, so it takes everything from everybody.
        """,
        [
            *_table(
                ["class", "who"],
                [
                    ["decision", "the owner: writer and epoch are the current ones"],
                    [
                        "fact",
                        "the owner; a former owner for what it began and has no end yet",
                    ],
                    [
                        "claim",
                        "anyone, with `expected_seq` and the next epoch: the new owner",
                    ],
                    ["external", "anyone whose role allows it"],
                ],
            ),
            "",
            *_prose("""
            `PermissionGranted` and `PermissionDenied` are external where a PERSON decided
            and decisions where a POLICY or an EARLIER_GRANT did. A type that foldline does
            not know is a decision. *When ended* are the types that a session takes after
            its end.
            """),
            "",
            *_table(["event", "class", "when ended"], rows),
        ],
    )


def rules_page() -> str:
    """Verdicts, rules, limits and anomalies by name."""
    return _page(
        "Rules",
        """
        Every append is answered by one verdict. Admission looks for them in this order,
        and the first that fits is the answer; only a `known_seq` above the head is ILLEGAL
        early, with TOO_OLD. In a mirrored session the checks end there.
        """,
        [
            *_table(
                ["verdict", "means"],
                [[kind, VERDICTS[kind]] for kind in VERDICT_KINDS],
            ),
            "",
            "## Rules of an owned session",
            "",
            *_table(["rule", "says"], [[f"`{k}`", v] for k, v in RULES.items()]),
            "",
            "## Limits",
            "",
            *_prose("""
            What one session may have open at once; a resend of what filled a list is still
            a DUPLICATE. In a mirrored session nothing is refused: what does not fit is
            counted in the state, under `dropped`.
            """),
            "",
            *_table(["limit", "at most"], [[f"`{k}`", str(v)] for k, v in LIMITS.items()]),
            "",
            "## Anomalies",
            "",
            *_prose("""
            What is odd is named in the verdict, counted in the state, shown, and never
            mended by invention. In an owned session only `late` is left to name.
            """),
            "",
            *_table(["anomaly", "means"], [[f"`{k}`", v] for k, v in ANOMALIES.items()]),
        ],
    )


def schemas_page() -> str:
    """Every event type with its fields."""
    envelope = split(event_schema(EVENT_TYPES["GoalSet"]))[0]
    lines = ["## Envelope", "", *_fields(envelope), ""]
    for name, cls in EVENT_TYPES.items():
        own = split(event_schema(cls))[1]
        lines += [f"## {name}", "", *_prose(cls.__doc__ or ""), ""]
        lines += [*(_fields(own) if own else ["No fields."]), ""]
    lines += ["# Parts", ""]
    for name, part in sorted(_parts().items()):
        lines += [f"## {name}", "", part["doc"], "", *_fields(part["fields"]), ""]
    return _page(
        "Schemas",
        """
        Every event is one Avro record: the fields of the envelope, then its own, structure
        first and *content* (what somebody said) last. The frozen schemas are in
        `schemas/avro/`; `foldline schemas show TYPE` prints one as the models say it.
        """,
        lines[:-1],
    )


def _parts() -> dict[str, dict[str, Any]]:
    """The records that stand in fields of events."""
    found: dict[str, dict[str, Any]] = {}

    def look(schema: Any) -> None:
        if isinstance(schema, list):
            for branch in cast("list[Any]", schema):
                look(branch)
        elif isinstance(schema, dict):
            fields = cast("dict[str, Any]", schema)
            if fields["type"] == "record":
                found[fields["name"]] = fields
            for own in fields.get("fields", ()):
                look(own["type"])
            look(fields.get("items"))

    for name, cls in EVENT_TYPES.items():
        look(event_schema(cls))
        del found[name]
    return found


def _fields(fields: Sequence[dict[str, Any]]) -> list[str]:
    rows = [
        [
            f"`{own['name']}`",
            _type(own["type"]) + (", content" if is_content(own["type"]) else ""),
            _default(own),
        ]
        for own in fields
    ]
    return _table(["field", "type", "default"], rows)


def _default(own: dict[str, Any]) -> str:
    if "default" not in own:
        return "required"
    value = own["default"]
    return "" if value in (None, "") else f"`{value}`"


def _type(schema: Any) -> str:
    """A type in words."""
    if isinstance(schema, list):
        return " or ".join(_type(branch) for branch in cast("list[Any]", schema))
    if not isinstance(schema, dict):
        return str(schema).rpartition(".")[2]
    fields = cast("dict[str, Any]", schema)
    if fields["type"] == "array":
        return f"list of {_type(fields['items'])}"
    return str(fields.get("logicalType") or fields.get("name") or fields["type"])


def _page(title: str, about: str, lines: Sequence[str]) -> str:
    return "\n".join([f"# {title}", "", MADE, "", *_prose(about), "", *lines]) + "\n"


def _prose(text: str) -> list[str]:
    """The lines of an indented text; a list or a paragraph stays one."""
    return [line.strip() for line in text.strip().splitlines()]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_row(header), _row(["---"] * len(header)), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def main(folder: Path) -> None:
    """Write every page into a folder."""
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
