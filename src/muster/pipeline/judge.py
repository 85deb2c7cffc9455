"""How a run judges: `expiry`, `status` and `verdicts`, all rows anew, by tasks of some groups each.

The SQL is of `muster.tables` (`expiry`, `judging`), run by duckdb. A task takes the groups of one residue of a hash;
one task is enough but for the largest clusters. A run costs what is in force, and of history what is new: windows of
commits go on from those that the last run has published with `status`. Where that was not the run before (it made no
analytics), and after a truncation of the log, they are found in all commits.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import duckdb

from muster.pipeline.interval_task import Place, rows, written
from muster.tables.relations import add_relation
from muster.tables.schemas import TABLES
from muster.tables.sql.dialects import DUCKDB
from muster.tables.sql.ends import of_topics_now
from muster.tables.sql.expiry import expiry
from muster.tables.sql.judging import (
    KEY,
    changes,
    deletions,
    judged,
    new_commits,
    seen_ends,
    status,
    windows,
    with_lags,
)
from muster.tables.sql.queries import DUCKDB_EXPLODE
from muster.tables.storage.changes import Run
from muster.tables.storage.files import WrittenFile

STATE = ("offsets", "groups", "members", "group_state", "open_commits", "lag")
MADE = ("expiry", "status", "verdicts")
OPENED = {table: table for table in STATE} | {table: f"made_{table}" for table in MADE}
"""Tables that judging has opened or made, and what they are called in its connection."""
ROWS_A_TASK = 500_000
"""Offsets in force."""


class Judging(NamedTuple):
    """What one task judges, and where everything about it is."""

    files: Mapping[str, Sequence[str]]
    """By table; `status_before` is what the last run published, `commits` what may be new in windows."""
    goes_on: bool
    """Windows go on from those that are published."""
    at_ms: int
    retention_ms: int
    run_number: int
    slot: int
    slots: int
    """Into how many tasks groups are divided, and which one this is."""
    place: Place


def judgings(run: Run, at_ms: int, retention_ms: int, is_cut: bool, place: Place) -> list[Judging]:
    """The tasks that judge as of a moment. `is_cut`: the log was truncated."""
    goes_on = last_judged(run) == run.number and not is_cut
    files: dict[str, Sequence[str]] = {table: run.files(table) for table in (*STATE, "log_ends")}
    files["commits"] = _new(run, "commits") if goes_on else run.files("commits")
    files["status_before"] = run.files("status") if run.has("status") else []
    slots = -(-sum(run.facts("offsets")["num_records"].to_pylist()) // ROWS_A_TASK) or 1
    return [Judging(files, goes_on, at_ms, retention_ms, run.number, slot, slots, place) for slot in range(slots)]


def last_judged(run: Run) -> int | None:
    """The number of the last run that has judged, or of this one if that was the last; None if none has."""
    found: int | None = run.manifest.source.get("judged") if run.manifest is not None else None
    return run.number if found == run.number - 1 else found


def _new(run: Run, table: str) -> list[str]:
    """Files that the run has added to a table."""
    manifest = run.manifest
    version = None if manifest is None else manifest.tables.get(table)
    before = set() if version is None else set(run.store.files(table, version))
    return [file for file in run.files(table) if file not in before]


def judge_in(connection: duckdb.DuckDBPyConnection, work: Judging) -> dict[str, list[WrittenFile]]:
    """Judge; gives the files of each table. What `OPENED` names is in the connection afterwards."""
    for name, files in work.files.items():
        _add(connection, work, name, files)
    for name, sql in _queries(work).items():
        connection.execute(f"CREATE TEMP TABLE {name} AS {sql}")
    asked = {table: f"SELECT * FROM made_{table} ORDER BY {', '.join(KEY)}" for table in MADE}
    return {table: written(table, work.place, rows(connection, sql, table)) for table, sql in asked.items()}


def _add(connection: duckdb.DuckDBPyConnection, work: Judging, name: str, files: Sequence[str]) -> None:
    schema = TABLES[name.removesuffix("_before")]
    is_shared = work.slots > 1 and "group_id" in schema.names
    condition = f"hash(group_id) % {work.slots} = {work.slot}" if is_shared else "TRUE"
    place = work.place
    add_relation(connection, name, schema, files, place.tables, dict(place.storage_options), condition=condition)


def _queries(work: Judging) -> dict[str, str]:
    """Queries of tables to be made one after the other; each may ask for those before it."""
    state = ("offsets", "groups", "members", "group_state", "open_commits")
    before = "status_before" if work.goes_on else "(SELECT * FROM status_before WHERE FALSE)"
    return {
        "made_expiry": expiry(*state, work.at_ms, work.retention_ms, DUCKDB_EXPLODE),
        "new_commits": new_commits("commits"),
        "deleted": deletions("commits"),
        "topics_now": of_topics_now("log_ends"),
        "arrived": with_lags("new_commits", "topics_now"),
        "windows": windows("arrived", "deleted", before, DUCKDB),
        "seen_ends": seen_ends("topics_now", DUCKDB),
        "judged": judged("windows", "seen_ends", "topics_now", work.at_ms, DUCKDB),
        "made_status": status(
            "offsets", "windows", "seen_ends", "judged", "lag", "made_expiry", "status_before", work.at_ms
        ),
        "made_verdicts": changes("made_status", "status_before", work.at_ms, work.run_number),
    }
