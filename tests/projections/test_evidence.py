"""What a text refers to, and what stands for a text that is gone."""

import json

import pytest

from foldline.projections.evidence import (
    EVIDENCE_MAX,
    KEPT_BYTES,
    evidence_in,
    kept_bytes,
    quoted_in,
    stands_in,
)
from foldline.projections.policy import LEAN
from foldline.projections.pruning import (
    Names,
    ending_of,
    excerpt_of,
    reference_to,
    shortened,
)
from tests.projections.test_shaping import WORDS


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("see src/foo/bar.ts:12", "src/foo/bar.ts"),
        ("in package.json", "package.json"),
        ("at C:\\x\\y.txt", "C:\\x\\y.txt"),
        ("get https://example.org/a/b?c=1 now", "https://example.org/a/b?c=1"),
        ("the max_open_calls limit", "max_open_calls"),
        ("a ToolResult here", "ToolResult"),
        ("call parse() first", "parse"),
        ("use self.codec", "codec"),
        ("line 4711 of it", "4711"),
        ("commit 93fc317e now", "93fc317e"),
        ("id 019efc87-fa98-7971-91df-0c9512a065da", "019efc87-fa98-7971-91df-0c9512a065da"),
    ],
)
def test_paths_identifiers_and_numbers_are_evidence(text: str, named: str) -> None:
    """Each as it is written."""
    assert named in evidence_in(text)


def test_plain_words_are_none() -> None:
    """Prose says nothing that one could look for."""
    assert evidence_in("The quick brown fox (it was late) jumps over a dog") == frozenset()


def test_what_is_too_long_is_content_and_no_reference() -> None:
    """A line of base64 is not mentioned."""
    assert evidence_in("a1" * EVIDENCE_MAX) == frozenset()


def test_quotes_of_three_kinds_hold_something() -> None:
    """On one line; what is too short says nothing."""
    found = quoted_in("say 'two words' or \"more of it\" or `code` and 'x y and open")
    assert found == {"two words", "more of it", "code"}


def test_a_reference_says_what_it_stands_for_and_what_it_mentions_once() -> None:
    """What an earlier reference mentions is not said again."""
    names = Names((), LEAN.mention_tokens)
    text = "begin " + "word " * 100 + "old_name new/path.py " * 3
    what = "look, event 7: 107 tokens"
    first, second = (
        reference_to(text, what=what, names=names, policy=LEAN, counter=WORDS)
        for _ in range(2)
    )
    assert first.startswith("[look, event 7: 107 tokens, not shown any more] begin")
    assert "It mentions: " in first
    assert "old_name" in first
    assert "It mentions" not in second


def test_what_a_reference_mentions_has_a_cap_however_large_the_text() -> None:
    """All references to one output share it."""
    names = Names((), LEAN.mention_tokens)
    text = " ".join(f"file_{number}.py" for number in range(100_000))
    said = reference_to(text, what="look", names=names, policy=LEAN, counter=WORDS)
    assert WORDS.count(said) <= LEAN.mention_tokens + 3 * LEAN.reference_tokens


def test_an_excerpt_has_both_ends_and_an_ending_the_last() -> None:
    """On one line, however the text is broken."""
    text = "first\nline " + "x" * 5_000 + " last\nwords"
    assert excerpt_of(text, tokens=20).startswith("first line")
    assert excerpt_of(text, tokens=20).endswith("words")
    assert ending_of(text, tokens=4).endswith("last words")
    assert excerpt_of("short\ntext", tokens=20) == "short text"


def test_shortened_arguments_are_json_of_the_same_form() -> None:
    """Text that is no JSON stays as it is."""
    value = {"a": ["long text", 1, None], "b": {"c": "long text"}}
    short = shortened(json.dumps(value), lambda text: text[:4])
    assert json.loads(short) == {"a": ["long", 1, None], "b": {"c": "long"}}
    assert shortened("{torn", lambda text: text[:1]) == "{torn"


def test_what_is_kept_of_many_large_texts_is_bounded() -> None:
    """By its bytes: the texts themselves are not kept."""
    for text in range(12):
        names = " ".join(f"name_{text}_{number}" for number in range(20_000))
        assert f"name_{text}_7" in evidence_in(names)
        assert evidence_in(names) is evidence_in(names)
    assert kept_bytes() <= 4 * KEPT_BYTES


@pytest.mark.parametrize(
    ("name", "text", "there"),
    [
        ("45", "1456 and 45.", True),
        ("45", "1456 a45 45b 45_", False),
        ("name", "rename, name_of, (name)", True),
        ("a/b.py", "/x/a/b.py:3", True),
        ("--flag", "set--flag", True),
        ("é", "éa é", True),
        ("x", "", False),
    ],
)
def test_a_name_stands_in_a_text_by_itself(name: str, text: str, there: bool) -> None:  # noqa: FBT001 - a case
    assert stands_in(name, text) is there
