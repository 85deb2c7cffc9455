"""A batch that a client made: checked before it enters a log, and then given its offsets.

The rules and the errors are those of Kafka's `LogValidator`: one batch of magic 2, its checksum right, counts that
agree with each other and with the records that are really in it, no control records, a key where the topic is
compacted, timestamps near enough to the clock. A batch that breaks a rule raises `AppendRefused` with Kafka's name for
the error. The log then fills in what a client cannot know, without touching the records: offset, leader epoch, and
under LogAppendTime the time.
"""

import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from crc32c import crc32c

from muster.codec import compression
from muster.codec.batches import HEADER_SIZE, computed_crc, iter_records, read_header
from muster.codec.error_codes import ErrorCode
from muster.codec.records import LOG_APPEND_TIME, BatchHeader
from muster.errors import CodecError, Malformed, MusterError, Truncated
from muster.log.config import LogConfig


class AppendRefused(MusterError):
    """The log did not take a batch, and not a byte of it was written; `error` is what Kafka would call the reason.

    `records` has the number of every record that is at fault, and why, where that is known.
    """

    def __init__(self, error: ErrorCode, reason: str = "", records: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(f"append refused: {error.name}" + (f": {reason}" if reason else ""))
        self.error = error
        self.reason = reason
        self.records = records


NO_TIMESTAMP = -1
UNLIMITED = 1 << 62
MOST_LOOKED_AT, MOST_TOLD = 1_000, 100
"""Records of a batch with wrong times that are looked at one by one, and that a producer is told of."""


class ClientBatch(NamedTuple):
    """A batch that may be appended; `max_timestamp_ms` is that of its records, whatever its header says."""

    header: BatchHeader
    data: memoryview
    max_timestamp_ms: int


class UnpackBudget:
    """How many bytes the packed batches of one request may become, together: a few bytes can become gigabytes."""

    def __init__(self, request_bytes: int) -> None:
        self.left = UNPACKED_BYTES + UNPACKED_RATIO * request_bytes

    def unpack(self, codec: int, body: memoryview) -> bytes:
        unpacked = compression.decompress(codec, body, max(self.left, 0))
        self.left -= len(unpacked)
        return unpacked


UNPACKED_BYTES, UNPACKED_RATIO = 32 << 20, 20


def checked_client_batch(
    data: bytes | bytearray | memoryview, config: LogConfig, wall_ms: int, budget: UnpackBudget | None = None
) -> ClientBatch:
    """The one batch in these bytes; `AppendRefused` with Kafka's error for whatever is wrong with it."""
    view = memoryview(data)
    header = _checked_header(view, config)
    body: bytes | memoryview = view[HEADER_SIZE : header.size_bytes]
    try:
        if header.codec:
            body = (budget or UnpackBudget(len(view))).unpack(header.codec, view[HEADER_SIZE : header.size_bytes])
    except CodecError as error:
        raise AppendRefused(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    try:
        times = _times_of(header, body, config.compacted)
    except CodecError as error:
        raise AppendRefused(ErrorCode.INVALID_RECORD, str(error)) from error
    if not config.log_append_time:
        _check_times(header, body, times, config, wall_ms)
    return ClientBatch(header, view[: header.size_bytes], times.largest_ms)


def _checked_header(view: memoryview, config: LogConfig) -> BatchHeader:
    if not len(view):
        raise AppendRefused(ErrorCode.INVALID_RECORD, "a produce request without a batch")
    try:
        header = read_header(view)
    except (Truncated, Malformed) as error:
        raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if header.magic != 2:
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"a batch of magic {header.magic}; 2 is what is taken")
    if header.size_bytes != len(view):
        raise AppendRefused(ErrorCode.INVALID_RECORD, "more than one batch for a partition in a produce request")
    if header.size_bytes > config.max_message_bytes:
        raise AppendRefused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {header.size_bytes} bytes; max.message.bytes is {config.max_message_bytes}",
        )
    if computed_crc(view, 0, header) != header.crc:
        raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, "a batch whose checksum is wrong")
    count = header.last_offset - header.base_offset + 1
    if header.base_offset != 0 or count <= 0 or header.record_count != count:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            f"a batch from offset {header.base_offset} to {header.last_offset} that counts "
            f"{header.record_count} records",
        )
    if header.is_control:
        raise AppendRefused(ErrorCode.INVALID_RECORD, "control records are not for clients to write")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence {header.base_sequence}",
        )
    if header.is_transactional and header.producer_id < 0:
        raise AppendRefused(ErrorCode.INVALID_RECORD, "a transactional batch without a producer")
    if header.codec >= len(compression.CODEC_NAMES):
        raise AppendRefused(ErrorCode.UNKNOWN_SERVER_ERROR, f"compression codec {header.codec} does not exist")
    return header


class _Times(NamedTuple):
    smallest_ms: int
    largest_ms: int


COMPILED_FROM_BYTES = 16 << 10
"""Smaller bodies are walked row by row."""
MOST_ROW_BY_ROW = 100_000
"""Records and their headers; a batch of more waits for the compiled walk, since a few bytes can become millions."""


_Walk = Callable[[bytes | memoryview, int, int, bool], tuple[int, int, int]]


class _CompiledWalk:
    """The walk of `codec/columns/walk.py`, once it is there.

    Importing it takes a second, more where it has to be compiled, and a server has no second: a thread does it when the
    first large batch comes, and batches are walked row by row until then, or for good where it cannot be imported. One
    that would take longer than the import waits for it.
    """

    def __init__(self) -> None:
        self._walk: _Walk | None = None
        self._loading: threading.Thread | None = None

    def ready(self) -> "_Walk | None":
        if self._loading is None:
            self._loading = threading.Thread(target=self.load, name="muster-walk", daemon=True)
            self._loading.start()
        return self._walk

    def wait(self) -> "_Walk | None":
        """None where it cannot be imported."""
        if self.ready() is None and self._loading is not None:
            self._loading.join()
        return self._walk

    def load(self) -> None:
        with suppress(ImportError):
            import numpy as np

            from muster.codec.columns.walk import walk

            def over(body: bytes | memoryview, count: int, base_ms: int, need_keys: bool) -> tuple[int, int, int]:
                view = np.frombuffer(memoryview(body).toreadonly(), np.uint8)
                found: tuple[int, int, int] = walk(view, len(view), count, base_ms, need_keys)
                return found

            self._walk = over


COMPILED_WALK = _CompiledWalk()
_FINE = -1


def _times_of(header: BatchHeader, body: bytes | memoryview, need_keys: bool) -> _Times:
    walk = COMPILED_WALK.ready() if len(body) >= COMPILED_FROM_BYTES and header.record_count <= len(body) else None
    if walk is None:
        try:
            return _walk_records(header, body, need_keys, MOST_ROW_BY_ROW)
        except _TooMany:
            walk = COMPILED_WALK.wait()
        if walk is None:
            return _walk_records(header, body, need_keys)
    at_fault, *times = walk(body, header.record_count, header.base_timestamp_ms, need_keys)
    if at_fault == _FINE:
        return _Times(*times)
    if need_keys and walk(body, header.record_count, header.base_timestamp_ms, False)[0] != at_fault:
        raise _without_keys([at_fault])
    raise Malformed(f"record {at_fault} of {header.record_count} is not whole, or does not fit its batch")


class _TooMany(Exception):
    """More records and headers than may be walked row by row."""


def _walk_records(header: BatchHeader, body: bytes | memoryview, need_keys: bool, most: int = UNLIMITED) -> _Times:
    """Step over all records, looking at their lengths, offsets, times and keys; nothing is copied."""
    position, end, smallest_ms, largest_ms = 0, len(body), 1 << 63, NO_TIMESTAMP
    without_key: list[int] = []
    left = most
    for number in range(header.record_count):
        length, position = _varint(body, position, end)
        record_end = position + length
        if length < 0 or record_end > end:
            raise Truncated(f"record {number} of {length} bytes, {end - position} before the end of its batch")
        time_delta, position = _varint(body, position + 1, record_end, LONG_BITS)
        offset_delta, position = _varint(body, position, record_end)
        if offset_delta != number:
            raise Malformed(f"record {number} says it is number {offset_delta}")
        key_length, position = _varint(body, position, record_end)
        if key_length < -1:
            raise Malformed(f"record {number} has a key of length {key_length}")
        if key_length < 0 and need_keys:
            without_key.append(number)
        value_length, position = _varint(body, position + max(key_length, 0), record_end)
        if value_length < -1:
            raise Malformed(f"record {number} has a value of length {value_length}")
        headers, position = _varint(body, position + max(value_length, 0), record_end)
        left -= 1 + max(headers, 0)
        if left < 0 and headers <= record_end - position:
            raise _TooMany
        _check_headers(body, headers, position, record_end, number)
        timestamp_ms = header.base_timestamp_ms + time_delta
        if not -(1 << 63) <= timestamp_ms < 1 << 63:
            raise Malformed(f"record {number} has a timestamp that no clock reaches")
        smallest_ms, largest_ms = min(smallest_ms, timestamp_ms), max(largest_ms, timestamp_ms)
        position = record_end
    if position != end:
        raise Malformed(f"{end - position} bytes behind the last record")
    if without_key:
        raise _without_keys(without_key)
    return _Times(smallest_ms, largest_ms)


def _without_keys(numbers: Sequence[int]) -> AppendRefused:
    told = [(number, "Compacted topic cannot accept message without key.") for number in numbers[:MOST_TOLD]]
    return AppendRefused(ErrorCode.INVALID_RECORD, "records without a key, and the topic is compacted", told)


def _check_headers(body: bytes | memoryview, count: int, position: int, end: int, number: int) -> None:
    for _ in range(count):
        for smallest in (0, -1):  # a header's key may not be missing, its value may
            length, position = _varint(body, position, end)
            if length < smallest:
                raise Malformed(f"record {number} has a header of length {length}")
            position += max(length, 0)
    if position != end or count < 0:
        raise Malformed(f"record {number} does not end where it says")


INT_BITS, LONG_BITS = 32, 64


def _varint(data: bytes | memoryview, position: int, end: int, bits: int = INT_BITS) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= end:
            raise Truncated("a record ends inside one of its numbers")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift >= bits:
            break
    raise Malformed(f"a number of more than {bits} bits in a record")


def _check_times(header: BatchHeader, body: bytes | memoryview, times: _Times, config: LogConfig, wall_ms: int) -> None:
    earliest_ms = wall_ms - config.timestamp_before_max_ms
    latest_ms = wall_ms + config.timestamp_after_max_ms

    def is_allowed(time_ms: int) -> bool:
        return time_ms == NO_TIMESTAMP or earliest_ms <= time_ms <= latest_ms

    if is_allowed(times.smallest_ms) and is_allowed(times.largest_ms):
        return
    told = f"timestamps from {earliest_ms} to {latest_ms} are allowed"
    at_fault = [
        (number, f"record {number} has timestamp {record.timestamp_ms}; {told}")
        for number, record in enumerate(islice(iter_records(header, body), MOST_LOOKED_AT))
        if not is_allowed(record.timestamp_ms)
    ][:MOST_TOLD]
    reason = f"timestamps from {times.smallest_ms} to {times.largest_ms}; {earliest_ms} to {latest_ms} is allowed"
    raise AppendRefused(ErrorCode.INVALID_TIMESTAMP, reason, at_fault)


_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")


def assigned(batch: ClientBatch, base_offset: int, leader_epoch: int, append_time_ms: int | None) -> bytearray:
    """The batch as the log keeps it. Offset and leader epoch are outside the checksum; a changed time is inside."""
    data = bytearray(batch.data)
    _OFFSET.pack_into(data, 0, base_offset)
    _LEADER_EPOCH.pack_into(data, 12, leader_epoch)
    max_timestamp_ms = batch.max_timestamp_ms if append_time_ms is None else append_time_ms
    attributes = batch.header.attributes & ~LOG_APPEND_TIME | (0 if append_time_ms is None else LOG_APPEND_TIME)
    if max_timestamp_ms != batch.header.max_timestamp_ms or attributes != batch.header.attributes:
        _ATTRIBUTES.pack_into(data, 21, attributes)
        _OFFSET.pack_into(data, 35, max_timestamp_ms)
        with memoryview(data) as view:
            crc = crc32c(view[21:])
        _CRC.pack_into(data, 17, crc)
    return data
