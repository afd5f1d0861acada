"""Turns of a rollout that were rolled back: the user's messages, counted from the end."""

from dataclasses import dataclass, field

from foldline.schemas.events import (
    AnyEvent,
    CompactionCompleted,
    HistoryRewound,
    SteeringReceived,
    UserMessage,
)


@dataclass(slots=True)
class Prompts:
    """Where the user's messages stand since the last compaction, and where that stands.

    A turn begins with each of them, also with steering. A turn from before a compaction is
    in what that put in its place, which no rewind divides: there only what was said since
    is dropped.
    """

    seqs: list[int] = field(default_factory=list[int])
    base: int = 0

    def note(self, event: AnyEvent, seq: int) -> None:
        """Note where an event stands."""
        match event:
            case UserMessage() | SteeringReceived():
                self.seqs.append(seq)
            case CompactionCompleted():
                self.seqs, self.base = [], seq
            case HistoryRewound(to_seq=to_seq):
                self.seqs = [one for one in self.seqs if one <= to_seq]
            case _:
                pass

    def before(self, turns: int) -> int | None:
        """The seq just before the last so many turns; None: there is none of them."""
        if not turns or not (self.seqs or self.base):
            return None
        if turns <= len(self.seqs):
            return self.seqs[-turns] - 1
        return self.base or self.seqs[0] - 1

    def behind(self, seq: int) -> int:
        """How many turns a rewind to a seq drops: the inverse of `before`."""
        later = sum(one > seq for one in self.seqs)
        return later + (seq == self.base)
