"""Java's properties files, which `server.properties` is one of.

A line is a name and a value with `=`, `:` or blanks between them; `#` and `!` begin a comment; a backslash at the end
of a line joins the next one to it, without the blanks it begins with. `\\t`, `\\n`, `\\r`, `\\f`, `\\uXXXX` stand for
a character, a backslash before anything else for that thing itself. Blanks at the end of a value belong to it.

Kafka reads such files as Latin-1.
"""

import re
from collections.abc import Iterator

from muster.errors import ConfigError

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|[\r\n]")
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_BAD_UNICODE = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")
_NAME = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_BETWEEN = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> list[tuple[str, str]]:
    """Names and values in the order they are written; of a name that comes twice the last one counts.

    Raises `ConfigError` for a `\\u` that four hexadecimal digits do not follow, which Java does not take either.
    """
    return [_pair(number, line) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined where they are to be, each with the number of its first one; no comments, no empty ones."""
    begun = ""
    first = 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not begun:
            if not line or line[0] in "#!":
                continue
            first = number
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        begun += line[:-1] if goes_on else line
        if not goes_on:
            yield first, begun
            begun = ""
    if begun:
        yield first, begun


def _pair(number: int, line: str) -> tuple[str, str]:
    if _BAD_UNICODE.search(line):
        raise ConfigError(f"line {number} has a \\u without four hexadecimal digits behind it: {line[:80]}")
    name = _NAME.match(line)
    assert name is not None, "it matches nothing at the least"
    between = _BETWEEN.match(line, name.end())
    assert between is not None, "so does this"
    return _unescaped(name.group()), _unescaped(line[between.end() :])


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else _LETTERS.get(found[2], found[2]), text)
    # Two escapes may make one character between them, as text is UTF-16 in Java.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
