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
    for place, message in enumerate(messages):
        for problem in _of_message(message, place):
            yield problem, (message,)
        asked = _named(waiting, "call")
        answered = _named(message if message.role == "tool" else None, "result")
        if asked != answered and waiting is not None:
            yield f"calls {asked} have the results {answered}", (waiting, message)
        elif asked != answered or (message.role == "tool" and not answered):
            yield f"results {answered} without their calls", (message,)
        calls = _named(message, "call")
        for call_id in calls:
            if call_id in seen:
                yield f"call {call_id} is there twice", (seen[call_id], message)
            seen[call_id] = message
        waiting = message if calls else None
    if waiting is not None:
        yield f"calls {_named(waiting, 'call')} have no results", (waiting,)


def _of_message(message: Message, place: int) -> Iterator[str]:
    role = message.role
    if role not in ROLES:
        yield f"role {role!r} is none"
    if (role == "system") and place:
        yield "the system's message does not lead"
    if not message.event_ids:
        yield f"a message of {role} stems from no event"
    if not message.parts:
        yield f"a message of {role} is empty"
    for part in message.parts:
        yield from _of_part(part, role)


def _of_part(part: Part, role: str) -> Iterator[str]:
    if (part.kind == "call") > (role == "assistant"):
        yield f"{role} makes the call {part.call_id}"
    if (part.kind == "result") != (role == "tool"):
        yield f"{role} says a part of kind {part.kind}"
    if part.kind == "result":
        if not part.parts:
            yield f"the result of {part.call_id} is empty"
        for inner in part.parts:
            yield from _of_part(inner, "")
    elif part.kind != "call" and _is_empty(part):
        yield f"an empty part of kind {part.kind}"
    for text in (part.text, part.opaque or "", part.signature or "", part.tool):
        if not _is_utf8(text):
            yield f"a lone surrogate in a part of kind {part.kind}"


def _is_empty(part: Part) -> bool:
    return not (part.text or part.blob or part.opaque or part.signature)


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _named(message: Message | None, kind: str) -> list[str]:
    parts = message.parts if message is not None else ()
    return [part.call_id for part in parts if part.kind == kind]
