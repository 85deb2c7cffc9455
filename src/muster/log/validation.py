"""A batch that a client made: checked before it enters a log, and then given its offsets.

The rules and the errors are those of Kafka's `LogValidator`: one batch of magic 2, its checksum right, counts that
agree with each other and with the records that are really in it, no control records, a key where the topic is
compacted, timestamps near enough to the clock. A batch that breaks a rule raises `AppendRefused` with Kafka's name for
the error. The log then fills in what a client cannot know, without touching the records: offset, leader epoch, and
under LogAppendTime the time. Only where the topic asks for another compression than the batch has it is packed again
(`packing.py`).
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
from muster.errors import CodecError, Malformed, MusterError, TooLarge, Truncated
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


class TooCostly(AppendRefused):
    """A batch that Kafka would take: small as it came, and too much work here. Java's producer splits it."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, reason)


NO_TIMESTAMP = -1
UNLIMITED = 1 << 62
MOST_LOOKED_AT, MOST_TOLD = 1_000, 100
"""Records of a batch with wrong times that are looked at one by one, and that a producer is told of."""


class ClientBatch(NamedTuple):
    """A batch that may be appended; `max_timestamp_ms` is that of its records, whatever its header says."""

    header: BatchHeader
    data: memoryview
    max_timestamp_ms: int
    body: bytes | memoryview
    """Its records, unpacked."""


class UnpackBudget:
    """What the batches of one request may become, together: a few bytes can become gigabytes, and millions of records.

    Every batch brings some more of both, by its size. None becomes more than what readers of a log unpack.
    """

    def __init__(self) -> None:
        self.bytes_left = UNPACKED_BYTES
        self.rows_left = MOST_ROW_BY_ROW
        """Records, and headers, that may be walked row by row."""

    def unpack(self, codec: int, body: memoryview) -> bytes:
        left = self.bytes_left + UNPACKED_RATIO * len(body)
        unpacked = compression.decompress(codec, body, min(left, compression.DEFAULT_LIMIT))
        self.bytes_left = left - len(unpacked)
        return unpacked


UNPACKED_BYTES, UNPACKED_RATIO = 32 << 20, 20
BYTES_FOR_A_ROW = 8
"""As a batch comes; records that are not packed have hardly less."""


def checked_client_batch(
    data: bytes | bytearray | memoryview, config: LogConfig, wall_ms: int, budget: UnpackBudget | None = None
) -> ClientBatch:
    """The one batch in these bytes; `AppendRefused` with Kafka's error for whatever is wrong with it."""
    view = memoryview(data)
    header = _checked_header(view, config)
    budget = budget or UnpackBudget()
    budget.rows_left += len(view) // BYTES_FOR_A_ROW
    body: bytes | memoryview = view[HEADER_SIZE : header.size_bytes]
    try:
        if header.codec:
            body = budget.unpack(header.codec, view[HEADER_SIZE : header.size_bytes])
    except TooLarge as error:
        raise TooCostly(f"a batch of {len(view)} bytes: {error}") from error
    except CodecError as error:
        raise AppendRefused(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    try:
        times = _times_of(header, body, config.compacted, budget)
    except CodecError as error:
        raise AppendRefused(ErrorCode.INVALID_RECORD, str(error)) from error
    if not config.log_append_time:
        _check_times(header, body, times, config, wall_ms)
    return ClientBatch(header, view[: header.size_bytes], times.largest_ms, body)


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
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD, f"producer {header.producer_id} with sequence {header.base_sequence}"
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
"""Smaller bodies are walked row by row while the compiled walk is not there, and it is not loaded for one of them."""
WORTH_LOADING = 100_000
"""Records of small bodies that were walked row by row; the next ones are worth it."""
MOST_ROW_BY_ROW = 100_000
"""Records and their headers of a request, however small it is; where there are more, the compiled walk is waited for.

A few bytes can become millions. Where there is no compiled walk (`pip install muster` without numba) such a batch is
refused: a third of a second is what this many take. Batches of a megabyte have some 10,000 records."""


WORTH_SEARCHING = 1_000
"""Records of a batch that is searched by time."""

Found = tuple[int, int]
_Walk = Callable[[bytes | memoryview, int, int, bool], tuple[int, int, int]]
_FirstSince = Callable[[bytes | memoryview, int, int, int, int], Found]


class _CompiledWalk:
    """The walk of `codec/columns/walk.py`, once it is there.

    Importing it takes a second, more where it has to be compiled, and a server has no second: a thread does it when the
    first large batch comes, or very many small ones have, and batches are walked row by row until then, or for good
    where it cannot be imported. One that would take longer than the import waits for it.
    """

    def __init__(self) -> None:
        self._walk: _Walk | None = None
        self._first_since: _FirstSince | None = None
        self._loading: threading.Thread | None = None
        self._row_by_row = 0

    def for_batch(self, size_bytes: int, records: int) -> "_Walk | None":
        """None where records are to be walked row by row."""
        if records > size_bytes:
            return None  # it lies: the rows will tell
        if size_bytes < COMPILED_FROM_BYTES:
            if self._walk is not None:
                return self._walk if records > 1 else None
            self._row_by_row += records
            if self._row_by_row < WORTH_LOADING:
                return None
        return self.ready()

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

    def first_since(self, records: int) -> "_FirstSince | None":
        """To search a batch of a log by time; None where it is small, or that has to be done row by row."""
        if records < WORTH_SEARCHING:
            return None
        if records > MOST_ROW_BY_ROW:
            self.wait()
        return self._first_since

    def load(self) -> None:
        with suppress(ImportError):
            import numpy as np

            from muster.codec.columns.walk import first_since, walk

            def searched(body: bytes | memoryview, count: int, base_ms: int, since_ms: int, from_delta: int) -> Found:
                view = np.frombuffer(memoryview(body).toreadonly(), np.uint8)
                found: Found = first_since(view, len(view), count, base_ms, since_ms, from_delta)
                return found

            def over(body: bytes | memoryview, count: int, base_ms: int, need_keys: bool) -> tuple[int, int, int]:
                view = np.frombuffer(memoryview(body).toreadonly(), np.uint8)
                found: tuple[int, int, int] = walk(view, len(view), count, base_ms, need_keys)
                return found

            self._first_since = searched
            self._walk = over


COMPILED_WALK = _CompiledWalk()
_FINE = -1


def _times_of(header: BatchHeader, body: bytes | memoryview, need_keys: bool, budget: UnpackBudget) -> _Times:
    size_bytes = header.size_bytes
    walk = COMPILED_WALK.for_batch(len(body), header.record_count)
    if walk is None:
        try:
            return _walk_records(header, body, need_keys, budget)
        except _TooMany:
            walk = COMPILED_WALK.wait()
        if walk is None:
            raise TooCostly(
                f"a batch of {size_bytes} bytes with more than {budget.rows_left} records and headers; "
                "a server takes such ones where muster[columns] is installed"
            )
    at_fault, *times = walk(body, header.record_count, header.base_timestamp_ms, need_keys)
    if at_fault == _FINE:
        return _Times(*times)
    if len(body) < COMPILED_FROM_BYTES:
        return _walk_records(header, body, need_keys)  # it finds the words
    if need_keys and walk(body, header.record_count, header.base_timestamp_ms, False)[0] != at_fault:
        raise _without_keys([at_fault])
    raise Malformed(f"record {at_fault} of {header.record_count} is not whole, or does not fit its batch")


class _TooMany(Exception):
    """More records and headers than may be walked row by row."""


def _walk_records(
    header: BatchHeader, body: bytes | memoryview, need_keys: bool, budget: UnpackBudget | None = None
) -> _Times:
    """Step over all records, looking at their lengths, offsets, times and keys; nothing is copied."""
    position, end, smallest_ms, largest_ms = 0, len(body), 1 << 63, NO_TIMESTAMP
    without_key: list[int] = []
    left = UNLIMITED if budget is None else budget.rows_left
    for number in range(header.record_count):
        length, position = read_varint(body, position, end)
        record_end = position + length
        if length < 0 or record_end > end:
            raise Truncated(f"record {number} of {length} bytes, {end - position} before the end of its batch")
        time_delta, position = read_varint(body, position + 1, record_end, LONG_BITS)
        offset_delta, position = read_varint(body, position, record_end)
        if offset_delta != number:
            raise Malformed(f"record {number} says it is number {offset_delta}")
        key_length, position = read_varint(body, position, record_end)
        if key_length < -1:
            raise Malformed(f"record {number} has a key of length {key_length}")
        if key_length < 0 and need_keys:
            without_key.append(number)
        value_length, position = read_varint(body, position + max(key_length, 0), record_end)
        if value_length < -1:
            raise Malformed(f"record {number} has a value of length {value_length}")
        headers, position = read_varint(body, position + max(value_length, 0), record_end)
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
    if budget is not None:
        budget.rows_left = left
    return _Times(smallest_ms, largest_ms)


def _without_keys(numbers: Sequence[int]) -> AppendRefused:
    told = [(number, "Compacted topic cannot accept message without key.") for number in numbers[:MOST_TOLD]]
    return AppendRefused(ErrorCode.INVALID_RECORD, "records without a key, and the topic is compacted", told)


def _check_headers(body: bytes | memoryview, count: int, position: int, end: int, number: int) -> None:
    for _ in range(count):
        for smallest in (0, -1):  # a header's key may not be missing, its value may
            length, position = read_varint(body, position, end)
            if length < smallest:
                raise Malformed(f"record {number} has a header of length {length}")
            position += max(length, 0)
    if position != end or count < 0:
        raise Malformed(f"record {number} does not end where it says")


INT_BITS, LONG_BITS = 32, 64


def read_varint(data: bytes | memoryview, position: int, end: int, bits: int = INT_BITS) -> tuple[int, int]:
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


def assigned(
    batch: ClientBatch, base_offset: int, leader_epoch: int, append_time_ms: int | None
) -> tuple[bytearray, memoryview]:
    """The header as the log keeps it, and the records, which are not copied.

    Offset and leader epoch are outside the checksum; a changed time is inside.
    """
    header, records = bytearray(batch.data[:HEADER_SIZE]), batch.data[HEADER_SIZE:]
    _OFFSET.pack_into(header, 0, base_offset)
    _LEADER_EPOCH.pack_into(header, 12, leader_epoch)
    max_timestamp_ms = batch.max_timestamp_ms if append_time_ms is None else append_time_ms
    attributes = batch.header.attributes & ~LOG_APPEND_TIME | (0 if append_time_ms is None else LOG_APPEND_TIME)
    if max_timestamp_ms != batch.header.max_timestamp_ms or attributes != batch.header.attributes:
        _ATTRIBUTES.pack_into(header, 21, attributes)
        _OFFSET.pack_into(header, 35, max_timestamp_ms)
        _CRC.pack_into(header, 17, crc32c(records, crc32c(header[21:])))
    return header, records
