"""`spark.read.format("muster")`: published tables, or an offsets topic itself, as a DataFrame.

    spark.read.format("muster").option("table", "lag").load("tables")                 the last published run
    ....option("asOf", "2026-11-17T08:00:00Z").load("tables")                         as of a moment
    spark.read.format("muster").load("/var/lib/kafka/data")                           every record, all columns
    ....option("table", "commits").load(path)                                         rows of a table of history
    ....option("mode", "latest").load(path)                                           the newest record of each key
    ....option("kafka.bootstrap.servers", "broker:9092").load()                       a live cluster
    spark.readStream.format("muster").load(path)                                      what is written from now on, too

A path with a `_manifest` has published tables (`spark.published`), any other is a log. Of a log, several directories
are separated by commas, and one Spark partition is one partition of the offsets topic. The columns of `records` are the
codec's (`docs/pipeline.md`); `commits`, `group_records` and `markers` have those of the published tables of these
names, and `muster.pipeline.frames` makes state of them. Streams are in `spark.stream`.
"""

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from muster.errors import BadInput
from muster.pipeline.frames import struct_of
from muster.pipeline.spark.log_reader import (
    OF_A_LOG,
    OF_A_STREAM,
    SHAPES,
    STORAGE,
    BatchReader,
    address_of_tables,
    beginning,
    checked_options,
    refuse,
    table_of_log,
)
from muster.pipeline.spark.published import TableReader, known_table, struct_of_table


class OffsetsTopic(DataSource):
    """The data source; register it with `register`, or let Spark find the module `pyspark_muster`."""

    @classmethod
    def name(cls) -> str:
        return "muster"

    def schema(self) -> StructType:
        options = checked_options(self.options)
        address = address_of_tables(options)
        if address is None:
            return struct_of(SHAPES[table_of_log(options)])
        return struct_of_table(known_table(options.get("table")))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = checked_options(self.options)
        refuse(options, OF_A_STREAM, "is for spark.readStream. Leave it out here")
        address = address_of_tables(options)
        if address is None:
            return BatchReader(options)
        refuse(options, OF_A_LOG, "is about a log, and these are published tables. Leave it out")
        table = known_table(options.get("table"))
        return TableReader(address, beginning(options, STORAGE), table, schema, options.get("asOf"), options.get("run"))

    def streamReader(self, schema: StructType) -> Any:
        from muster.pipeline.spark.stream import Refused, StreamReader

        options = checked_options(self.options)
        address = address_of_tables(options)
        if address is not None:
            return Refused(
                f"{address} has published tables, and a stream follows a log. Read them with spark.read, or follow the "
                "log that they are made of."
            )
        try:
            return StreamReader(options)
        except BadInput as error:
            return Refused(str(error))


def register(spark: Any) -> None:
    """Make `format("muster")` known to a session that does not find it by itself."""
    spark.dataSource.register(OffsetsTopic)
