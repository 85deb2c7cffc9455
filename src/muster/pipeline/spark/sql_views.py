"""Published tables by name in Spark SQL: temporary views, or views in a catalog. All are of one run.

A view stays with the run that was the last when it was made. Of temporary ones Spark opens the Parquet files of that
run itself, so that columns and rows which a query does not want are not read; what it cannot open (an object store, a
derived table) comes through `format("muster")`.

A catalog keeps the text of a view, and what that names must be found again by any session: Delta's tables in the
versions that the run has published. So these views need Delta in the session that makes them and in those that read
them. A table of the catalog, by its location, would show the newest version, published or not. Spark keeps the options
of a table `USING muster` to itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from muster.errors import BadInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from muster.tables.storage.manifest import Manifest
    from muster.tables.storage.store import TableStore

NEEDS = "pip install 'muster[pipeline]'"
SESSION_CATALOG = "spark_catalog"
OURS = "muster.tables"
"""A property of the views that are made here: the address of their tables."""


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


def register_views(
    spark: "SparkSession",
    tables: str,
    place: str,
    storage_options: Mapping[str, str] | None = None,
    known: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Make, or bring up to date, a view of every published table in `CATALOG.SCHEMA`; their versions by name.

    A table that is in the version of `known` is left alone. The schema is made if it is not there. A table or view
    that muster did not make is not replaced.
    """
    check_catalog(spark, place)
    store, manifest = _opened(spark, tables, storage_options)
    from muster.tables.about import ABOUT
    from muster.tables.reading import ORDERS

    shown = {table: _version(manifest, table) for table in ORDERS}
    texts = _view_texts(store.address, manifest)
    due = {table: texts.get(table) or _no_rows(table) for table in ORDERS}
    due = {table: sql for table, sql in due.items() if (known or {}).get(table) != shown[table]}
    if not due:
        return shown
    schema = ".".join(_quoted(part) for part in place.split("."))
    with _told(place):
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        there = {row["tableName"] for row in spark.sql(f"SHOW TABLES IN {schema}").collect() if not row["isTemporary"]}
        for table in sorted(there.intersection(due)):
            (found,) = spark.sql(f"SHOW TBLPROPERTIES {schema}.{table} ('{OURS}')").collect()
            if found["value"] != store.address and table not in manifest.tables:
                del due[table]  # there is nothing to show yet, and the name is taken
            elif found["value"] != store.address:
                raise BadInput(
                    f"{place} has a table or view called {table} that does not show the tables at {store.address}. "
                    "Drop it, or name another schema."
                )
        for table, sql in due.items():
            about, address = _text(ABOUT[table]), _text(store.address)
            spark.sql(
                f"CREATE OR REPLACE VIEW {schema}.{table} COMMENT {about} TBLPROPERTIES ('{OURS}' = {address}) AS {sql}"
            )
    return shown


def check_catalog(spark: "SparkSession", place: str) -> None:
    """Raise BadInput where no view can be made there, as far as the session's settings tell."""
    catalog, _, schema = place.partition(".")
    if not catalog or not schema or "." in schema:
        raise BadInput(f"'{place}' is not CATALOG.SCHEMA. Spark's own catalog is {SESSION_CATALOG}.")
    configured = spark.conf.get(f"spark.sql.catalog.{catalog}", None)
    if configured is None and catalog not in {row["catalog"] for row in spark.sql("SHOW CATALOGS").collect()}:
        raise BadInput(
            f"this Spark session has no catalog '{catalog}'. --conf spark.sql.catalog.{catalog}=CLASS sets one up; "
            f"Spark's own is {SESSION_CATALOG}."
        )
    has_delta = "delta" in (spark.conf.get("spark.sql.extensions", "") or "").lower()
    if not has_delta:
        line = ".".join(spark.version.split(".")[:2])
        raise BadInput(
            "views in a catalog need Delta, and this Spark session is without: "
            f"--conf spark.jars.packages=io.delta:delta-spark_{line}_2.13:VERSION "
            "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
            f"--conf spark.sql.catalog.{SESSION_CATALOG}=org.apache.spark.sql.delta.catalog.DeltaCatalog."
        )


def _version(manifest: "Manifest", table: str) -> int:
    """A number that is another one whenever a table's view is; of a table that no run has written yet, -1."""
    newest = manifest.tables.get("latest_rebalances", 0) if table == "rebalances" else 0
    return manifest.tables.get(table, -1) + newest


def _view_texts(address: str, manifest: "Manifest") -> dict[str, str]:
    """The query behind the view of each table."""
    place = address.replace("s3://", "s3a://", 1) if "://" in address else f"file://{address}"
    rows = {
        table: f"SELECT * FROM delta.{_quoted(f'{place}/{table}')} VERSION AS OF {version}"
        for table, version in manifest.tables.items()
    }
    texts = dict(rows)
    if "latest_rebalances" in rows:
        from muster.tables.schemas import PUBLISHED

        names = ", ".join(_quoted(name) for name in PUBLISHED["rebalances"].names)
        newest = f"SELECT {names} FROM ({rows['latest_rebalances']}) WHERE at IS NOT NULL"
        before = f"SELECT {names} FROM ({rows['rebalances']}) UNION ALL " if "rebalances" in rows else ""
        texts["rebalances"] = before + newest
    if "open_commits" in rows:
        key = "group_id, topic, partition"
        ended = (
            f"SELECT {key}, max(log_offset) AS ended FROM ({rows['open_commits']}) WHERE kind <> 'commit' GROUP BY ALL"
        )
        texts["open_commits"] = (
            f"SELECT c.* FROM ({rows['open_commits']}) c LEFT ANTI JOIN ({ended}) d ON c.group_id = d.group_id "
            "AND c.topic = d.topic AND c.partition = d.partition AND c.log_offset <= d.ended "
            "WHERE c.kind = 'commit' AND c.txn_outcome = 'open'"
        )
    return texts


def _no_rows(table: str) -> str:
    """The query behind the view of a table that no run has written yet: it has its columns all the same."""
    from muster.pipeline.spark.published import struct_of_table

    columns = (
        f"CAST(NULL AS {field.dataType.simpleString()}) AS {_quoted(field.name)}" for field in struct_of_table(table)
    )
    return f"SELECT {', '.join(columns)} WHERE FALSE"


@contextmanager
def _told(place: str) -> Iterator[None]:
    """What the catalog says, in one line."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        words = str(error).strip().partition("\n")[0].rstrip(". ") or type(error).__name__
        raise BadInput(
            f"the tables cannot be registered in {place}: {words}. The catalog must take views; the run is published, "
            "and `muster.pipeline.views` shows it in any session."
        ) from error


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _opened(
    spark: "SparkSession", tables: str, storage_options: Mapping[str, str] | None
) -> "tuple[TableStore, Manifest]":
    from muster.pipeline.spark.session import check_supported

    check_supported(spark.version)
    try:
        from muster.pipeline.datasource import register
        from muster.pipeline.spark.published import manifest_of_run
        from muster.tables.storage.store import TableStore
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
    from muster.pipeline.spark.published import is_on_disk, struct_of_table

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
