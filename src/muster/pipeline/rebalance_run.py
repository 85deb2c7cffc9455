"""Rebalances after a run: records of this run on top of what the last one left. Pure, on Arrow tables."""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from muster.pipeline.rebalances import rebalances_table, with_first_commit
from muster.tables.schemas import LATEST_REBALANCES, REBALANCES


class Activity(NamedTuple):
    """Commits of groups (`schemas.ACTIVITY`): up to the last run, and in what this one has read."""

    before: pa.Table
    now: pa.Table


class Rebalances(NamedTuple):
    """Final rows to append to `rebalances`, and all that `latest_rebalances` and `activity` have from now on."""

    final: pa.Table
    latest: pa.Table
    activity: pa.Table


def rebalances_now(records: pa.Table, state: pa.Table, latest: pa.Table, activity: Activity) -> Rebalances:
    """What new rows of `group_records`, by group and in log order, say about rebalances.

    `state` are the rows of `group_state` before them, `latest` those of `latest_rebalances`.
    """
    latest = _with_first_commits(latest, activity.now)
    rows = rebalances_table(records, state, latest)
    is_newest = pc.is_valid(rows["carry"])
    return Rebalances(
        rows.filter(pc.invert(is_newest)).select(REBALANCES.names).cast(REBALANCES),
        pa.concat_tables([_of_other_groups(latest, rows), rows.filter(is_newest)]),
        pa.concat_tables([_of_other_groups(activity.before, activity.now), activity.now]),
    )


def _of_other_groups(table: pa.Table, others: pa.Table) -> pa.Table:
    groups = pc.unique(others["group_id"]) if others.num_rows else pa.array([], pa.string())
    return table.filter(pc.invert(pc.is_in(table["group_id"], value_set=groups)))


def _by_group(table: pa.Table, column: str) -> dict[str, int | None]:
    return dict(zip(table["group_id"].to_pylist(), table[column].to_pylist(), strict=True))


def _with_first_commits(latest: pa.Table, activity: pa.Table) -> pa.Table:
    """Complete rows of earlier runs by the group's first commit since, if that came before its next generation."""
    first_ms = {group: ms for group, ms in _by_group(activity, "first_commit_ms").items() if ms is not None}
    groups = pa.array(list(first_ms), pa.string())
    missing = pc.and_(pc.is_null(latest["first_commit_after_ms"]), pc.equal(latest["type"], "classic"))
    waiting = pc.fill_null(pc.and_(missing, pc.is_in(latest["group_id"], value_set=groups)), False)
    if not pc.any(waiting).as_py():
        return latest
    rows = [with_first_commit(row, first_ms[row["group_id"]]) for row in latest.filter(waiting).to_pylist()]
    return pa.concat_tables([latest.filter(pc.invert(waiting)), pa.Table.from_pylist(rows, LATEST_REBALANCES)])
