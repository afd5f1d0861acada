"""Names, configs and partitions of topics: a key lies where Java's client puts it."""

import json
import random
import subprocess
import uuid
from pathlib import Path

import pytest

from foldline.topics import (
    MAX_APPEND_RECORD_BYTES,
    MAX_RECORD_BYTES,
    TopicNames,
    partition_for,
    prefix_in,
    specs,
)
from tests.cluster import jars
from tests.cluster.backends import without_jars
from tests.cluster.shared import without_broker

GOLDEN = Path(__file__).parent / "golden" / "partitions.json"
PROGRAM = Path(__file__).parent / "golden" / "Partitions.java"
COUNTS = [1, 2, 3, 4, 6, 12, 16, 64, 1000]
JAVA_TIMEOUT_S = 120

ODD = [
    "a", " ", "0", "-", "\x00", "\x7f", "é", "日本語のセッション", "\U0001f600", "e\u0301",
    "\u200b", "\ufeff", "ß" * 100, "\uffff", "a b c", "tab\tin it", "'", '"', "\\",
    "../../etc/passwd", "x" * 1_000, "\U0010ffff", "مرحبا", "%00", "null",
]  # fmt: skip


OPERATIONS = Path(__file__).parents[1] / "docs" / "operations.md"


def test_the_table_of_rights_has_every_topic_of_a_log() -> None:
    """A right that is missing there is found by whoever has set the others."""
    text = OPERATIONS.read_text(encoding="utf-8")
    (head,) = [line for line in text.splitlines() if line.startswith("| who | appends |")]
    columns = {word.strip() for word in head.strip("|").split("|")} - {"who"}
    names = TopicNames(prefix="")
    assert columns == {
        spec.name.replace(".5", ".N")
        for spec in specs(names, partitions=1, replication=1, fold_version=5)
    }


def keys() -> list[str]:
    """400 keys: numbered sessions, UUIDs, words of many scripts, odd ones."""
    chance = random.Random(4)
    uuids = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(150)]
    sessions = [f"session-{n}" for n in range(150)]
    words = [
        "".join(chr(chance.choice((97, 228, 1078, 20320, 0x1F600)) + i) for i in range(n))
        for n in range(1, 76)
    ]
    return [*sessions, *uuids, *words, *ODD]


def golden() -> dict[str, list[int]]:
    """What Java's client said, by key: a partition for each of COUNTS."""
    said = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert said["counts"] == COUNTS
    return said["keys"]


def test_a_key_lies_where_javas_client_puts_it() -> None:
    """The golden file is what kafka-clients said; `Partitions.java` asked it."""
    expected = golden()
    assert list(expected) == keys()
    assert len(expected) == 400
    ours = {key: [partition_for(key, count) for count in COUNTS] for key in expected}
    assert ours == expected


@pytest.mark.kafka
def test_javas_client_still_says_what_the_golden_file_says() -> None:
    missing = without_jars()
    if missing:
        without_broker(missing)
    assert said_by_java() == golden()


def said_by_java() -> dict[str, list[int]]:
    """Ask kafka-clients."""
    command = [str(jars.java(jars.BROKER_JAVA)), "-cp", f"{jars.kafka_jars()}/*"]
    done = subprocess.run(
        [*command, str(PROGRAM), *map(str, COUNTS)],
        input="".join(f"{key}\n" for key in keys()).encode(),
        capture_output=True,
        timeout=JAVA_TIMEOUT_S,
        check=True,
    )
    rows = [[int(n) for n in line.split()] for line in done.stdout.decode().splitlines()]
    return dict(zip(keys(), rows, strict=True))


def test_an_empty_key_belongs_to_no_partition() -> None:
    """Clients would scatter it."""
    with pytest.raises(ValueError, match="empty key"):
        partition_for("", 4)


def test_every_topic_of_a_log_begins_with_its_prefix() -> None:
    names = TopicNames("t.acme.")
    made = specs(names, partitions=3, replication=3, fold_version=1)
    assert all(spec.name.startswith("t.acme.") for spec in made)
    assert {spec.name: spec.partitions for spec in made} == {
        names.appends: 3,
        names.events: 3,
        names.verdicts: 3,
        names.snapshots(1): 3,
        names.rejected: 3,
        names.leases: 3,
        names.recovery: 3,
        names.meta: 1,
    }
    assert made[-1].name == names.meta  # it says that the others are there


def test_the_truth_is_kept_for_ever_and_no_topic_loses_an_acknowledged_record() -> None:
    names = TopicNames()
    made = {
        s.name: s.config for s in specs(names, partitions=1, replication=3, fold_version=1)
    }
    assert (
        made[names.events]["retention.ms"] == made[names.events]["retention.bytes"] == "-1"
    )
    for config in made.values():
        assert config["message.timestamp.type"] == "LogAppendTime"
        assert config["min.insync.replicas"] == "2"
        assert config["unclean.leader.election.enable"] == "false"


def test_what_was_taken_in_always_fits_out() -> None:
    names = TopicNames()
    made = {
        s.name: s.config for s in specs(names, partitions=1, replication=1, fold_version=1)
    }
    sizes = {name: int(config["max.message.bytes"]) for name, config in made.items()}
    assert sizes.pop(names.appends) == MAX_APPEND_RECORD_BYTES
    assert set(sizes.values()) == {MAX_RECORD_BYTES}
    assert MAX_RECORD_BYTES - MAX_APPEND_RECORD_BYTES > 100_000


def test_a_url_may_say_the_prefix() -> None:
    assert prefix_in("kafka://a:1,b:2/acme.") == "acme."
    assert prefix_in("kafka://a:1") == prefix_in("https://host/path") == ""
