"""Segments as text, line for line as `kafka-dump-log --offsets-decoder --print-data-log` of 4.3.0 prints them.

One line per batch and one per record under it:

    baseOffset: 0 lastOffset: 2 count: 3 ... isvalid: true
    | offset: 0 CreateTime: 1794805709859 keySize: 30 ... key: {"type":"1",...} payload: {"version":"3",...}

Where Kafka's tool gives up and dies (a control record or a null key it cannot read, a batch that is damaged inside) the
dump goes on, with a line in the same manner. The trailer of "Non-consecutive offsets" is made by `ConsecutiveOffsets`.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from muster.codec import batches as rowwise
from muster.codec import legacy
from muster.codec.columns.arrow import Array
from muster.codec.columns.chunks import Chunk, Longs
from muster.codec.columns.commits import C_KIND, C_TYPE, C_VERSION, K_COMMIT_TOMBSTONE, K_CONTROL
from muster.codec.columns.lines import (
    Flags,
    Part,
    Stretch,
    alike,
    attribute,
    checksums_right,
    codecs,
    commit_parts,
    commit_shapes,
    either,
    in_order,
    joined,
    made_ahead,
    numbers,
    repeated,
    sequences,
    stretches,
    texts,
    timestamp_types,
)
from muster.codec.columns.rowwise import record_at
from muster.codec.columns.scan import (
    B_ATTRIBUTES,
    B_BASE_OFFSET,
    B_BASE_SEQUENCE,
    B_BASE_TIMESTAMP,
    B_COUNT,
    B_CRC,
    B_FIRST_RECORD,
    B_LAST_OFFSET,
    B_LEADER_EPOCH,
    B_MAGIC,
    B_MAX_TIMESTAMP,
    B_POSITION,
    B_PRODUCER_EPOCH,
    B_PRODUCER_ID,
    B_SIZE,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    R_BATCH,
    R_HEADERS,
    R_KEY_LENGTH,
    R_OFFSET,
    R_TIMESTAMP,
    R_VALUE_LENGTH,
    TRANSACTIONAL_BIT,
)
from muster.codec.kafka_json import Flavour, key_json, unknown_type_text, value_json
from muster.codec.offsets_topic import LEGACY_OFFSET_TYPE, UnknownKey, decode_key, decode_value
from muster.codec.primitives import Reader, java_text
from muster.codec.records import ABORT, COMMIT, Record
from muster.errors import CodecError, UnsupportedVersion

MOST_GAPS = 10_000
"""Gaps that are remembered of one segment; the rest is counted."""
MOST_GAPS_IN_ALL = 1_000_000


def text_pieces(
    chunk: Chunk, *, segment_name: str, is_first: bool, file_position: int, rows: NDArray[np.int64] | None = None
) -> Iterator[bytes]:
    """The lines of a chunk, in stretches of whole lines. Decode it `forgiving`, as dump-log does.

    `rows` are the records to show, ascending; the batches that hold none of them are then left out.
    """
    if is_first:
        start = int(PurePosixPath(segment_name).name.split(".")[0])
        yield f"Dumping {segment_name}\nLog starting offset: {start}\n".encode()

    def lines_of(stretch: Stretch) -> bytes:
        return in_order(*_batch_lines(chunk, stretch, file_position), *_record_lines(chunk, stretch))

    yield from made_ahead(lines_of, stretches(chunk, rows))


def invalid_bytes_line(file_name: str, byte_count: int) -> bytes:
    """What follows the last batch of a segment that breaks off; `file_name` is without its directory."""
    return f"Found {byte_count} invalid bytes at the end of {file_name}\n".encode()


Placed = Iterator[tuple[Array, Longs]]  # lines and their places


def _batch_lines(chunk: Chunk, stretch: Stretch, file_position: int) -> Placed:
    chosen = stretch.batches
    is_old = chunk.batches[chosen, B_MAGIC] < 2
    for some in alike(np.where(is_old, 2, attribute(chunk.batches[chosen], DELETE_HORIZON_BIT))):
        batches = chunk.batches[chosen[some]]
        start = _old_batch_start(batches) if is_old[some[0]] else _batch_start(chunk, chosen[some])
        lines = joined(
            *start,
            " position: ", numbers(file_position + batches[:, B_POSITION]),
            " ", timestamp_types(chunk, chosen[some]),
            ": ", numbers(batches[:, B_MAX_TIMESTAMP]),
            " size: ", numbers(batches[:, B_SIZE]),
            " magic: ", repeated(batches[:, B_MAGIC]),
            " compresscodec: ", codecs(batches),
            " crc: ", numbers(batches[:, B_CRC]),
            " isvalid: ", checksums_right(chunk, batches),
            "\n",
        )  # fmt: skip
        yield lines, stretch.batch_places[some]


def _old_batch_start(batches: Longs) -> list[Part]:
    return ["offset: ", numbers(batches[:, B_LAST_OFFSET])]


def _batch_start(chunk: Chunk, chosen: Longs) -> list[Part]:
    """Of batches that all have a delete horizon, or all have none."""
    batches = chunk.batches[chosen]
    horizon: list[Part] = [".empty"]
    if attribute(batches, DELETE_HORIZON_BIT).any():
        horizon = ["[", numbers(batches[:, B_BASE_TIMESTAMP]), "]"]
    return [
        "baseOffset: ", numbers(batches[:, B_BASE_OFFSET]),
        " lastOffset: ", numbers(batches[:, B_LAST_OFFSET]),
        " count: ", numbers(batches[:, B_COUNT]),
        " baseSequence: ", repeated(batches[:, B_BASE_SEQUENCE]),
        " lastSequence: ", repeated(sequences(chunk, chosen, batches[:, B_LAST_OFFSET])),
        " producerId: ", repeated(batches[:, B_PRODUCER_ID]),
        " producerEpoch: ", repeated(batches[:, B_PRODUCER_EPOCH]),
        " partitionLeaderEpoch: ", repeated(batches[:, B_LEADER_EPOCH]),
        " isTransactional: ", either(attribute(batches, TRANSACTIONAL_BIT), "true", "false"),
        " isControl: ", either(attribute(batches, CONTROL_BIT), "true", "false"),
        " deleteHorizonMs: OptionalLong", *horizon,
    ]  # fmt: skip


def _record_lines(chunk: Chunk, stretch: Stretch) -> Placed:
    rows = stretch.rows
    is_odd = _are_odd(chunk, rows)
    if is_odd.any():
        others = texts(map(_RowwiseText(chunk).make, rows[is_odd].tolist()))
        yield joined(*_record_start(chunk, rows[is_odd]), others, "\n"), stretch.row_places[is_odd]
    for alike_rows in commit_shapes(chunk, rows, ~is_odd):
        some = rows[alike_rows]
        owners = chunk.records[some, R_BATCH]
        check: list[Part]
        if chunk.batches[owners[0], B_MAGIC] < 2:
            batches = chunk.batches[owners]
            check = [" isValid: ", checksums_right(chunk, batches), " crc: ", numbers(batches[:, B_CRC])]
        else:
            sequence = sequences(chunk, owners, chunk.records[some, R_OFFSET])
            check = [" sequence: ", repeated(sequence), " headerKeys: []"]
        key, payload = commit_parts(chunk, some, quote='"')
        parts = [*_record_start(chunk, some), *check, " key: ", *key, " payload: ", *(payload or ["<DELETE>"]), "\n"]
        yield joined(*parts), stretch.row_places[alike_rows]


def _record_start(chunk: Chunk, rows: Longs) -> list[Part]:
    records = chunk.records[rows]
    return [
        "| offset: ", numbers(records[:, R_OFFSET]),
        " ", timestamp_types(chunk, records[:, R_BATCH]),
        ": ", numbers(records[:, R_TIMESTAMP]),
        " keySize: ", numbers(records[:, R_KEY_LENGTH]),
        " valueSize: ", numbers(records[:, R_VALUE_LENGTH]),
    ]  # fmt: skip


def _are_odd(chunk: Chunk, rows: Longs) -> Flags:
    """Rows that the row-wise codec writes: no commits, or commits with something that commits never have."""
    batches, headers = chunk.records[rows, R_BATCH], chunk.records[rows, R_HEADERS]
    old = chunk.batches[batches, B_MAGIC] < 2
    compressed = (chunk.batches[batches, B_ATTRIBUTES] & CODEC_MASK) != 0
    with_headers = ~old & (chunk.buffer[headers] != 0)
    refused = (chunk.classes[rows, C_TYPE] == LEGACY_OFFSET_TYPE) & (chunk.classes[rows, C_VERSION] > 0)
    no_commits = chunk.classes[rows, C_KIND] > K_COMMIT_TOMBSTONE
    odd: Flags = no_commits | with_headers | (old & compressed) | refused
    return odd


class _RowwiseText:
    """The rest of a record's line, behind its sizes, by the row-wise codec."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._crcs_of = -1
        self._crcs: list[tuple[int, bool]] = []

    def make(self, row: int) -> str:
        record = record_at(self._chunk, row)
        number = int(self._chunk.records[row, R_BATCH])
        text = self._checksum(number, row) if self._chunk.batches[number, B_MAGIC] < 2 else self._sequence(number, row)
        if self._chunk.classes[row, C_KIND] == K_CONTROL:
            return text + _control_text(record)
        return f"{text} key: {_key_and_payload(record)}"

    def _sequence(self, number: int, row: int) -> str:
        batch = self._chunk.batches[number]
        sequence = -1
        if batch[B_BASE_SEQUENCE] >= 0:
            delta = self._chunk.records[row, R_OFFSET] - batch[B_BASE_OFFSET]
            sequence = int(batch[B_BASE_SEQUENCE] + delta) & 0x7FFFFFFF
        return f" sequence: {sequence} headerKeys: [{','.join(self._header_names(row))}]"

    def _header_names(self, row: int) -> list[str]:
        reader = Reader(self._chunk.buffer.data, int(self._chunk.records[row, R_HEADERS]))
        names = []
        for _ in range(reader.varint()):
            names.append(java_text(bytes(reader.raw(reader.varint())).decode("utf-8", "surrogateescape")))
            reader.raw(max(reader.varint(), 0))
        return names

    def _checksum(self, number: int, row: int) -> str:
        """Each message of the old formats has a checksum of its own, also inside a compressed wrapper."""
        batch = self._chunk.batches[number]
        if self._crcs_of != number:
            start = int(batch[B_POSITION])
            entry = self._chunk.buffer.data[start : start + int(batch[B_SIZE])]
            self._crcs = legacy.inner_crcs(entry, 0, rowwise.read_header(entry))
            self._crcs_of = number
        crc, is_valid = self._crcs[row - int(batch[B_FIRST_RECORD])]
        return f" isValid: {'true' if is_valid else 'false'} crc: {crc}"


def _control_text(record: Record) -> str:
    try:
        control = rowwise.decode_control(record)
    except CodecError as error:
        return f" controlType: unreadable ({error})"
    if control.type not in (ABORT, COMMIT):
        return f" controlType: {control.name}({control.type})"
    epoch = "unreadable" if control.coordinator_epoch is None else control.coordinator_epoch
    return f" endTxnMarker: {control.name} coordinatorEpoch: {epoch}"


def _key_and_payload(record: Record) -> str:
    skipping = f"Error at offset {record.offset}, skipping."
    if record.key is None:
        return f"{skipping} The record has no key."
    if len(record.key) < 2:
        return f"{skipping} Could not read version from key's buffer."
    record_type = int.from_bytes(record.key[:2], "big", signed=True)
    try:
        key = decode_key(record.key)
    except CodecError as error:
        return _unreadable(record, record_type, "key", error)
    if isinstance(key, UnknownKey):
        return unknown_type_text(record_type, record.offset)
    shown = key_json(key, Flavour.DUMP_LOG)
    if record.value is None:
        return f"{shown} payload: {value_json(record_type, -1, None, Flavour.DUMP_LOG)}"
    if len(record.value) < 2:
        return f"{skipping} Could not read version from value's buffer."
    version = int.from_bytes(record.value[:2], "big", signed=True)
    try:
        if record_type == LEGACY_OFFSET_TYPE and version > 0:
            raise UnsupportedVersion("Kafka 4.3 reads version 0 alone here, and no broker has written another")
        _, value = decode_value(record_type, record.value)
    except UnsupportedVersion:
        return f"{skipping} Found an unknown record version {version} for {record_type} type"
    except CodecError as error:
        return _unreadable(record, version, "value", error)
    return f"{shown} payload: {value_json(record_type, version, value, Flavour.DUMP_LOG)}"


def _unreadable(record: Record, version: int, part: str, error: CodecError) -> str:
    """As dump-log says it, with a reason of ours: its own is often `null`."""
    return (
        f"Error at offset {record.offset}, skipping. "
        f"Could not read record with version {version} from {part}'s buffer due to: {error}."
    )


class ConsecutiveOffsets:
    """Where the records of a segment do not follow one another, as dump-log reports after everything else.

    It looks at records alone, and begins each segment at -1: a segment that does not begin at offset 0 has a gap there,
    and so has every place where compaction removed something. A long compacted log has millions, so that only the
    first of each segment are remembered.
    """

    def __init__(self, most_gaps: int = MOST_GAPS, most_gaps_in_all: int = MOST_GAPS_IN_ALL) -> None:
        self._most_gaps = most_gaps
        self._left_in_all = most_gaps_in_all
        self._gaps: dict[str, list[Longs]] = {}
        self._left: dict[str, int] = {}
        self._unsaid: dict[str, int] = {}
        self._segment = ""
        self._last_offset = -1

    def add(self, segment_name: str, chunk: Chunk) -> None:
        """Look at the next chunk; those of a segment come one after another."""
        if segment_name != self._segment:
            self._segment, self._last_offset = segment_name, -1
        if not len(chunk.records):
            return
        offsets = chunk.records[:, R_OFFSET]
        before = np.concatenate(([self._last_offset], offsets[:-1]))
        self._last_offset = int(offsets[-1])
        places = np.flatnonzero(offsets != before + 1)
        if len(places):
            self._remember(segment_name, np.column_stack((before[places], offsets[places])))

    def _remember(self, segment_name: str, pairs: Longs) -> None:
        left = min(self._left.setdefault(segment_name, self._most_gaps), self._left_in_all)
        kept = pairs[:left].copy()
        self._gaps.setdefault(segment_name, []).append(kept)
        self._left[segment_name] -= len(kept)
        self._left_in_all -= len(kept)
        self._unsaid[segment_name] = self._unsaid.get(segment_name, 0) + len(pairs) - len(kept)

    def blocks(self) -> Iterator[bytes]:
        """One block per segment with gaps, in the order in which they were read."""
        for segment_name, kept in self._gaps.items():
            lines = [f"Non-consecutive offsets in {segment_name}\n"]
            lines += [f"  {before} is followed by {after}\n" for pairs in kept for before, after in pairs.tolist()]
            if self._unsaid[segment_name]:
                lines.append(f"  and {self._unsaid[segment_name]} more\n")
            yield "".join(lines).encode()
