"""rejected list, show and replay, with a real worker that rejects."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

from foldline import kafka
from foldline.cli import main
from foldline.errors import LogUnavailableError
from foldline.processors.kafka_records import encode_append
from foldline.processors.kafka_rejected import RawAppend, Rejected
from foldline.producers.identity import fresh_id
from foldline.schemas.blocks import text_block
from foldline.schemas.codec import encode_content
from foldline.schemas.envelope import Actor, Envelope
from foldline.schemas.events import GoalSet, KnownEvent, SessionCreated, type_of
from foldline.schemas.recorded import Append
from foldline.topics import partition_for
from tests.cluster.logs import FreshLog, running_worker
from tests.cluster.processes import wait_until

pytestmark = pytest.mark.kafka

HOSTILE = "\x1b]0;owned\x07\u202eevil"


@dataclass
class Command:
    """The command, run on the log of the test."""

    capture: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self.capture.readouterr()
        done = main(["rejected", *arguments])
        out, err = self.capture.readouterr()
        assert done == code, (out, err)
        return out + err

    def lines(self, *arguments: str) -> list[dict[str, Any]]:
        """What it says with --json."""
        return [json.loads(line) for line in self(*arguments, "--json").splitlines()]


@pytest.fixture
def command(
    fresh_log: FreshLog,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    for name, value in fresh_log.environment.items():
        monkeypatch.setenv(name, value)
    return Command(capsys)


@pytest.fixture
def worked_log(fresh_log: FreshLog) -> Generator[FreshLog]:
    """The log, with a worker on it."""
    with running_worker(fresh_log):
        yield fresh_log


def send(
    log: FreshLog,
    session_id: str,
    value: bytes | None,
    *,
    key: bytes | None = None,
    headers: list[tuple[str, bytes]] | None = None,
) -> None:
    """Put a record into appends, as whoever may write there might."""
    producer = kafka.plain_producer(log.cluster, log.settings)
    partition = partition_for(session_id, log.partitions)
    key = session_id.encode() if key is None else key
    producer.produce(log.names.appends, value, key, partition, headers=list(headers or ()))
    assert producer.flush(10) == 0


def append(log: FreshLog, session_id: str, event: KnownEvent, **more: Any) -> None:
    """Append without waiting for the verdict."""
    envelope = Envelope(
        event_id=fresh_id(),
        session_id=session_id,
        writer="tests",
        actor=Actor(kind="HARNESS", id="tests"),
    )
    made = Append(envelope, event, encode_content(event), known_seq=0, **more)
    schema_id = log.registry.id_of(type_of(event))
    value, headers = encode_append(made, schema_id=schema_id, reply_to="")
    send(log, session_id, value, headers=headers)


def listed(command: Command, count: int) -> list[dict[str, Any]]:
    """Wait until so many are rejected."""

    def found() -> list[dict[str, Any]]:
        rows = command.lines("list")
        return rows if len(rows) >= count else []

    return wait_until(found, timeout_s=60, what=lambda: f"{count} rejections")


def test_nothing_is_rejected_in_a_new_log(command: Command) -> None:
    assert command.lines("list") == []


def test_a_refused_append_is_listed_shown_and_replayed(
    worked_log: FreshLog, command: Command
) -> None:
    """What was refused for its moment is taken at a better one, under its own id."""
    append(worked_log, "s-1", GoalSet(blocks=(text_block("too soon"),)))
    (row,) = listed(command, 1)
    assert (row["session_id"], row["kind"], row["event_type"]) == (
        "s-1",
        "NO_SESSION",
        "GoalSet",
    )
    assert row["dead_letter"] is False
    shown = json.loads(command("show", row["at"], "--json"))
    assert b"too soon" in bytes.fromhex(shown["value"]["hex"])
    names = [header["name"] for header in shown["headers"]]
    assert {"ce_id", "ce_type", "known_seq", "writer"} <= set(names)
    assert "NO_SESSION" in command("replay", row["at"], code=1)
    append(worked_log, "s-1", SessionCreated(agent="a"))
    done = json.loads(command("replay", row["at"], "--json"))
    assert done["verdict"]["kind"] == "ACCEPTED"
    assert done["verdict"]["event_id"] == row["event_id"]
    again = json.loads(command("replay", row["at"], "--json"))
    assert again["verdict"]["kind"] == "DUPLICATE"
    assert again["verdict"]["seq"] == done["verdict"]["seq"]


def test_a_dead_letter_keeps_its_bytes_and_headers(
    worked_log: FreshLog, command: Command
) -> None:
    """Whatever a record holds, no terminal is told to do anything."""
    junk = HOSTILE.encode() + b"\xff\x00"
    send(worked_log, "s-2", junk, headers=[("x-trace", HOSTILE.encode()), ("n", b"\xff")])
    send(worked_log, "s-2", None)
    rows = listed(command, 2)
    assert {row["kind"] for row in rows} == {"UNDECODABLE"}
    assert all(row["dead_letter"] for row in rows)
    (first,) = (row for row in rows if row["append"] == min(r["append"] for r in rows))
    shown = json.loads(command("show", first["at"], "--json"))
    assert bytes.fromhex(shown["value"]["hex"]) == junk
    assert shown["value"]["utf8"] is None
    assert {"name": "x-trace", "utf8": HOSTILE, "hex": HOSTILE.encode().hex()}.items() <= (
        shown["headers"][0].items()
    )
    for text in (command("show", first["at"]), command("list")):
        assert "\x1b" not in text
        assert "\u202e" not in text
    replayed = command("replay", first["at"], code=1)
    assert "UNDECODABLE" in replayed
    assert len(listed(command, 3)) == 3


def test_a_record_in_the_wrong_partition_is_replayed_into_the_right_one(
    worked_log: FreshLog, command: Command
) -> None:
    other = next(
        name
        for name in (f"s-{n}" for n in range(100))
        if partition_for(name, 2) != partition_for("s-3", 2)
    )
    send(worked_log, other, b"anything", key=b"s-3")
    (row,) = listed(command, 1)
    assert row["kind"] == "MISROUTED"
    done = command("replay", row["at"], "--json", code=1)
    view = json.loads(done)
    assert view["verdict"]["kind"] == "UNDECODABLE"
    assert view["sent_to"].partition(":")[0] == str(partition_for("s-3", 2))


def test_what_has_no_session_is_not_sent_again(
    worked_log: FreshLog, command: Command
) -> None:
    send(worked_log, "s-4", b"junk", key=b"\xff\xfe")
    (row,) = listed(command, 1)
    assert "names no session" in command("replay", row["at"], code=4)


def test_a_record_that_no_worker_wrote_hides_no_rejection(
    worked_log: FreshLog, command: Command
) -> None:
    append(worked_log, "s-5", GoalSet(blocks=(text_block("too soon"),)))
    listed(command, 1)
    producer = kafka.plain_producer(worked_log.cluster, worked_log.settings)
    topic, headers = worked_log.names.rejected, [("x", b"y")]
    for value in (HOSTILE.encode(), b"\x00\x00\x00\x00\x01", None):
        producer.produce(topic, value, b"alien", 0, headers=list(headers))
    assert producer.flush(10) == 0
    rows = listed(command, 4)
    assert [row["kind"] for row in rows].count("NO_SESSION") == 1
    alien = [row for row in rows if row["kind"] == "UNREADABLE"]
    assert len(alien) == 3
    assert {row["session_id"] for row in alien} == {"alien"}
    last = alien[-1]["at"]
    shown = json.loads(command("show", last, "--json"))
    assert shown["value"]["utf8"] == HOSTILE
    assert "\x1b" not in command("list") + command("show", last)
    assert "it is unreadable" in command("replay", last, code=3)


def test_what_the_client_cannot_send_is_an_error_of_the_log(fresh_log: FreshLog) -> None:
    rejected = Rejected(
        fresh_log.cluster, fresh_log.settings, registry=fresh_log.registry, partitions=2
    )
    large = RawAppend(b"s-6", b"x" * 10_000_000, [])
    with pytest.raises(LogUnavailableError, match=r"(?i)message size too large"):
        rejected.replay(large)


@pytest.mark.parametrize("at", ["", "1", "a:b", "0:", "-1:0", "0:1:2"])
def test_a_place_that_means_nothing_is_refused(command: Command, at: str) -> None:
    assert "PARTITION:OFFSET" in command("show", at, code=2)


def test_a_place_with_nothing_there_is_exit_code_three(command: Command) -> None:
    assert "no record was ever there" in command("show", "0:0", code=3)
    assert "the log has 2 partitions" in command("replay", "7:0", code=3)
