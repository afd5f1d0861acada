"""Events that tests say again and again, and a clock that ticks by itself."""

from foldline.processors.clock import Clock
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    SessionCreated,
    SteeringReceived,
    TurnStarted,
    UserMessage,
)
from foldline.schemas.state import WINDOW
from foldline.testing.log_story import LogStory, new_id


def said(text: str = "hello") -> UserMessage:
    """A person's message."""
    return UserMessage(message_id=new_id(), blocks=(text_block(text),))


def steering() -> SteeringReceived:
    """Steering from outside."""
    return SteeringReceived(blocks=(text_block("look at the tests first"),))


def created(mode: str = "OWNED") -> SessionCreated:
    """The first event of a session."""
    return SessionCreated(agent="coder", mode=mode)


def started() -> TurnStarted:
    """A turn's start."""
    return TurnStarted(trigger="USER")


def ticking(start: int = 1_700_000_000_000_000, step: int = 1_000) -> Clock:
    """A clock that goes on by a fixed step at each look."""
    now = start

    def tick() -> int:
        nonlocal now
        now += step
        return now

    return tick


def told(story: LogStory, count: int) -> None:
    """Tell many messages, a window at a time."""
    for start in range(0, count, WINDOW):
        story.given(*[said(str(n)) for n in range(start, min(start + WINDOW, count))])
