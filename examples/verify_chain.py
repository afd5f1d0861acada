"""A session's hash chain, checked by code that takes nothing from foldline but bytes.

    python examples/verify_chain.py SOURCE SESSION [SEQ HASH]

SOURCE is the file of a SQLite log, the file of a log of JSON lines (`*.jsonl`), or a
broker of a log on Kafka (`kafka://HOST:PORT/PREFIX`; FOLDLINE_REGISTRY_URL is set).
Read are the Avro body of each event and the schema that it was written with: no index,
no state. SEQ and HASH are an anchor: what this printed, written down elsewhere.

Exit code 0 if every event follows from the one before it, and the anchor holds.
"""

import base64
import hashlib
import io
import json
import os
import sqlite3
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import fastavro

Stored = Iterable[tuple[str, bytes]]
"""Each event's schema, as JSON, and its body."""

POLL_S = 30
EVENTS = "events"
BY_A_WORKER = "ao"
"""The header of a record of `events` that a worker wrote; any other is no event."""


def chain(stored: Stored, session_id: str) -> dict[int, str]:
    """The hash of each event's body by its seq; ValueError where the chain breaks."""
    hashes: dict[int, str] = {}
    last = 0
    for schema, body in stored:
        event = _read(schema, body)
        seq, prev_hash = event["seq"], (event["prev_hash"] or b"").hex()
        last = last or event.get("fork_seq") or 0  # a fork goes on behind its parent
        if event["session_id"] != session_id or seq != last + 1:
            raise ValueError(f"where seq {last + 1} belongs is {event['session_id']} {seq}")
        if hashes and prev_hash != hashes[last]:
            raise ValueError(f"seq {seq} does not follow from seq {last} as it is now")
        hashes[seq] = hashlib.sha256(body).hexdigest()
        last = seq
    return hashes


def _read(schema: str, body: bytes) -> dict[str, Any]:
    return cast("Any", fastavro).schemaless_reader(
        io.BytesIO(body), json.loads(schema), None
    )


def of_sqlite(path: Path, session_id: str) -> Stored:
    """The rows of a SQLite log."""
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True).execute(
        "SELECT schemas.text, events.body FROM events "
        "JOIN sessions ON key = position >> 32 JOIN schemas ON schemas.id = schema_id "
        "WHERE session_id = ? ORDER BY position",
        (session_id,),
    )


def of_lines(path: Path, session_id: str) -> Iterator[tuple[str, bytes]]:
    """The lines of a log of JSON lines, up to its marker."""
    data = path.read_bytes()
    durable = int(json.loads(data.split(b"\n", 1)[0])["marker"][:16], 16)
    schemas: dict[int, str] = {}
    for line in map(json.loads, data[:durable].splitlines()):
        if "text" in line:
            schemas[line["schema_id"]] = line["text"]
        elif line.get("session") == session_id:
            yield schemas[line["schema"]], base64.b64decode(line["avro"])


def of_topic(url: str, session_id: str) -> Iterator[tuple[str, bytes]]:
    """The committed records of the topic `events`, with no consumer group."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition  # late: a client

    brokers, _, prefix = url.removeprefix("kafka://").partition("/")
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "verify-chain",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    topic = (prefix or "foldline.") + "events"
    numbers = consumer.list_topics(topic, timeout=POLL_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in numbers])
    unread = len(numbers)
    while unread:
        record = consumer.poll(POLL_S)
        if record is None:
            raise TimeoutError(url)
        failed, value = record.error(), record.value()
        if failed is not None and failed.name() == "_PARTITION_EOF":
            unread -= 1
        elif failed is not None:
            raise OSError(str(failed))
        elif value and record.key() == session_id.encode() and _by_a_worker(record):
            yield _schema(int.from_bytes(value[1:5], "big")), value[5:]
    consumer.close()


def _by_a_worker(record: Any) -> bool:
    return BY_A_WORKER in dict(record.headers() or ())


@cache
def _schema(schema_id: int) -> str:
    """A schema of the registry, by the id that stands in front of a body."""
    url = f"{os.environ['FOLDLINE_REGISTRY_URL']}/schemas/ids/{schema_id}"
    with urllib.request.urlopen(url, timeout=POLL_S) as answer:  # noqa: S310 - the user's own
        return json.load(answer)["schema"]


def main(source: str, session_id: str, *anchor: str) -> int:
    """Print the chain's length and head; exit code 0 if it is whole."""
    if source.startswith("kafka://"):
        stored = of_topic(source, session_id)
    else:
        of_file = of_lines if source.endswith(".jsonl") else of_sqlite
        stored = of_file(Path(source), session_id)
    try:
        hashes = chain(stored, session_id)
    except ValueError as broken:
        print(f"broken: {broken}")
        return 1
    if not hashes:
        print("no such session")
        return 1
    if anchor and hashes.get(int(anchor[0])) != anchor[1]:
        print(f"whole, and not what was anchored at seq {anchor[0]}")
        return 1
    head = max(hashes)
    print(f"whole: {len(hashes)} events, head {head} {hashes[head]}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
