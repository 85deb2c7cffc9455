"""The records of a batch that a client made, stepped over in compiled code: are they all right, and of which times?

Row by row in Python a megabyte of small records takes tens of milliseconds, in which a server answers nobody; and a
packed batch of a megabyte may hold sixty. `walk` answers for all records at once, or says at which record the rules of
`muster.log.validation` are broken. That module then looks for itself, and finds the words.
"""

from numba import types

from muster.codec.columns.kernels import inlined, kernel

FINE = -1
SMALLEST, LARGEST = -0x8000000000000000, 0x7FFFFFFFFFFFFFFF
READ_ONLY_BYTES = types.Array(types.uint8, 1, "C", readonly=True)


LONG_BITS, INT_BITS = 63, 28
"""The largest shift of a byte in a number of 64 bits, and of 32."""


@inlined
def _varint(data, position, end, last_shift):  # type: ignore[no-untyped-def]
    """Value and the next position, which is -1 where the number does not end in time, or is too large."""
    value, shift = 0, 0
    while position < end and shift <= last_shift:
        byte = types.int64(data[position])
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value = (value >> 1) & LARGEST ^ -(value & 1)
            is_too_large = (shift == LONG_BITS and byte > 1) or (
                last_shift == INT_BITS and (value > 0x7FFFFFFF or value < -0x80000000)
            )
            return value, (-1 if is_too_large else position)
        shift += 7
    return 0, -1


@kernel(
    types.Tuple((types.int64, types.int64, types.int64))(
        READ_ONLY_BYTES, types.int64, types.int64, types.int64, types.boolean
    )
)
def walk(data, end, count, base_ms, need_keys):  # type: ignore[no-untyped-def]
    """The number of the first record that breaks a rule (`FINE`: none does), and the smallest and largest timestamp.

    `count` itself is told where bytes follow the last record.
    """
    position, smallest, largest = 0, LARGEST, -1
    for number in range(count):
        length, position = _varint(data, position, end, INT_BITS)
        if position < 0 or length < 0 or length > end - position:
            return number, smallest, largest
        record_end = position + length
        time_delta, position = _varint(data, position + 1, record_end, LONG_BITS)
        if position < 0:
            return number, smallest, largest
        offset_delta, position = _varint(data, position, record_end, INT_BITS)
        if position < 0 or offset_delta != number:
            return number, smallest, largest
        key_length, position = _varint(data, position, record_end, INT_BITS)
        if position < 0 or key_length < -1 or (key_length < 0 and need_keys) or key_length > record_end - position:
            return number, smallest, largest
        value_length, position = _varint(data, position + max(key_length, 0), record_end, INT_BITS)
        if position < 0 or value_length < -1 or value_length > record_end - position:
            return number, smallest, largest
        headers, position = _varint(data, position + max(value_length, 0), record_end, INT_BITS)
        if position < 0 or headers < 0 or headers > record_end - position:
            return number, smallest, largest
        for _ in range(headers):
            for least in range(2):
                size, position = _varint(data, position, record_end, INT_BITS)
                if position < 0 or size < -least or size > record_end - position:
                    return number, smallest, largest
                position += max(size, 0)
        if position != record_end:
            return number, smallest, largest
        # Looked at before they are added: compiled code takes for granted that a sum does not go round.
        if base_ms > LARGEST - time_delta if time_delta > 0 else base_ms < SMALLEST - time_delta:
            return number, smallest, largest
        timestamp = base_ms + time_delta
        smallest, largest = min(smallest, timestamp), max(largest, timestamp)
    return (FINE if position == end else count), smallest, largest


@kernel(
    types.Tuple((types.int64, types.int64))(
        READ_ONLY_BYTES, types.int64, types.int64, types.int64, types.int64, types.int64
    )
)
def first_since(data, end, count, base_ms, since_ms, from_delta):  # type: ignore[no-untyped-def]
    """Offset delta and timestamp of the first record with at least that of both; a delta of -1 where there is none.

    -2 where a record is not whole. What is behind the offset of a record is stepped over.
    """
    position = 0
    for _ in range(count):
        length, position = _varint(data, position, end, INT_BITS)
        if position < 0 or length < 0 or length > end - position:
            return -2, 0
        record_end = position + length
        time_delta, position = _varint(data, position + 1, record_end, LONG_BITS)
        if position < 0 or (base_ms > LARGEST - time_delta if time_delta > 0 else base_ms < SMALLEST - time_delta):
            return -2, 0
        offset_delta, position = _varint(data, position, record_end, INT_BITS)
        if position < 0:
            return -2, 0
        if base_ms + time_delta >= since_ms and offset_delta >= from_delta:
            return offset_delta, base_ms + time_delta
        position = record_end
    return -1, 0
