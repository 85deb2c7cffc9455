"""What `muster table` does: ask, write row by row, and say what the rows cannot."""

import base64
import csv
import io
import json
import time
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import typer

from muster.cli.escapes import csv_cell
from muster.cli.groups.say import missing_group
from muster.cli.options import Format
from muster.cli.output import say, write_lines_to_stdout, write_to_stdout
from muster.cli.people import shown_duration, shown_time
from muster.cli.status import Status
from muster.cli.tables.command import NAMES, Request
from muster.cli.tables.view import facts_view, view
from muster.cli.tabular import show
from muster.errors import BadInput

if TYPE_CHECKING:
    from muster.tables.reading import Answer, GroupEnd, Tables

MOST_PARTITIONS_TOLD = 5


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
        if request.as_of_ms is not None:
            _tell_unknown(answer)
            if not rows:
                _tell_beginning(request.as_of_ms, tables)
        if request.limit is not None and rows > request.limit:
            say(f"stopped after {request.limit:,} rows. --limit 0 shows all, --json and --csv do too.")
        if not rows and request.where:
            say(_nothing_matched(tables, name, request))
    return Status.NOTHING_MATCHED if not rows and request.where else Status.OK


def _open(request: Request) -> "Tables":
    try:
        from muster.tables.reading import open_tables
    except ImportError as error:
        raise BadInput(f"asking tables needs {error.name}: pip install 'muster[pipeline]'.") from None
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
    if request.format.is_for_people:
        rows = answer.table().to_pylist()
        show(view(name, rows[: request.limit]), request.format)
        return len(rows)
    count = 0
    is_csv, exact = request.format is not Format.JSON, request.format is Format.CSV_EXACT
    if is_csv:
        write_to_stdout(_csv_lines([answer.schema.names]))
    for batch in answer.rows:
        rows = batch.to_pylist()
        count += len(rows)
        if is_csv:
            write_to_stdout(_csv_lines([[_csv_value(value, exact) for value in row.values()] for row in rows]))
        else:
            write_lines_to_stdout(_json_lines(rows, answer))
    return count


def _json_lines(rows: list[dict[str, Any]], answer: "Answer") -> bytes:
    """An object a line. `complete_since` is there where something is not known of the moment, the same in each row."""
    more = {"complete_since": dict(answer.complete_since)} if answer.complete_since else {}
    return "".join(json.dumps(row | more, ensure_ascii=False, default=_base64) + "\n" for row in rows).encode(
        "utf-8", "replace"
    )


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _csv_value(value: Any, exact: bool) -> Any:
    if isinstance(value, str):
        return csv_cell(value, exact)
    if isinstance(value, bytes):
        return _base64(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return csv_cell(json.dumps(value, ensure_ascii=False, default=_base64), exact)
    return value


def _csv_lines(rows: list[list[Any]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode("utf-8", "replace")


def _tell_moment(request: Request, tables: "Tables", answer: "Answer") -> None:
    """Of which moment the answer is: on stderr in every format, so that rows stay rows."""
    if request.as_of_ms is None:
        told = _last_run(tables)
    else:
        newest_ms = tables.manifest.newest_record_ms
        is_later = newest_ms is not None and answer.as_of_ms > newest_ms
        newest = f"; the newest record is of {shown_time(newest_ms)} UTC" if is_later else ""
        told = f"as of {shown_time(answer.as_of_ms)} UTC{newest}."
    if answer.ends_observed_at_ms is not None:
        told += f" Log ends were observed at {shown_time(answer.ends_observed_at_ms)} UTC."
    say(told)


def _last_run(tables: "Tables") -> str:
    manifest = tables.manifest
    age_ms = max(0, time.time_ns() // 1_000_000 - manifest.observed_at_ms)
    newest_ms = manifest.newest_record_ms
    newest = "" if newest_ms is None else f"; the newest record is of {shown_time(newest_ms)} UTC"
    return f"as of {shown_time(manifest.observed_at_ms)} UTC, the last run, {shown_duration(age_ms)} ago{newest}."


def _tell_beginning(as_of_ms: int, tables: "Tables") -> None:
    first_ms = tables.first_record_ms()
    if first_ms is not None and as_of_ms < first_ms:
        say(f"the oldest record that was read is of {shown_time(first_ms)} UTC: nothing is known of an earlier moment.")


def _tell_unknown(answer: "Answer") -> None:
    """What is not among the rows may have been there all the same."""
    if not answer.complete_since:
        return
    told = [
        f"{number} (complete since {shown_time(since) + ' UTC' if since is not None else 'nobody knows when'})"
        for number, since in list(answer.complete_since.items())[:MOST_PARTITIONS_TOLD]
    ]
    more = len(answer.complete_since) - len(told)
    rest = f" and {more:,} more" if more else ""
    say(
        "the log had been compacted before it was first read, so of these partitions of __consumer_offsets not all is "
        f"known of that moment: {', '.join(told)}{rest}. A key that is not shown is unknown, not absent."
    )


def _nothing_matched(tables: "Tables", name: str, request: Request) -> str:
    for pattern in request.where.get("group_id", ()):
        known = tables.read("groups").table()["group_id"].to_pylist()
        if pattern not in known and not set("*?") & set(pattern):
            end = tables.end_of_group(pattern)
            if end is not None:
                return _deleted(pattern, end)
            return missing_group(pattern, known, "`muster table groups` shows all")
    return f"no row of {name} passed the filters."


def _deleted(group: str, end: "GroupEnd") -> str:
    """With the last of its offsets a group is gone, however that came."""
    how = {"expired": "is gone: its offsets expired", "vanished": "was deleted between two runs"}
    when = ", nobody saw when" if end.deleted_at_ms is None else f" at {shown_time(end.deleted_at_ms)} UTC"
    hint = "" if end.last_seen_ms is None else f" --as-of {end.last_seen_ms} shows it as it was last seen."
    return f"the group '{group}' {how.get(end.kind, 'was deleted')}{when}.{hint}"
