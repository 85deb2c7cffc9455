"""Published tables by name in Spark SQL: temporary views of one run.

A view stays with the run that was the last when it was made. Spark opens the Parquet files of that run itself, so that
columns and rows which a query does not want are not read; what it cannot open (an object store, a derived table) comes
through `format("muster")`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from muster.errors import BadInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from muster.tables.manifest import Manifest
    from muster.tables.store import TableStore

SUPPORTED = (4, 0)
NEEDS = "pip install 'muster[pipeline]'"


def views(
    spark: "SparkSession", tables: str, prefix: str = "", storage_options: Mapping[str, str] | None = None
) -> list[str]:
    """Make a temporary view of every published table, all of one run; their names."""
    store, manifest = _opened(spark, tables, storage_options)
    from muster.tables.reading import ORDERS

    names = []
    for table in ORDERS:
        frame = _frame(spark, store, manifest, table, storage_options or {})
        frame.createOrReplaceTempView(prefix + table)
        names.append(prefix + table)
    return names


def _opened(
    spark: "SparkSession", tables: str, storage_options: Mapping[str, str] | None
) -> "tuple[TableStore, Manifest]":
    version = tuple(int(part) for part in spark.version.split(".")[:2])
    if version < SUPPORTED:
        raise BadInput(f"muster works with Spark 4.0 to 4.3, and this is {spark.version}: pip install 'pyspark>=4,<5'.")
    try:
        from muster.pipeline.datasource import register
        from muster.pipeline.published import manifest_of_run
        from muster.tables.store import TableStore
    except ImportError as error:
        raise BadInput(f"opening tables needs {error.name}: {NEEDS}.") from None
    store = TableStore(tables, storage_options)
    manifest = manifest_of_run(store, None)
    register(spark)
    return store, manifest


def _frame(
    spark: "SparkSession", store: "TableStore", manifest: "Manifest", table: str, storage_options: Mapping[str, str]
) -> "DataFrame":
    """The rows of a table in one run."""
    from muster.pipeline.published import is_on_disk, struct_of_table

    if not is_on_disk(store.address) or table == "open_commits":
        source = spark.read.format("muster").option("table", table).option("run", manifest.run_id)
        for name, value in storage_options.items():
            source = source.option(f"storage.{name}", value)
        return source.load(store.address)
    struct = struct_of_table(table)
    frame = _files(spark, store.files(table, manifest.tables[table]) if table in manifest.tables else [], struct)
    if table != "rebalances" or "latest_rebalances" not in manifest.tables:
        return frame
    newest = _files(spark, store.files("latest_rebalances", manifest.tables["latest_rebalances"]), struct)
    return frame.unionByName(newest.where("at IS NOT NULL"))


def _files(spark: "SparkSession", files: Sequence[str], struct: Any) -> "DataFrame":
    if not files:
        return spark.createDataFrame([], struct)
    return spark.read.schema(struct).parquet(*(f"file://{file}" for file in files))
