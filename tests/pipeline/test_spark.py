"""The job on Spark itself, and the tables as functions of DataFrames."""

import socket
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest

from muster.cli.status import Status
from muster.errors import BadInput
from muster.pipeline.engine import SparkEngine
from muster.pipeline.job import Request, run
from muster.pipeline.sources.log_ends import moment_of, numbered
from muster.pipeline.sources.offsets_topic import LogDirectories
from muster.pipeline.spark.session import complaint, in_one_line, spark_session
from muster.tables.schemas import GROUPS, LAG, LOG_ENDS, MEMBERS, OFFSETS, TABLES, TIMES, published_form
from muster.tables.sql import queries
from muster.tables.sql.ends import ends_at, newest_ends
from muster.tables.sql.lag import lag
from muster.tables.times import inner, published
from tests.cli import corpus, run_process
from tests.pipeline.test_job import HISTORY, STATE, sorted_rows
from tests.pipeline.world import GrowingLog, rows_of, run_here, unpacked
from tests.tables.history import history_of, state_at_the_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def test_a_run_on_spark_is_the_run_in_process(spark: "SparkSession", tmp_path: Path) -> None:
    """Twice on Spark, over a log that grew in between; once here, over all of it."""
    growing = GrowingLog(unpacked("k43-all", tmp_path), tmp_path / "growing", Random(5))
    records = 0
    for last in (False, True):
        growing.grow(last)
        summary = run(SparkEngine(spark), Request([str(growing.target)], str(tmp_path / "spark")))
        records += summary.records
    here = run_here(tmp_path / "here", growing.target)
    assert records == here.records == 2294
    names = (*STATE, *HISTORY, "lag")
    on_spark, in_process = (rows_of(tmp_path / each, *names) for each in ("spark", "here"))
    for table in names:
        assert sorted_rows(on_spark[table]) == sorted_rows(in_process[table]), table
        assert on_spark[table], table
    assert len(on_spark["open_commits"]) == history_of("k43-all")["open_commits"].num_rows


def in_spark(spark: "SparkSession", tables: dict[str, pa.Table]) -> dict[str, "DataFrame"]:
    from muster.pipeline.frames import struct_of

    found = {name: published(table, published_form(table.schema)) for name, table in tables.items()}
    return {name: spark.createDataFrame(table, struct_of(table.schema)) for name, table in found.items()}


def test_frames_are_what_duckdb_says(spark: "SparkSession", tmp_path: Path) -> None:
    from muster.pipeline import frames

    name = "k43-full"
    expected = dict(state_at_the_end(name))
    source = LogDirectories([unpacked(name, tmp_path)])
    look = source.look({})
    ends = numbered(look.log_ends, 0, moment_of(look.log_ends, look.looked_at_ms, None)[0])
    first = {(row["topic"], row["partition"]): row["committed_offset"] for row in expected["offsets"].to_pylist()}
    times = source.times()({place: [offset] for place, offset in first.items()})
    two_looks, between_ms = looked_at_again(ends.cast(LOG_ENDS))
    with duckdb.connect() as connection:
        for table, rows in {**expected, "log_ends": ends, "two_looks": two_looks, "times": times}.items():
            connection.register(table, rows)

        def lag_here(log_ends: str, newest: str, times: str | None) -> pa.Table:
            sql = lag("offsets", log_ends, f"({newest})", "members", times, queries.DUCKDB_EXPLODE)
            return connection.sql(sql).to_arrow_table().select(LAG.names).cast(LAG)

        expected["lag"] = lag_here("log_ends", newest_ends("log_ends"), "times")
        lag_between = lag_here("two_looks", ends_at("two_looks", between_ms), None)

    # Each function gets rows, not the plan of the one before it: Spark would take longer to plan them than to run.
    given = in_spark(spark, {each: table.cast(TABLES[each]) for each, table in expected.items()})
    more = in_spark(spark, {"log_ends": ends.cast(LOG_ENDS), "times": times.cast(TIMES), "two_looks": two_looks})
    made = {
        "offsets": frames.offsets(given["commits"]),
        "group_state": frames.group_state(given["group_records"]),
        "members": frames.members(given["group_state"]),
        "groups": frames.groups(given["group_state"], given["offsets"], given["open_commits"]),
        "lag": frames.lag(given["offsets"], more["log_ends"], given["members"], more["times"]),
    }
    for table, schema in {"offsets": OFFSETS, "members": MEMBERS, "groups": GROUPS, "lag": LAG}.items():
        assert made[table].columns == published_form(schema).names
    for table, frame in made.items():
        rows = inner(frame.toArrow(), TABLES[table]).to_pylist()
        assert sorted_rows(rows) == sorted_rows(expected[table].to_pylist()), table
        assert rows
    assert any(row["lag_ms_by"] == "exact" for row in expected["lag"].to_pylist())

    moment = datetime.fromtimestamp(between_ms / 1000, UTC)
    frame = frames.lag(given["offsets"], more["two_looks"], given["members"], moment=moment)
    rows = inner(frame.toArrow(), LAG).to_pylist()
    assert sorted_rows(rows) == sorted_rows(lag_between.to_pylist())
    assert any(row["log_end_by"] == "interpolated" for row in rows)


def looked_at_again(ends: pa.Table) -> tuple[pa.Table, int]:
    """The same ends and others a minute later, and a moment between."""
    again = [
        row | {"observed_at_ms": row["observed_at_ms"] + 60_000, "run_number": 1}
        | {name: row[name] + 7 for name in ("log_end_offset", "last_stable_offset") if row[name] is not None}
        for row in ends.to_pylist()
    ]  # fmt: skip
    two_looks = pa.concat_tables([ends, pa.Table.from_pylist(again, schema=LOG_ENDS)])
    return two_looks, again[0]["observed_at_ms"] - 20_001


def test_numbers_of_records_are_the_same_in_both(spark: "SparkSession") -> None:
    numbers = (-(2**63), -(2**62), -5, 0, 7, 2**48 + 8, 2**61, 2**63 - 1, None)
    pairs = pa.table({"a": [a for a in numbers for _ in numbers], "b": [b for _ in numbers for b in numbers]})
    sql = f"""SELECT p.a, p.b, {queries.difference("p.a", "p.b")} AS d FROM {{pairs}} p"""
    total = f"SELECT {queries.added_up('p.a')} AS total FROM {{pairs}} p WHERE p.a > 0"
    frame = spark.createDataFrame(pairs)
    with duckdb.connect() as connection:
        connection.register("pairs", pairs)
        for each in (sql, total):
            here = connection.sql(each.format(pairs="pairs")).to_arrow_table().to_pylist()
            assert sorted_rows(spark.sql(each, pairs=frame).toArrow().to_pylist()) == sorted_rows(here)
            assert here
    assert here == [{"total": queries.MOST}]


def test_a_running_session_is_taken(spark: "SparkSession") -> None:
    from pyspark.sql import SparkSession

    spark.range(1).count()
    again = spark_session("local[2]")
    assert again.sparkContext is spark.sparkContext
    assert isinstance(again, SparkSession)


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--conf", "spark.driver.memory=lots"), "Invalid maximum heap size: -Xmxlots"),
        (("--master", "nowhere"), "org.apache.spark.SparkException: "),
    ],
)
def test_spark_that_does_not_start_is_one_sentence(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    ran = run_process(
        "pipeline", "run", "--source", corpus("mini-zstd-43"), "--out", tmp_path / "t", *arguments, timeout=200
    )
    assert ran.status == Status.BAD_INPUT, ran
    announced, sentence = ran.err.splitlines()
    assert announced == "muster: starting Spark."
    assert sentence.startswith("muster: Spark did not start: ")
    assert said in sentence


def test_a_master_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    words = ("--master", "spark://127.0.0.1:1,127.0.0.1:2")
    ran = run_process("pipeline", "run", "--source", corpus("mini-zstd-43"), "--out", tmp_path / "t", *words)
    assert ran.status == Status.BAD_INPUT
    assert "muster: no Spark master answers at spark://127.0.0.1:1,127.0.0.1:2: " in ran.err


def test_of_what_java_prints_one_line_matters() -> None:
    trace = """WARNING: Using incubator modules: jdk.incubator.vector
Setting default log level to "WARN".
Exception in thread "main" org.apache.spark.SparkException: Could not parse Master URL: 'nowhere'
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1)
"""
    assert complaint(trace) == "org.apache.spark.SparkException: Could not parse Master URL: 'nowhere'"
    assert complaint("WARNING: Using incubator modules\n") == ""
    java = "An error occurred while calling o1.x.\n: java.lang.IllegalStateException: No.\n\tat a.b.C(D.java:1)\n"
    assert in_one_line(Exception(java)) == "java.lang.IllegalStateException: No"
    assert in_one_line(Exception()) == "Exception"


def test_a_spark_connect_server_that_is_not_there_is_told_at_once() -> None:
    with socket.socket() as taken:  # bound and not listening: a connection is refused
        taken.bind(("127.0.0.1", 0))
        address = f"sc://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BadInput, match=f"no Spark Connect server answers at {address}: .*start-connect-server.sh"):
            spark_session(address)
