"""The `foldline` command of tomorrow: it knows one more version of the rules.

    python -m tests.processors.next_rules worker ...

Version 2 has a rule of its own, and keeps version 1 as it is. Everything else is as
today.
"""

import sys
from typing import Any

from foldline.processors import admission
from foldline.schemas.events import UserMessage
from foldline.schemas.recorded import Append
from foldline.schemas.state import SessionState

TOMORROW = 2

FORBIDDEN = "forbidden"
"""What the id of a message may not be under version 2."""


def judge(state: SessionState | None, append: Append, now: int) -> Any:
    """Version 2: as version 1, and one id of a message is ILLEGAL."""
    event = append.event
    if state and isinstance(event, UserMessage) and event.message_id == FORBIDDEN:
        append = append._replace(known_seq=state.seq + 1)
    return admission.JUDGES[1](state, append, now)


if __name__ == "__main__":
    admission.JUDGES[TOMORROW] = judge
    from foldline.cli import main

    sys.exit(main())
