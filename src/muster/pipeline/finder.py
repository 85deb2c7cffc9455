"""How a run looks for trouble: `findings`, all rows anew, by one task.

The SQL is of `muster.tables.findings`, run by duckdb. It is asked of what the run has just made: state, and of history
the files of the last day.

Damage is in no table: a run meets it once, where it reads. So runs hand it on in the manifest.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb

from muster.pipeline.interval_task import Place, rows, written
from muster.pipeline.model import PartitionReport
from muster.tables.findings.finding import Asked
from muster.tables.findings.kinds import LOOKED_BACK, NEEDED, findings
from muster.tables.findings.of_logs import DAMAGE_KEPT_MS
from muster.tables.relations import add_damage, add_relation
from muster.tables.schemas import TABLES, published_name
from muster.tables.sql import queries
from muster.tables.sql.dialects import DUCKDB
from muster.tables.storage.changes import Run
from muster.tables.storage.files import WrittenFile

MOST_DAMAGE = 200
"""Partitions with damage that are remembered; the newest count."""
READ = (*(name for name in NEEDED if name in TABLES), "latest_rebalances")


class Finding(NamedTuple):
    """What the task looks into."""

    files: Mapping[str, Sequence[str]]
    """By table; others that are needed are in the task's duckdb already."""
    damage: Sequence[Mapping[str, Any]]
    """Rows of `of_logs.DAMAGE`."""
    at_ms: int
    lists_all_topics: bool
    place: Place


def finding(
    run: Run,
    at_ms: int,
    lists_all_topics: bool,
    damage: Sequence[Mapping[str, Any]],
    place: Place,
    but: Collection[str] = (),
) -> Finding:
    """The task that looks for trouble as of a moment; it opens all tables `but` some."""
    since_ms = Asked(at_ms).since_ms
    files = {table: _files(run, table, since_ms) for table in READ if table not in but}
    return Finding(files, damage, at_ms, lists_all_topics, place)


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


def find_in(connection: duckdb.DuckDBPyConnection, work: Finding, opened: Mapping[str, str]) -> list[WrittenFile]:
    """Look for everything. `opened` has tables that are in the connection already, and what they are called there."""
    relations = _relations(connection, work, opened)
    asked = Asked(work.at_ms, work.lists_all_topics, DUCKDB)
    # As a table: a query that is read from would be planned twice, and most of the work is the planning.
    connection.execute(f"CREATE TEMP TABLE made_findings AS {findings(relations, asked)}")
    sql = "SELECT * FROM made_findings ORDER BY severity, kind, group_id, topic, partition"
    return written("findings", work.place, rows(connection, sql, "findings"))


def _relations(connection: duckdb.DuckDBPyConnection, work: Finding, opened: Mapping[str, str]) -> dict[str, str]:
    """What findings are asked of; `rebalances` with the newest, which are kept apart."""
    place, names = work.place, {"damage": "damage", **opened}
    add_damage(connection, work.damage)
    for table, files in work.files.items():
        names[table] = f"asked_{table}"
        add_relation(connection, names[table], TABLES[table], files, place.tables, dict(place.storage_options))
    return {name: names[name] for name in NEEDED} | {
        "rebalances": f"({queries.all_rebalances(names['rebalances'], names['latest_rebalances'])})",
        "open_commits": f"({queries.open_offsets(names['open_commits'])})",
    }
