"""Strings in kernels: UTF-8 that may be broken, and columns of strings gathered from a buffer.

Kafka decodes strings the way Java does: bytes that are not UTF-8 become U+FFFD, one for each ill-formed piece. Arrow
wants valid UTF-8, so ours become the same. Strings are first copied as they are; only when a finished column turns out
not to be plain ASCII is it looked at character by character.
"""

import numpy as np
from numba import types

from muster.codec.columns.words import BYTES, INTS, LONGS, copy_bytes, inlined, kernel


@inlined
def utf8_piece(buffer, position, end):  # type: ignore[no-untyped-def]
    """Length of the character at a position, or minus the length of the ill-formed piece there."""
    first = np.int64(buffer[position])
    if first < 0x80:
        return 1
    if first < 0xC2 or first > 0xF4:
        return -1
    if first == 0xED and position + 1 < end and 0xA0 <= buffer[position + 1] <= 0xBF:
        # Java replaces an encoded surrogate as one thing.
        return np.int64(-3 if position + 2 < end and 0x80 <= buffer[position + 2] <= 0xBF else -2)
    more = 1 if first < 0xE0 else (2 if first < 0xF0 else 3)
    low, high = np.int64(0x80), np.int64(0xBF)
    if first == 0xE0:
        low = np.int64(0xA0)
    elif first == 0xF0:
        low = np.int64(0x90)
    elif first == 0xF4:
        high = np.int64(0x8F)
    for step in range(1, more + 1):
        if position + step >= end:
            return -np.int64(step)
        byte = np.int64(buffer[position + step])
        if byte < low or byte > high:
            return -np.int64(step)
        low, high = np.int64(0x80), np.int64(0xBF)
    return more + 1


@kernel(types.int64(BYTES, LONGS, LONGS))
def measure_repaired(buffer, positions, lengths):  # type: ignore[no-untyped-def]
    """Bytes that these strings take once every ill-formed piece is a U+FFFD; a length of -1 is a null."""
    total = 0
    for number in range(len(positions)):
        position = positions[number]
        end = position + lengths[number]
        while position < end:
            piece = utf8_piece(buffer, position, end)
            total += piece if piece > 0 else 3
            position += abs(piece)
    return total


@kernel(types.int64(BYTES, LONGS, LONGS, INTS, BYTES))
def gather_repaired(buffer, positions, lengths, offsets, data):  # type: ignore[no-untyped-def]
    """Fill an Arrow string column (offsets, data), with U+FFFD for what is not UTF-8."""
    used = 0
    for number in range(len(positions)):
        offsets[number] = used
        position = positions[number]
        end = position + lengths[number]
        while position < end:
            piece = utf8_piece(buffer, position, end)
            if piece > 0:
                for step in range(piece):
                    data[used + step] = buffer[position + step]
                used += piece
            else:
                data[used] = 0xEF
                data[used + 1] = 0xBF
                data[used + 2] = 0xBD
                used += 3
            position += abs(piece)
    offsets[len(positions)] = used
    return used


@kernel(types.int64(BYTES, LONGS, LONGS, INTS, BYTES))
def gather_bytes(buffer, positions, lengths, offsets, data):  # type: ignore[no-untyped-def]
    """Fill an Arrow binary column (or a string column of plain ASCII) from places in the buffer."""
    used = 0
    for number in range(len(positions)):
        offsets[number] = used
        if lengths[number] > 0:
            copy_bytes(buffer, positions[number], lengths[number], data, used)
            used += lengths[number]
    offsets[len(positions)] = used
    return used
