"""Names with wildcards: one meaning in Python, in duckdb and on the bytes of records."""

import duckdb
import pytest

from muster.codec.columns.names import ANY_ONE, ANY_RUN, encode_pattern
from muster.patterns import is_wild, like, literal, regex

NAMES = [
    "orders",
    "orders-app",
    "orders-",
    "order?",
    "a*b",
    "ab",
    "a\\b",
    "a[b]",
    "a]b",
    "aab",
    "消费",
    "",
    "a\nb",
    "*",
]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("orders-*", ["orders-app", "orders-"]),
        ("order?", ["orders", "order?"]),
        (r"order\?", ["order?"]),
        ("a*b", ["a*b", "ab", "a\\b", "a]b", "aab", "a\nb"]),
        (r"a\*b", ["a*b"]),
        (r"a\\b", ["a\\b"]),
        (r"?\*b", ["a*b"]),
        (r"?\\*", ["a\\b"]),
        (r"a\b", ["a\\b"]),
        ("a[b]", ["a[b]"]),
        ("?[b]*", ["a[b]"]),
        ("??", ["ab", "消费"]),
        ("", [""]),
        (r"\*", ["*"]),
    ],
)
def test_a_pattern_means_the_same_everywhere(pattern: str, expected: list[str]) -> None:
    matched = regex([pattern])
    assert [name for name in NAMES if matched.fullmatch(name)] == expected
    if is_wild(pattern):
        sql = "SELECT x FROM (SELECT unnest($1) AS x) WHERE x LIKE $2 ESCAPE '\\'"
        found = duckdb.connect().execute(sql, [NAMES, like(pattern)]).fetchall()
        assert [name for (name,) in found] == expected
    else:
        assert [literal(pattern)] == expected
    codes = encode_pattern(pattern)
    assert is_wild(pattern) == (ANY_RUN in codes or ANY_ONE in codes)


def test_one_of_several_patterns_is_enough() -> None:
    matched = regex(["a?", "orders"])
    assert [name for name in NAMES if matched.fullmatch(name)] == ["orders", "ab"]
