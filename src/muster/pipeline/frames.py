"""Tables as functions from DataFrame to DataFrame: what to use in a notebook, and what the job itself is made of.

The SQL is `muster.tables.queries`, which duckdb runs as well; here it meets Spark.
"""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from muster.tables import lag_queries, queries
from muster.tables.schemas import GROUPS, LAG, MEMBERS, OFFSETS

KEY = ("group_id", "topic", "partition")


def struct_of(schema: pa.Schema) -> StructType:
    """A table's columns in Spark's words."""
    return from_arrow_schema(schema)


def columns_of(schema: pa.Schema) -> list[Column]:
    """A table's columns, in their order and types: the last `select` of whatever makes that table."""
    return [F.col(field.name).cast(field.dataType).alias(field.name) for field in struct_of(schema)]


def empty(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    return spark.createDataFrame([], struct_of(schema))


def offsets(commits: DataFrame) -> DataFrame:
    """The offsets in force, of rows of `commits`: every one of a log, or any that include the newest of each key."""
    rows = commits.sparkSession.sql(queries.offsets("{commits}"), commits=commits)
    return rows.select(*columns_of(OFFSETS))


def group_state(group_records: DataFrame) -> DataFrame:
    """The newest record of each key of groups, without what was deleted."""
    return group_records.sparkSession.sql(queries.group_state("{records}"), records=group_records)


def members(state: DataFrame) -> DataFrame:
    """Members of groups of every kind, of rows of `group_state`."""
    return state.sparkSession.sql(queries.members("{state}"), state=state).select(*columns_of(MEMBERS))


def groups(state: DataFrame, in_force: DataFrame, open_commits: DataFrame) -> DataFrame:
    """Groups with the state a coordinator would compute, of rows of `group_state`, `offsets` and `open_commits`."""
    sql = queries.groups("{state}", "{members}", "{offsets}", "{open_commits}")
    rows = state.sparkSession.sql(sql, state=state, members=members(state), offsets=in_force, open_commits=open_commits)
    return rows.select(*columns_of(GROUPS))


def lag(in_force: DataFrame, log_ends: DataFrame, of_members: DataFrame, times: DataFrame) -> DataFrame:
    """How far each group is behind the newest observation of each partition's end."""
    sql = lag_queries.lag("{offsets}", "{log_ends}", "{members}", "{times}")
    rows = in_force.sparkSession.sql(sql, offsets=in_force, log_ends=log_ends, members=of_members, times=times)
    return rows.select(*columns_of(LAG))


def read_files(spark: SparkSession, files: Sequence[str], schema: pa.Schema) -> DataFrame:
    """Parquet files of a table; no files are an empty table."""
    if not files:
        return empty(spark, schema)
    return spark.read.schema(struct_of(schema)).parquet(*files)
