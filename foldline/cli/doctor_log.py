"""What `foldline doctor` asks a log: whether it answers, what it holds, who waits."""

import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from foldline.cli.doctor_findings import BAD, OK, WARNING, Finding
from foldline.projections.stalled import OWNER_GONE, look_at
from foldline.schemas.state import SUSPENDED
from foldline.settings import Settings

if TYPE_CHECKING:
    from foldline.processors.log import Log
    from foldline.processors.stored import AuditableLog

SESSIONS_MAX = 1_000
"""How many sessions, the most recently active ones, are looked at."""

AHEAD_MAX_MS = 60_000
"""How far the log's times may be ahead of this machine's clock."""

PROBLEMS_SHOWN = 5
SESSIONS_SHOWN = 3

US_PER_MS = 1_000


def log_answers(log: "Log") -> Iterator[Finding]:
    """How many sessions of which status there are, who waits, and whether clocks agree."""
    rows = log.sessions(limit=SESSIONS_MAX)
    counts = Counter(row.status for row in rows)
    listed = ", ".join(f"{count:,} {status}" for status, count in counts.most_common())
    newest = "the newest " if len(rows) == SESSIONS_MAX else ""
    yield Finding("log", OK, f"{log.url} answers; {newest}sessions: {listed or 'none'}")
    if waiting := counts[SUSPENDED]:
        detail = f"{waiting:,} sessions wait, for an answer or for somebody to go on"
        yield Finding("log", WARNING, detail, "foldline approvals list; foldline sessions")
    ahead_ms = max((row.recorded_at for row in rows), default=0) / US_PER_MS
    ahead_ms -= time.time() * 1_000
    if ahead_ms > AHEAD_MAX_MS:
        detail = f"the newest event is {ahead_ms / 1_000:,.0f} s in the future"
        advice = "set this machine's clock, or that of the log's machine"
        yield Finding("clock", WARNING, detail, advice)


def storage_is_whole(log: "AuditableLog") -> Iterator[Finding]:
    """What is wrong below the sessions; whether these are whole, `foldline verify` says."""
    problems = [problem.reason for problem in islice(log.inspect(), PROBLEMS_SHOWN)]
    for reason in problems:
        advice = "keep a copy of it, then see what `foldline verify` says"
        yield Finding("log", BAD, reason, advice)
    if not problems:
        yield Finding("log", OK, "its storage is whole (`foldline verify`: each event)")


def nobody_there(log: "Log") -> Iterator[Finding]:
    """Sessions in the middle of a turn whose owner does not live."""
    gone = [one.session_id for one in look_at(log).stalled if one.why == OWNER_GONE]
    if gone:
        shown = ", ".join(gone[:SESSIONS_SHOWN])
        detail = f"{len(gone):,} sessions are in a turn without a living owner: {shown}"
        advice = "foldline recovery plan SESSION; `foldline recovery run` goes on with them"
        yield Finding("log", WARNING, detail, advice)


def kafka_answers(settings: Settings) -> Iterator[Finding]:
    """Brokers, topics, registry, schemas, rules and workers of a log on Kafka."""
    from contextlib import closing  # late: only a log on Kafka needs these

    from foldline.kafka import cluster_of
    from foldline.kafka_admin import broker_warnings, find_drift, in_words
    from foldline.kafka_meta import read_meta
    from foldline.kafka_ready import require_ready
    from foldline.projections.fleet_rows import version_of
    from foldline.schemas.registration import check_registered
    from foldline.schemas.registry_client import registry_of

    cluster = cluster_of(settings)
    require_ready(cluster, settings)
    meta = read_meta(cluster, settings)
    detail = f"log {meta.log_id}, {meta.partitions} partitions, with a worker"
    yield Finding("kafka", OK, detail)
    fleet = version_of(settings)
    for drift in find_drift(cluster, settings, partitions=meta.partitions, fleet=fleet):
        yield Finding("topics", BAD, in_words(drift), "see `foldline topics check`")
    for warning in broker_warnings(cluster, settings):
        yield Finding("brokers", WARNING, warning, "set it on every broker")
    with closing(registry_of(settings)) as registry:
        for problem in check_registered(registry):
            detail = f"{problem.name}: {problem.reason}"
            yield Finding("schemas", BAD, detail, "foldline schemas register")
