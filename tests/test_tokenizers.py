"""Counting tokens on this machine: the library's numbers, loaded late, remembered."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline import tokenizers
from foldline.tokenizers import Tokens, default_counter


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("hello world", 2),
        ("<|endoftext|>", 7),
        ("def build(self) -> Context:\n    return self._context\n", 13),
    ],
)
def test_tokens_are_those_of_the_encoding(text: str, count: int) -> None:
    """What looks like a special token is a text like any other."""
    assert default_counter().count(text) == count


@settings(deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=300))
def test_any_text_has_no_more_tokens_than_bytes(text: str) -> None:
    """Lone surrogates too; one is counted as the sign that stands for it."""
    size = len(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode())
    assert (0 if not text else 1) <= default_counter().count(text) <= size


@pytest.mark.parametrize("text", ["a" * 1_500_000, "🙂" * 300_000, " \n" * 400_000])
def test_a_text_beyond_the_librarys_limits_is_counted_in_pieces(text: str) -> None:
    assert 0 < default_counter().count(text) < len(text.encode())


def test_a_count_is_remembered_and_the_oldest_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokenizers, "REMEMBERED_TEXTS", 2)
    counter = Tokens()
    texts = [
        f"a text that is long enough to be remembered, by the hash of it: {n}"
        for n in "abc"
    ]
    counts = [counter.count(text) for text in texts]
    assert [counter.count(text) for text in texts] == counts
    assert counter.remembered == 2


def test_the_vocabulary_is_loaded_by_the_first_count_alone() -> None:
    """Neither by the package, nor by a counter, nor by --help."""
    script = (
        "import sys, foldline, foldline.projections.token_count;"
        "from foldline.tokenizers import default_counter; default_counter();"
        "from foldline.cli import main; main(['context', '--help']);"
        "print('bpe_openai' in sys.modules, file=sys.stderr);"
        "default_counter().count('now');"
        "print('bpe_openai' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.split() == ["False", "True"]
