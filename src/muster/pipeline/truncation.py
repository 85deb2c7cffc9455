"""What a truncation of the log takes from rows that were derived from the records that it cut off.

Rebalances of a group are told from its records one after the other. Where some of these were cut off, its rebalances
are told anew from those that are left in `group_records`. All other groups of the partition keep what is known of
theirs: `--keep-history` may have dropped the records that it was told from.
"""

from contextlib import closing

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from muster.pipeline.plan import Cut
from muster.tables.clocks import is_ahead
from muster.tables.relations import add_relation
from muster.tables.schemas import TABLES
from muster.tables.storage.changes import Run
from muster.tables.storage.manifest import PartitionProgress

BEHIND = ("group_records", "rebalances", "latest_rebalances", "commits")


def groups_cut(run: Run, cut: Cut) -> set[str]:
    """Groups with records at or behind a cut; and those whose last rebalance was completed by a commit behind it."""
    with closing(duckdb.connect(config={"threads": 1})) as connection:
        for table in BEHIND:
            files, store = _files_behind(run, table, cut.log_offset), run.store
            add_relation(connection, table, TABLES[table], files, store.address, store.storage_options)
        add_relation(
            connection, "latest", TABLES["latest_rebalances"], run.files("latest_rebalances"), run.store.address,
            run.store.storage_options,
        )  # fmt: skip
        here = f"offsets_partition = {cut.offsets_partition}"
        behind = f"{here} AND log_offset >= {cut.log_offset}"
        own = " UNION ".join(f"SELECT group_id FROM {table} WHERE {behind}" for table in BEHIND if table != "commits")
        rows = connection.execute(f"""
            {own} UNION SELECT l.group_id FROM latest l JOIN (
                SELECT group_id, min(least(timestamp_ms, commit_timestamp_ms)) AS first_ms FROM commits
                WHERE {behind} GROUP BY group_id
            ) c ON l.group_id = c.group_id AND l.first_commit_after_ms >= c.first_ms
            WHERE l.{here}""").fetchall()
    return {group for (group,) in rows if group is not None}


def _files_behind(run: Run, table: str, log_offset: int) -> list[str]:
    """Without the files of which bounds say that all rows stand before a place in the log."""
    if not run.has(table):
        return []
    facts = run.facts(table)
    if "max.log_offset" not in facts.column_names:
        return run.files(table)
    is_before = pc.fill_null(pc.less(facts["max.log_offset"].cast(pa.int64()), log_offset), False)
    names = facts["path"].filter(pc.invert(is_before)).to_pylist()
    return sorted(f"{run.store.address}/{table}/{name}" for name in names)


def is_in_dropped_history(cut: Cut, known: PartitionProgress, since_ms: int, looked_at_ms: int) -> bool:
    """Whether a log was cut where `--keep-history` may have dropped rows, as of which it is now.

    Rows are dropped before the first record dated after the horizon: one of those before the cut says that none were.
    """
    return not any(
        offset < cut.log_offset and time_ms > since_ms and not is_ahead(time_ms, looked_at_ms)
        for offset, time_ms in known.landmarks
    )
