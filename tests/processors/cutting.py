"""Records deleted above a low-water mark, and who must be lost by it."""

from collections.abc import Iterator

from foldline.schemas.codec import Codec, unframe
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.state import FOLD_VERSION
from foldline.schemas.topic_records import LOST_KEY, LostSession
from tests.cluster.logs import FreshLog
from tests.kafka_checker import read, read_snapshots
from tests.processors.restoring import delete_records


def expected_losses(log: FreshLog, *, before: int) -> dict[str, int]:
    """The last seq that is known of each session with an event that is not covered."""
    mark, snapshots = read_snapshots(log, 0)
    assert mark is not None
    codec = Codec(log.registry)
    found: dict[str, int] = {}
    for message in read(log, log.names.events, 0):
        recorded = codec.decode_structure(*unframe(message.value()))
        session_id = recorded.envelope.session_id
        state = snapshots.get(session_id)
        known = state.seq if state else 0
        if mark.low <= message.offset() < before and recorded.seq > known:
            found[session_id] = known
    return found


def cuts(log: FreshLog) -> Iterator[int]:
    """Offsets between the low-water mark and the end, in their order."""
    mark, _ = read_snapshots(log, 0)
    assert mark is not None
    offsets = [m.offset() for m in read(log, log.names.events, 0)]
    above = [offset for offset in offsets if offset > mark.low]
    yield from (above[0], above[3], above[len(above) // 2], above[-1], offsets[-1] + 1)


def published(log: FreshLog) -> dict[str, LostSession]:
    """What the snapshot topic says of lost sessions."""
    records = RecordCodec(log.registry)
    found = [
        records.unframe_record(LostSession, message.value())
        for message in read(log, log.names.snapshots(FOLD_VERSION), 0)
        if message.key().startswith(LOST_KEY)
    ]
    return {lost.session_id: lost for lost in found}


def cut_off(log: FreshLog) -> dict[str, int]:
    """Delete records above the low-water mark; gives who loses events by it."""
    cut = list(cuts(log))[2]
    lost = expected_losses(log, before=cut)
    delete_records(log, log.names.events, before=cut)
    return lost
