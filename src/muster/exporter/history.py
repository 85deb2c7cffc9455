"""Long stretches of __consumer_offsets read by columns: of the commits of one key only the last few become objects.

Most of a long log is commits that were replaced long ago. What is known of a partition is its last commits, as many as
a verdict looks at; so a commit that is followed by as many ordinary ones of its key, in the same stretch, leaves no
trace, and is left out. Whatever else there is (transactions, deletions, groups) is handed on.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.codec.batches import read_header
from muster.codec.columns.arrow import binaries
from muster.codec.columns.chunks import Chunk, Scratch, decode_chunk, with_slack
from muster.codec.columns.commits import C_KIND, K_COMMIT
from muster.codec.columns.scan import (
    B_ATTRIBUTES,
    B_POSITION,
    B_SIZE,
    B_STATE,
    GOOD,
    R_BATCH,
    R_KEY,
    R_KEY_LENGTH,
    R_OFFSET,
    R_TIMESTAMP,
    R_VALUE,
    R_VALUE_LENGTH,
    TRANSACTIONAL_BIT,
)
from muster.codec.records import BatchHeader, Record
from muster.verdicts import DEFAULT_RULES

NEEDED = [R_OFFSET, R_TIMESTAMP, R_KEY, R_KEY_LENGTH, R_VALUE, R_VALUE_LENGTH, R_BATCH]


class Stretch(NamedTuple):
    """Some batches in a row, those that nothing is left of included; `header` is of the last."""

    header: BatchHeader
    records: list[Record] | None
    """Of the last. None: they cannot be read."""
    read: int
    """How many records all of them had."""
    end: int
    """Where in the data the next batch begins."""


def stretches(data: memoryview) -> Iterator[Stretch]:
    """All batches that are whole."""
    buffer, scratch, position = with_slack(data), Scratch(), 0
    while True:
        chunk = decode_chunk(buffer, position, len(data), scratch)
        if len(chunk.batches) == 0:
            return
        yield from _stretches(data, chunk)
        position = chunk.next_position


def _stretches(data: memoryview, chunk: Chunk) -> Iterator[Stretch]:
    left: dict[int, list[Record]] = {}
    for number, record in _records(chunk, np.flatnonzero(~_is_replaced(chunk))):
        left.setdefault(number, []).append(record)
    is_bad = chunk.batches[:, B_STATE] != GOOD
    shown = sorted({*left, *np.flatnonzero(is_bad).tolist(), len(chunk.batches) - 1})
    until = np.searchsorted(chunk.records[:, R_BATCH], shown, "right").tolist()
    for number, behind, before in zip(shown, until, [0, *until], strict=False):
        position, size = chunk.batches[number, [B_POSITION, B_SIZE]].tolist()
        records = None if is_bad[number] else left.get(number, [])
        yield Stretch(read_header(data, position), records, behind - before, position + size)


def _is_replaced(chunk: Chunk) -> NDArray[np.bool_]:
    """Which records are ordinary commits with enough others of the same key behind them."""
    batches = chunk.records[:, R_BATCH]
    is_ordinary = (chunk.batches[:, B_ATTRIBUTES] & TRANSACTIONAL_BIT) == 0
    rows = np.flatnonzero((chunk.classes[:, C_KIND] == K_COMMIT) & is_ordinary[batches])
    starts, lengths = (np.ascontiguousarray(chunk.records[rows, column]) for column in (R_KEY, R_KEY_LENGTH))
    keys = binaries(chunk.buffer, starts, lengths).dictionary_encode().indices.to_numpy()
    order = np.argsort(keys, kind="stable")
    ends = np.searchsorted(keys[order], keys[order], "right")
    replaced = np.zeros(len(chunk.records), np.bool_)
    replaced[rows[order]] = ends - np.arange(len(order)) > DEFAULT_RULES.intervals
    return replaced


def _records(chunk: Chunk, rows: NDArray[np.int64]) -> Iterator[tuple[int, Record]]:
    """Number of the batch, and the record as the row-wise codec has it, without its headers, which are not used."""
    raw = chunk.buffer.data
    for offset, at_ms, key, key_length, value, value_length, batch in chunk.records[rows][:, NEEDED].tolist():
        yield (
            batch,
            Record(
                offset,
                at_ms,
                None if key_length < 0 else bytes(raw[key : key + key_length]),
                None if value_length < 0 else bytes(raw[value : value + value_length]),
            ),
        )
