"""The file of a log of JSON lines: told apart, torn, damaged, full, replaced."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from foldline.errors import (
    LogError,
    LogFormatError,
    LogUnavailableError,
    NewerFormatError,
)
from foldline.processors.file_lock import lock_within
from foldline.processors.jsonl_line import (
    LINE_MAX_BYTES,
    MARKER_AT,
    BadLine,
    EventLine,
    Marker,
    SchemaLine,
    decode_marker,
    encode_marker,
    event_line,
    header_line,
    parse_line,
    schema_line,
)
from foldline.processors.jsonl_tail import read_lines, tail_of
from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog
from foldline.processors.verify import verify
from foldline.schemas.snapshots import state_hash
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.samples import created, said, started, told

EVENTS = 12
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "log.jsonl"
GOLDEN_STATE = "7da1d9d87b2f0dc84d06157383e6d1b11a8b0dc5e2c50b98c5771718de168934"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed log of one session of twelve events, each but the first its own batch."""
    path = tmp_path / "sessions.jsonl"
    with opened(path) as log:
        story = LogStory(log, session_id="s").given(created()).given(started())
        for number in range(EVENTS - 2):
            story.given(said(str(number)))
    return path


@contextmanager
def opened(path: Path, settings: Settings | None = None) -> Generator[AuditableLog]:
    log = open_log(f"jsonl:///{path}", settings=settings)
    try:
        yield log
    finally:
        log.close()


def set_aside(path: Path) -> list[Path]:
    return sorted(path.with_name(f"{path.name}.torn").glob("*"))


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def unacknowledged(path: Path, tail: bytes) -> None:
    """Bytes behind the marker: what a killed writer leaves."""
    with path.open("ab") as file:
        file.write(tail)


def last_line_again_unacknowledged(path: Path) -> int:
    """As it was when the last line was written and nothing was synced; its offset."""
    lines = lines_of(path)
    start = sum(map(len, lines[:-1]))
    data = bytearray(b"".join(lines))
    marker = encode_marker(Marker(start, 0))
    data[MARKER_AT : MARKER_AT + len(marker)] = marker
    path.write_bytes(data)
    return start


# --- what is a log ------------------------------------------------------------------------


def holding(content: bytes) -> Callable[[Path], object]:
    """Makes a file of this content."""
    return lambda path: path.write_bytes(content)


def newer_format(path: Path) -> None:
    with opened(path):
        pass
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":2'))


def newer_rules(path: Path) -> None:
    with opened(path):
        pass
    path.write_bytes(path.read_bytes().replace(b'"rules_version":', b'"rules_version":99'))


@pytest.mark.parametrize(
    ("make", "error", "reason"),
    [
        (holding(b""), LogFormatError, "empty"),
        (holding(b"dear diary\n"), LogFormatError, "header"),
        (holding(b'{"type":"user"}\n'), LogFormatError, "header"),
        (holding(b"[" * 4_000), LogFormatError, "header"),
        (holding(bytes(9_000)), LogFormatError, "header"),
        (newer_format, NewerFormatError, "version 2"),
        (newer_rules, NewerFormatError, "rules"),
    ],
)
def test_what_is_no_usable_log_is_told_and_left_as_it_is(
    tmp_path: Path, make: Callable[[Path], object], error: type[LogError], reason: str
) -> None:
    path = tmp_path / "sessions.jsonl"
    make(path)
    before = path.read_bytes()
    with pytest.raises(error, match=reason) as caught, opened(path):
        pass
    assert not caught.value.retryable
    assert path.read_bytes() == before


def test_a_folder_holds_the_log_as_a_file_of_its_own(tmp_path: Path) -> None:
    for url in (f"jsonl:///{tmp_path}", f"jsonl:{tmp_path}", f"jsonl:///{tmp_path}/new/"):
        log = open_log(url)
        file = Path(log.url.removeprefix("jsonl:///"))
        assert (file.name, file.is_file()) == ("sessions.jsonl", True)
        log.close()


def test_the_golden_file_reads_as_it_did_and_its_lines_are_written_as_they_were(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log.jsonl"
    shutil.copy(GOLDEN, path)
    with opened(path) as log:
        state = log.state("golden")
        assert state is not None
        assert (state.seq, state.status) == (5, "IDLE")
        assert state_hash(state).hex() == GOLDEN_STATE
        assert verify(log).ok
        LogStory(log, session_id="golden").given(said("still going on"))
    header, *lines = lines_of(GOLDEN)
    fields = json.loads(header)
    for name in ("marker", "foldline", "format"):
        del fields[name]
    assert header_line(fields)[MARKER_AT + 32 :] == header[MARKER_AT + 32 :]
    for raw in lines:
        match parse_line(raw.removesuffix(b"\n")):
            case EventLine() as line:
                assert event_line(line, json.loads(raw)["view"]) == raw
            case SchemaLine() as line:
                assert schema_line(line) == raw
            case BadLine() as bad:
                pytest.fail(bad.reason)


# --- torn ends ----------------------------------------------------------------------------


def test_a_last_line_torn_at_any_offset_ends_the_log_before_it(path: Path) -> None:
    start = last_line_again_unacknowledged(path)
    size = path.stat().st_size
    descriptor = os.open(path, os.O_RDWR)
    for end in range(size, start, -1):
        os.ftruncate(descriptor, end)
        tail = tail_of(read_lines(descriptor, start, end), start, start)
        if end >= size - 1:
            assert tail == (size, end == size - 1)
        else:
            assert tail == (start, False)
    os.close(descriptor)


@pytest.mark.parametrize("cut", [1, 2, 60, 700])
def test_after_a_torn_line_the_log_goes_on_on_a_new_line(path: Path, cut: int) -> None:
    start = last_line_again_unacknowledged(path)
    torn = path.read_bytes()[start:][:-cut]
    os.truncate(path, start + len(torn))
    whole = cut == 1  # it lacked nothing but its end
    with opened(path) as log:
        story = LogStory(log, session_id="s")
        assert story.seq == EVENTS - 1 + whole
        story.when(said("after")).then("ACCEPTED", seq=EVENTS + whole)
        assert verify(log).ok
    kept = [file.read_bytes() for file in set_aside(path)]
    assert kept == ([] if whole else [torn])
    assert all(json.loads(line) for line in lines_of(path))


@pytest.mark.parametrize("cut", [5, 300])
def test_acknowledged_bytes_that_are_gone_are_an_alarm_and_the_rest_is_read(
    path: Path, cut: int
) -> None:
    size = path.stat().st_size
    os.truncate(path, size - cut)
    with opened(path) as log:
        story = LogStory(log, session_id="s")
        assert story.seq == EVENTS - 1
        (problem,) = verify(log).problems
        assert "acknowledged bytes are gone" in problem.reason
        story.when(said()).then("ACCEPTED", seq=EVENTS)
    (file,) = set_aside(path)
    assert file.name.startswith(f"lost-{size - len(file.read_bytes()) - cut}-{size}")


def test_a_batch_that_lacks_lines_was_never_recorded(path: Path) -> None:
    before = path.read_bytes()
    with opened(path) as log:
        LogStory(log, session_id="s").given(said("1"), said("2"), said("3"))
    batch = path.read_bytes()[len(before) :].splitlines(keepends=True)
    assert [json.loads(line)["left"] for line in batch] == [2, 1, 0]
    for count in (1, 2):
        path.write_bytes(before)
        unacknowledged(path, b"".join(batch[:count]))
        with opened(path) as log:
            assert LogStory(log, session_id="s").seq == EVENTS
            assert verify(log).ok
    path.write_bytes(before)
    unacknowledged(path, b"".join(batch))
    with opened(path) as log:
        assert LogStory(log, session_id="s").seq == EVENTS + 3


def test_zeros_where_a_write_never_came_to_the_disk_are_set_aside(path: Path) -> None:
    before = path.read_bytes()
    for zeros in (bytes(4096), bytes(100) + b"rest of a line\n"):
        path.write_bytes(before)
        unacknowledged(path, zeros)
        with opened(path) as log:
            assert LogStory(log, session_id="s").seq == EVENTS
            assert verify(log).ok
        assert path.read_bytes() == before


def test_a_damaged_marker_is_made_again_from_the_lines(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[MARKER_AT + 3] ^= 1
    path.write_bytes(data)
    with opened(path) as log:
        assert LogStory(log, session_id="s").seq == EVENTS
        assert verify(log).ok
    assert decode_marker(path.read_bytes()[MARKER_AT : MARKER_AT + 32]) == Marker(
        len(data), 0
    )


def test_nobody_reads_what_is_not_synced_yet(path: Path) -> None:
    with opened(path) as reader:
        before = path.read_bytes()
        descriptor = os.open(path, os.O_RDWR)
        assert lock_within(descriptor, 0)  # a writer in the middle of an append
        unacknowledged(path, lines_of(path)[-1])
        assert LogStory(reader, session_id="s").seq == EVENTS
        with opened(path) as late:
            assert len(list(late.events("s"))) == EVENTS
        assert path.read_bytes()[: len(before)] == before
        os.close(descriptor)


# --- damage in the middle -----------------------------------------------------------------


def test_a_bad_line_in_the_middle_is_named_and_hides_nothing_else(path: Path) -> None:
    bad_seq = 6
    with opened(path) as log:
        told(LogStory(log, session_id="other").given(created()), 3)
    lines = lines_of(path)
    number = next(n for n, line in enumerate(lines) if b'"session":"s","seq":6,' in line)
    lines[number] = lines[number][:200] + b"\n"
    path.write_bytes(b"".join(lines))
    with opened(path) as log:
        problems = verify(log).problems
        assert any(f"line {number + 1} " in problem.reason for problem in problems)
        assert ("s", bad_seq) in {(p.session_id, p.seq) for p in problems}
        read: list[int] = []
        with pytest.raises(LogFormatError, match=f"'s', seq {bad_seq}"):
            read.extend(recorded.seq for recorded in log.events("s"))
        assert read == list(range(1, bad_seq))
        assert len(list(log.events("s", after_seq=bad_seq))) == EVENTS - bad_seq
        assert log.state("s", at_seq=bad_seq - 1) is not None
        with pytest.raises(LogFormatError):
            log.state("s")
        LogStory(log, session_id="other").given(said())
        assert {row.session_id for row in log.sessions()} == {"s", "other"}


def test_a_torn_line_and_the_same_event_whole_on_the_next_are_one_event(
    path: Path,
) -> None:
    *lines, last = lines_of(path)
    path.write_bytes(b"".join(lines) + last[:300] + b"\n" + last)
    with opened(path) as log:
        story = LogStory(log, session_id="s")
        assert story.seq == EVENTS
        (problem,) = verify(log).problems
        assert f"line {len(lines) + 1} " in problem.reason
        story.when(said()).then("ACCEPTED", seq=EVENTS + 1)


def test_the_seq_of_a_damaged_last_line_is_not_given_out_again(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-40] + b"?" + data[-39:])
    with opened(path) as log:
        story = LogStory(log, session_id="s")
        for attempt in (
            lambda: log.state("s"),
            lambda: log.append([story.append(said(), known_seq=EVENTS)]),
        ):
            with pytest.raises(LogFormatError, match=f"seq {EVENTS}"):
                attempt()
        assert log.state("s", at_seq=EVENTS - 1) is not None
        assert not verify(log).ok


def test_a_flipped_byte_anywhere_is_found(path: Path) -> None:
    data = path.read_bytes()
    first = data.index(b"\n") + 1
    for at in range(first, len(data), 211):
        flipped = bytearray(data)
        flipped[at] ^= 0x04
        path.write_bytes(flipped)
        with opened(path) as log:
            assert not verify(log).ok, at


def test_a_line_that_comes_twice_or_too_late_is_named_and_not_read(path: Path) -> None:
    lines = lines_of(path)
    path.write_bytes(b"".join([*lines, lines[-1], lines[-3]]))
    with opened(path) as log:
        assert LogStory(log, session_id="s").seq == EVENTS
        assert [p.reason.partition(" (")[0] for p in verify(log).problems] == [
            f"line {len(lines) + 1}",
            f"line {len(lines) + 2}",
        ]


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"null", b"not json", b"[" * 100_000, b"x" * (LINE_MAX_BYTES + 9)],
    ids=range(6),
)
def test_a_foreign_line_is_named_and_the_log_goes_on_behind_it(
    path: Path, line: bytes
) -> None:
    unacknowledged(path, line + b"\n")
    with opened(path) as log:
        LogStory(log, session_id="s").when(said()).then("ACCEPTED", seq=EVENTS + 1)
        (problem,) = verify(log).problems
        assert "crc32" in problem.reason or "line" in problem.reason


def test_a_line_that_was_changed_with_its_checksum_breaks_the_chain(path: Path) -> None:
    lines = lines_of(path)
    number = next(n for n, line in enumerate(lines) if b'"seq":6,' in line)
    line = parse_line(lines[number].removesuffix(b"\n"))
    other = parse_line(lines[number + 1].removesuffix(b"\n"))
    assert isinstance(line, EventLine)
    assert isinstance(other, EventLine)
    lines[number] = event_line(line._replace(avro=other.avro, sha256=other.sha256), {})
    path.write_bytes(b"".join(lines))
    with opened(path) as log:
        assert ("s", 6) in {(p.session_id, p.seq) for p in verify(log).problems}
        with pytest.raises(LogFormatError):
            log.state("s")


# --- errors of one append, and nothing else -----------------------------------------------


def test_a_full_log_refuses_the_append_by_the_name_of_its_limit(path: Path) -> None:
    size = path.stat().st_size
    with opened(path, Settings(jsonl_max_bytes=size + 3_000)) as log:
        story = LogStory(log, session_id="s")
        big = story.append(said("x" * 10_000))
        with pytest.raises(LogUnavailableError, match="jsonl_max_bytes"):
            log.append([big])
        assert path.stat().st_size == size
        story.when(said()).then("ACCEPTED", seq=EVENTS + 1)


def test_a_file_that_another_process_holds_is_an_error_of_that_append_only(
    path: Path,
) -> None:
    with opened(path, Settings(busy_timeout_ms=30)) as log:
        story = LogStory(log, session_id="s")
        append = story.append(said())
        holder = os.open(path, os.O_RDWR)
        assert lock_within(holder, 0)
        with pytest.raises(LogUnavailableError, match="locked"):
            log.append([append])
        assert story.seq == EVENTS
        os.close(holder)
        story.send([append]).then("ACCEPTED", seq=EVENTS + 1)


def test_a_file_that_was_replaced_takes_no_append_of_who_has_the_old_one(
    path: Path,
) -> None:
    with opened(path) as log:
        story = LogStory(log, session_id="s")
        append = story.append(said())
        shutil.copy(path, path.with_name("copy"))
        path.with_name("copy").replace(path)
        with pytest.raises(LogUnavailableError, match="another file"):
            log.append([append])
    with opened(path) as log:
        LogStory(log, session_id="s").send([append]).then("ACCEPTED", seq=EVENTS + 1)


def test_lines_lost_under_an_open_log_are_noticed_by_who_has_it_open(path: Path) -> None:
    with opened(path) as log:
        story = LogStory(log, session_id="s")
        assert story.seq == EVENTS
        os.truncate(path, path.stat().st_size - 5)
        with opened(path) as other:
            LogStory(other, session_id="s").given(said("a"), said("b"))
        assert story.seq == EVENTS + 1
        assert [event.seq for event in log.events("s")] == list(range(1, EVENTS + 2))


def test_what_is_synced_needs_no_index_to_be_found_again(path: Path) -> None:
    with opened(path) as log:
        state = log.state("s")
        log.leases.renew("s", epoch=1, writer="w", ttl_ms=1_000)
    digest = hashlib.sha256(path.read_bytes()).digest()
    for beside in path.parent.glob("sessions.jsonl.*"):
        shutil.rmtree(beside)
    with opened(path) as log:
        assert log.state("s") == state
        assert log.leases.get("s") is None
    assert hashlib.sha256(path.read_bytes()).digest() == digest
