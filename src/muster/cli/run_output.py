"""What people see of a run, on stderr: that Spark starts, a bar while it reads, a summary at its end."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from muster.cli.output import say
from muster.cli.people import counted, shown_moment

if TYPE_CHECKING:
    from muster.pipeline.job import Summary
    from muster.pipeline.progress import Advance, Watch

MOST_NOTES = 20


@contextmanager
def starting_spark(wanted: bool) -> Iterator[None]:
    """Say what the seconds before the bar are for. On a terminal the line makes room for the bar."""
    if wanted and sys.stderr.isatty():
        sys.stderr.write("muster: starting Spark…")
        sys.stderr.flush()
    elif wanted:
        say("starting Spark.")
    try:
        yield
    finally:
        if wanted and sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextmanager
def bar_of_run(wanted: bool) -> Iterator["Watch"]:
    from muster.pipeline.progress import Watch

    with advancing(wanted, "reading", "merging") as advance:
        yield Watch(advance)


@contextmanager
def advancing(wanted: bool, during: str, after: str) -> Iterator["Advance | None"]:
    """A bar for bytes, with a word for what goes on until all are read, and one for what comes then."""
    if not (wanted and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=None),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(during, total=None)

        def advance(read: int, total: int) -> None:
            if total:  # else there was nothing to read, and the bar stays as it is
                progress.update(task, completed=read, total=total)
            progress.update(task, description=after if read >= total else during)

        yield advance


def show_damage(summary: "Summary") -> None:
    """Nothing but what cannot be read."""
    if summary.damaged:
        _tell_notes(summary)


def show_json(summary: "Summary") -> None:
    print(json.dumps(summary.as_json()), flush=True)


def show(summary: "Summary") -> None:
    """A closing summary for people, on stderr: stdout is for what was asked."""
    from rich.console import Console
    from rich.table import Table

    from muster.tables.reading import NOT_SHOWN

    rate = summary.records / summary.seconds if summary.seconds else 0
    if summary.records:
        say(
            f"{counted(summary.records, 'new record')} of {counted(summary.partitions, 'partition')} "
            f"({summary.size_bytes / 1e6:,.1f} MB) "
            f"in {summary.seconds:.1f} s, {rate:,.0f} a second."
        )
    else:
        say(f"no new records; {summary.seconds:.1f} s.")
    table = Table(box=None, pad_edge=False)
    table.add_column("table")
    table.add_column("rows", justify="right")
    table.add_column("new", justify="right")
    names = [*summary.new_rows, *(each for each in summary.rows if each not in summary.new_rows)]
    for name in (each for each in names if each not in NOT_SHOWN):
        new = summary.new_rows.get(name)
        rows = summary.rows.get(name)
        table.add_row(name, "" if rows is None else f"{rows:,}", "" if new is None else f"+{new:,}")
    Console(stderr=True).print(table)
    if summary.incomplete_partitions:
        since = summary.complete_since_ms
        moment = "a moment that nobody knows" if since is None else shown_moment(since)
        how, what = (
            ("compacted or damaged", "is gone") if summary.damaged else ("compacted", "the cleaner took is gone")
        )
        say(
            f"history is complete since {moment}; the log had been {how} before it was first read "
            f"({summary.incomplete_partitions} of its partitions), and what {what}."
        )
    elif summary.incomplete_partitions == 0 and summary.history_since_ms is None:
        say("history is complete: nothing was missing in the log when it was first read.")
    elif summary.incomplete_partitions == 0 and not summary.dropped_rows:
        say(f"history is complete since {shown_moment(summary.history_since_ms)}; what was before was dropped.")
    if summary.dropped_rows:
        say(
            f"history before {shown_moment(summary.history_since_ms)} was dropped: "
            f"{sum(summary.dropped_rows.values()):,} rows. What was in force then is kept."
        )
    _tell_notes(summary)


def _tell_notes(summary: "Summary") -> None:
    for note in summary.notes[:MOST_NOTES]:
        say(note)
    if len(summary.notes) > MOST_NOTES:
        say(f"and {len(summary.notes) - MOST_NOTES} more of the like; --json has them all.")
