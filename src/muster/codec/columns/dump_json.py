"""Records as JSON, one object per line, with the keys and values that Kafka's console formatters print.

    {"partition":0,"offset":7,"timestamp":1794805278550,"segment":"00000000000000000000.log",
     "key":{"type":1,"data":{...}},"value":{"version":4,"data":{...}},"batch":{...},"transactionOutcome":null}

A value is null for a tombstone. A control record has "control" and "coordinatorEpoch" in place of key and value. What
could not be understood has, beside as much of "key" and "value" as could, "keyHex", "valueHex" and a "problem". A batch
that compaction has emptied is a line with "emptyBatch", one that cannot be trusted a line with "corruptBatch".
"""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from muster.codec import batches as rowwise
from muster.codec.columns.chunks import Chunk
from muster.codec.columns.commits import C_KIND, K_COMMIT_TOMBSTONE, K_CONTROL
from muster.codec.columns.render import (
    ATTRIBUTE,
    BATCH,
    BATCH_LINE,
    BATCH_TAIL,
    CODEC,
    CODECS,
    COMMIT_TIMESTAMP,
    COMMITTED_OFFSET,
    CRC_IS_RIGHT,
    EMPTY_BATCH_LINE,
    EXPIRE_TIMESTAMP,
    FLAG_NAMES,
    GROUP,
    LEADER_EPOCH,
    METADATA,
    OLD_BATCH_LINE,
    OLD_FORMATS,
    OLD_TAIL,
    OUTCOME,
    PARTITION,
    PIECE,
    PIECE_LINE,
    RECORD,
    RECORD_TYPE,
    SKIP_UNLESS,
    TAIL,
    TIMESTAMP_TYPE,
    TIMESTAMP_TYPES,
    TOMBSTONE_LINE,
    TOPIC,
    TOPIC_ID,
    TOPIC_ID_LINE,
    VERSION_LINES,
    VERSIONS,
    Flags,
    LineFormat,
    Step,
    read_record,
    rendered,
)
from muster.codec.columns.scan import (
    B_BASE_OFFSET,
    B_BASE_SEQUENCE,
    B_BASE_TIMESTAMP,
    B_COUNT,
    B_LAST_OFFSET,
    B_LEADER_EPOCH,
    B_MAGIC,
    B_MAX_TIMESTAMP,
    B_PRODUCER_EPOCH,
    B_PRODUCER_ID,
    B_SIZE,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    R_OFFSET,
    R_TIMESTAMP,
    TRANSACTIONAL_BIT,
)
from muster.codec.kafka_json import Flavour, key_json, value_json
from muster.codec.offsets_topic import UnknownKey, decode_key, decode_value
from muster.codec.records import Record
from muster.codec.transactions import OUTCOME_NAMES
from muster.errors import CodecError, Malformed


def render_json(
    chunk: Chunk, *, partition: int | None, segment_file: str, rows: NDArray[np.int64] | None = None
) -> bytes:
    """The lines of a chunk. For a large one take `json_pieces`, which never holds them all."""
    return b"".join(json_pieces(chunk, partition=partition, segment_file=segment_file, rows=rows))


def json_pieces(
    chunk: Chunk, *, partition: int | None, segment_file: str, rows: NDArray[np.int64] | None = None
) -> Iterator[bytes]:
    """The lines of a chunk, in stretches of whole lines. Decode it without `forgiving`.

    `rows` are the records to show, ascending; lines about whole batches are then left out.
    """
    line_format = _line_format(partition, segment_file)
    pieced = _pieced(chunk, rows)

    def lines_of(batches: range, line_format: LineFormat) -> Iterator[bytes]:
        return rendered(chunk, line_format, rows, pieced, lambda row: _contents(chunk, row), batches=batches)

    start = 0
    for problem in chunk.problems if rows is None else ():
        yield from lines_of(range(start, problem.batch), line_format)
        corrupt = _corrupt_format(partition, segment_file, problem.reason)
        yield from lines_of(range(problem.batch, problem.batch + 1), corrupt)
        start = problem.batch + 1
    yield from lines_of(range(start, len(chunk.batches)), line_format)


_BATCH_START = [
    Step(',"batch":{"baseOffset":', BATCH, B_BASE_OFFSET),
    Step(',"lastOffset":', BATCH, B_LAST_OFFSET),
    Step(',"magic":', BATCH, B_MAGIC),
    Step(',"compression":"', CODEC, names=CODECS),
    Step('","timestampType":"', TIMESTAMP_TYPE, names=TIMESTAMP_TYPES),
    Step('","maxTimestamp":', BATCH, B_MAX_TIMESTAMP),
    Step(',"partitionLeaderEpoch":', BATCH, B_LEADER_EPOCH),
    Step(',"producerId":', BATCH, B_PRODUCER_ID),
    Step(',"producerEpoch":', BATCH, B_PRODUCER_EPOCH),
    Step(',"baseSequence":', BATCH, B_BASE_SEQUENCE),
    Step(',"isTransactional":', ATTRIBUTE, TRANSACTIONAL_BIT, FLAG_NAMES),
    Step(',"isControl":', ATTRIBUTE, CONTROL_BIT, FLAG_NAMES),
    Step(',"deleteHorizonMs":', ATTRIBUTE, DELETE_HORIZON_BIT, ("-1", "")),
    Step("", SKIP_UNLESS, DELETE_HORIZON_BIT),
    Step("", BATCH, B_BASE_TIMESTAMP),
    Step(',"sizeInBytes":', BATCH, B_SIZE),
]
_COUNT = [Step(',"count":', BATCH, B_COUNT)]  # the old formats do not say
_BATCH_END = [
    Step(',"crcValid":', CRC_IS_RIGHT, names=FLAG_NAMES),
    Step('},"transactionOutcome":', OUTCOME, names=tuple(map(json.dumps, OUTCOME_NAMES))),
    Step("}\n"),
]
_KEY = [
    Step(',"key":{"type":', RECORD_TYPE),
    Step(',"data":{"group":"', GROUP),
    Step('","topic":"', TOPIC),
    Step('","partition":', PARTITION),
]
_REST = [Step("", BATCH_TAIL)]


def _value(version: int, with_topic_id: bool = False) -> list[Step]:
    return [
        Step(f'}}}},"value":{{"version":{version},"data":{{"offset":', COMMITTED_OFFSET),
        *([Step(',"leaderEpoch":', LEADER_EPOCH)] if version >= 3 else []),
        Step(',"metadata":"', METADATA),
        Step('","commitTimestamp":', COMMIT_TIMESTAMP),
        *([Step(',"expireTimestamp":', EXPIRE_TIMESTAMP)] if version == 1 else []),
        *([Step(',"topicId":"', TOPIC_ID), Step('"')] if with_topic_id else []),
        Step("}}"),
    ]


@lru_cache(maxsize=8)
def _line_format(partition: int | None, segment_file: str) -> LineFormat:
    start = f'{{"partition":{json.dumps(partition)}'
    segment = Step(f',"segment":{json.dumps(segment_file)}')
    record = [Step(start + ',"offset":', RECORD, R_OFFSET), Step(',"timestamp":', RECORD, R_TIMESTAMP), segment]
    lines = {VERSION_LINES + version: [*record, *_KEY, *_value(version), *_REST] for version in VERSIONS}
    lines[TOPIC_ID_LINE] = [*record, *_KEY, *_value(4, with_topic_id=True), *_REST]
    lines[TOMBSTONE_LINE] = [*record, *_KEY, Step('}},"value":null'), *_REST]
    lines[PIECE_LINE] = [*record, Step(",", PIECE), *_REST]
    lines |= {line + OLD_FORMATS: steps for line, steps in lines.items()}
    lines[TAIL] = [*_BATCH_START, *_COUNT, *_BATCH_END]
    lines[OLD_TAIL] = [*_BATCH_START, *_BATCH_END]
    lines[EMPTY_BATCH_LINE] = [Step(start), segment, Step(',"emptyBatch":true'), *lines[TAIL]]
    return LineFormat(lines)


def _corrupt_format(partition: int | None, segment_file: str, reason: str) -> LineFormat:
    """The line of a batch that cannot be trusted, whose records are not shown."""
    about = {"partition": partition, "segment": segment_file, "corruptBatch": True, "problem": reason}
    start = Step(_json(about)[:-1])
    batch = [start, *_BATCH_START, *_COUNT, *_BATCH_END]
    return LineFormat({BATCH_LINE: batch, OLD_BATCH_LINE: [start, *_BATCH_START, *_BATCH_END]})


def _pieced(chunk: Chunk, rows: NDArray[np.int64] | None) -> Flags:
    kinds = chunk.classes[:, C_KIND] if rows is None else chunk.classes[rows, C_KIND]
    pieced: NDArray[np.bool_] = kinds > K_COMMIT_TOMBSTONE
    return pieced.view(np.uint8)


def _contents(chunk: Chunk, row: int) -> bytes:
    """Key and value of anything but a commit, by the row-wise codec."""
    record = read_record(chunk, row)
    if chunk.classes[row, C_KIND] == K_CONTROL:
        return _control_contents(record).encode()
    key, value = "null", "null"
    try:
        if record.key is None:
            raise Malformed("the record has no key")
        decoded = decode_key(record.key)
        key = key_json(decoded, Flavour.FORMATTER)
        if isinstance(decoded, UnknownKey):
            raise Malformed(f"record type {decoded.record_type} is not known")
        if record.value is not None:
            version, decoded_value = decode_value(decoded.record_type, record.value)
            value = value_json(decoded.record_type, version, decoded_value, Flavour.FORMATTER)
    except CodecError as error:
        return f'"key":{key},"value":{value},{_problem(record, error)}'.encode()
    return f'"key":{key},"value":{value}'.encode()


def _control_contents(record: Record) -> str:
    try:
        control = rowwise.decode_control(record)
    except CodecError as error:
        return f'"control":null,"coordinatorEpoch":null,{_problem(record, error)}'
    return _json({"control": control.name, "coordinatorEpoch": control.coordinator_epoch})[1:-1]


def _problem(record: Record, error: CodecError) -> str:
    """The bytes of a record that could not be understood, and why."""
    return _json(
        {
            "keyHex": None if record.key is None else record.key.hex(),
            "valueHex": None if record.value is None else record.value.hex(),
            "problem": str(error),
        }
    )[1:-1]


def _json(fields: Mapping[str, object]) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
