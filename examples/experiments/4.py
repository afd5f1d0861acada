"""A checkpoint every 100 events: a full replay is a checkpoint and its tail.

    python examples/experiments/4.py [EVENTS] [URL]

1. A session of so many events (100,000 where nothing else is said) is recorded, with a
   checkpoint after every 99 of them.
2. It is folded from its first event on. At each checkpoint the state's hash must be the
   one that the checkpoint has recorded.
3. At each checkpoint again: the state that the log kept there, decoded from its bytes,
   and the events up to the next one must be what the full replay has there.
4. From the first, the middle and the last checkpoint up to the end: the same state.

Without a URL it runs in memory; sqlite: keeps these states too. A log of JSON lines keeps
the newest ones only, in memory: it folds again instead.
"""

import asyncio
import sys
import time

import foldline
from foldline.events import CheckpointCreated, SystemObservation, text_block
from foldline.logs import (
    AuditableLog,
    SessionState,
    copy_of,
    decode_snapshot,
    fold_in,
    initial,
    open_log,
    state_hash,
)

EVENTS = 100_000
EVERY = 100


async def record(log: AuditableLog, count: int) -> str:
    """A session of so many events, each hundredth a checkpoint."""
    async with foldline.connect(log) as client:
        owned = await client.create(agent="counter")
        seq = 1
        while seq < count:
            size = min(EVERY - 1, count - seq) if seq > 1 else EVERY - 2
            blocks = (text_block("counted"),)
            said = SystemObservation(origin="experiment", blocks=blocks)
            await owned.append_all([said] * size)
            await owned.checkpoint()
            seq += size + 1
        return owned.session_id


def folded(
    log: AuditableLog, state: SessionState, upto_seq: int | None = None
) -> SessionState:
    """A state and the events that follow it; the state that is given stays as it is."""
    state = copy_of(state)
    events = log.structure(state.session_id, after_seq=state.seq, upto_seq=upto_seq)
    for recorded in events:
        fold_in(state, recorded)
    return state


def full_replay(log: AuditableLog, session_id: str) -> tuple[dict[int, bytes], int]:
    """The hash at each checkpoint and at the end, and how many checkpoints are wrong."""
    state, wrong = initial(session_id), 0
    hashes: dict[int, bytes] = {}
    for recorded in log.structure(session_id):
        if isinstance(recorded.event, CheckpointCreated):
            hashes[state.seq] = state_hash(state)
            wrong += recorded.event.state_hash != hashes[state.seq]
        fold_in(state, recorded)
    hashes[state.seq] = state_hash(state)
    return hashes, wrong


def kept_states(log: AuditableLog, session_id: str) -> dict[int, SessionState]:
    """The states that the log keeps, from their bytes."""
    decoded = (decode_snapshot(s.body) for s in log.stored_snapshots(session_id))
    return {state.seq: state for state in decoded if state is not None}


def experiment(count: int, url: str) -> dict[str, object]:
    """Run it; gives what it found."""
    log = open_log(url)
    session_id = asyncio.run(record(log, count))
    began_s = time.perf_counter()
    hashes, wrong = full_replay(log, session_id)
    took_s = time.perf_counter() - began_s
    *places, end = sorted(hashes)
    kept = kept_states(log, session_id)
    found = [seq for seq in places if seq in kept]
    steps = [
        state_hash(folded(log, kept[seq], upto_seq=upto)) == hashes[upto]
        for seq, upto in zip(found, [*found[1:], end], strict=True)
    ]
    tails = [
        state_hash(folded(log, kept[seq])) == hashes[end]
        for seq in (found[0], found[len(found) // 2], found[-1])
    ]
    log.close()
    return {
        "events": end,
        "checkpoints": len(places),
        "wrong_hashes": wrong,
        "kept_states": len(found),
        "steps_equal": sum(steps),
        "whole_tails_equal": sum(tails),
        "replayed_per_s": round(end / took_s),
    }


def main() -> int:
    """Print what was found; exit code 0 if it is as it should be."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    found = experiment(count, sys.argv[2] if len(sys.argv) > 2 else "memory:")
    for name, value in found.items():
        print(f"{name:<20} {value}")
    right = (
        not found["wrong_hashes"]
        and found["checkpoints"] == found["kept_states"] == found["steps_equal"]
        and found["whole_tails_equal"] == 3
    )
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
