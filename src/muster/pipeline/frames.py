"""State, and history by interval, as functions from DataFrame to DataFrame: for notebooks and jobs of one's own.

The SQL is that of `muster.tables` (`sql` and `findings`), each query the definition of one table; here Spark runs it. A
run of the job has duckdb run the same SQL, in Spark's tasks (`merge`, `interval_task`, `assess`).

The SQL speaks of tables as they are inside, and DataFrames are tables as they are published: `inside` and `columns_of`
stand at the edges.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType, TimestampType

from muster.codec.batches import encode_batch
from muster.codec.records import Record
from muster.codec.transaction_outcomes import Markers
from muster.errors import BadInput
from muster.segments.sources import OFFSETS_TOPIC
from muster.tables.findings import kinds as finding_kinds
from muster.tables.findings.finding import Asked
from muster.tables.relations import FROM_THE_LOG
from muster.tables.schemas import (
    COMMITS,
    EXPIRY,
    FINDINGS,
    GROUP_HOURS,
    GROUP_RECORDS,
    GROUPS,
    LAG,
    LAG_HISTORY,
    MEMBERS,
    MILLISECONDS,
    MOMENTS,
    OFFSETS,
    RATES,
    STATUS,
    published_form,
    published_name,
)
from muster.tables.sql import hours, intervals, judging, queries
from muster.tables.sql.ends import ends_at, newest_ends, observed_since, of_topics_now
from muster.tables.sql.expiry import expiry as forecast
from muster.tables.sql.lag import lag as lag_sql
from muster.tables.times import published

FIVE_MINUTES = timedelta(milliseconds=intervals.INTERVAL_MS)


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


def lag(
    in_force: DataFrame,
    log_ends: DataFrame,
    of_members: DataFrame,
    times: DataFrame | None = None,
    moment: datetime | None = None,
) -> DataFrame:
    """How far each group is behind the ends of the logs as the last run observed them.

    `times` is the data's own clock, with the columns of `schemas.TIMES`, `timestamp` being a timestamp too. It is in no
    table; without it time lag is interpolated between observations. With offsets and members of a `moment` (`as_of`),
    ends are those of that moment: give all of `log_ends`, since observations after it tell, too.
    """
    newest = newest_ends("{log_ends}") if moment is None else ends_at("{log_ends}", _since_ms(moment))
    sql = lag_sql("{offsets}", "{log_ends}", f"({newest})", "{members}", None if times is None else "{times}")
    given = {"offsets": in_force, "log_ends": log_ends, "members": of_members} | (
        {} if times is None else {"times": times}
    )
    rows = _asked(in_force.sparkSession, sql, given)
    return rows.select(*columns_of(LAG))


def all_rebalances(rebalances: DataFrame, latest_rebalances: DataFrame) -> DataFrame:
    """Every rebalance: the table `rebalances` lacks the newest of each group, which may still change."""
    return rebalances.unionByName(latest_rebalances.where(F.col("at").isNotNull()).select(*rebalances.columns))


class Held(NamedTuple):
    """What is published of a table by interval, and what is new since (`intervals.Held`)."""

    rows: DataFrame
    observed_until: int
    """The last run whose observations of ends they are made of."""
    new_commits: DataFrame | None
    """None where any commit may be new."""


def lag_history(
    commits: DataFrame,
    log_ends: DataFrame,
    interval: timedelta = FIVE_MINUTES,
    since: datetime | None = None,
    before: DataFrame | None = None,
    held: Held | None = None,
) -> DataFrame:
    """How far each group was behind, by partition and interval.

    The rows from `since` on, if that is given, and then `before` is what was in force right before it
    (`states_before`, `states_at`). Rows of `held` of which nothing is new are taken over from there.
    """
    return _by_interval(intervals.lag_history, LAG_HISTORY, commits, log_ends, interval, since, before, held)


def rates(
    commits: DataFrame,
    log_ends: DataFrame,
    interval: timedelta = FIVE_MINUTES,
    since: datetime | None = None,
    before: DataFrame | None = None,
    held: Held | None = None,
) -> DataFrame:
    """What groups consumed and how often they committed, by partition and interval; `since` as in `lag_history`."""
    return _by_interval(intervals.rates, RATES, commits, log_ends, interval, since, before, held)


def _by_interval(
    query: Callable[[str, str, int, int, str | None, intervals.Held | None], str],
    schema: pa.Schema,
    commits: DataFrame,
    log_ends: DataFrame,
    interval: timedelta,
    since: datetime | None,
    before: DataFrame | None,
    held: Held | None,
) -> DataFrame:
    """A table of commits and ends of logs, by its query."""
    given, interval_ms, since_ms = {"commits": commits, "log_ends": log_ends}, _ms_of(interval), _since_ms(since)
    state = known = None
    if before is not None:
        given["before"], state = before, "{before}"
    if held is not None:
        given["held"], committed = held.rows, None
        observed = f"({observed_since('{log_ends}', held.observed_until, interval_ms)})"
        if held.new_commits is not None:
            given["new_commits"] = held.new_commits
            committed = f"({intervals.committed_since('{new_commits}', interval_ms)})"
        known = intervals.Held("{held}", "{held}", "{commits}", observed, committed)
    moves = f"({intervals.moved('{commits}', interval_ms, since_ms)})"
    sql = query(moves, "{log_ends}", interval_ms, since_ms, state, known)
    return _asked(commits.sparkSession, sql, given).select(*columns_of(schema))


def states_before(lag_history: DataFrame, in_force: DataFrame, since: datetime) -> DataFrame:
    """What was in force at a moment, of rows of `lag_history` and `offsets` as one run published them."""
    sql = intervals.states_before("{lag_history}", "{offsets}", _since_ms(since))
    rows = _asked(in_force.sparkSession, sql, {"lag_history": lag_history, "offsets": in_force})
    return rows.withColumn("commit", F.timestamp_millis("commit_ms")).drop("commit_ms")


def states_at(commits: DataFrame, since: datetime) -> DataFrame:
    """The same, of all commits."""
    rows = _asked(commits.sparkSession, intervals.states_at("{commits}", _since_ms(since)), {"commits": commits})
    return rows.withColumn("commit", F.timestamp_millis("commit_ms")).drop("commit_ms")


def group_hours(
    commits: DataFrame, rebalances: DataFrame, since: datetime | None = None, before: DataFrame | None = None
) -> DataFrame:
    """Members, rebalances and silence of each group, by hour; `rebalances` with the newest (`all_rebalances`).

    The rows from `since` on, if that is given, and then `before` has the rows of the week before it.
    """
    given = {"commits": commits, "rebalances": rebalances} | ({} if before is None else {"before": before})
    earlier = None if before is None else f"({hours.hours_before('{before}', _since_ms(since))})"
    sql = hours.group_hours("{commits}", "{rebalances}", _since_ms(since), earlier)
    return _asked(commits.sparkSession, sql, given).select(*columns_of(GROUP_HOURS))


def findings(tables: Mapping[str, DataFrame], moment: datetime, lists_all_topics: bool = False) -> DataFrame:
    """One row per thing to look at, as of the moment that the tables are of; `rebalances` with the newest
    (`all_rebalances`), `open_commits` without those that a deletion has ended.

    Kinds whose tables are not all given are left out. `lists_all_topics`: what `log_ends` does not have, the cluster
    does not have. There is one table more than are published: `damage` (`of_logs.DAMAGE`).
    """
    given = {name: tables[name] for name in finding_kinds.NEEDED if name in tables}
    sql = finding_kinds.findings({name: f"{{{name}}}" for name in given}, Asked(_since_ms(moment), lists_all_topics))
    return _asked(next(iter(given.values())).sparkSession, sql, given).select(*columns_of(FINDINGS))


def expiry(
    in_force: DataFrame,
    of_groups: DataFrame,
    of_members: DataFrame,
    state: DataFrame,
    open_commits: DataFrame,
    at: datetime,
    retention: timedelta,
) -> DataFrame:
    """When offsets and groups will be deleted, as of a moment: of `offsets`, `groups`, `members`, `group_state` and
    `open_commits`, with the cluster's `offsets.retention.minutes`.
    """
    given = {"offsets": in_force, "groups": of_groups, "members": of_members, "state": state, "open": open_commits}
    sql = forecast("{offsets}", "{groups}", "{members}", "{state}", "{open}", _since_ms(at), _ms_of(retention))
    return _asked(in_force.sparkSession, sql, given).select(*columns_of(EXPIRY))


def status(
    in_force: DataFrame,
    commits: DataFrame,
    log_ends: DataFrame,
    of_lag: DataFrame,
    of_expiry: DataFrame,
    at: datetime,
    before: DataFrame | None = None,
) -> DataFrame:
    """How well each group does, as of a moment: of `offsets`, `commits`, `log_ends`, `lag` and `expiry`.

    `before` are the rows of an earlier look, and `commits` then those that have come since.
    """
    spark, at_ms = in_force.sparkSession, _since_ms(at)
    held = inside(empty(spark, STATUS) if before is None else before)
    new = f"({judging.new_commits('{commits}')})"
    looks = _asked(spark, of_topics_now("{log_ends}"), {"log_ends": log_ends})
    arrived = spark.sql(judging.with_lags(new, "{log_ends}"), commits=inside(commits), log_ends=looks)
    deleted = _asked(spark, judging.deletions("{commits}"), {"commits": commits})
    sql = judging.windows("{arrived}", "{deleted}", "{before}")
    windows = spark.sql(sql, arrived=arrived, deleted=deleted, before=held)
    ends = spark.sql(judging.seen_ends("{log_ends}"), log_ends=looks)
    sql = judging.judged("{windows}", "{ends}", "{log_ends}", at_ms)
    judged = spark.sql(sql, windows=windows, ends=ends, log_ends=looks)
    sql = judging.status("{offsets}", "{windows}", "{ends}", "{judged}", "{lag}", "{expiry}", "{before}", at_ms)
    rows = spark.sql(
        sql,
        offsets=inside(in_force),
        windows=windows,
        ends=ends,
        judged=judged,
        lag=inside(of_lag),
        expiry=inside(of_expiry),
        before=held,
    )
    return rows.select(*columns_of(STATUS))


def as_of(history: Mapping[str, DataFrame], moment: datetime) -> dict[str, DataFrame]:
    """`commits`, `open_commits`, `group_records` and `markers` as they were at a moment; `log_ends` too, if given (but
    `lag` at that moment takes all of it).

    Of each partition of the offsets topic the log before the first record whose time is later. A transaction that
    ended later is `open` again: `offsets`, `group_state` and the others take these tables as they take those of today.

    Tables do not say since when they are complete, so any moment is answered. What the cleaner took before the first
    run is not there (`complete_since_ms` of the manifest: `muster table --as-of` says so), nor what `--keep-history`
    has dropped (`retention`: it refuses such a moment).
    """
    missing = [name for name in FROM_THE_LOG if name not in history]
    if missing:
        raise BadInput(f"a moment in the past needs all of history: {', '.join(missing)} is missing.")
    spark = history["commits"].sparkSession
    given = {name: history[name] for name in FROM_THE_LOG}
    ends = _asked(
        spark, queries.prefix_ends(*(f"{{{name}}}" for name in FROM_THE_LOG), as_of_ms=_since_ms(moment)), given
    )
    made = {}
    for name in ("group_records", "markers"):
        sql = queries.before("{rows}", history[name].columns, "{ends}")
        made[name] = spark.sql(sql, rows=history[name], ends=ends)
    sql = queries.commits_before("{commits}", "{open_commits}", "{ends}")
    rows = _asked(spark, sql, {"commits": given["commits"], "open_commits": given["open_commits"], "ends": ends})
    decided = rows.select(*columns_of(COMMITS))
    is_open = F.coalesce(F.col("txn_outcome") == "open", F.lit(False))
    made["commits"], made["open_commits"] = decided.where(~is_open), decided.where(is_open)
    if "log_ends" in history:
        made["log_ends"] = history["log_ends"].where(F.col("observed_at") <= F.lit(moment))
    return made


def _ms_of(length: timedelta) -> int:
    found = length // timedelta(milliseconds=1)
    if found <= 0:
        raise BadInput("an interval is a millisecond at least.")
    return found


def _since_ms(since: datetime | None) -> int:
    return 0 if since is None else int(since.timestamp() * 1000)


def _asked(spark: SparkSession, sql: str, tables: Mapping[str, DataFrame]) -> DataFrame:
    given: dict[str, Any] = {name: inside(table) for name, table in tables.items()}
    return spark.sql(sql, **given)


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
