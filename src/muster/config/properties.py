"""Java's properties files, which `server.properties` is one of.

A line is a name and a value with `=`, `:` or blanks between them; `#` and `!` begin a comment; a backslash at the end
of a line joins the next one to it, without the blanks it begins with. `\\t`, `\\n`, `\\r`, `\\f`, `\\uXXXX` stand for
a character, a backslash before anything else for that thing itself. Blanks at the end of a value belong to it.

Kafka reads such files as Latin-1, librdkafka's users write them as UTF-8. Text that is valid UTF-8 and not plain ASCII
is hardly ever meant as Latin-1, so a file is taken as UTF-8 where it can be, and as Latin-1 where it cannot.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from muster.errors import BadInput, ConfigError

LARGEST_FILE_BYTES = 1 << 20
_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|[\r\n]")
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_BAD_UNICODE = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")
_NAME = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_BETWEEN = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path, hint: str) -> list[tuple[str, str]]:
    """The names and values of a file. `BadInput` says why there are none; `hint` ends the sentence: what to name."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as problem:
        raise BadInput(f"{path} cannot be read: {problem.strerror}. {hint}") from None
    if len(data) > LARGEST_FILE_BYTES:
        raise BadInput(f"{path} is larger than 1 MB, and hardly a properties file. {hint}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    try:
        return parse_properties(text)
    except ConfigError as problem:
        raise BadInput(f"{path}: {problem}.") from None


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
