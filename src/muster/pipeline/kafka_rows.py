"""A DataFrame of Spark's own Kafka source (key, value, topic, partition, offset, timestamp) as rows of our tables.

Such a source hands out neither producer ids nor markers: whether a commit was made in a transaction, and how that
ended, cannot be known here. `txn_outcome` and the producer's columns are NULL, and a commit that was aborted looks like
any other.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from muster.codec.batches import encode_batch
from muster.codec.records import Record
from muster.codec.transactions import Markers
from muster.errors import BadInput
from muster.pipeline.frames import struct_of
from muster.segments.sources import OFFSETS_TOPIC
from muster.tables.schemas import COMMITS, GROUP_RECORDS

NEEDED = ("key", "value", "topic", "partition", "offset", "timestamp")
NOT_KNOWN = ("producer_id", "producer_epoch", "txn_outcome", "txn_marker_offset")


def commits_of(kafka_rows: DataFrame) -> DataFrame:
    """Rows of `commits`; what only the log before a record tells (expired or deleted) is not looked for."""
    return _shaped(kafka_rows, "commits", COMMITS)


def group_records_of(kafka_rows: DataFrame) -> DataFrame:
    """Rows of `group_records`."""
    return _shaped(kafka_rows, "group_records", GROUP_RECORDS)


def _shaped(kafka_rows: DataFrame, table: str, schema: pa.Schema) -> DataFrame:
    missing = [name for name in NEEDED if name not in kafka_rows.columns]
    if missing:
        raise BadInput(f"these are no rows of Spark's Kafka source: {', '.join(missing)} is missing.")
    rows = kafka_rows.where(F.col("topic") == OFFSETS_TOPIC).select(
        "key", "value", "partition", "offset", (F.unix_millis("timestamp")).alias("timestamp_ms")
    )

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from _decoded(batch, table, schema)

    return rows.mapInArrow(decode, struct_of(schema))


def _decoded(batch: pa.RecordBatch, table: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Through the one door there is: the rows become record batches again, which the columnar decoder reads."""
    from muster.codec.columns.arrow import decode
    from muster.pipeline.shape import shape

    by_partition: dict[int, list[Record]] = {}
    for row in batch.to_pylist():
        record = Record(row["offset"], _ms(row["timestamp_ms"]), _bytes(row["key"]), _bytes(row["value"]))
        by_partition.setdefault(row["partition"], []).append(record)
    for partition, records in sorted(by_partition.items()):
        written = b"".join(encode_batch([record]) for record in records)
        for found in decode(written, partition=partition).to_batches():
            rows = getattr(shape(found, Markers.none()), table)
            nulls = {name: pa.nulls(len(rows), schema.field(name).type) for name in NOT_KNOWN if name in schema.names}
            for name, column in nulls.items():
                rows = rows.set_column(schema.get_field_index(name), schema.field(name), column)
            yield from rows.combine_chunks().to_batches()


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _ms(value: int | None) -> int:
    return -1 if value is None else value
