"""The messages of a context, as far as a cut can go between them. Pure.

A group is a message with the results of its calls. The window are the newest groups,
which nothing takes away; what the model has not seen yet stays besides.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from math import inf

from foldline.projections.context import SUMMARY, Message
from foldline.projections.policy import ContextPolicy
from foldline.projections.token_count import Reader, TokenCounter, message_tokens


@dataclass(frozen=True, slots=True)
class Group:
    """A message with the results of its calls: what no cut divides."""

    messages: tuple[Message, ...]
    tokens: int

    @property
    def seq(self) -> int:
        """Where it stands; 0 for what leads the context.

        A summary stands where what it stands for ended, not where it was recorded.
        """
        return self.last_seq if is_summary(self) else self.recorded_seq

    @property
    def recorded_seq(self) -> int:
        """The event that it begins with."""
        return self.messages[0].seq

    @property
    def last_seq(self) -> int:
        """The last event that it rests on."""
        return self.messages[0].last_seq

    @property
    def role(self) -> str:
        """Who says it."""
        return self.messages[0].role


def groups_of(
    messages: Iterable[Message], counter: TokenCounter, reader: Reader
) -> list[Group]:
    """The groups of messages, in their order."""
    return [
        Group(tuple(same), sum(message_tokens(m, counter, reader=reader) for m in same))
        for _, together in groupby(messages, lambda m: (m.seq, m.origin, m.event_ids))
        for same in [list(together)]
    ]


def tokens_of(groups: Iterable[Group]) -> int:
    """All their tokens."""
    return sum(group.tokens for group in groups)


def calls_behind(groups: Sequence[Group], seq: int) -> int:
    """How many answers of the model stand behind a seq."""
    return sum(group.role == "assistant" and group.seq > seq for group in groups)


# --- what stays -----------------------------------------------------------------------


def is_fresh(group: Group, policy: ContextPolicy) -> bool:
    """Whether a compaction would newly take this away."""
    taken = group.role != "system" and not is_summary(group)
    return taken and not is_pinned(group, policy)


def is_summary(group: Group) -> bool:
    """Whether it stands for what was compacted before."""
    return group.messages[0].origin == SUMMARY


def is_pinned(group: Group, policy: ContextPolicy) -> bool:
    """Whether a policy names it, or one of its events or calls: all of it stays."""
    pinned = set(policy.pinned)
    return bool(pinned) and any(
        pinned.intersection((*message.event_ids, *message.message_ids))
        or any({part.call_id, part.event_id} & pinned for part in message.parts)
        for message in group.messages
    )


def kept_of(groups: Iterable[Group], policy: ContextPolicy) -> tuple[str, ...]:
    """The events of what is pinned, which stays through a compaction."""
    kept = [group.messages[0].event_ids for group in groups if is_pinned(group, policy)]
    return tuple(event_id for ids in kept for event_id in ids)


def window_of(groups: Sequence[Group], tokens: int) -> int:
    """Where the newest messages begin that have so many tokens at the most.

    The newest one is always among them, however large.
    """
    left = tokens
    for index in range(len(groups) - 1, -1, -1):
        left -= groups[index].tokens
        if left < 0:
            return min(index + 1, len(groups) - 1)
    return 0


def unseen_of(groups: Sequence[Group], seen_seq: int | None) -> int:
    """Where the messages begin that the model has not seen yet.

    Where nobody knows (None), all from the last thing it said counts as new.
    """
    for index, group in enumerate(groups):
        newest = max(group.last_seq, group.recorded_seq)
        if seen_seq is not None and newest > seen_seq:
            return index
    if seen_seq is not None:
        return len(groups)
    said = [i for i, group in enumerate(groups) if group.role == "assistant"]
    return said[-1] if said else 0


# --- where a cut can go ---------------------------------------------------------------


def cut_of(groups: Sequence[Group], window: int, held_seq: int | None) -> int:
    """How many groups may be compacted: those before the window, or fewer.

    No event of theirs may lie behind an event of those that stay, nothing may come for
    them any more, and what is held stays.
    """
    waiting = _first_waiting(groups)
    last_seqs = [0, *accumulate((group.last_seq for group in groups), max)]
    behind = _first_seqs(groups)
    for cut in range(min(window, waiting), 0, -1):
        to_seq = last_seqs[cut]
        if to_seq < behind[cut] and (held_seq is None or to_seq < held_seq):
            return cut
    return 0


def _first_seqs(groups: Sequence[Group]) -> list[float]:
    """The first seq of all groups from each on; what leads the context has none."""
    seqs = [group.seq or inf for group in reversed(groups)]
    return [*accumulate(seqs, min, initial=inf)][::-1]


def _first_waiting(groups: Sequence[Group]) -> int:
    """The first group for which a result may still come: nothing was said since."""
    said = (i for i, group in enumerate(groups) if group.role == "assistant")
    last = max(said, default=0)
    waiting = (i for i in range(last, len(groups)) if groups[i].messages[0].pending)
    return next(waiting, len(groups))
