"""The model's context on real sessions: how much smaller, and what is still in it.

    benchmarks/context.py PATH [--json] [--curve]

Every transcript at or below PATH that an importer knows is imported into a log of its own,
and at every model call of every session two contexts are built from the events before
it: the raw history, and what a policy makes of it, as if it had been in force from the
start (`foldline.projections.shaper.Shaper`).

- *calls*: model calls with a raw history. A call is where the first event of its answer
  stands. Sessions' subagents are sessions of their own, and so is each sidechain. Calls
  that the file of a fork repeats from its parent's count in both.
- *raw*: all messages since the harness's own last compaction (and after its own
  prunings), instructions included; reasoning is left out on both sides, as providers
  discard it. Tools' declarations are left out too: transcripts have none.
- *reduction*: 1 - built / raw tokens, for each call; mean, p50 and p10 over calls.
  `reduction_total` is of the sums.
- *evidence recall*: of the paths, identifiers, numbers and quoted strings in the
  arguments of the calls that the model made next, those that stand in the raw history
  are counted; recall is the share of them that stands in the built context. A name
  stands there as a word of its own; numbers of events and tokens, which references and
  summaries add themselves, do not count as it.
- *prefix stable*: the share of the previous context's bytes that the next one begins
  with, mean over calls that have one before; `prefix_whole` is the share of calls at
  which nothing of it changed. `steps` are the prunings and compactions.
- *cached cost*: what the inputs cost where a provider's cache has the unchanged prefix
  at a tenth, and all else costs a quarter more; built over raw.
- *breaches*: broken invariants, and what our rule checker says of the requests in three
  formats, over every call and every policy, for the model that was asked: with its
  signed and encrypted reasoning and its provider's items, images included.
- *build*: from events to messages, shaping not counted, in milliseconds; of the real
  sessions' calls, and of made ones of 1,000 to 100,000 events that were compacted 300
  events ago.

Tokens are o200k's. Nothing is tuned to a file: the policies are those of the package.
"""

import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import workload
from context_calls import NOBODY, Call, Shown, Story, imported, said, stories, tokens_of
from measure import finish, options, percentile, say, table, target

from foldline.processors.open_log import open_log
from foldline.projections.building import build
from foldline.projections.context import Context, Message
from foldline.projections.policy import DEFAULT, FULL, POLICIES, ContextPolicy
from foldline.projections.reading import sources_of
from foldline.projections.render import FORMATS, render
from foldline.projections.render_rules import breaches
from foldline.projections.shaper import Shaper
from foldline.projections.token_count import TokenCounter
from foldline.tokenizers import default_counter

CACHED = 0.1
WRITTEN = 1.25
"""What a token of input costs where a provider has it cached, and where it has not."""

SIZES = (1_000, 10_216, 100_072)
SIZES_QUICK = (1_000, 2_024)
COMPACTED_BEFORE_END = 300
BUILDS = 100

LEFT_OUT_OF_RAW = ("reasoning", "tool declarations")
"""What the raw history is counted without, as the built one is."""

BUDGETS = (4_000, 8_000, 16_000, 32_000, 64_000)
TARGET_REDUCTION = 0.60
TARGET_RECALL = 0.98
TARGET_BUILD_MS = 5.0


@dataclass
class Measured:
    """What a policy came to, over all calls."""

    raw: list[int] = field(default_factory=list[int])
    built: list[int] = field(default_factory=list[int])
    named: int = 0
    found: int = 0
    stable: list[float] = field(default_factory=list[float])
    cost: float = 0.0
    raw_cost: float = 0.0
    steps: int = 0
    breaches: list[str] = field(default_factory=list[str])
    build_s: list[float] = field(default_factory=list[float])

    def result(self) -> dict[str, Any]:
        """As it is printed."""
        shares = [1 - b / r for b, r in zip(self.built, self.raw, strict=True)]
        return {
            "calls": len(shares),
            "reduction_mean": round(statistics.mean(shares), 4),
            "reduction_p50": round(statistics.median(shares), 4),
            "reduction_p10": round(percentile(shares, 10), 4),
            "reduction_total": round(1 - sum(self.built) / sum(self.raw), 4),
            "evidence_recall": round(self.found / max(self.named, 1), 4),
            "evidence": self.named,
            "prefix_stable": round(statistics.mean(self.stable or [1.0]), 4),
            "prefix_whole": round(
                sum(share == 1 for share in self.stable) / max(len(self.stable), 1), 4
            ),
            "steps": self.steps,
            "cached_cost": round(self.cost / max(self.raw_cost, 1e-9), 4),
            "tokens_raw_mean": round(statistics.mean(self.raw)),
            "tokens_built_mean": round(statistics.mean(self.built)),
            "breaches": len(self.breaches),
            "build_ms_p50": round(statistics.median(self.build_s) * 1000, 2),
            "build_ms_p99": round(percentile(self.build_s, 99) * 1000, 2),
        }


def measure(
    all_stories: Sequence[Story],
    policy: ContextPolicy,
    counter: TokenCounter,
    *,
    checked: bool = True,
) -> Measured:
    """What a policy makes of every call."""
    measured = Measured()
    for story in all_stories:
        shaper = Shaper(policy, counter, NOBODY, story.texts)
        before: tuple[Message, ...] | None = None
        raw_before = 0
        for call in story.calls:
            context = shaper.shape(story.events[: call.events])
            sources = shaper.sources()
            began = time.perf_counter()
            again = build(sources)
            measured.build_s.append(time.perf_counter() - began)
            assert again.messages == context.messages, "a rebuild shows something else"
            add(measured, call, context, counter)
            if before is not None:
                compare(measured, before, context.messages, raw_before, call, counter)
            if checked:
                measured.breaches += broken(context, story, call.model)
            before, raw_before = context.messages, call.raw_tokens
        measured.steps += shaper.steps
    return measured


def add(measured: Measured, call: Call, context: Context, counter: TokenCounter) -> None:
    """Count one call."""
    measured.raw.append(call.raw_tokens)
    measured.built.append(tokens_of(context.messages, counter))
    shown = Shown(context)
    measured.named += len(call.evidence)
    measured.found += sum(map(shown.has, call.evidence))


def compare(
    measured: Measured,
    before: tuple[Message, ...],
    after: tuple[Message, ...],
    raw_before: int,
    call: Call,
    counter: TokenCounter,
) -> None:
    """Count what of the context before is still its prefix, and what that costs."""
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    kept = sum(map(bytes_of, before[:same]))
    measured.stable.append(kept / max(sum(map(bytes_of, before)), 1))
    prefix = tokens_of(after[:same], counter)
    built = measured.built[-1]
    measured.cost += CACHED * prefix + WRITTEN * (built - prefix)
    raw_prefix = min(raw_before, call.raw_tokens)
    measured.raw_cost += CACHED * raw_prefix + WRITTEN * (call.raw_tokens - raw_prefix)


def bytes_of(message: Message) -> int:
    """How long a message is."""
    return sum(len(text.encode()) for part in message.parts for text in said(part)) or 1


def broken(context: Context, story: Story, model: str) -> list[str]:
    """What our rule checker says of a context's requests, images included."""
    model = model or "a-model"
    requests = {
        wanted: render(context, wanted, model=model, read_blob=story.read_blob)
        for wanted in FORMATS
    }
    return [
        f"{story.session_id} at {context.upto_seq}, {wanted}: {breach}"
        for wanted, request in requests.items()
        for breach in breaches(request, wanted)
    ]


def curve(
    all_stories: Sequence[Story], counter: TokenCounter, budgets: Sequence[int]
) -> list[dict[str, Any]]:
    """Recall against budget, for every policy."""
    points: list[dict[str, Any]] = []
    for policy in POLICIES.values():
        for budget in budgets:
            found = measure(
                all_stories, policy.within(budget), counter, checked=False
            ).result()
            keys = ("reduction_mean", "evidence_recall", "tokens_built_mean", "cached_cost")
            point = {"policy": policy.name, "budget_tokens": budget}
            points.append(point | {key: found[key] for key in keys})
            say(f"{policy.name} within {budget:,}: {points[-1]}")
    return points


def builds_by_size(sizes: Sequence[int]) -> dict[str, dict[str, float]]:
    """How long a build takes of sessions that were compacted equally long ago.

    Reading their events is not in it: `wake.py` has that.
    """
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for events in sizes:
            log = open_log(f"sqlite:///{Path(scratch) / 'sizes.db'}")
            session_id = f"sized-{events}"
            workload.build(
                log, session_id, events=events, compacted_before_end=COMPACTED_BEFORE_END
            )
            sources = sources_of(log, session_id)
            assert sources is not None
            samples: list[float] = []
            for _ in range(BUILDS):
                began = time.perf_counter()
                build(sources)
                samples.append((time.perf_counter() - began) * 1000)
            log.close()
            found[str(events)] = {
                "p50": round(statistics.median(samples), 2),
                "p99": round(percentile(samples, 99), 2),
                "events_read": len(sources.events) + len(sources.set_up),
            }
    return found


def main() -> int:
    """Measure, and say it; 2 where there is nothing to measure."""
    parser = options(__doc__ or "")
    parser.add_argument("sessions", type=Path, nargs="+", help="transcripts, or folders")
    parser.add_argument("--curve", action="store_true", help="recall against budgets")
    given = parser.parse_args()
    counter = default_counter()
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as logs:
        found: list[Story] = []
        for number, path in enumerate(given.sessions):
            log = imported(path, Path(scratch) / f"{number}.db")
            logs.callback(log.close)
            found += stories(log, counter)
        if not found:
            say(f"no model call in {', '.join(map(str, given.sessions))}")
            return 2
        finish(given, {"benchmark": "context"} | compared(found, counter, given))
    return 0


def compared(
    found: Sequence[Story], counter: TokenCounter, given: Namespace
) -> dict[str, Any]:
    """What the policies come to, as it is printed."""
    say(f"{len(found)} sessions, {sum(len(story.calls) for story in found):,} calls")
    policies = [DEFAULT, FULL] if given.quick else list(POLICIES.values())
    rows = {policy.name: measure(found, policy, counter) for policy in policies}
    breaches_found = [breach for row in rows.values() for breach in row.breaches]
    for breach in breaches_found[:20]:
        say(f"BREACH {breach}")
    results = {name: measured.result() for name, measured in rows.items()}
    measures = list(results[DEFAULT.name])
    rows_of = [[name, *(results[p][name] for p in results)] for name in measures]
    say(table(["", *results], rows_of))
    mine = results[DEFAULT.name] | {"breaches": len(breaches_found)}
    target("reduction, mean", mine["reduction_mean"], TARGET_REDUCTION, at_least=True)
    target("evidence recall", mine["evidence_recall"], TARGET_RECALL, at_least=True)
    target("build, p50 in ms", mine["build_ms_p50"], TARGET_BUILD_MS)
    target("breaches", mine["breaches"], 0)
    extra: dict[str, Any] = {"policy": DEFAULT.name, "policies": results}
    extra["denominators"] = denominators(found, rows[DEFAULT.name])
    sizes = builds_by_size(SIZES_QUICK if given.quick else SIZES)
    extra["build_ms_by_events"] = sizes
    heads = ["events", *next(iter(sizes.values()))]
    say(table(heads, [[name, *row.values()] for name, row in sizes.items()]))
    if given.curve:
        extra["curve"] = curve(found, counter, BUDGETS)
    return mine | extra


def denominators(found: Sequence[Story], measured: Measured) -> dict[str, Any]:
    """What the shares are shares of."""
    return {
        "sessions": len(found),
        "tokens_raw": sum(measured.raw),
        "raw_leaves_out": LEFT_OUT_OF_RAW,
        "prefixes": len(measured.stable),
        "cached_cost_raw": round(measured.raw_cost),
    }


if __name__ == "__main__":
    sys.exit(main())
