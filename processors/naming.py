"""What a new session may be called: one rule for the command, the service and clients.

A log takes any text that is not empty, not too long, and no half of a surrogate pair: what
was recorded stays readable. But an id is typed, printed, logged and put into addresses. So
who names a new session gives it no character that nobody sees, and no blank at an end.
"""

import unicodedata

from foldline.errors import SessionIdError
from foldline.processors.admission import MAX_ID_LENGTH

UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""The categories of Unicode that no id has: controls, what only formats, surrogates,
private use, and the separators of lines and paragraphs."""


def session_id_problem(session_id: str) -> str:
    """Why no new session can be called this; empty if it can."""
    if not session_id:
        return "it is empty"
    if len(session_id) > MAX_ID_LENGTH:
        return f"it has more than {MAX_ID_LENGTH} characters"
    if session_id.strip() != session_id:
        return "it begins or ends with a blank"
    if session_id.isascii() and session_id.isprintable():
        return ""
    for char in session_id:
        if unicodedata.category(char) in UNSEEN:
            return f"it has a character that nobody sees, U+{ord(char):04X}"
    return ""


def check_session_id(session_id: str) -> None:
    """Refuse what no new session can be called.

    Raises:
        SessionIdError: it says why.
    """
    problem = session_id_problem(session_id)
    if problem:
        raise SessionIdError(session_id, problem)
