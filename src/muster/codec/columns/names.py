"""Names matched on their bytes: `*` for any run of characters, `?` for one, a backslash to take either literally."""

import re

import numpy as np
from numba import types
from numpy.typing import NDArray

from muster.codec.columns.commits import C_GROUP, C_GROUP_LENGTH, C_TYPE, string_end
from muster.codec.columns.kernels import BYTES, FLAGS, LONGS, TABLE, inlined, kernel, load_be16
from muster.codec.columns.scan import R_KEY, R_KEY_LENGTH

Longs = NDArray[np.int64]

# A pattern is a row of codes: a byte, or one of these.
ANY_RUN = 256
ANY_ONE = 257
_ANY = {"*": ANY_RUN, "?": ANY_ONE}
_PART = re.compile(r"\\[*?\\]|.", re.DOTALL)

BY_GROUP = 0
BY_TOPIC = 1


def encode_pattern(pattern: str) -> list[int]:
    """The codes of one pattern."""
    codes: list[int] = []
    for part in _PART.findall(pattern):
        if part in _ANY:
            codes.append(_ANY[part])
        else:
            codes += part[-1].encode("utf-8", "surrogateescape")
    return codes


def encode_patterns(patterns: tuple[str, ...]) -> tuple[Longs, Longs]:
    """The codes of several patterns behind one another, and where each ends."""
    encoded = [encode_pattern(pattern) for pattern in patterns]
    codes = np.array([code for pattern in encoded for code in pattern], np.int64)
    return codes, np.cumsum([len(pattern) for pattern in encoded], dtype=np.int64)


@inlined
def _matches(buffer, position, end, codes, code, last):  # type: ignore[no-untyped-def]
    """Whether buffer[position:end] is what codes[code:last] describe.

    Only the latest run need ever be made longer: whatever an earlier one could still take, the latest can take too.
    """
    run, retry = -1, position
    while position < end:
        wanted = codes[code] if code < last else -1
        if wanted == buffer[position]:
            position += 1
            code += 1
        elif wanted == ANY_ONE:
            position += 1
            while position < end and (buffer[position] & 0xC0) == 0x80:  # the rest of one UTF-8 character
                position += 1
            code += 1
        elif wanted == ANY_RUN:
            code += 1
            run, retry = code, position
        elif run >= 0:
            retry += 1
            code, position = run, retry
        else:
            return False
    while code < last and codes[code] == ANY_RUN:
        code += 1
    return code == last


@inlined
def _matches_any(buffer, position, end, codes, ends):  # type: ignore[no-untyped-def]
    first = 0
    for pattern in range(len(ends)):
        if _matches(buffer, position, end, codes, first, ends[pattern]):
            return True
        first = ends[pattern]
    return False


@kernel(types.void(BYTES, TABLE, TABLE, types.int64, LONGS, LONGS, FLAGS))
def match_names(buffer, records, classes, which, codes, ends, keep):  # type: ignore[no-untyped-def]
    """Clear the flag of every record whose group (or topic) matches no pattern, or that has none."""
    for number in range(len(records)):
        if keep[number] == 0:
            continue
        keep[number] = 0
        start, length = classes[number, C_GROUP], classes[number, C_GROUP_LENGTH]
        if length < 0:
            continue
        if which == BY_TOPIC:
            record_type = classes[number, C_TYPE]
            if record_type != 0 and record_type != 1:
                continue
            topic_end = string_end(buffer, start + length, records[number, R_KEY] + records[number, R_KEY_LENGTH])
            if topic_end < 0:
                continue
            start += length + 2
            length = load_be16(buffer, start - 2)
        keep[number] = _matches_any(buffer, start, start + length, codes, ends)
