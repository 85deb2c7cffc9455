"""Patterns of ListTransactions: what Python's `re` says, in a time that a client cannot stretch."""

import re

import pytest

from muster.server.transactions.patterns import BadPattern, matcher

TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "aab",
    "abab",
    "abc",
    "aac",
    "x1",
    "x12",
    "x1234",
    "x12345",
    "1-a",
    "12-",
    "y",
    "cb",
    "ABc",
]
PATTERNS = [
    "a.*b", "(a|b)+c", "^x[0-9]{2,4}$", "[^a]b?", r"\d+-\w*", "a{0,3}", "(ab)*", "a|", "x.*|y", "(?i)ab.", "(?i:a)b.",
    "(?P<n>a+)b", "x(?:1|2)*", r"\S\D", "a??b", "[^a-x]", "(?i)[^b]",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_it_matches_as_re_does(pattern: str) -> None:
    matches = matcher(pattern)
    assert [text for text in TEXTS if matches(text)] == [text for text in TEXTS if re.fullmatch(pattern, text)]


def test_what_only_re2_knows() -> None:
    assert matcher(r"a\Q.*\Eb")("a.*b")
    assert not matcher(r"a\Q.*\Eb")("axxb")
    assert matcher("(?<n>.*)")("anything")


@pytest.mark.parametrize("pattern", ["(", "a**", r"(a)\1", "a(?=b)", "(?<=a)b", "x{1000}{1000}", "(" * 5000])
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        matcher(pattern)


def test_nested_repetitions_take_no_longer_than_others() -> None:
    """With `re` this test would not end."""
    assert not matcher("(a*)*(a*)*(a|aa)*b")("a" * 3000)
