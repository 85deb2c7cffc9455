"""State tables as functions from DataFrame to DataFrame, for notebooks. The job runs the same SQL in duckdb.

The SQL is `muster.tables.queries`, which duckdb runs as well; here it meets Spark. It speaks of tables as they are
inside, and DataFrames are tables as they are published: `inside` and `columns_of` stand at the edges.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType, TimestampType

from muster.codec.batches import encode_batch
from muster.codec.columns.transactions import Markers
from muster.codec.records import Record
from muster.errors import BadInput
from muster.segments.sources import OFFSETS_TOPIC
from muster.tables import queries
from muster.tables.schemas import (
    COMMITS,
    GROUP_RECORDS,
    GROUPS,
    LAG,
    MEMBERS,
    MILLISECONDS,
    MOMENTS,
    OFFSETS,
    published_form,
    published_name,
)
from muster.tables.times import published

KEY = ("group_id", "topic", "partition")


def struct_of(schema: pa.Schema) -> StructType:
    """A table's columns in Spark's words."""
    return from_arrow_schema(schema)


def columns_of(schema: pa.Schema) -> list[Column]:
    """A table's columns as they are published, in their order and types, of inner ones: the last `select` of whatever
    makes that table.
    """
    return [
        F.timestamp_millis(F.col(field.name)).alias(published_name(field.name))
        if field.name in MOMENTS
        else F.col(field.name).cast(field.dataType).alias(field.name)
        for field in struct_of(schema)
    ]


def inside(table: DataFrame) -> DataFrame:
    """A published table with its moments in milliseconds, as the SQL knows them."""
    return table.select(
        *(
            F.unix_millis(F.col(field.name)).alias(field.name + MILLISECONDS)
            if isinstance(field.dataType, TimestampType)
            else F.col(field.name)
            for field in table.schema
        )
    )


def empty(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    """A published table without rows, of an inner schema."""
    return spark.createDataFrame([], struct_of(published_form(schema)))


def offsets(commits: DataFrame) -> DataFrame:
    """The offsets in force, of rows of `commits`: every one of a log, or any that include the newest of each key."""
    rows = commits.sparkSession.sql(queries.offsets("{commits}"), commits=inside(commits))
    return rows.select(*columns_of(OFFSETS))


def group_state(group_records: DataFrame) -> DataFrame:
    """The newest record of each key of groups, without what was deleted."""
    rows = group_records.sparkSession.sql(queries.group_state("{records}"), records=inside(group_records))
    return rows.select(*columns_of(GROUP_RECORDS))


def members(state: DataFrame) -> DataFrame:
    """Members of groups of every kind, of rows of `group_state`."""
    return state.sparkSession.sql(queries.members("{state}"), state=inside(state)).select(*columns_of(MEMBERS))


def groups(state: DataFrame, in_force: DataFrame, open_commits: DataFrame) -> DataFrame:
    """Groups with the state a coordinator would compute, of rows of `group_state`, `offsets` and `open_commits`."""
    sql = queries.groups("{state}", "{members}", "{offsets}", "{open_commits}")
    given = {"state": state, "members": members(state), "offsets": in_force, "open_commits": open_commits}
    rows = _asked(state.sparkSession, sql, given)
    return rows.select(*columns_of(GROUPS))


def lag(in_force: DataFrame, log_ends: DataFrame, of_members: DataFrame, times: DataFrame) -> DataFrame:
    """How far each group is behind the newest observation of each partition's end.

    `times` has the columns of `schemas.TIMES`, `timestamp` being a timestamp too.
    """
    sql = queries.lag("{offsets}", "{log_ends}", "{members}", "{times}")
    given = {"offsets": in_force, "log_ends": log_ends, "members": of_members, "times": times}
    rows = _asked(in_force.sparkSession, sql, given)
    return rows.select(*columns_of(LAG))


def _asked(spark: SparkSession, sql: str, tables: Mapping[str, DataFrame]) -> DataFrame:
    given: dict[str, Any] = {name: inside(table) for name, table in tables.items()}
    return spark.sql(sql, **given)


def read_files(spark: SparkSession, files: Sequence[str], schema: pa.Schema) -> DataFrame:
    """Parquet files of a table, by its inner schema; no files are an empty table."""
    if not files:
        return empty(spark, schema)
    return spark.read.schema(struct_of(published_form(schema))).parquet(*files)


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

    return rows.mapInArrow(decode, struct_of(published_form(schema)))


def _decoded(batch: pa.RecordBatch, table: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Through the one door there is: the rows become record batches again, which the columnar decoder reads."""
    from muster.codec.columns.arrow import decode
    from muster.pipeline.extract.shape import shape

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
            yield from published(rows, published_form(schema)).combine_chunks().to_batches()


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _ms(value: int | None) -> int:
    return -1 if value is None else value
