"""What holds of every context, whatever the history; checked on every build. Pure.

A breach is an error that names the events, and never a request that an API refuses, or
worse, one that it takes.
"""

from collections.abc import Iterator

from foldline.errors import ContextInvariantError
from foldline.projections.context import Context, Message, Part

ROLES = frozenset({"system", "user", "assistant", "tool"})


def check(context: Context) -> Context:
    """The context, if it is sound.

    Raises:
        ContextInvariantError: with the first problem, and its events.
    """
    for problem, messages in _problems(context.messages):
        named = dict.fromkeys(e for message in messages for e in message.event_ids)
        raise ContextInvariantError(problem, tuple(named))
    return context


_Problem = tuple[str, tuple[Message, ...]]


def _problems(messages: tuple[Message, ...]) -> Iterator[_Problem]:
    seen: dict[str, Message] = {}
    waiting: Message | None = None
    asked: list[str] = []
    for place, message in enumerate(messages):
        for problem in _of_message(message, place):
            yield problem, (message,)
        answered = _named(message, "result") if message.role == "tool" else []
        if asked != answered and waiting is not None:
            yield f"calls {asked} have the results {answered}", (waiting, message)
        elif asked != answered or (message.role == "tool" and not answered):
            yield f"results {answered} without their calls", (message,)
        asked = _named(message, "call") if message.role == "assistant" else []
        for call_id in asked:
            if call_id in seen:
                yield f"call {call_id} is there twice", (seen[call_id], message)
            seen[call_id] = message
        waiting = message if asked else None
    if waiting is not None:
        yield f"calls {asked} have no results", (waiting,)


def _of_message(message: Message, place: int) -> list[str]:
    role = message.role
    found = [problem for part in message.parts for problem in _of_part(part, role)]
    if role not in ROLES:
        found.append(f"role {role!r} is none")
    if place and role == "system":
        found.append("the system's message does not lead")
    if not message.event_ids:
        found.append(f"a message of {role} stems from no event")
    if not message.parts:
        found.append(f"a message of {role} is empty")
    return found


def _of_part(part: Part, role: str) -> list[str]:
    found: list[str] = []
    kind = part.kind
    if (kind == "call") > (role == "assistant"):
        found.append(f"{role} makes the call {part.call_id}")
    if (kind == "result") != (role == "tool"):
        found.append(f"{role} says a part of kind {kind}")
    if kind == "result":
        if not part.parts:
            found.append(f"the result of {part.call_id} is empty")
        for inner in part.parts:
            found += _of_part(inner, "")
    elif kind != "call" and part.is_empty:
        found.append(f"an empty part of kind {kind}")
    if not _is_utf8(part):
        found.append(f"a lone surrogate in a part of kind {kind}")
    return found


def _is_utf8(part: Part) -> bool:
    for text in (part.text, part.opaque, part.signature, part.tool):
        if not text or text.isascii():
            continue
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True


def _named(message: Message, kind: str) -> list[str]:
    return [part.call_id for part in message.parts if part.kind == kind]
