"""How fast a session wakes: 1,000 events, 10,000 and 100,000, after its owner's SIGKILL.

A wake is `client.take(session_id)`, which reads the state and gets the verdict on its
claim, then the plan of its recovery, and then the first context. *Connected*: a process
whose client is open already measures from the call. *Cold*: from the start of the
process, imports included.

1. The session is built, ending in the middle of a turn, while a tool executes.
2. A new process connects. Only then the owner before it is killed, and it takes.
3. It stays as it is, the owner of an open turn, until the next one has connected.

Every take is thus by a new process, of a session whose owner was killed with SIGKILL.
The sizes take turns. Each session ends equally long after the log's last snapshot and
after its last compaction: 300 events, as a context follows the newest compaction. The
same sessions without any compaction are measured too, where the first context is the
whole history; there the flat part is the state and the claim.
"""

import asyncio
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measure import finish, options, percentile, say, table, target

SIZES = (1_000, 10_216, 100_072)
"""Each 232 events beyond a multiple of 256, where the log keeps a snapshot."""

SIZES_QUICK = (1_000, 2_024)
COMPACTED_BEFORE_END = 300
TAKES = 40
TAKES_WHOLE = 15
TAKES_COLD = 12
TAKES_QUICK = 3
TARGET_RATIO = 1.2
TARGET_P99_MS = 100.0
SESSION = "bench-wake"
STEPS = ("imported", "connected", "taken", "planned", "context")
READ_MAX = 2 * 256
"""Of how many events a wake may read the structure: the state's tail behind a snapshot,
which the log keeps every 256 events, and what the open turn's resumes are counted in."""

CONTEXT_OF_WHOLE_TAKES = 1
"""Without a compaction the whole history is read; how many takes do it."""


@dataclass
class Bed:
    """One session, and who owns it now."""

    url: str
    events: int
    session_id: str = SESSION
    owner: "subprocess.Popen[str] | None" = None
    in_parts: bool = False
    """Whether the next taker reads what its context is built from part by part, as from
    a log that does not keep it warm."""
    wakes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    cold: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def sleeper(self, *, context: bool, waits: bool) -> "subprocess.Popen[str]":
        """A new process that will take the session."""
        options = [*(["--context"] if context else []), *(["--waits"] if waits else [])]
        options += ["--parts"] if self.in_parts else []
        began = str(time.monotonic())
        return subprocess.Popen(
            [
                sys.executable,
                __file__,
                "--taker",
                self.url,
                self.session_id,
                began,
                *options,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def kill_owner(self) -> None:
        """SIGKILL to whoever owns the session."""
        if self.owner is not None:
            self.owner.send_signal(signal.SIGKILL)
            self.owner.wait()
            self.owner = None

    def wake(self, *, context: bool = True) -> dict[str, Any]:
        """A connected process takes the session after its owner was killed."""
        taker = self.sleeper(context=context, waits=True)
        assert taker.stdin is not None
        assert answer_of(taker)["ready"]
        self.kill_owner()
        taker.stdin.write("take\n")
        taker.stdin.flush()
        self.owner = taker
        return answer_of(taker)

    def wake_cold(self) -> dict[str, Any]:
        """The owner is killed; a process is started that takes the session."""
        self.kill_owner()
        self.owner = self.sleeper(context=True, waits=False)
        return answer_of(self.owner)


def answer_of(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """The next line that a taker says."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the taker died; see its message above"
    return json.loads(line)


async def take(
    url: str, session_id: str, began_s: float, *, context: bool, waits: bool
) -> None:
    """Be a taker: connect, take, build the context, then stay until killed."""
    from foldline import connect  # its import is a part of a cold wake
    from foldline.projections.planned import planned
    from foldline.projections.recovery import RecoveryPolicy

    read, asked = count_reads(), count_calls()
    steps = {"imported": time.monotonic() - began_s}
    client = await connect(url).__aenter__()
    steps["connected"] = time.monotonic() - began_s
    if waits:
        print(json.dumps({"ready": True}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began_s = time.monotonic()
    owned = await client.take(session_id)
    state = await owned.state()
    steps["taken"] = time.monotonic() - began_s
    plan = await asyncio.to_thread(planned, client.log, session_id, RecoveryPolicy())
    steps["planned"] = time.monotonic() - began_s
    told = {"planned_actions": len(plan), "read": read["structure"]}
    messages, before = 0, asked.copy()
    if context:
        turn = await owned.resume_turn()
        messages = len((await turn.context()).messages)
        steps["context"] = time.monotonic() - began_s
    print(
        json.dumps(
            {
                **steps,
                **told,
                "seq": state.seq,
                "messages": messages,
                "epoch": state.epoch,
                "read_whole": read["whole"],
                "asked": (asked - before)["requests"],
                "asked_bytes": (asked - before)["bytes"],
            }
        ),
        flush=True,
    )
    await asyncio.Event().wait()


def count_reads() -> Counter[str]:
    """Count the events that this process decodes from here on: structure, or whole."""
    from foldline.schemas.codec import Codec  # see `take`

    read: Counter[str] = Counter()

    def counted(name: str, kind: str) -> None:
        decode = getattr(Codec, name)

        def decoded(*arguments: Any) -> Any:
            read[kind] += 1
            return decode(*arguments)

        setattr(Codec, name, decoded)

    counted("decode", "whole")
    counted("decode_structure", "structure")
    return read


def count_calls() -> Counter[str]:
    """Count the requests to a read service from here on, and the bytes of its answers."""
    from foldline.processors.http_calls import Calls  # see `take`

    asked: Counter[str] = Counter()
    get = Calls.get

    def counted(self: Calls, *arguments: Any, **named: Any) -> Any:
        answer = get(self, *arguments, **named)
        asked["requests"] += 1
        asked["bytes"] += len(answer.content) if answer is not None else 0
        return answer

    setattr(Calls, "get", counted)  # noqa: B010 - a method, for the benchmark alone
    return asked


def read_in_parts() -> None:
    """Read from here on as from a service that gives nothing in one piece."""
    from foldline.processors.http_reads import HttpReads  # see `take`

    def nothing(*_: Any, **__: Any) -> None:
        return None

    setattr(HttpReads, "sources", nothing)  # noqa: B010 - as above


def make_bed(folder: Path, events: int, *, compacted: bool) -> Bed:
    """Build a session and leave it as if its owner had been killed."""
    from workload import build  # a taker does not need it

    from foldline.processors.open_log import open_log  # see above

    kind = "compacted" if compacted else "whole"
    url = f"sqlite:///{folder / f'{kind}-{events}.db'}"
    say(f"building {events:,} events, {kind}")
    log = open_log(url)
    build(
        log,
        SESSION,
        events=events,
        compacted_before_end=COMPACTED_BEFORE_END if compacted else None,
        killed=True,
    )
    log.close()
    return Bed(url, events)


def measure(beds: list[Bed], *, takes: int, cold: int, context_takes: int) -> None:
    """Wake every session so often; the first time does not count."""
    try:
        _measure(beds, takes=takes, cold=cold, context_takes=context_takes)
    finally:
        for bed in beds:
            bed.kill_owner()


def _measure(beds: list[Bed], *, takes: int, cold: int, context_takes: int) -> None:
    for number in range(-1, takes):
        for bed in beds:
            wake = bed.wake(context=number < context_takes)
            assert wake["seq"] >= bed.events, wake
            if number >= 0:
                bed.wakes.append(wake)
    for _ in range(cold):
        for bed in beds:
            bed.cold.append(bed.wake_cold())


def milliseconds(wakes: list[dict[str, Any]], step: str) -> dict[str, float]:
    """p50 and p99 up to a step."""
    samples = [wake[step] * 1000 for wake in wakes if step in wake]
    if not samples:
        return {}
    return {
        "p50_ms": round(statistics.median(samples), 1),
        "p99_ms": round(percentile(samples, 99), 1),
        "takes": len(samples),
    }


def ratios(beds: list[Bed], step: str) -> dict[str, float]:
    """The median over takes of each size's time over the smallest's, taken in turns."""
    return {
        str(bed.events): round(
            statistics.median(
                mine[step] / theirs[step]
                for mine, theirs in zip(bed.wakes, beds[0].wakes, strict=True)
            ),
            2,
        )
        for bed in beds
    }


def show(title: str, beds: list[Bed], step: str) -> dict[str, Any]:
    """A table of the wakes up to a step, and its numbers."""
    times = ratios(beds, step)
    found = {str(bed.events): milliseconds(bed.wakes, step) for bed in beds}
    say(f"\n{title}")
    say(
        table(
            ("events", "p50 ms", "p99 ms", "takes", "x smallest"),
            [
                (
                    f"{bed.events:,}",
                    found[str(bed.events)]["p50_ms"],
                    found[str(bed.events)]["p99_ms"],
                    found[str(bed.events)]["takes"],
                    times[str(bed.events)],
                )
                for bed in beds
            ],
        )
    )
    return {
        size: {**numbers, "times_smallest": times[size]} for size, numbers in found.items()
    }


def show_reads(beds: list[Bed]) -> dict[str, Any]:
    """How many events a wake reads: bounded by the snapshots, not by the session."""
    names = ("read", "read_whole", "planned_actions")
    found = {
        str(bed.events): {name: max(wake[name] for wake in bed.wakes) for name in names}
        for bed in beds
    }
    say("\nEvents read on a wake, at the most")
    rows = [(f"{int(size):,}", *counts.values()) for size, counts in found.items()]
    say(table(("events", "for state and plan", "for the context", "planned"), rows))
    return found


def show_cold(beds: list[Bed]) -> dict[str, Any]:
    """A table of the cold wakes by step."""
    found = {
        str(bed.events): {step: milliseconds(bed.cold, step) for step in STEPS}
        for bed in beds
    }
    say("\nCold, from the start of the process up to ... (p50 ms)")
    say(
        table(
            ("events", *STEPS, "context p99"),
            [
                (
                    f"{int(size):,}",
                    *(steps[step]["p50_ms"] for step in STEPS),
                    steps["context"]["p99_ms"],
                )
                for size, steps in found.items()
            ],
        )
    )
    return found


def targets(
    numbers: dict[str, Any], reads: dict[str, Any], sizes: tuple[int, ...]
) -> dict[str, bool]:
    """Which of them are reached."""
    last = numbers[str(sizes[-1])]
    say()
    return {
        "the largest at most 1.2 x the smallest": target(
            f"{sizes[-1]:,} over {sizes[0]:,} events",
            last["times_smallest"],
            TARGET_RATIO,
        ),
        "p99 at most 100 ms": target(
            "p99 in ms", max(n["p99_ms"] for n in numbers.values()), TARGET_P99_MS
        ),
        "events read bounded by the snapshots": target(
            "events read", max(counts["read"] for counts in reads.values()), READ_MAX
        ),
    }


def main() -> None:
    """Run the benchmark."""
    arguments = options("Wake after a kill").parse_args()
    quick = arguments.quick
    sizes = SIZES_QUICK if quick else SIZES
    takes = TAKES_QUICK if quick else TAKES
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        beds = [make_bed(folder, events, compacted=True) for events in sizes]
        whole = [make_bed(folder, events, compacted=False) for events in sizes]
        cold = TAKES_QUICK if quick else TAKES_COLD
        measure(beds, takes=takes, cold=cold, context_takes=takes)
        measure(
            whole,
            takes=TAKES_QUICK if quick else TAKES_WHOLE,
            cold=0,
            context_takes=CONTEXT_OF_WHOLE_TAKES,
        )
    connected = show("Connected, with the plan, up to the first context", beds, "context")
    reads = show_reads(beds)
    results = {
        "connected": connected,
        "connected_state_and_plan": show(
            "Connected, state, claim and the plan of its recovery", beds, "planned"
        ),
        "events_read": reads,
        "connected_state_only": show("Connected, state and claim", beds, "taken"),
        "without_compaction_state_only": show(
            "Without any compaction: state and claim", whole, "taken"
        ),
        "without_compaction_first_context": {
            str(bed.events): milliseconds(bed.wakes, "context") for bed in whole
        },
        "cold": show_cold(beds),
        "compacted_events_before_end": COMPACTED_BEFORE_END,
        "messages_in_context": beds[0].wakes[-1]["messages"],
    }
    say("Without any compaction, up to a first context of the whole history:")
    say(str(results["without_compaction_first_context"]))
    finish(
        arguments,
        {"benchmark": "wake", **results, "targets": targets(connected, reads, sizes)},
    )


if __name__ == "__main__":
    if "--taker" in sys.argv:
        url, session_id, began = sys.argv[2:5]
        if "--parts" in sys.argv:
            read_in_parts()
        asyncio.run(
            take(
                url,
                session_id,
                float(began),
                context="--context" in sys.argv,
                waits="--waits" in sys.argv,
            )
        )
    else:
        main()
