"""Names with wildcards, the same everywhere: `*` is any run of characters, `?` one, a backslash takes either literally.

Brackets are letters like any other. `codec/columns/names.py` says the same of bytes.
"""

import re
from collections.abc import Iterable, Iterator

_PART = re.compile(r"\\[*?\\]|.", re.DOTALL)
_ANY = {"*": ".*", "?": "."}
_LIKE = {"*": "%", "?": "_"}


def is_wild(pattern: str) -> bool:
    """Whether more than one name can match."""
    return any(is_any for _, is_any in _parts(pattern))


def literal(pattern: str) -> str:
    """The name that a pattern without wildcards stands for."""
    return "".join(character for character, _ in _parts(pattern))


def exactly(name: str) -> str:
    """The pattern that means this name alone."""
    return "".join(f"\\{character}" if character in "*?\\" else character for character in name)


def regex(patterns: Iterable[str]) -> re.Pattern[str]:
    """What `fullmatch`es a name that one of the patterns describes."""
    return re.compile("|".join(map(_regex, patterns)), re.DOTALL)


def like(pattern: str) -> str:
    """A pattern for SQL's LIKE with ESCAPE '\\'. (GLOB of duckdb takes `?` for one byte.)"""
    return "".join(
        _LIKE[character] if is_any else f"\\{character}" if character in "%_\\" else character
        for character, is_any in _parts(pattern)
    )


def _regex(pattern: str) -> str:
    return "".join(_ANY[character] if is_any else re.escape(character) for character, is_any in _parts(pattern))


def _parts(pattern: str) -> Iterator[tuple[str, bool]]:
    """Each character, and whether it is a wildcard."""
    for found in _PART.finditer(pattern):
        yield found[0][-1], found[0] in _ANY
