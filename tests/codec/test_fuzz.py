"""Mutated records and batches by the thousand (`make test`) or million (`make long`).

Real keys and values of every kind are cut, flipped, spliced and given wild lengths, then packed into batches whose
checksums are right, so that the damage reaches the decoders; and whole batches are damaged as a disk would do it. Both
codecs must agree on every record, raise nothing but their own errors, and not grow.
"""

import contextlib
import os
import random
import resource
import struct
import sys
import time
from functools import cache

import pytest
from crc32c import crc32c

from muster.codec import decode_assignment, decode_key, decode_subscription, decode_value, encode_batch, iter_batches
from muster.codec.columns.arrow import decode
from muster.codec.columns.chunks import Scratch, decode_chunk, with_slack
from muster.codec.offsets_topic import GroupValue
from muster.codec.records import TRANSACTIONAL, Record
from muster.errors import CodecError
from tests.codec.corpus_records import one_of_each_kind
from tests.codec.rowwise import rows_of
from tests.codec.whole_chunks import render_json, render_text

WILD = [0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x10000]
T = 1_700_000_000_000
LONG_RUN = int(os.environ.get("FUZZ_INPUTS", "1000000"))


@cache
def seeds() -> list[tuple[bytes, bytes]]:
    return [(record.key, record.value or b"") for record in one_of_each_kind().values()]


def mutated(data: bytes, dice: random.Random) -> bytes:
    """The bytes with one to three things wrong with them."""
    changed = bytearray(data)
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        place = dice.randrange(len(changed) + 1)
        match dice.randrange(7):
            case 0:
                del changed[place:]
            case 1 if place < len(changed):
                changed[place] ^= 1 << dice.randrange(8)
            case 2 if place < len(changed):
                changed[place] = dice.randrange(256)
            case 3:
                changed[place : place + 4] = struct.pack(">I", dice.choice(WILD))
            case 4:
                changed[place : place + 2] = struct.pack(">H", dice.choice(WILD) & 0xFFFF)
            case 5:
                changed[place:place] = dice.randbytes(dice.randrange(1, 9))
            case 6:
                other = dice.choice(seeds())[dice.randrange(2)]
                changed[place:] = other[dice.randrange(len(other) + 1) :]
    return bytes(changed)


def mutated_records(count: int, dice: random.Random) -> list[Record]:
    records = []
    for number in range(count):
        key, value = dice.choice(seeds())
        which = dice.randrange(8)
        if which < 3:
            key = mutated(key, dice)
        if which != 0:
            value = mutated(value, dice)
        records.append(Record(number, T + number, None if which == 7 else key, None if which == 6 else value))
    return records


def look_at_each(record: Record) -> None:
    """Every row-wise decoder on this input; only errors of the family may come out."""
    try:
        key = decode_key(record.key or b"")
        if record.value is None:
            return
        _, value = decode_value(key.record_type, record.value)
    except CodecError:
        return
    if isinstance(value, GroupValue):
        for member in value.members:
            for decoder, blob in ((decode_subscription, member.subscription), (decode_assignment, member.assignment)):
                with contextlib.suppress(CodecError):
                    decoder(blob)


def damaged_log(records: list[Record], dice: random.Random) -> bytes:
    """The records in a few batches, some of which a bad disk has had."""
    parts = []
    while records:
        some, records = records[: dice.randrange(1, 20)], records[20:]
        batch = encode_batch(
            some,
            codec=dice.choice([0, 0, 0, 1, 2, 3, 4]),
            attributes=dice.choice([0, 0, TRANSACTIONAL]),
            producer_id=dice.choice([-1, 7]),
        )
        match dice.randrange(6):
            case 0:
                batch = mutated(batch, dice)
            case 1:  # the records' own lengths are wrong, and the checksum does not tell
                batch = with_the_right_checksum(batch[:61] + mutated(batch[61:], dice))
        parts.append(batch)
    return b"".join(parts)


def with_the_right_checksum(batch: bytes) -> bytes:
    length = struct.pack(">i", len(batch) - 12)
    return batch[:8] + length + batch[12:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


def run(inputs: int, seed: int) -> None:
    dice = random.Random(seed)
    done = 0
    while done < inputs:
        records = mutated_records(200, dice)
        for record in records:
            look_at_each(record)
        whole = encode_batch(records)
        assert decode(whole).to_pylist() == rows_of(whole), f"seed {seed}, input {done}"
        broken = damaged_log(records, dice)
        assert decode(broken).to_pylist() == rows_of(broken), f"seed {seed}, damaged log at {done}"
        render_everything(broken)
        done += len(records)


def render_everything(data: bytes) -> None:
    buffer = with_slack(data)
    strict, forgiving = (
        decode_chunk(buffer, 0, len(data), Scratch.for_bytes(len(data)), forgiving=how) for how in (False, True)
    )
    render_json(strict, partition=0, segment_file="0.log")
    render_text(forgiving, segment_name="00000000000000000000.log", is_first=True, file_position=0)
    try:
        for _ in iter_batches(data):
            pass
    except CodecError:
        pass


def test_mutated_records_and_batches() -> None:
    run(inputs=4_000, seed=1)


@pytest.mark.long
def test_a_million_mutated_inputs() -> None:
    run(2_000, seed=2)  # what is loaded lazily is loaded now
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    for seed in range(3, 13):
        run(LONG_RUN // 10, seed)
        print(f"{(seed - 2) * LONG_RUN // 10:,} inputs, {time.monotonic() - started:.0f} s", file=sys.stderr)
    # Damaged lz4 or zstd can be a bomb by accident: its limit and the copies on the way are all that may come on top.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 200_000
