"""What `muster table` does: ask, write row by row, and say what the rows cannot.

People see some columns of each table; programs get all of them, as they are published: a moment is ISO 8601 text.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import typer

from muster.cli.lines import csv_lines, csv_value, json_lines
from muster.cli.missing import about_compacted, about_missing
from muster.cli.options import Format
from muster.cli.output import say, write_lines_to_stdout, write_to_stdout
from muster.cli.people import shown_duration, shown_moment
from muster.cli.status import Status
from muster.cli.tables import NAMES, Request
from muster.cli.tabular import Column, Kind, Shown, Table, show
from muster.extras import TABLES, need

if TYPE_CHECKING:
    from muster.tables.reading import Answer, TableFacts, Tables


def list_tables(request: Request) -> Status:
    """Which tables there are, how many rows they have, and of when the newest is."""
    if request.as_of_ms is not None or request.where:
        raise typer.BadParameter(
            "--as-of, --group and --topic choose rows of one table. Name it: `muster table offsets ...`",
            param_hint="NAME",
        )
    with _open(request) as tables:
        facts = tables.facts()
        say(f"run {tables.manifest.run_id}: {_last_run(tables)}")
        show(facts_view(facts), request.format)
    return Status.OK


def show_table(request: Request) -> Status:
    """The rows of a table that were asked for."""
    name = _known(request.name or "")
    with _open(request) as tables:
        wanted = None if request.limit is None else request.limit + request.format.is_for_people
        answer = tables.read(name, request.as_of_ms, request.where, wanted)
        rows = _write(request, name, answer)
        _tell_moment(request, tables, answer)
        if request.as_of_ms is not None and answer.complete_since:
            say(about_compacted(answer.complete_since))
        if request.limit is not None and rows > request.limit:
            say(f"stopped after {request.limit:,} rows. --limit 0 shows all, --json and --csv do too.")
        not_kept = "" if rows else tables.not_kept(name)
        if not_kept:
            say(not_kept)
        elif not rows and request.where:
            say(_nothing_matched(tables, name, request))
    return Status.NOTHING_MATCHED if not rows and request.where else Status.OK


def _open(request: Request) -> "Tables":
    need(TABLES, "asking tables")
    from muster.tables.reading import open_tables

    return open_tables(request.tables, request.storage_options)


def _known(name: str) -> str:
    wanted = name.lower().replace("-", "_")
    if wanted in NAMES:
        return wanted
    near = get_close_matches(wanted, NAMES, n=1)
    hint = f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(NAMES)}."
    raise typer.BadParameter(f"there is no table '{name}'. {hint}", param_hint="NAME")


def _write(request: Request, name: str, answer: "Answer") -> int:
    """Write the rows as they come; how many there were."""
    from muster.tables.schemas import TABLES
    from muster.tables.times import as_text, inner

    if request.out is not None:
        return _write_file(request, answer)
    if request.format.is_for_people:
        rows = inner(answer.table(), TABLES[name]).to_pylist()
        show(view(name, rows[: request.limit]), request.format)
        return len(rows)
    count = 0
    is_csv, exact = request.format is not Format.JSON, request.format is Format.CSV_EXACT
    if is_csv:
        write_to_stdout(csv_lines([answer.schema.names]))
    for batch in answer.rows:
        rows = as_text(batch).to_pylist()
        count += len(rows)
        if is_csv:
            write_to_stdout(csv_lines([[csv_value(value, exact) for value in row.values()] for row in rows]))
        else:
            write_lines_to_stdout(_json_lines(rows, answer))
    return count


def _write_file(request: Request, answer: "Answer") -> int:
    from muster.cli.tables.export import export
    from muster.tables.times import as_text

    assert request.out is not None
    is_csv, exact = request.format is not Format.JSON, request.format is Format.CSV_EXACT

    def encode(batch: Any) -> bytes:
        rows = as_text(batch).to_pylist()
        if is_csv:
            return csv_lines([[csv_value(value, exact) for value in row.values()] for row in rows])
        return _json_lines(rows, answer)

    header = csv_lines([answer.schema.names]) if is_csv else b""
    count = export(request.out, request.is_forced, answer, None if request.is_parquet else encode, header)
    say(f"{count:,} rows in {request.out}.")
    return count


def _json_lines(rows: list[dict[str, Any]], answer: "Answer") -> bytes:
    """An object a line. `complete_since` is there where something is not known of the moment, the same in each row."""
    from muster.tables.times import text_of

    since = {number: None if ms is None else text_of(ms) for number, ms in answer.complete_since.items()}
    more = {"complete_since": since} if since else {}
    return json_lines(row | more for row in rows)


def _tell_moment(request: Request, tables: "Tables", answer: "Answer") -> None:
    """Of which moment the answer is: on stderr in every format, so that rows stay rows."""
    if request.as_of_ms is None:
        told = _last_run(tables)
    else:
        newest_ms = tables.manifest.newest_record_ms
        is_later = newest_ms is not None and answer.as_of_ms > newest_ms
        newest = f"; the newest record is of {shown_moment(newest_ms)}" if is_later else ""
        told = f"as of {shown_moment(answer.as_of_ms)}{newest}."
    if answer.ends_are_drawn:
        told += " Log ends are drawn between the looks before and after it, where there are both."
    elif answer.ends_observed_at_ms == request.as_of_ms and request.as_of_ms is not None:
        told += " Log ends are of that moment, or of the last look before it."
    elif answer.ends_observed_at_ms is not None:
        told += f" Log ends were observed at {shown_moment(answer.ends_observed_at_ms)}."
    say(told)


def _last_run(tables: "Tables") -> str:
    manifest = tables.manifest
    looked_ms, newest_ms = manifest.observed_at_ms, manifest.newest_record_ms
    ago = f"{shown_duration(max(0, time.time_ns() // 1_000_000 - looked_ms))} ago"
    if manifest.moment_ms != looked_ms:
        return f"as of {shown_moment(manifest.moment_ms)}, the newest record; read at {shown_moment(looked_ms)}, {ago}."
    newest = "" if newest_ms is None else f"; the newest record is of {shown_moment(newest_ms)}"
    return f"as of {shown_moment(looked_ms)}, the last run, {ago}{newest}."


def _nothing_matched(tables: "Tables", name: str, request: Request) -> str:
    for pattern in request.where.get("group_id", ()):
        missing = about_missing(tables, pattern)
        if missing:
            return missing
    return f"no row of {name} passed the filters."


_COMMIT = (
    "offsets_partition log_offset timestamp_ms kind group_id topic partition committed_offset txn_outcome metadata"
)
_RECORD = "offsets_partition log_offset timestamp_ms record_type group_id member_id epoch is_tombstone members problem"

SHOWN: Mapping[str, str] = {
    "commits": _COMMIT,
    "open_commits": f"{_COMMIT} producer_id",
    "offsets": "group_id topic partition committed_offset leader_epoch commit_timestamp_ms metadata",
    "groups": "group_id type state generation protocol members committed_partitions last_commit_timestamp_ms",
    "members": "group_id type member_id instance_id client_id client_host generation assignment",
    "rebalances": "group_id at_ms generation cause members partitions_moved commit_gap_ms who",
    "lag": "group_id topic partition committed_offset log_end_offset lag lost_records stable_lag lag_ms lag_ms_by "
    "lag_unknown member_id",
    "log_ends": "topic partition observed_at_ms log_start_offset log_end_offset last_stable_offset newest_timestamp_ms",
    "group_records": _RECORD,
    "group_state": _RECORD,
    "markers": "offsets_partition log_offset timestamp_ms producer_id producer_epoch type coordinator_epoch",
    "activity": "group_id first_commit_ms last_commit_ms",
    "lag_history": "group_id topic partition interval_start_ms committed_offset log_end_offset lag lag_ms commits",
    "rates": "group_id topic partition interval_start_ms commits consumed produced rewinds longest_distance_ms",
    "group_hours": "group_id hour_ms members rebalances members_joined members_left commits longest_silence_ms",
    "status": "group_id topic partition verdict verdict_since_ms committed_offset log_end_offset lag lag_ms "
    "lost_records last_commit_ms",
    "verdicts": "at_ms group_id topic partition verdict verdict_before committed_offset lag lag_ms",
    "expiry": "group_id topic partition expires_at_ms rule since_ms retention_ms committed_offset",
    "findings": "severity kind group_id topic partition since_ms sentence what_to_do",
}

SHORT = {"interval_start_ms": "INTERVAL", "longest_distance_ms": "LONGEST", "longest_silence_ms": "SILENCE"}
WHO = ("joined", "left", "replaced")
"""Columns of `rebalances` that people see as one."""
_STYLE: Mapping[str, Column] = {
    "group_id": Column("GROUP", "group_id"),
    "member_id": Column("CONSUMER-ID", "member_id", Kind.MEMBER, short="CONSUMER", spare=1),
    "instance_id": Column("INSTANCE-ID", "instance_id", short="INSTANCE", spare=4),
    "client_id": Column("CLIENT-ID", "client_id", short="CLIENT", spare=3),
    "client_host": Column("HOST", "client_host", spare=2),
    "type": Column("TYPE", "type", spare=5),
    "state": Column("STATE", "state", Kind.STATE),
    "generation": Column("GENERATION", "generation", Kind.NUMBER, short="GEN"),
    "protocol": Column("PROTOCOL", "protocol", spare=4),
    "assignment": Column("ASSIGNMENT", "assignment"),
    "offsets_partition": Column("LOG", "offsets_partition", Kind.NUMBER),
    "log_offset": Column("LOG-OFFSET", "log_offset", Kind.NUMBER, short="OFFSET"),
    "txn_outcome": Column("TRANSACTION", "txn_outcome", short="TXN", spare=2),
    "producer_id": Column("PRODUCER-ID", "producer_id", Kind.NUMBER, short="PRODUCER"),
    "is_tombstone": Column("DELETED", "is_tombstone"),
    "record_type": Column("RECORD-TYPE", "record_type", Kind.NUMBER, short="TYPE"),
    "metadata": Column("METADATA", "metadata", spare=1),
    "problem": Column("PROBLEM", "problem", spare=1),
    "partition": Column("PARTITION", "partition", Kind.NUMBER, short="PART"),
    "committed_offset": Column("COMMITTED-OFFSET", "committed_offset", Kind.NUMBER, short="COMMITTED"),
    "committed_partitions": Column("COMMITTED-PARTITIONS", "committed_partitions", Kind.NUMBER, short="PARTS", spare=2),
    "leader_epoch": Column("LEADER-EPOCH", "leader_epoch", Kind.NUMBER, short="EPOCH", spare=3),
    "log_start_offset": Column("LOG-START-OFFSET", "log_start_offset", Kind.NUMBER, short="START"),
    "log_end_offset": Column("LOG-END-OFFSET", "log_end_offset", Kind.NUMBER, short="END"),
    "last_stable_offset": Column("LAST-STABLE-OFFSET", "last_stable_offset", Kind.NUMBER, short="STABLE", spare=1),
    "lag": Column("LAG", "lag", Kind.LAG),
    "lost_records": Column("LOST", "lost_records", Kind.LAG, Shown.IF_ANY),
    "stable_lag": Column("STABLE-LAG", "stable_lag", Kind.LAG, short="STABLE", spare=3),
    "lag_ms": Column("LAG-TIME", "lag_ms", Kind.LENGTH_MS, short="TIME"),
    "lag_ms_by": Column("TIME-BY", "lag_ms_by", spare=4),
    "lag_unknown": Column("LAG-UNKNOWN", "lag_unknown", shown=Shown.IF_ANY, spare=5),
    "members": Column("MEMBERS", "members", Kind.NUMBER, spare=1),
    "partitions_moved": Column("MOVED", "partitions_moved", Kind.NUMBER, spare=2),
    "commit_gap_ms": Column("COMMIT-GAP", "commit_gap_ms", Kind.LENGTH_MS, short="GAP"),
    "who": Column("WHO", "who", Kind.MEMBERS),
    "rebalances": Column("REBALANCES", "rebalances", Kind.NUMBER, short="REBAL"),
    "members_joined": Column("MEMBERS-JOINED", "members_joined", Kind.NUMBER, short="JOINED", spare=3),
    "members_left": Column("MEMBERS-LEFT", "members_left", Kind.NUMBER, short="LEFT", spare=3),
}
"""How some columns look; the keys are those by which `tabular` knows which of them may be cut on a terminal."""


def view(table: str, rows: Iterable[Mapping[str, Any]]) -> Table:
    """Rows of a table for people, on a terminal or in a pipe."""
    names = SHOWN[table].split()
    filled = [row | {"who": _who(row)} if table == "rebalances" else row for row in map(dict, rows)]
    columns = tuple(_column(name, filled) for name in names)
    return Table(columns, [tuple(_cell(name, row[name]) for name in names) for row in filled])


def _who(row: Mapping[str, Any]) -> list[str]:
    """Who came, who went, and who returned under a name of its own."""
    joined, left, replaced = (row[name] or () for name in WHO)
    return [*(f"+{one}" for one in joined), *(f"-{one}" for one in left), *replaced]


def facts_view(facts: Iterable["TableFacts"]) -> Table:
    """The list of tables."""
    columns = (
        Column("TABLE", "table"),
        Column("ROWS", "rows", Kind.NUMBER),
        Column("VERSION", "version", Kind.NUMBER),
        Column("FILES", "files", Kind.NUMBER),
        Column("NEWEST", "newest"),
    )
    rows = [
        (
            one.table,
            one.rows,
            None if one.version < 0 else one.version,
            one.files,
            shown_moment(one.newest_ms) or None,
        )
        for one in facts
    ]
    return Table(columns, rows)


def _column(name: str, rows: Sequence[Mapping[str, Any]]) -> Column:
    if name in _STYLE:
        return _STYLE[name]
    if name.endswith("_ms"):
        from muster.tables.schemas import MOMENTS

        title = name.removesuffix("_ms").removesuffix("_timestamp") or "time"
        kind = Kind.TIME_MS if name in MOMENTS else Kind.LENGTH_MS
        return Column(title.replace("_", "-").upper(), name, kind, short=SHORT.get(name, ""))
    is_number = any(isinstance(row[name], int) and not isinstance(row[name], bool) for row in rows)
    return Column(name.replace("_", "-").upper(), name, Kind.NUMBER if is_number else Kind.TEXT)


def _cell(name: str, value: Any) -> Any:
    if value is None or value == [] or (name == "lost_records" and value == 0):
        return None
    if isinstance(value, bool):
        return "yes" if value else None
    if isinstance(value, list) and name != "who":
        return len(value) if name == "members" else ";".join(map(_item, value))
    return value


def _item(value: Any) -> str:
    """A topic with its partitions as kafka-consumer-groups writes it, or a name."""
    if isinstance(value, dict):
        return f"{value['topic'] or value['topic_id']}:{','.join(map(str, value['partitions'] or []))}"
    return str(value)
