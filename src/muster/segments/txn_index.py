"""Aborted transactions of a segment: what a consumer under read_committed needs to step over their records.

`.txnindex` has one entry of 34 bytes for each ABORT marker in the segment whose transaction wrote something: int16
version 0, then int64 producer id, first offset of the transaction, offset of the marker, and the last stable offset
when the marker was written. The file exists only where there is such a transaction.
"""

import struct
from typing import NamedTuple

ENTRY = struct.Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    """Records of `producer_id` from `first_offset` to the marker at `last_offset` never happened."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(transaction: AbortedTransaction) -> bytes:
    return ENTRY.pack(VERSION, *transaction)


def decode_aborted(data: bytes, base_offset: int) -> list[AbortedTransaction] | None:
    """All entries of a file; None where they cannot be right: cut short, out of order, or of another version."""
    if len(data) % ENTRY.size:
        return None
    found: list[AbortedTransaction] = []
    last_offset = base_offset - 1
    for version, *fields in ENTRY.iter_unpack(data):
        transaction = AbortedTransaction(*fields)
        if version != VERSION or transaction.last_offset <= last_offset:
            return None
        if not 0 <= transaction.first_offset <= transaction.last_offset:
            return None
        last_offset = transaction.last_offset
        found.append(transaction)
    return found


def overlapping(
    transactions: list[AbortedTransaction], from_offset: int, to_offset: int
) -> tuple[list[AbortedTransaction], bool]:
    """Those with records in a range (its end excluded), and whether later segments can have no more of them."""
    found: list[AbortedTransaction] = []
    for transaction in transactions:
        if transaction.last_offset >= from_offset and transaction.first_offset < to_offset:
            found.append(transaction)
        if transaction.last_stable_offset >= to_offset:
            return found, True
    return found, False
