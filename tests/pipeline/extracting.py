"""Running the extract step in tests: a work for each partition of a folder, and the rows of what was written."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from muster.pipeline.extract.partition import extract
from muster.pipeline.model import ExtractContext, Extracted, PartitionReport, PartitionWork
from muster.pipeline.packets import KINDS, rows_of
from muster.pipeline.sources.replicas import describe_partition
from muster.segments.sources import partitions_under
from muster.tables.schemas import COMMITS, GROUP_RECORDS, MARKERS
from muster.tables.times import inner

Row = dict[str, Any]
HISTORY = ("commits", "group_records", "markers")
SCHEMAS = {"commits": COMMITS, "group_records": GROUP_RECORDS, "markers": MARKERS}
DAY_MS = 24 * 60 * 60 * 1000


class Found(NamedTuple):
    """What one task wrote or sent, as it is inside, by table and kind of packet in log order, and what it reported."""

    tables: Mapping[str, list[Row]]
    extracted: Extracted

    @property
    def report(self) -> PartitionReport:
        (report,) = self.extracted.reports
        return report

    def offsets(self, table: str) -> list[int]:
        return [row["log_offset"] for row in self.tables[table]]


def context_in(folder: Path, **changes: Any) -> ExtractContext:
    plain = ExtractContext("run", str(folder / "tables"), (), True, False, 7 * DAY_MS, (), ())
    return plain._replace(**changes)


def works_of(folder: Path, **changes: Any) -> list[PartitionWork]:
    """A work for everything there is of each partition in a folder."""
    works = []
    for partition in partitions_under(folder):
        described = describe_partition([partition.directory])
        number = partition.partition or 0
        work = PartitionWork(number, described.source, 0, described.end_offset, False, 0)
        works.append(work._replace(**changes))
    return works


def run(works: Iterable[PartitionWork], context: ExtractContext) -> Found:
    extracted = extract(list(works), context)
    tables: dict[str, list[Row]] = {name: [] for name in (*HISTORY, *KINDS)}
    for file in extracted.files:
        path = Path(context.tables) / file.table / file.path
        assert path.stat().st_size == file.size_bytes
        rows = inner(pq.ParquetFile(path).read(), SCHEMAS[file.table]).to_pylist()
        assert len(rows) == file.rows
        tables[file.table] += rows
    for kind in KINDS:
        tables[kind] += rows_of(extracted.packets, kind).read_all().to_pylist()
    for packet in extracted.packets:
        (partition,) = {row["offsets_partition"] for row in rows_of([packet], packet.kind).read_all().to_pylist()}
        assert partition == packet.offsets_partition
    for rows in tables.values():
        rows.sort(key=lambda row: (row["offsets_partition"], row.get("log_offset", 0)))
    return Found(tables, extracted)
