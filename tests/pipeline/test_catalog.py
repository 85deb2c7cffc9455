"""`--register`: the published run as views in a catalog, on a Spark with Delta; and sentences where that cannot be."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyspark
import pytest

from muster.errors import BadInput
from muster.pipeline import register_views
from muster.tables.reading import ORDERS, open_tables
from muster.tables.schemas import PUBLISHED
from muster.tables.storage.changes import begin_run
from muster.tables.storage.store import TableStore
from tests.kit.kafka import REPOSITORY
from tests.kit.spark import delta_conf, require_delta
from tests.pipeline.world import GrowingLog, run_here, unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REGISTERED = """
import json, sys
from muster.errors import BadInput
from muster.pipeline import register_views
from muster.pipeline.spark.session import spark_session

conf, tables, later = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
spark = spark_session("local[2]", conf)

def counted(schema, names=("commits", "lag", "offsets", "open_commits", "rebalances")):
    return {name: spark.table(f"spark_catalog.{schema}.{name}").count() for name in names}

told = {}
shown = register_views(spark, tables, "spark_catalog.kafka")
told["views"] = [row["viewName"] for row in spark.sql("SHOW VIEWS IN spark_catalog.kafka").collect()]
told["first"] = counted("kafka")
told["later"] = counted("later", register_views(spark, later, "spark_catalog.later"))
told["again"] = shown == register_views(spark, tables, "spark_catalog.kafka", known=shown | {"lag": -1})
for name in ("lag", "rebalances"):
    described = spark.sql(f"DESCRIBE EXTENDED spark_catalog.kafka.{name}").collect()
    told[name] = {row["col_name"]: [row["data_type"], row["comment"]] for row in described}
for place, refused in (("spark_catalog.kafka", later), ("spark_catalog.mine", tables)):
    try:
        spark.sql("CREATE SCHEMA IF NOT EXISTS spark_catalog.mine")
        spark.sql("CREATE OR REPLACE VIEW spark_catalog.mine.groups AS SELECT 1 AS own")
        register_views(spark, refused, place)
    except BadInput as error:
        told[place] = str(error)
told["mine"] = spark.sql("SELECT own FROM spark_catalog.mine.groups").collect()[0][0]
print(json.dumps(told))
spark.stop()
"""


def counts_of(tables: Path) -> dict[str, int]:
    with open_tables(tables) as opened:
        return {table: opened.read(table).table().num_rows for table in ORDERS}


@pytest.mark.matrix
@pytest.mark.spark
def test_views_in_a_catalog_show_the_published_run(tmp_path: Path) -> None:
    conf = delta_conf(require_delta(pyspark.__version__)) | {
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    tables, later = tmp_path / "it's a place", tmp_path / "later"
    log = GrowingLog(unpacked("k43-all", tmp_path), tmp_path / "log", Random(4))
    for is_last in (False, True):
        log.grow(is_last)
        run_here(tables, log.target, analytics=True)
    run_here(later, log.target)  # has not all tables: no run was asked for those by interval, and some had no row
    published = counts_of(tables)
    with begin_run(TableStore(tables)) as killed:  # a newer version of two tables, which no manifest names
        killed.replace("lag", [])
        killed.replace("offsets", [])
    ended = subprocess.run(
        [sys.executable, "-c", REGISTERED, json.dumps(conf), str(tables), str(later)],
        capture_output=True, text=True, timeout=1500, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY / "src")},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["again"]
    assert set(told["views"]) == set(published)
    assert told["first"] == {table: published[table] for table in told["first"]}
    assert told["later"] == counts_of(later)
    assert 0 in told["later"].values()
    for name in ("lag", "rebalances"):
        comments = {field.name: (field.metadata or {}).get(b"comment", b"").decode() for field in PUBLISHED[name]}
        assert {column: told[name][column][1] for column in comments} == comments
    assert told["lag"]["commit_timestamp"][0] == "timestamp"
    assert "has a table or view called activity that does not show the tables at" in told["spark_catalog.kafka"]
    assert "has a table or view called groups that does not show" in told["spark_catalog.mine"]
    assert told["mine"] == 1


@pytest.mark.spark
@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("kafka", "'kafka' is not CATALOG.SCHEMA. Spark's own catalog is spark_catalog."),
        ("a.b.c", "'a.b.c' is not CATALOG.SCHEMA."),
        ("lake.kafka", "this Spark session has no catalog 'lake'. --conf spark.sql.catalog.lake=CLASS sets one up"),
        ("spark_catalog.kafka", "need Delta, and this Spark session is without: --conf spark.jars.packages=io.delta:"),
    ],
)
def test_a_place_that_takes_no_views_is_refused(
    spark: "SparkSession", place: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as refused:
        register_views(spark, str(tmp_path), place)
    assert sentence in str(refused.value)
