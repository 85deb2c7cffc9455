"""The step of a run that looks for trouble: `findings`, all rows anew, by one task.

The SQL is of `muster.tables.findings`, run by duckdb. It is asked of what the run has just made: state, and of history
the files of the last day.

Damage is in no table: a run meets it once, where it reads. So runs hand it on in the manifest.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from muster.pipeline.engine import Engine
from muster.pipeline.interval_task import all_rebalances, limited_duckdb
from muster.pipeline.model import PartitionReport
from muster.tables import queries
from muster.tables.changes import Run
from muster.tables.files import Options, TableWriter, WrittenFile
from muster.tables.finding import Asked
from muster.tables.findings import LOOKED_BACK, NEEDED, findings
from muster.tables.findings_of_logs import DAMAGE_KEPT_MS
from muster.tables.relations import add_damage, add_relation
from muster.tables.schemas import FINDINGS, TABLES, published_name
from muster.tables.sentences import DUCKDB

MOST_DAMAGE = 200
"""Partitions with damage that are remembered; the newest count."""
READ = (*(name for name in NEEDED if name in TABLES), "latest_rebalances")


class Finding(NamedTuple):
    """What the task looks into."""

    files: Mapping[str, Sequence[str]]
    """By table."""
    damage: Sequence[Mapping[str, Any]]
    """Rows of `findings_of_logs.DAMAGE`."""
    at_ms: int
    lists_all_topics: bool
    tables: str
    storage_options: Options
    run_id: str
    memory_mb: int


def find(
    run: Run,
    engine: Engine,
    at_ms: int,
    lists_all_topics: bool,
    damage: Sequence[Mapping[str, Any]],
    options: Options = (),
) -> int:
    """Make `findings` as of a moment; gives how many there are."""
    since_ms = Asked(at_ms).since_ms
    files = {table: _files(run, table, since_ms) for table in READ}
    place = (run.store.address, tuple(options), run.run_id, engine.task_memory_mb)
    (made,) = engine.each("findings", find_task, [Finding(files, damage, at_ms, lists_all_topics, *place)])
    run.replace("findings", made)
    return sum(file.rows for file in made)


def _files(run: Run, table: str, since_ms: int) -> list[str]:
    if not run.has(table):
        return []
    if table in LOOKED_BACK:
        return run.files_since(table, [published_name(LOOKED_BACK[table])], since_ms)
    return run.files(table)


def remembered_damage(
    before: Sequence[Mapping[str, Any]], reports: Sequence[PartitionReport], at_ms: int
) -> list[dict[str, Any]]:
    """What the next run is told of damage: what this one has found, and what is not too long ago."""
    new = [
        {
            "offsets_partition": report.offsets_partition,
            "found_at_ms": at_ms,
            "places": len(report.damage) + report.untold_damage,
            "example": report.damage[0],
        }
        for report in reports
        if report.damage
    ]
    kept = [dict(each) for each in before if each["found_at_ms"] > at_ms - DAMAGE_KEPT_MS.value]
    return [*kept, *new][-MOST_DAMAGE:]


def find_task(work: Finding) -> list[WrittenFile]:
    """Look for everything; run again, it writes other files with the same rows."""
    with limited_duckdb(work.memory_mb) as connection:
        relations = _opened(connection, work)
        asked = Asked(work.at_ms, work.lists_all_topics, DUCKDB)
        sql = f"{findings(relations, asked)} ORDER BY severity, kind, group_id, topic, partition"
        return _written(work, connection.sql(sql).to_arrow_reader())


def _opened(connection: duckdb.DuckDBPyConnection, work: Finding) -> dict[str, str]:
    """The relations that findings are asked of; `rebalances` with the newest, which are kept apart."""
    for table, files in work.files.items():
        add_relation(connection, table, TABLES[table], files, work.tables, dict(work.storage_options))
    add_damage(connection, work.damage)
    return {name: name for name in NEEDED} | {
        "rebalances": f"({all_rebalances('rebalances', 'latest_rebalances')})",
        "open_commits": f"({queries.open_offsets('open_commits')})",
    }


def _written(work: Finding, batches: Any) -> list[WrittenFile]:
    writer = TableWriter("findings", FINDINGS, f"{work.tables}/findings", work.storage_options, work.run_id)
    try:
        for batch in batches:
            writer.append(pa.Table.from_batches([batch]).cast(FINDINGS))
        writer.close()
    finally:
        writer.abandon()
    return writer.files
