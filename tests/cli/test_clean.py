"""Nothing that somebody else wrote steers a terminal."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.cli.clean import clean_line, crop, padded, size_of

UNSAFE_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
HIDDEN = range(0xE0000, 0xE1000)  # selectors and tags, in which data can be hidden
SEEN = {"\ufffc", "\ufffd"}


def test_every_control_and_format_character_is_written_out() -> None:
    """Compared with the whole Unicode database of this Python."""
    obeyed = [
        hex(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(char := chr(code)) in UNSAFE_CATEGORIES
        and char in clean_line(f"a{char}b")
    ]
    assert obeyed == []


def test_letters_signs_and_marks_of_all_scripts_are_left_as_they_are() -> None:
    changed = [
        hex(code)
        for code in range(0x20, sys.maxunicode + 1)
        if unicodedata.category(char := chr(code))[0] in "LMNPS"
        and char not in SEEN
        and code not in HIDDEN
        and clean_line(f"a{char}b") != f"a{char}b"
    ]
    assert changed == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("abc\u202edef", "abc\\u202edef"),
        ("\u2066a\u2069", "\\u2066a\\u2069"),
        ("\x9b31m", "\\x9b31m"),
        ("one\r\n\ttwo\n", "one two"),
        ("over\rwritten", "over written"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("half \ud800", "half \\ud800"),
        ("replaced \ufffd", "replaced \ufffd"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text: str, line: str) -> None:
    assert clean_line(text) == line


def test_of_a_long_text_only_the_beginning_is_looked_at() -> None:
    assert clean_line("x" * 10_000_000, max_chars=5) == "xxxxx…"


@given(st.text(), st.integers(1, 60))
def test_a_cropped_line_is_no_wider_than_it_may_be(text: str, cells: int) -> None:
    from rich.cells import cell_len

    assert cell_len(crop(clean_line(text), cells=cells)) <= cells
    assert cell_len(padded(clean_line(text), cells=cells)) == cells


def test_wide_characters_count_twice() -> None:
    assert crop("漢字漢字", cells=5) == "漢字…"


def test_sizes_are_given_in_the_largest_unit_that_fits() -> None:
    assert [size_of(n) for n in (0, 1023, 2048, 5 << 20, 3 << 30)] == [
        "0 B",
        "1023 B",
        "2.0 KB",
        "5.0 MB",
        "3.0 GB",
    ]
