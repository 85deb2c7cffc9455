"""`muster pipeline`: an offsets topic made into tables."""

import errno
import json
import logging
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from muster import extras
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
from muster.cli.run_output import advancing, bar_of_run, show, show_damage, show_json, starting_spark
from muster.cli.status import Status
from muster.errors import BadInput, MusterError, SparkGone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from muster.pipeline.job import Request, Summary

app = typer.Typer(
    name="pipeline",
    help="Make tables of an offsets topic, on Spark: every commit, the state now or at any moment, rebalances, lag.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

AsJson = Annotated[bool, typer.Option("--json", help="The closing summary as one JSON object.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no summary; damage is told.")]
Debug = Annotated[bool, DEBUG]
Tables = Annotated[str, TABLES]
StorageOptions = Annotated[list[str] | None, STORAGE_OPTION]


def _of_tables(*names: str, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel="Tables", **settings)


def _of_spark(**settings: Any) -> Any:
    return typer.Option(rich_help_panel="Spark", **settings)


SOURCE = typer.Option(
    metavar="SOURCE",
    help="A broker's log directory (several of one cluster: repeat it), a muster data directory, an archive of one, or "
    "a live cluster as kafka://host:port.",
)
OUT = typer.Option(metavar="TABLES", help="Where the tables are kept; made if not there.")
FOLLOW = typer.Option(
    metavar="INTERVAL",
    help="Keep going: run again this often (30s, 5m), until Ctrl-C. Goes on when a cluster or disk is back.",
)
ACCEPT_TRUNCATION = typer.Option(
    "--accept-truncation",
    help="Withdraw what SOURCE's log has no longer, also without a newer leader epoch that says so.",
)
STATE_ONLY = _of_tables("--state-only", help="Only what is in force now; no history, no rebalances.")
NO_ANALYTICS = _of_tables(
    "--no-analytics", help="Leave lag_history, rates, group_hours, status, verdicts, expiry and findings as they are."
)
OFFSETS_RETENTION = _of_tables(
    metavar="TIME",
    help="The cluster's offsets.retention.minutes: tells expired from deleted, and when offsets will expire.",
    show_default="asked of a live cluster, else 7d",
)
STORAGE_OPTION_OF_BOTH = _of_tables(
    metavar="NAME=VALUE",
    help="For TABLES or SOURCE in an object store; repeatable. Secrets as ${env:NAME} or ${file:PATH}, or in the "
    "environment.",
)
KEEP_RUNS = _of_tables(
    metavar="N", min=1, help="Runs that readers can go on with; files of older ones are removed after ten minutes."
)
KEEP_HISTORY = _of_tables(
    metavar="TIME",
    help="Keep so much history at least (90d), back from the newest record, and drop older rows. Default: all.",
)
REGISTER = _of_tables(
    metavar="CATALOG.SCHEMA",
    help="Show the tables as views in a catalog of Spark's, of the run that was just published. Needs Delta.",
)
MASTER = _of_spark(
    metavar="MASTER", help="Spark's master, or sc://HOST of a Spark Connect server.", show_default="local[*]"
)
CONF = _of_spark(metavar="NAME=VALUE", help="Any setting of Spark; repeatable.")

RUN_EPILOG = """
[bold]Examples[/bold]

  muster pipeline run --source /var/lib/kafka/data --out tables

  muster pipeline run --source broker1/data --source broker2/data --out tables

  muster pipeline run --source kafka://broker:9092 --command-config client.properties --out tables --follow 1m

  muster pipeline run --source kafka://broker:9092 --out tables --follow 1m --keep-history 90d

  muster pipeline run --source muster-data --out s3://bucket/tables --storage-option AWS_REGION=eu-central-1

  muster table lag --tables tables
"""
SHORTEST_HISTORY_S = 24 * 3600


@app.command("run", epilog=RUN_EPILOG, no_args_is_help=True)
def run_pipeline(
    source: Annotated[list[str], SOURCE],
    out: Annotated[str, OUT],
    command_config: Annotated[Path | None, COMMAND_CONFIG] = None,
    kafka_config: Annotated[Path | None, KAFKA_CONFIG] = None,
    follow: Annotated[str | None, FOLLOW] = None,
    state_only: Annotated[bool, STATE_ONLY] = False,
    no_analytics: Annotated[bool, NO_ANALYTICS] = False,
    offsets_retention: Annotated[str | None, OFFSETS_RETENTION] = None,
    storage_option: Annotated[list[str] | None, STORAGE_OPTION_OF_BOTH] = None,
    accept_truncation: Annotated[bool, ACCEPT_TRUNCATION] = False,
    keep_runs: Annotated[int, KEEP_RUNS] = 10,
    keep_history: Annotated[str | None, KEEP_HISTORY] = None,
    register: Annotated[str | None, REGISTER] = None,
    unpack_limit: Annotated[str | None, UNPACK_LIMIT] = None,
    master: Annotated[str | None, MASTER] = None,
    conf: Annotated[list[str] | None, CONF] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Build the tables, or bring them up to date: a second run reads only what is new.

    Readers see the last whole run until this one is whole. A run that is killed leaves nothing behind but files that
    the next one cleans up.
    """
    from muster.config.client import read_client_properties, without_secrets

    interval_s = None if follow is None else _interval_s(follow)
    retention_ms = None if offsets_retention is None else _ms("--offsets-retention", offsets_retention)
    history_ms = None if keep_history is None else _history_ms(keep_history, state_only)
    options = storage_options(storage_option)
    settings = pairs("--conf", conf, "spark.executor.memory=2g")
    warn_of_secrets("--conf", settings, "it into spark-defaults.conf")
    unpacked = unpack_limit_of(unpack_limit)
    client = one_config(command_config, kafka_config)
    config = {} if client is None else without_secrets(read_client_properties(client), client)

    extras.need(extras.PIPELINE, "`muster pipeline run`")
    from muster.pipeline.job import Request
    from muster.tables.storage.upkeep import Keep

    keep = Keep(runs=keep_runs, history_ms=history_ms)
    request = Request(
        source, out, options, config, not state_only, retention_ms, unpacked, accept_truncation, keep, not no_analytics
    )
    is_first = _check_before_spark(request, is_followed=interval_s is not None)
    from muster.pipeline.spark.session import spark_session

    logging.getLogger().addHandler(logging.NullHandler())  # py4j would print stacks where it was not asked to
    with starting_spark(not (quiet or as_json)):
        spark = spark_session(master, settings)
    shows = show_json if as_json else show_damage if quiet else show
    try:
        runs = _Runs(spark, request, register, with_bar=not quiet)
        if interval_s is not None:
            follow_on(runs.run, Rounds(show).show if shows is show else shows, interval_s)
        summary = runs.run()
        shows(summary)
        if shows is show:
            _say_what_next(out, is_first, register, runs.views)
        return Status.DAMAGED if summary.damaged else Status.OK
    finally:
        _stop(spark)


def _check_before_spark(request: "Request", is_followed: bool) -> bool:
    """Refuse what cannot work before Spark takes its seconds to start. Returns whether there are no tables yet."""
    from muster.pipeline.request import check_history
    from muster.pipeline.sources.offsets_topic import open_source
    from muster.tables.storage.disk import check_free
    from muster.tables.storage.files import is_local
    from muster.tables.storage.store import TableStore

    store = TableStore(request.tables, request.storage_options)
    manifest = store.manifest()
    if manifest is not None:
        check_history(manifest, request)
    with _writing(store.address):
        store.check_place()
    if not is_followed and is_local(store.address):  # who follows waits until the other one has ended
        check_free(Path(store.address))
    try:
        open_source(request.sources, request.kafka_config, request.storage_options, request.unpack_limit).close()
    except MusterError as error:
        if not is_followed or tries_after(error, has_run=False) == NEVER:
            raise
    return manifest is None


class _Runs:
    """Runs of one request in one Spark session. With `--register` each shows its tables as views in the catalog."""

    def __init__(self, spark: "SparkSession", request: "Request", register: str | None, *, with_bar: bool) -> None:
        from muster.pipeline.spark.sql_views import check_catalog

        self._spark, self._request, self._register, self._with_bar = spark, request, register, with_bar
        self.views: dict[str, int] = {}
        if register is not None:
            check_catalog(spark, register)

    def run(self) -> "Summary":
        from muster.pipeline.engine import SparkEngine
        from muster.pipeline.job import run
        from muster.pipeline.spark.sql_views import register_views

        request = self._request
        with bar_of_run(self._with_bar) as watch, _writing(request.tables), _java_is_there():
            summary = run(SparkEngine(self._spark), request, watch)
            self._request = replace(request, accept_truncation=False)  # said of the log as it is now, not of later ones
        if self._register is not None:
            options = request.storage_options
            self.views = register_views(self._spark, request.tables, self._register, options, self.views)
        return summary


def _say_what_next(tables: str, is_first: bool, register: str | None, views: Iterable[str]) -> None:
    if is_first:
        say(
            f"`muster table --tables {tables}` lists the tables, and `muster table lag --tables {tables}` shows who is "
            "behind."
        )
    if register is not None:
        say(f"the tables are views in {register}: {', '.join(views)}.")


def _ms(option: str, text: str) -> int:
    return int(parse_length_s(option, text) * 1000)


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


def _stop(spark: "SparkSession") -> None:
    """Stop Spark. A second Ctrl-C meanwhile ends the process at once: Java sees that, and ends too."""
    if threading.current_thread() is not threading.main_thread():
        _stop_if_there(spark)
        return
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(Status.INTERRUPTED))
    try:
        _stop_if_there(spark)
    finally:
        signal.signal(signal.SIGINT, before)


def _stop_if_there(spark: "SparkSession") -> None:
    from muster.pipeline.spark.session import java_has_ended

    try:
        spark.stop()
    except Exception:
        if not java_has_ended():
            raise


@contextmanager
def _java_is_there() -> Iterator[None]:
    """An error of any kind is one sentence where the reason is that Java has ended."""
    from muster.pipeline.spark.session import java_has_ended

    try:
        yield
    except Exception as error:
        if isinstance(error, BadInput) or not java_has_ended():
            raise
        raise SparkGone(
            "Java, which Spark runs in, has ended: it was killed, or there was no memory for it. What was published "
            "before is untouched; start the command again, with --conf spark.driver.memory=1g if memory is short."
        ) from error


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
            errno.ENOTDIR: "Name another directory",
        }.get(error.errno, "Make room there if it is full, and run again")
        raise BadInput(
            f"{told_file} cannot be written: {os.strerror(error.errno)}. "
            f"{next_step}; the tables are as the last whole run left them."
        ) from error


@app.command("migrate")
def migrate_tables(
    tables: Tables,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Rewrite tables of an earlier layout in today's. Needs neither Spark nor the source.

    Readers see the old tables until the new ones are whole. If it is killed, run it again. There must be room for
    the tables twice: the next run removes the old files.

    [bold]Example[/bold]

      [cyan]muster pipeline migrate --tables tables[/cyan]
    """
    extras.need(extras.TABLES, "`muster pipeline migrate`")
    from muster.pipeline.migrate import migrate

    with advancing(not quiet, "rewriting", "publishing") as advance, _writing(tables):
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


@app.command("compact")
def compact_tables(
    tables: Tables,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Join the small files of history now. Runs do it by themselves, where enough have come together.

    The rows stay the same; of `log_ends` older observations are thinned out. Readers are not disturbed, and no Spark
    is needed.

    [bold]Example[/bold]

      [cyan]muster pipeline compact --tables tables[/cyan]
    """
    extras.need(extras.TABLES, "`muster pipeline compact`")
    from muster.tables.storage.compact import compact
    from muster.tables.storage.store import TableStore

    store = TableStore(tables, storage_options(storage_option))
    store.published()
    with advancing(not (quiet or as_json), "joining", "publishing") as advance, _writing(tables):
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
    debug: Debug = False,
) -> int:
    """Put muster, its libraries and its compiled code into one archive for the workers of a Spark cluster.

    They need a Python of the same version and Spark, and nothing else. Prints what to write for each kind of cluster.

    [bold]Example[/bold]

      [cyan]muster pipeline pack muster-workers.tar.gz[/cyan]
    """
    extras.need(extras.PIPELINE, "`muster pipeline pack`")
    from muster.pipeline.spark.pack import pack as write
    from muster.pipeline.spark.pack import spark_conf, ways

    count = write(out)
    size_bytes = out.stat().st_size
    if as_json:
        told = {"archive": str(out), "files": count, "size_bytes": size_bytes}
        print(json.dumps(told | {"conf": spark_conf(str(out)), "ways": ways(str(out))}))
        return Status.OK
    say(f"{count:,} files in {out} ({size_bytes / 1e6:,.0f} MB). Use it with:")
    print("\n\n".join(f"# {kind}\n{text}" for kind, text in ways(str(out)).items()))
    return Status.OK
