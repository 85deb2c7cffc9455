"""Kernels for transactions: find the markers in a stretch of log, and give each batch its outcome."""

from numba import types

from muster.codec.columns.scan import (
    B_ATTRIBUTES,
    B_BASE_OFFSET,
    B_BODY,
    B_BODY_END,
    B_MAGIC,
    B_OUTCOME,
    B_POSITION,
    B_PRODUCER_ID,
    B_SIZE,
    B_STATE,
    CONTROL_BIT,
    GOOD,
    TRANSACTIONAL_BIT,
    varint,
    varlong,
)
from muster.codec.columns.words import BYTES, LONGS, TABLE, crc32c, inlined, kernel, load_be16, load_beu32
from muster.codec.transactions import ABORTED, COMMITTED, NO_TRANSACTION, OPEN

MARKER_COLUMNS = 3


@inlined
def _marker_type(buffer, body, end):  # type: ignore[no-untyped-def]
    """0 ABORT, 1 COMMIT, -1 neither (another control record, or one that cannot be read)."""
    length, position = varint(buffer, body, end)
    if position < 0 or length > end - position:
        return -1
    _, position = varlong(buffer, position + 1, end)
    if position < 0:
        return -1
    _, position = varint(buffer, position, end)
    if position < 0:
        return -1
    length, position = varint(buffer, position, end)
    if position < 0 or length < 4 or length > end - position or load_be16(buffer, position) < 0:
        return -1
    kind = load_be16(buffer, position + 2)
    return kind if kind <= 1 else -1


@kernel(types.int64(BYTES, TABLE, types.int64, TABLE))
def find_markers(buffer, batches, count, markers):  # type: ignore[no-untyped-def]
    """Collect (producer id, offset, commit) of the markers among these batches; the table has a row for each batch.

    The scan before it need not have checked checksums: here only the few control batches are checked.
    """
    found = 0
    for number in range(count):
        if batches[number, B_MAGIC] != 2 or (batches[number, B_ATTRIBUTES] & CONTROL_BIT) == 0:
            continue
        position, end = batches[number, B_POSITION], batches[number, B_BODY_END]
        if crc32c(buffer, position + 21, position + batches[number, B_SIZE]) != load_beu32(buffer, position + 17):
            continue
        kind = _marker_type(buffer, batches[number, B_BODY], end)
        if kind >= 0:
            markers[found, 0] = batches[number, B_PRODUCER_ID]
            markers[found, 1] = batches[number, B_BASE_OFFSET]
            markers[found, 2] = kind
            found += 1
    return found


@inlined
def _first_after(producer_ids, offsets, producer_id, offset):  # type: ignore[no-untyped-def]
    """The first row that is (producer_id, more than offset) or later, by binary search over both."""
    low, high = 0, len(offsets)
    while low < high:
        middle = (low + high) >> 1
        smaller = producer_ids[middle] < producer_id or (
            producer_ids[middle] == producer_id and offsets[middle] <= offset
        )
        if smaller:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(types.void(TABLE, types.int64, types.int64, LONGS, LONGS, LONGS))
def resolve_outcomes(batches, first, last, producer_ids, offsets, commits):  # type: ignore[no-untyped-def]
    """Write the outcome of each transactional batch; markers themselves carry their own transaction's."""
    for number in range(first, last):
        batches[number, B_OUTCOME] = NO_TRANSACTION
        attributes = batches[number, B_ATTRIBUTES]
        if batches[number, B_MAGIC] != 2 or (attributes & TRANSACTIONAL_BIT) == 0 or batches[number, B_STATE] != GOOD:
            continue
        producer_id = batches[number, B_PRODUCER_ID]
        # A marker is its own answer: look from just before it.
        offset = batches[number, B_BASE_OFFSET] - (1 if (attributes & CONTROL_BIT) != 0 else 0)
        place = _first_after(producer_ids, offsets, producer_id, offset)
        if place == len(offsets) or producer_ids[place] != producer_id:
            batches[number, B_OUTCOME] = OPEN
        else:
            batches[number, B_OUTCOME] = COMMITTED if commits[place] == 1 else ABORTED
