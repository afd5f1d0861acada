"""What is kept of a session to tell whether it goes round in a circle. Pure.

Counts of what comes again, under fingerprints that show nothing of it. All of it is
bounded, whatever a session does.
"""

from dataclasses import dataclass

import msgspec

from foldline.schemas.blocks import Blob, Blocks, Body, Sealed
from foldline.schemas.derived import digest_of_parts

RUNS_MAX = 64
"""How many circles of one kind are watched at once in a session: the latest ones."""

KNOWN_MAX = 256
"""How many outcomes of a session are remembered, to tell what is new: the latest ones."""

SEQS_MAX = 8
"""How many seqs of a circle are kept and said: the latest ones."""

FINGERPRINT_CHARS = 32


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """How often something comes again before it is called a loop."""

    calls: int = 3
    failures: int = 3
    compactions: int = 3
    denials: int = 3
    within_calls: int = 30
    """A call or failure that comes again after more calls than that begins anew."""


class Run(msgspec.Struct, array_like=True):
    """One thing that comes again. `at` is the number of the call when it last came.

    `outcome` is the digest of what came of it last; `said` that it was called a loop.
    """

    count: int = 0
    from_seq: int = 0
    at: int = 0
    tool: str = ""
    outcome: bytes = b""
    said: bool = False
    seqs: tuple[int, ...] = ()


Runs = dict[str, Run]


class Circles(msgspec.Struct, array_like=True):
    """What is watched in a session: bounded, whatever the session does."""

    number: int = 0
    """How many calls were asked for."""
    calls: Runs = msgspec.field(default_factory=dict[str, Run])
    failures: Runs = msgspec.field(default_factory=dict[str, Run])
    denials: Runs = msgspec.field(default_factory=dict[str, Run])
    compactions: Run = msgspec.field(default_factory=Run)
    known: dict[bytes, None] = msgspec.field(default_factory=dict[bytes, None])
    """Outcomes that there were."""


def fingerprint(*parts: str) -> str:
    """A name for what goes round, that shows nothing of it."""
    return hashed(*parts).hex()[:FINGERPRINT_CHARS]


def come(runs: Runs, name: str, number: int, seq: int, limits: LoopLimits) -> Run:
    """It comes, perhaps again; the one that came last stands last."""
    run = runs.pop(name, None)
    if run is None or number - run.at > limits.within_calls:
        run = Run()
    runs[name] = run
    run.at = number
    count_again(run, seq)
    return run


def count_again(run: Run, seq: int) -> None:
    """It comes once more."""
    run.count += 1
    run.from_seq = run.from_seq or seq
    run.seqs = (*run.seqs, seq)[-SEQS_MAX:]


def restart(run: Run, seq: int) -> None:
    """Something new came of it: this was the first time of what may become a circle."""
    run.count, run.from_seq, run.seqs, run.said = 1, seq, (seq,), False


def digest_of(how: str, blocks: Blocks) -> bytes | None:
    """What was said, in a few bytes; None if it is sealed: then nobody can compare it."""
    parts: list[str | bytes] = [how]
    for block in blocks:
        body = _comparable(block.body)
        if body is None:
            return None
        parts += [block.kind, body]
    return hashed(*parts)


def _comparable(body: Body) -> str | bytes | None:
    match body:
        case Sealed():
            return None
        case Blob():
            return None if body.key_id else body.sha256
        case _:
            return body


def hashed(*parts: str | bytes) -> bytes:
    """A digest of some parts, each with its length."""
    return digest_of_parts(*parts)[: FINGERPRINT_CHARS // 2]
