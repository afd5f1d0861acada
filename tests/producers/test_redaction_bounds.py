"""Patterns that some text could make slow, and those that none can."""

import re

import pytest

from foldline.producers.redaction_bounds import TOO_HIGH, TOO_MANY, UNBOUNDED, slow_in


@pytest.mark.parametrize(
    "pattern",
    [
        *("a+", "[ab]*c", "a{3,}", "a*?", "a++", "(?:ab)+"),
        *(
            r"acme_(\w+)",
            r"acme_x?\w*",
            r"acme_\w{2}\S+",
            r"(?P<s>\d*)",
            r"a|b+",
            "(?=a*)b",
        ),
    ],
)
def test_a_repetition_without_an_upper_bound_is_found_wherever_it_stands(
    pattern: str,
) -> None:
    assert slow_in(pattern) == UNBOUNDED


@pytest.mark.parametrize(
    "pattern",
    [
        "(a{1,50}){1,50}b",
        "(?:a|a){1,50}b",
        "(?:a|a?b){1,50}c",
        r"\w{0,200}\w{0,200}\w{0,200}!",
        "(?>(a{1,50}){1,50}b)",
        "(?:(?:a{1,9}){1,9}b){1,3}+",
        "(x)?(?(1)(a{1,50}){1,50}|b)c",
    ],
)
def test_repetitions_in_each_other_or_in_a_row_have_too_many_ways(pattern: str) -> None:
    assert slow_in(pattern) == TOO_MANY


@pytest.mark.parametrize(
    "pattern",
    [
        "acme_[a-z0-9]{20,40}",
        r"[+*]\+a{1,3}",
        r"pin:\s{0,3}(?P<s>\d{4})",
        "(?:[0-9a-f]{2}:){5}[0-9a-f]{2}",
        "(?:foo|bar){1,50}x",
        "b(?:a{1,50}+){1,50}b",
        r"\w{1,200}+-\w{1,200}+!",
        "key=(?P<s>.{1,8192})",
    ],
)
def test_what_leaves_few_ways_is_let_through(pattern: str) -> None:
    assert slow_in(pattern) == ""


def test_a_bound_that_is_none_is_found_and_no_pattern_is_said_to_be_none() -> None:
    assert slow_in("a{0,900000}") == TOO_HIGH
    with pytest.raises(re.error):
        slow_in("a(")
