"""The events that are still part of the conversation. Pure."""

from collections.abc import Sequence

from foldline.schemas.events import HistoryRewound, MessageRetracted, UserMessage
from foldline.schemas.recorded import Recorded


def live_of(events: Sequence[Recorded]) -> list[Recorded]:
    """The events that are still part of the conversation, after every rewind."""
    live: list[Recorded] = []
    for recorded in events:
        if isinstance(recorded.event, HistoryRewound):
            to_seq = recorded.event.to_seq
            live = [earlier for earlier in live if earlier.seq <= to_seq]
        else:
            live.append(recorded)
    return _unretracted(live)


def _unretracted(live: list[Recorded]) -> list[Recorded]:
    gone: set[object] = set()
    for recorded in live:
        match recorded.event:
            case MessageRetracted(message_ids=message_ids):
                gone.update(message_ids)
            case UserMessage(replaces=str() as replaced):
                gone.add(replaced)
            case _:
                pass
    return [
        recorded
        for recorded in live
        if recorded.event.__dict__.get("message_id") not in gone
    ]
