"""The frame of importers: pieces of a file, whatever bytes it holds."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.errors import ImportSourceError
from foldline.producers.importing import LISTED_MAX, ImportReport, Piece, read_pieces

LIMIT = 1_000_000


def pieces_of(folder: Path, data: bytes, *, limit: int = LIMIT) -> list[Piece]:
    path = folder / "file.jsonl"
    path.write_bytes(data)
    return list(read_pieces(path, record_max_bytes=limit))


def records_of(pieces: list[Piece]) -> list[object]:
    return [piece.record for piece in pieces if piece.record is not None]


def test_each_object_is_a_record_with_its_place_and_hash(tmp_path: Path) -> None:
    data = b'{"a": 1}\n  {"b":"\xc3\xa4"} \r\n\n{"c":3}'
    pieces = pieces_of(tmp_path, data)
    assert records_of(pieces) == [{"a": 1}, {"b": "ä"}, {"c": 3}]
    for piece in pieces:
        raw = data[piece.offset : piece.offset + piece.length]
        assert raw.decode() == piece.raw
        assert piece.sha256 == hashlib.sha256(raw).digest()


def test_several_objects_on_one_line_are_several_records(tmp_path: Path) -> None:
    pieces = pieces_of(tmp_path, '{"ä":1}{"b":2} \t{"c":3}\n'.encode())
    assert records_of(pieces) == [{"ä": 1}, {"b": 2}, {"c": 3}]
    assert [piece.offset for piece in pieces] == [0, 8, 17]


def test_the_first_bad_piece_ends_its_line_and_only_that(tmp_path: Path) -> None:
    data = b'{"a":1}{"b":{"c":3}\n{"d":4}\n'
    pieces = pieces_of(tmp_path, data)
    assert records_of(pieces) == [{"a": 1}, {"d": 4}]
    (bad,) = [piece for piece in pieces if piece.record is None]
    assert data[bad.offset : bad.offset + bad.length] == b'{"b":{"c":3}'
    assert not bad.torn
    assert bad.reason


@pytest.mark.parametrize(
    "line",
    [
        *(b"nonsense", b"[1,2]", b'"text"', b"17", b"null", b"}", b"\x00\x00\x00"),
        *(b'{"a":"\xff', b"{" * 200_000, b'{"a":' * 100_000 + b"1", b"\xff\xfe"),
    ],
)
def test_a_line_that_is_no_object_is_rejected_with_a_reason(
    tmp_path: Path, line: bytes
) -> None:
    bad, good = pieces_of(tmp_path, line + b'\n{"a":1}\n')
    assert (bad.record, good.record) == (None, {"a": 1})
    assert bad.reason
    assert not bad.torn
    assert bad.length == len(line)


@pytest.mark.parametrize(
    "tail", [b'{"a":"cut in the mid', b"\x00" * 4096, b'{"a":1}{"b', b"12"]
)
def test_an_undecodable_end_without_newline_is_the_torn_tail(
    tmp_path: Path, tail: bytes
) -> None:
    *_, last = pieces_of(tmp_path, b'{"z":0}\n' + tail)
    assert last.record is None
    assert last.torn
    assert last.offset + last.length == len(b'{"z":0}\n' + tail)


def test_a_whole_object_without_newline_is_a_record(tmp_path: Path) -> None:
    assert records_of(pieces_of(tmp_path, b'{"a":1}')) == [{"a": 1}]


@pytest.mark.parametrize("data", [b"", b"\n", b" \t \r\n\n \x0b\n"])
def test_blank_lines_count_nowhere(tmp_path: Path, data: bytes) -> None:
    assert pieces_of(tmp_path, data) == []


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    (piece,) = pieces_of(tmp_path, b'\xef\xbb\xbf{"a":1}\n')
    assert (piece.record, piece.offset) == ({"a": 1}, 3)


def test_bytes_that_are_no_utf8_do_not_lose_the_record(tmp_path: Path) -> None:
    (piece,) = pieces_of(tmp_path, b'{"a":"x\xffy"}\n')
    assert piece.record is not None
    assert piece.length == 11


def test_numbers_that_no_machine_holds_stay_text(tmp_path: Path) -> None:
    digits = "9" * 10_000
    text = f'{{"a":{digits},"b":NaN,"c":-Infinity,"d":1e999,"e":1.5,"f":12}}\n'
    (piece,) = pieces_of(tmp_path, text.encode())
    assert piece.record == {
        "a": digits,
        "b": "NaN",
        "c": "-Infinity",
        "d": "1e999",
        "e": 1.5,
        "f": 12,
    }


def test_of_repeated_keys_the_last_one_holds(tmp_path: Path) -> None:
    assert records_of(pieces_of(tmp_path, b'{"a":1,"a":2}\n')) == [{"a": 2}]


@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_line_beyond_the_limit_is_hashed_and_not_kept(tmp_path: Path, end: bytes) -> None:
    line = json.dumps({"a": "x" * 5_000_000}).encode()
    bad, *rest = pieces_of(tmp_path, line + end + (b'{"b":2}' if end else b""))
    assert bad.record is None
    assert bad.length == len(line + end)
    assert bad.sha256 == hashlib.sha256(line + end).digest()
    assert len(bad.raw) < len(line)
    assert bad.torn is (end == b"")
    assert records_of(rest) == ([{"b": 2}] if end else [])


@pytest.mark.parametrize("extra", [0, 1])
def test_the_limit_is_on_the_line_without_its_newline(tmp_path: Path, extra: int) -> None:
    line = b'{"a":"' + b"x" * (100 - 8 + extra) + b'"}'
    (piece,) = pieces_of(tmp_path, line + b"\n", limit=100)
    assert (piece.record is None) is bool(extra)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [b'{"a":1}', b"\n", b"\r\n", b"{", b"}", b'"', b"\x00", b"\xff"]
            ),
            st.binary(max_size=6),
        ),
        max_size=30,
    )
)
def test_pieces_never_overlap_and_cover_all_but_white_space(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]
) -> None:
    data = b"".join(parts)
    at = 0
    for piece in pieces_of(tmp_path_factory.mktemp("p"), data):
        between = data[at : piece.offset].removeprefix(b"\xef\xbb\xbf")
        assert not between.strip()
        raw = data[piece.offset : piece.offset + piece.length]
        assert piece.sha256 == hashlib.sha256(raw).digest()
        assert (piece.record is None) is bool(piece.reason)
        at = piece.offset + piece.length
    assert not data[at:].strip()


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ImportSourceError, match=r"nowhere\.jsonl"):
        list(read_pieces(tmp_path / "nowhere.jsonl", record_max_bytes=LIMIT))


def test_a_report_lists_so_many_rejects_and_counts_all() -> None:
    report = ImportReport(path="p", system="s")
    piece = Piece(0, 1, b"\x00" * 32, "x", reason="no JSON")
    for _ in range(LISTED_MAX + 5):
        report.reject(piece)
    assert report.rejected_total == LISTED_MAX + 5
    assert len(report.rejected) == LISTED_MAX


def test_a_report_is_json_all_through(tmp_path: Path) -> None:
    report = ImportReport(path="p", system="s")
    for piece in pieces_of(tmp_path, b"x\n{"):
        report.reject(piece)
    view = json.loads(json.dumps(report.as_json()))
    assert [one["recorded"] for one in view["rejected"]] == [True, False]
    assert view["torn_tail"] == view["rejected"][1]
    assert view["records"] == 0
