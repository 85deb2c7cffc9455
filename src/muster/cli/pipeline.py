"""`muster pipeline`: an offsets topic made into tables."""

import errno
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from muster.cli.follow import NEVER, SHORTEST_INTERVAL_S, Rounds, tries_after
from muster.cli.follow import follow as follow_on
from muster.cli.options import (
    COMMAND_CONFIG,
    DEBUG,
    KAFKA_CONFIG,
    STORAGE_OPTION,
    TABLES,
    UNPACK_LIMIT,
    one_config,
    pairs,
    parse_length_s,
    refuse_both,
    storage_options,
    unpack_limit_of,
    warn_of_secrets,
)
from muster.cli.output import say
from muster.cli.people import shown_time
from muster.cli.status import Status
from muster.errors import BadInput, MusterError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from muster.pipeline.job import Summary
    from muster.pipeline.progress import Advance, Watch

app = typer.Typer(
    name="pipeline",
    help="Make tables of an offsets topic, on Spark: every commit, the state now or at any moment, rebalances, lag.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

JSON = typer.Option("--json", help="The closing summary as one JSON object.")
QUIET = typer.Option("--quiet", "-q", help="No progress bar, no summary.")

OF_TABLES, OF_SPARK = "Tables", "Spark"

RUN_EPILOG = """
[bold]Examples[/bold]

  muster pipeline run --source /var/lib/kafka/data --out tables

  muster pipeline run --source broker1/data --source broker2/data --out tables

  muster pipeline run --source kafka://broker:9092 --command-config client.properties --out tables --follow 1m

  muster pipeline run --source kafka://broker:9092 --out tables --follow 1m --keep-history 90d

  muster pipeline run --source muster-data --out s3://bucket/tables --storage-option AWS_REGION=eu-central-1

  muster table lag --tables tables
"""
MOST_NOTES = 20
SHORTEST_HISTORY_S = 24 * 3600


@app.command("run", epilog=RUN_EPILOG, no_args_is_help=True)
def run_pipeline(
    source: Annotated[
        list[str],
        typer.Option(
            metavar="SOURCE",
            help="A broker's log directory (several of one cluster: repeat it), a muster data directory, an archive of "
            "one, or a live cluster as kafka://host:port.",
        ),
    ],
    out: Annotated[str, typer.Option(metavar="TABLES", help="Where the tables are kept; made if not there.")],
    command_config: Annotated[Path | None, COMMAND_CONFIG] = None,
    kafka_config: Annotated[Path | None, KAFKA_CONFIG] = None,
    follow: Annotated[
        str | None,
        typer.Option(
            metavar="INTERVAL",
            help="Keep going: run again this often (30s, 5m), until Ctrl-C. Goes on when a cluster or disk is back.",
        ),
    ] = None,
    state_only: Annotated[
        bool,
        typer.Option(
            "--state-only", rich_help_panel=OF_TABLES, help="Only what is in force now; no history, no rebalances."
        ),
    ] = False,
    no_analytics: Annotated[
        bool,
        typer.Option(
            "--no-analytics", rich_help_panel=OF_TABLES, help="Leave lag_history, rates and group_hours as they are."
        ),
    ] = False,
    offsets_retention: Annotated[
        str,
        typer.Option(
            rich_help_panel=OF_TABLES,
            metavar="TIME",
            help="The cluster's offsets.retention.minutes: tells expired from deleted.",
        ),
    ] = "7d",
    storage_option: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=OF_TABLES,
            metavar="NAME=VALUE",
            help="For TABLES or SOURCE in an object store; repeatable. Secrets as ${env:NAME} or ${file:PATH}, or in "
            "the environment.",
        ),
    ] = None,
    accept_truncation: Annotated[
        bool,
        typer.Option(
            "--accept-truncation",
            help="Withdraw what SOURCE's log has no longer, also without a newer leader epoch that says so.",
        ),
    ] = False,
    keep_runs: Annotated[
        int,
        typer.Option(
            rich_help_panel=OF_TABLES,
            metavar="N",
            min=1,
            help="Runs that readers can go on with; files of older ones are removed after ten minutes.",
        ),
    ] = 10,
    keep_history: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=OF_TABLES,
            metavar="TIME",
            help="Keep so much history at least (90d), back from the newest record, and drop older rows. Default: all.",
        ),
    ] = None,
    register: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=OF_TABLES,
            metavar="CATALOG.SCHEMA",
            help="Show the tables as views in a catalog of Spark's, of the run that was just published. Needs Delta.",
        ),
    ] = None,
    unpack_limit: Annotated[str | None, UNPACK_LIMIT] = None,
    master: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=OF_SPARK,
            metavar="MASTER",
            help="Spark's master, or sc://HOST of a Spark Connect server.",
            show_default="local[*]",
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(rich_help_panel=OF_SPARK, metavar="NAME=VALUE", help="Any setting of Spark; repeatable."),
    ] = None,
    as_json: Annotated[bool, JSON] = False,
    quiet: Annotated[bool, QUIET] = False,
    debug: Annotated[bool, DEBUG] = False,
) -> int:
    """Build the tables, or bring them up to date: a second run reads only what is new.

    Readers see the last whole run until this one is whole. A run that is killed leaves nothing behind but files that
    the next one cleans up.
    """
    from muster.config.client import read_client_properties, without_secrets

    interval_s = None if follow is None else _interval_s(follow)
    retention_ms = int(parse_length_s("--offsets-retention", offsets_retention) * 1000)
    history_ms = None if keep_history is None else _history_ms(keep_history, state_only)
    options = storage_options(storage_option)
    settings = pairs("--conf", conf, "spark.executor.memory=2g")
    warn_of_secrets("--conf", settings, "it into spark-defaults.conf")
    unpacked = unpack_limit_of(unpack_limit)
    client = one_config(command_config, kafka_config)
    config = {} if client is None else without_secrets(read_client_properties(client), client)

    from muster.pipeline.engine import SparkEngine
    from muster.pipeline.job import Request, run
    from muster.pipeline.sources import open_source
    from muster.tables.store import TableStore
    from muster.tables.upkeep import Keep

    keep = Keep(runs=keep_runs, history_ms=history_ms)
    request = Request(
        source, out, options, config, not state_only, retention_ms, unpacked, accept_truncation, keep, not no_analytics
    )
    store = TableStore(out, options)  # what cannot work should say so before Spark takes its seconds to start
    is_first = store.manifest() is None
    try:
        open_source(source, config, options, unpacked).close()
    except MusterError as error:
        if interval_s is None or tries_after(error, has_run=False) == NEVER:
            raise
    from muster.pipeline.session import spark_session
    from muster.pipeline.sql_views import check_catalog, register_views

    with _starting_spark(not (quiet or as_json)):
        spark = spark_session(master, settings)

    shown: dict[str, int] = {}

    def run_once() -> "Summary":
        nonlocal request, shown
        with _bar(not quiet) as watch, _writing(out):
            summary = run(SparkEngine(spark), request, watch)
            request = replace(request, accept_truncation=False)  # said of the log as it is now, not of later ones
        if register is not None:
            shown = register_views(spark, out, register, options, shown)
        return summary

    show = _show_json if as_json else _show_nothing if quiet else _show
    try:
        if register is not None:
            check_catalog(spark, register)
        if interval_s is not None:
            follow_on(run_once, Rounds(show).show if show is _show else show, interval_s)
        summary = run_once()
        show(summary)
        if is_first and show is _show:
            say(
                f"`muster table --tables {out}` lists the tables, and `muster table lag --tables {out}` shows who is "
                "behind."
            )
        if register is not None and show is _show:
            say(f"the tables are views in {register}: {', '.join(shown)}.")
        return Status.DAMAGED if summary.damaged else Status.OK
    finally:
        _stop(spark)


def _interval_s(text: str) -> float:
    interval_s = parse_length_s("--follow", text)
    if interval_s < SHORTEST_INTERVAL_S:
        raise typer.BadParameter(f"{text} is too short: a run takes longer. Write 1s or more", param_hint="--follow")
    return interval_s


def _history_ms(text: str, state_only: bool) -> int:
    refuse_both("--keep-history", True, "--state-only", state_only)
    history_s = parse_length_s("--keep-history", text)
    if history_s < SHORTEST_HISTORY_S:
        raise typer.BadParameter(
            f"{text} is too short: whole days are dropped. Write 1d or more", param_hint="--keep-history"
        )
    return int(history_s * 1000)


@contextmanager
def _starting_spark(wanted: bool) -> Iterator[None]:
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


def _stop(spark: "SparkSession") -> None:
    """Stop Spark. A second Ctrl-C meanwhile ends the process at once: Java sees that, and ends too."""
    if threading.current_thread() is not threading.main_thread():
        spark.stop()
        return
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(Status.INTERRUPTED))
    try:
        spark.stop()
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _writing(out: str) -> Iterator[None]:
    """What the disk under the tables refuses, as a sentence; errors about other files speak for themselves."""
    try:
        yield
    except OSError as error:
        told_file = str(error.filename or out)
        if error.errno is None or not told_file.startswith(out):
            raise
        next_step = {
            errno.EACCES: "Run as a user who may write there, or name another directory",
            errno.EROFS: "Name another directory",
        }.get(error.errno, "Make room there if it is full, and run again")
        raise BadInput(
            f"{told_file} cannot be written: {os.strerror(error.errno)}. "
            f"{next_step}; the tables are as the last whole run left them."
        ) from error


@contextmanager
def _bar(wanted: bool) -> Iterator["Watch"]:
    from muster.pipeline.progress import Watch

    with _advancing(wanted, "reading", "merging") as advance:
        yield Watch(advance)


@contextmanager
def _advancing(wanted: bool, during: str, after: str) -> Iterator["Advance | None"]:
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


def _show_nothing(summary: "Summary") -> None:
    pass


def _show_json(summary: "Summary") -> None:
    print(json.dumps(summary.as_json()), flush=True)


def _show(summary: "Summary") -> None:
    """A closing summary for people, on stderr: stdout is for what was asked."""
    from rich.console import Console
    from rich.table import Table

    rate = summary.records / summary.seconds if summary.seconds else 0
    if summary.records:
        say(
            f"{summary.records:,} new records of {summary.partitions} partitions ({summary.size_bytes / 1e6:,.1f} MB) "
            f"in {summary.seconds:.1f} s, {rate:,.0f} a second."
        )
    else:
        say(f"no new records; {summary.seconds:.1f} s.")
    table = Table(box=None, pad_edge=False)
    table.add_column("table")
    table.add_column("rows", justify="right")
    table.add_column("new", justify="right")
    for name in [*summary.new_rows, *(each for each in summary.rows if each not in summary.new_rows)]:
        new = summary.new_rows.get(name)
        rows = summary.rows.get(name)
        table.add_row(name, "" if rows is None else f"{rows:,}", "" if new is None else f"+{new:,}")
    Console(stderr=True).print(table)
    if summary.incomplete_partitions:
        since = summary.complete_since_ms
        moment = "a moment that nobody knows" if since is None else f"{shown_time(since)} UTC"
        say(
            f"history is complete since {moment}; the log had been compacted before it was first read "
            f"({summary.incomplete_partitions} of its partitions), and what the cleaner took is gone."
        )
    elif summary.incomplete_partitions == 0 and summary.history_since_ms is None:
        say("history is complete: nothing was missing in the log when it was first read.")
    elif summary.incomplete_partitions == 0 and not summary.dropped_rows:
        say(f"history is complete since {shown_time(summary.history_since_ms)} UTC; what was before was dropped.")
    if summary.dropped_rows:
        say(
            f"history before {shown_time(summary.history_since_ms)} UTC was dropped: "
            f"{sum(summary.dropped_rows.values()):,} rows. What was in force then is kept."
        )
    for note in summary.notes[:MOST_NOTES]:
        say(note)
    if len(summary.notes) > MOST_NOTES:
        say(f"and {len(summary.notes) - MOST_NOTES} more of the like; --json has them all.")


@app.command("migrate", no_args_is_help=True)
def migrate_tables(
    tables: Annotated[str, TABLES],
    storage_option: Annotated[list[str] | None, STORAGE_OPTION] = None,
    as_json: Annotated[bool, JSON] = False,
    quiet: Annotated[bool, QUIET] = False,
    debug: Annotated[bool, DEBUG] = False,
) -> int:
    """Rewrite tables of an earlier layout in today's. Needs neither Spark nor the source.

    Readers see the old tables until the new ones are whole. If it is killed, run it again. There must be room for
    the tables twice: the next run removes the old files.

    [bold]Example[/bold]

      [cyan]muster pipeline migrate --tables tables[/cyan]
    """
    from muster.pipeline.migrate import migrate

    with _advancing(not quiet, "rewriting", "publishing") as advance, _writing(tables):
        done = migrate(tables, storage_options(storage_option), advance)
    if as_json:
        print(json.dumps(done.as_json()), flush=True)
    elif not quiet and done.layout_before == done.layout:
        say(f"the tables at {done.tables} have layout {done.layout} already: nothing to do.")
    elif not quiet:
        say(
            f"{sum(done.rows.values()):,} rows of {len(done.rows)} tables ({done.size_bytes / 1e6:,.1f} MB) rewritten "
            f"from layout {done.layout_before} to {done.layout} in {done.seconds:.1f} s."
        )
    return Status.OK


@app.command("compact", no_args_is_help=True)
def compact_tables(
    tables: Annotated[str, TABLES],
    storage_option: Annotated[list[str] | None, STORAGE_OPTION] = None,
    as_json: Annotated[bool, JSON] = False,
    quiet: Annotated[bool, QUIET] = False,
    debug: Annotated[bool, DEBUG] = False,
) -> int:
    """Join the small files of history now. Runs do it by themselves, where enough have come together.

    The rows stay the same; of `log_ends` older observations are thinned out. Readers are not disturbed, and no Spark
    is needed.

    [bold]Example[/bold]

      [cyan]muster pipeline compact --tables tables[/cyan]
    """
    from muster.tables.compact import compact
    from muster.tables.store import TableStore

    store = TableStore(tables, storage_options(storage_option))
    if store.manifest() is None:
        raise BadInput(f"there are no tables at {store.address}: nothing to compact.")
    with _advancing(not (quiet or as_json), "joining", "publishing") as advance, _writing(tables):
        done = compact(store, advance)
    if as_json:
        print(json.dumps({table: joined._asdict() for table, joined in done.items()}), flush=True)
    elif not quiet and not done:
        say(f"the tables at {store.address} have no small files to join.")
    elif not quiet:
        for table, joined in done.items():
            say(f"{table}: {joined.files_before:,} files ({joined.size_bytes / 1e6:,.1f} MB) are {joined.files:,} now.")
    return Status.OK


@app.command()
def pack(
    out: Annotated[Path, typer.Argument(metavar="ARCHIVE", help="The archive to write: a .tar.gz.")] = Path(
        "muster-workers.tar.gz"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object with the settings for Spark.")] = False,
    debug: Annotated[bool, DEBUG] = False,
) -> int:
    """Put muster, its libraries and its compiled code into one archive for the workers of a Spark cluster.

    They need a Python of the same version and Spark, and nothing else. Prints what to write for each kind of cluster.

    [bold]Example[/bold]

      [cyan]muster pipeline pack muster-workers.tar.gz[/cyan]
    """
    from muster.pipeline.pack import pack as write
    from muster.pipeline.pack import spark_conf, ways

    count = write(out)
    size_bytes = out.stat().st_size
    if as_json:
        told = {"archive": str(out), "files": count, "size_bytes": size_bytes}
        print(json.dumps(told | {"conf": spark_conf(str(out)), "ways": ways(str(out))}))
        return Status.OK
    say(f"{count:,} files in {out} ({size_bytes / 1e6:,.0f} MB). Use it with:")
    print("\n\n".join(f"# {kind}\n{text}" for kind, text in ways(str(out)).items()))
    return Status.OK
