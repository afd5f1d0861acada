"""What the records of an exported transcript said so far, and what they are made of."""

from collections import deque
from dataclasses import dataclass, field

from foldline.producers.claude_code_names import Names
from foldline.producers.importing import UNKNOWN_CALL
from foldline.producers.json_fields import Json
from foldline.producers.source_bodies import Bodies, UnbuildableError


@dataclass(slots=True)
class Message:
    """What every record of a message of the model repeats."""

    model: str
    usage: Json | None
    request_id: str | None


@dataclass(slots=True)
class Told:
    """What the records so far said, which those behind them repeat or refer to."""

    names: Names
    bodies: Bodies
    cwd: str = ""
    model: str = ""
    permission_mode: str = ""
    messages: dict[str, Message] = field(default_factory=dict[str, Message])
    calls: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """The provider's id of each call id, and the uuid of the record that asked for it."""
    queue: deque[str] = field(default_factory=deque[str])
    """The event ids of steering that waits."""
    steering: dict[str, str] = field(default_factory=dict[str, str])
    """The texts of steering, by their event ids."""
    delivered: set[str] = field(default_factory=set[str])
    """Texts that left the queue, and of which an attachment may tell again."""

    @property
    def mode(self) -> Json:
        """The permission mode, as records repeat it."""
        return {"permissionMode": self.permission_mode} if self.permission_mode else {}

    def call(self, call_id: str) -> tuple[str, str]:
        """The provider's id of a call, and the record that asked for it.

        Raises:
            UnbuildableError: nobody asked for it.
        """
        if call_id in self.calls:
            return self.calls[call_id]
        if not call_id.startswith(UNKNOWN_CALL):
            raise UnbuildableError
        return call_id.removeprefix(UNKNOWN_CALL), ""
