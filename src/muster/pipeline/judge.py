"""The step of a run that judges: `expiry`, `status` and `verdicts`, all rows anew, by tasks of some groups each.

The SQL is of `muster.tables` (`expiry`, `judging`), run by duckdb. A task takes the groups of one residue of a hash;
one task is enough but for the largest clusters. A run costs what is in force, and of history what is new: windows of
commits go on from those that the last run has published with `status`. Where that was not the run before (it made no
analytics), and after a truncation of the log, they are found in all commits.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from muster.pipeline.engine import Engine
from muster.pipeline.interval_task import limited_duckdb
from muster.tables.changes import Run
from muster.tables.dialects import DUCKDB
from muster.tables.expiry import expiry
from muster.tables.files import Options, TableWriter, WrittenFile
from muster.tables.judging import changes as changed
from muster.tables.judging import deletions, judged, new_commits, seen_ends, status, windows, with_lags
from muster.tables.queries import DUCKDB_EXPLODE
from muster.tables.relations import add_relation
from muster.tables.schemas import TABLES

STATE = ("offsets", "groups", "members", "group_state", "open_commits", "lag")
MADE = ("expiry", "status", "verdicts")
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
    tables: str
    storage_options: Options
    run_id: str
    memory_mb: int


def judge(
    run: Run, engine: Engine, at_ms: int, retention_ms: int, is_cut: bool, options: Options = ()
) -> dict[str, int]:
    """Make the tables as of a moment; gives the rows of each that are new or made anew. `is_cut`: the log was
    truncated.
    """
    goes_on = was_judged(run) == run.number and not is_cut
    files: dict[str, Sequence[str]] = {table: run.files(table) for table in (*STATE, "log_ends")}
    files["commits"] = _new(run, "commits") if goes_on else run.files("commits")
    files["status_before"] = run.files("status") if run.has("status") else []
    slots = -(-sum(run.facts("offsets")["num_records"].to_pylist()) // ROWS_A_TASK) or 1
    place = (run.store.address, tuple(options), run.run_id, engine.task_memory_mb)
    works = [Judging(files, goes_on, at_ms, retention_ms, run.number, slot, slots, *place) for slot in range(slots)]
    answers = engine.each("expiry, status, verdicts", judge_task, works)
    made = {table: [file for some in answers for file in some if file.table == table] for table in MADE}
    run.replace("expiry", made["expiry"])
    run.replace("status", made["status"])
    run.append("verdicts", made["verdicts"])
    return {table: sum(file.rows for file in some) for table, some in made.items()}


def was_judged(run: Run) -> int | None:
    """The number of the last run that has judged, or of this one if that was the last; None if none has."""
    found: int | None = run.manifest.source.get("judged") if run.manifest is not None else None
    return run.number if found == run.number - 1 else found


def _new(run: Run, table: str) -> list[str]:
    """Files that the run has added to a table."""
    manifest = run.manifest
    version = None if manifest is None else manifest.tables.get(table)
    before = set() if version is None else set(run.store.files(table, version))
    return [file for file in run.files(table) if file not in before]


def judge_task(work: Judging) -> list[WrittenFile]:
    """Judge; run again, it writes other files with the same rows."""
    with limited_duckdb(work.memory_mb) as connection:
        for name, files in work.files.items():
            _add(connection, work, name, files)
        for name, sql in _queries(work).items():
            connection.execute(f"CREATE TEMP TABLE {name} AS {sql}")
        made = {"expiry": "made_expiry", "status": "made_status", "verdicts": "made_verdicts"}
        return [file for table, name in made.items() for file in _written(connection, work, table, name)]


def _add(connection: duckdb.DuckDBPyConnection, work: Judging, name: str, files: Sequence[str]) -> None:
    schema = TABLES[name.removesuffix("_before")]
    is_shared = work.slots > 1 and "group_id" in schema.names
    condition = f"hash(group_id) % {work.slots} = {work.slot}" if is_shared else "TRUE"
    add_relation(connection, name, schema, files, work.tables, dict(work.storage_options), condition=condition)


def _queries(work: Judging) -> dict[str, str]:
    """Queries of tables to be made one after the other; each may ask for those before it."""
    state = ("offsets", "groups", "members", "group_state", "open_commits")
    before = "status_before" if work.goes_on else "(SELECT * FROM status_before WHERE FALSE)"
    return {
        "made_expiry": expiry(*state, work.at_ms, work.retention_ms, DUCKDB_EXPLODE),
        "new_commits": new_commits("commits"),
        "deleted": deletions("commits"),
        "arrived": with_lags("new_commits", "log_ends"),
        "windows": windows("arrived", "deleted", before, DUCKDB),
        "seen_ends": seen_ends("log_ends", DUCKDB),
        "judged": judged("windows", "seen_ends", work.at_ms, DUCKDB),
        "made_status": status(
            "offsets", "windows", "seen_ends", "judged", "lag", "made_expiry", "status_before", work.at_ms
        ),
        "made_verdicts": changed("made_status", "status_before", work.at_ms, work.run_number),
    }


def _written(connection: duckdb.DuckDBPyConnection, work: Judging, table: str, name: str) -> list[WrittenFile]:
    schema = TABLES[table]
    directory = f"{work.tables}/{table}"
    writer = TableWriter(table, schema, directory, work.storage_options, work.run_id)
    try:
        for rows in _rows(connection, name, schema):
            writer.append(rows)
        writer.close()
    finally:
        writer.abandon()
    return writer.files


def _rows(connection: Any, name: str, schema: pa.Schema) -> Iterator[pa.Table]:
    names = ", ".join(f'"{field}"' for field in schema.names)
    for batch in connection.sql(f"SELECT {names} FROM {name} ORDER BY group_id, topic, partition").to_arrow_reader():
        yield pa.Table.from_batches([batch]).cast(schema)
