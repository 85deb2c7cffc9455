"""Records as JSON, one object per line, with the keys and values that Kafka's console formatters print.

    {"partition":0,"offset":7,"timestamp":1794805278550,"segment":"00000000000000000000.log",
     "key":{"type":1,"data":{...}},"value":{"version":4,"data":{...}},"batch":{...},"transactionOutcome":null}

A value is null for a tombstone. A control record has "control" and "coordinatorEpoch" in place of key and value. What
could not be understood has, beside as much of "key" and "value" as could, "keyHex", "valueHex" and a "problem". A batch
that compaction has emptied is a line with "emptyBatch", one that cannot be trusted a line with "corruptBatch".
"""

import json
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from muster.codec import batches as rowwise
from muster.codec.columns.arrow import Array
from muster.codec.columns.chunks import Chunk, Longs
from muster.codec.columns.commits import C_KIND, K_COMMIT_TOMBSTONE, K_CONTROL
from muster.codec.columns.lines import (
    Part,
    Stretch,
    attribute,
    checksums_right,
    codecs,
    commit_parts,
    commit_shapes,
    either,
    in_order,
    joined,
    longs,
    made_ahead,
    named,
    numbers,
    repeated,
    stretches,
    texts,
    timestamp_types,
)
from muster.codec.columns.rowwise import record_at
from muster.codec.columns.scan import (
    B_BASE_OFFSET,
    B_BASE_SEQUENCE,
    B_BASE_TIMESTAMP,
    B_COUNT,
    B_LAST_OFFSET,
    B_LEADER_EPOCH,
    B_MAGIC,
    B_MAX_TIMESTAMP,
    B_OUTCOME,
    B_PRODUCER_EPOCH,
    B_PRODUCER_ID,
    B_RECORDS,
    B_SIZE,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    R_BATCH,
    R_OFFSET,
    R_TIMESTAMP,
    TRANSACTIONAL_BIT,
)
from muster.codec.kafka_json import Flavour, key_json, value_json
from muster.codec.offsets_topic import UnknownKey, decode_key, decode_value
from muster.codec.records import Record
from muster.codec.transaction_outcomes import OUTCOME_NAMES
from muster.errors import CodecError, Malformed


def json_pieces(
    chunk: Chunk, *, partition: int | None, segment_file: str, rows: NDArray[np.int64] | None = None
) -> Iterator[bytes]:
    """The lines of a chunk, in stretches of whole lines. Decode it without `forgiving`.

    `rows` are the records to show, ascending; lines about whole batches are then left out.
    """
    start, segment = f'{{"partition":{json.dumps(partition)}', f',"segment":{json.dumps(segment_file)}'

    def lines_of(stretch: Stretch) -> bytes:
        lines = _record_lines(chunk, stretch, start, segment)
        is_alone = chunk.batches[stretch.batches, B_RECORDS] == 0
        alone = _lone_batch_lines(chunk, stretch.batches[is_alone], start + segment)
        return in_order((alone, stretch.batch_places[is_alone]), *lines)

    yield from made_ahead(lines_of, stretches(chunk, rows))


def _lone_batch_lines(chunk: Chunk, chosen: Longs, start: str) -> Array:
    """Batches that show no records: emptied by compaction, or not to be trusted."""
    corrupt = {problem.batch: f',"corruptBatch":true,"problem":{_json(problem.reason)}' for problem in chunk.problems}
    why = texts(corrupt.get(number, ',"emptyBatch":true') for number in chosen.tolist())
    return joined(start, why, _ends(chunk, chosen))


def _record_lines(chunk: Chunk, stretch: Stretch, start: str, segment: str) -> Iterator[tuple[Array, Longs]]:
    rows = stretch.rows
    owners, row_to_owner = np.unique(chunk.records[rows, R_BATCH], return_inverse=True)
    ends = _ends(chunk, owners)

    def lines(some: Longs, contents: list[Part]) -> tuple[Array, Longs]:
        records = chunk.records[rows[some]]
        made = joined(
            f'{start},"offset":', numbers(records[:, R_OFFSET]),
            ',"timestamp":', numbers(records[:, R_TIMESTAMP]),
            f"{segment},", *contents, ends.take(longs(row_to_owner[some])),
        )  # fmt: skip
        return made, stretch.row_places[some]

    is_other = chunk.classes[rows, C_KIND] > K_COMMIT_TOMBSTONE
    if is_other.any():
        others = texts(_other_contents(chunk, row) for row in rows[is_other].tolist())
        yield lines(np.flatnonzero(is_other), [others])
    for some in commit_shapes(chunk, rows, ~is_other):
        key, value = commit_parts(chunk, rows[some], quote="")
        yield lines(some, ['"key":', *key, ',"value":', *(value or ["null"])])


def _ends(chunk: Chunk, chosen: Longs) -> Array:
    """The end of a line is about the batch: the same for all its records."""
    batches = chunk.batches[chosen]
    has_horizon = attribute(batches, DELETE_HORIZON_BIT)
    counts = joined(',"count":', numbers(batches[:, B_COUNT]))
    return joined(
        ',"batch":{"baseOffset":', numbers(batches[:, B_BASE_OFFSET]),
        ',"lastOffset":', numbers(batches[:, B_LAST_OFFSET]),
        ',"magic":', repeated(batches[:, B_MAGIC]),
        ',"compression":"', codecs(batches),
        '","timestampType":"', timestamp_types(chunk, chosen),
        '","maxTimestamp":', numbers(batches[:, B_MAX_TIMESTAMP]),
        ',"partitionLeaderEpoch":', repeated(batches[:, B_LEADER_EPOCH]),
        ',"producerId":', repeated(batches[:, B_PRODUCER_ID]),
        ',"producerEpoch":', repeated(batches[:, B_PRODUCER_EPOCH]),
        ',"baseSequence":', repeated(batches[:, B_BASE_SEQUENCE]),
        ',"isTransactional":', either(attribute(batches, TRANSACTIONAL_BIT), "true", "false"),
        ',"isControl":', either(attribute(batches, CONTROL_BIT), "true", "false"),
        ',"deleteHorizonMs":', either(has_horizon, numbers(batches[:, B_BASE_TIMESTAMP]), "-1"),
        ',"sizeInBytes":', numbers(batches[:, B_SIZE]),
        either(batches[:, B_MAGIC] == 2, counts, ""),  # the old formats do not say
        ',"crcValid":', checksums_right(chunk, batches),
        '},"transactionOutcome":', named([_json(name) for name in OUTCOME_NAMES], batches[:, B_OUTCOME]),
        "}\n",
    )  # fmt: skip


def _other_contents(chunk: Chunk, row: int) -> str:
    """Key and value of anything but a commit, by the row-wise codec."""
    record = record_at(chunk, row)
    if chunk.classes[row, C_KIND] == K_CONTROL:
        return _control_contents(record)
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
        return f'"key":{key},"value":{value},{_problem(record, error)}'
    return f'"key":{key},"value":{value}'


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


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
