"""`muster exporter`: Prometheus metrics of a live cluster's groups, until it is told to stop."""

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from muster.cli.options import (
    BOOTSTRAP_SERVER,
    CLUSTER,
    COMMAND_CONFIG,
    DEBUG,
    OUTPUT,
    STORAGE_OPTION,
    bootstrap_servers,
    option,
    parse_length_s,
    storage_options,
)
from muster.cli.output import say
from muster.cli.status import Status

if TYPE_CHECKING:
    from muster.exporter.families import Names
    from muster.exporter.from_tables import FromTables

EPILOG = """
[bold]Examples[/bold]

  muster exporter -b kafka:9092
  muster exporter -b kafka:9093 --command-config client.properties --group 'shop-*' --listen 0.0.0.0:9308
  muster exporter -b kafka:9092 --tables tables
"""
DEFAULT_LISTEN = "127.0.0.1:9308"
TABLES = option(
    "--tables",
    metavar="TABLES",
    envvar="MUSTER_TABLES",
    show_envvar=True,
    help="Begin where the last `muster pipeline run` of this cluster ended, and show its findings and what expires.",
)
SHORTEST_INTERVAL_S, LONGEST_INTERVAL_S = 1.0, 3600.0


def exporter(
    bootstrap_server: Annotated[str | None, BOOTSTRAP_SERVER] = None,
    command_config: Annotated[Path | None, COMMAND_CONFIG] = None,
    interval: Annotated[
        str,
        option("--interval", panel=CLUSTER, metavar="LENGTH", help="Between two rounds of questions. Default: 10s."),
    ] = "10s",
    group: Annotated[
        list[str] | None,
        option("--group", "-g", metavar="PATTERN", help="Only groups with such a name; * and ? are wild. Repeatable."),
    ] = None,
    most_groups: Annotated[
        int, option("--most-groups", metavar="N", min=1, help="Leave out groups beyond so many. Default: 20000.")
    ] = 20_000,
    most_partitions: Annotated[
        int,
        option(
            "--most-partitions",
            metavar="N",
            min=1,
            help="Leave out partitions of groups beyond so many. Default: 200000.",
        ),
    ] = 200_000,
    tables: Annotated[str | None, TABLES] = None,
    storage_option: Annotated[list[str] | None, STORAGE_OPTION] = None,
    listen: Annotated[
        str,
        option(
            "--listen",
            panel=OUTPUT,
            metavar="HOST:PORT",
            help=f"Where /metrics is served; port 0 takes a free one. Default: {DEFAULT_LISTEN}.",
        ),
    ] = DEFAULT_LISTEN,
    cluster_name: Annotated[
        str | None,
        option(
            "--cluster-name", panel=OUTPUT, metavar="NAME", help="The label cluster_name. Default: the cluster's id."
        ),
    ] = None,
    names: Annotated[
        str,
        option(
            "--names",
            panel=OUTPUT,
            metavar="NAMES",
            help="Whose metric names to serve beside muster's own: kafka,kminion,burrow, or none. Default: all three.",
        ),
    ] = "kafka,kminion,burrow",
    debug: Annotated[bool, DEBUG] = False,
) -> int:
    """Serve Prometheus metrics of a cluster's groups: lag in records and seconds, state, rebalances, verdicts.

    It reads __consumer_offsets itself, and asks where logs begin and end; nothing is changed in the cluster, and no
    group is joined. SIGTERM and Ctrl-C stop it.
    """
    from muster.config.client import read_client_properties
    from muster.extras import COLUMNS, need
    from muster.references import resolved

    host, port = _address(listen)
    interval_s = parse_length_s("--interval", interval)
    if not SHORTEST_INTERVAL_S <= interval_s <= LONGEST_INTERVAL_S:
        raise typer.BadParameter("rounds are 1s to 1h apart", param_hint="--interval")
    config = {} if command_config is None else resolved(read_client_properties(command_config))
    config["bootstrap.servers"] = bootstrap_servers(bootstrap_server, config)
    need(COLUMNS, "`muster exporter`")
    from_tables = None if tables is None else _from_tables(tables, storage_options(storage_option), group or ())
    from muster import __version__
    from muster.exporter.limits import Limits
    from muster.exporter.page import Page
    from muster.exporter.poll import Plan, Poller
    from muster.exporter.port import MetricsPort

    limits = Limits(most_groups, most_partitions)
    plan = Plan(config, interval_s, tuple(group or ()), cluster_name, limits)
    page = Page(__version__, _names(names))
    poller = Poller(plan, page, say, from_tables)
    with _stoppable():
        poller.meet()
        metrics = MetricsPort(host, port, page.text)
        try:
            print(f"muster exporter serves {metrics.url}; a round every {interval}. Ctrl-C stops it.", flush=True)
            poller.run()
        finally:
            metrics.close()
            poller.close()
    return Status.OK


def _address(listen: str) -> tuple[str, int]:
    """`HOST:PORT`, or the port alone."""
    host, _, port = listen.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise typer.BadParameter(f"'{listen}' is not HOST:PORT, like {DEFAULT_LISTEN}", param_hint="--listen")
    return host.strip("[]") or "127.0.0.1", int(port)


def _from_tables(address: str, storage: dict[str, str], groups: Iterable[str]) -> "FromTables":
    from muster.extras import TABLES as TABLES_EXTRA
    from muster.extras import need

    need(TABLES_EXTRA, "`muster exporter --tables`")
    from muster.exporter.from_tables import FromTables
    from muster.exporter.limits import Wanted
    from muster.tables.storage.store import TableStore

    return FromTables(TableStore(address, storage), Wanted(groups), say)


def _names(text: str) -> "tuple[Names, ...]":
    from muster.exporter.families import Names

    words = [word.strip().lower() for word in text.split(",")]
    unknown = [word for word in words if word not in {*Names, "none"}]
    if unknown or ("none" in words and len(words) > 1):
        raise typer.BadParameter(f"'{text}' is not some of {', '.join(Names)}, or none", param_hint="--names")
    return tuple(Names(word) for word in dict.fromkeys(words) if word != "none")


class _Stop(BaseException):
    """A signal to stop, wherever we are: there is nothing to save."""


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM and Ctrl-C end what is in here. Those that come while it ends change nothing."""

    def stop(number: int, frame: object) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise _Stop

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        for number in before:
            signal.signal(number, stop)
        yield
    except _Stop:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
