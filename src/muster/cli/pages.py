"""`muster dashboard` serves pages over the tables; `muster report` writes them into one file."""

import gc
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from muster.cli.options import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    DEBUG,
    OUTPUT,
    STORAGE_OPTION,
    TABLES,
    known_bootstrap_servers,
    option,
    storage_options,
)
from muster.cli.output import say, whole_file
from muster.cli.status import Status
from muster.errors import BadInput

if TYPE_CHECKING:
    from muster.pages.live import LiveCluster

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 9310
GC_THRESHOLDS = 200_000, 20, 20
"""A list of 10,000 groups is made of many small rows, none of them in a cycle: looking for cycles took a third of
its time."""
DASHBOARD_EPILOG = f"""
[bold]Examples[/bold]

  muster dashboard --tables tables
  muster dashboard --tables tables --port 0

What the cluster says now, beside the tables:
  muster dashboard --tables tables -b kafka:9092

Every page as of a moment, and its content for a program:
  curl 'http://127.0.0.1:{DEFAULT_PORT}/group.json?id=orders-app&at=1794805709859'
"""
REPORT_EPILOG = """
[bold]Examples[/bold]

  muster report --tables tables --html groups.html
"""


def dashboard(
    tables: Annotated[str, TABLES] = ...,  # type: ignore[assignment]  # typer's way to say that it is needed
    storage_option: Annotated[list[str] | None, STORAGE_OPTION] = None,
    bootstrap_server: Annotated[str | None, BOOTSTRAP_SERVER] = None,
    command_config: Annotated[Path | None, COMMAND_CONFIG] = None,
    host: Annotated[
        str,
        option(
            "--host", panel=OUTPUT, metavar="HOST", help=f"Where to listen. Default: {DEFAULT_HOST}, this machine only."
        ),
    ] = DEFAULT_HOST,
    port: Annotated[
        int,
        option(
            "--port",
            panel=OUTPUT,
            metavar="PORT",
            min=0,
            max=65535,
            help=f"0 takes a free one. Default: {DEFAULT_PORT}.",
        ),
    ] = DEFAULT_PORT,
    allow_host: Annotated[
        list[str] | None,
        option(
            "--allow-host",
            panel=OUTPUT,
            metavar="NAME",
            help="Answer to this name, too; addresses and localhost always are answered. Repeatable.",
        ),
    ] = None,
    debug: Annotated[bool, DEBUG] = False,
) -> int:
    """Serve pages over the tables: who is behind and since when, now and at any moment of the past.

    Read-only. A newer run is shown as soon as it is published; with a broker named, pages of now have beside it what
    the cluster says. There is no login: every client that reaches the port sees everything. Ctrl-C and SIGTERM stop it.
    """
    from muster.extras import WEB, need

    need(WEB, "`muster dashboard`")
    from muster.pages.port import PagesPort
    from muster.pages.runs import Runs

    gc.set_threshold(*GC_THRESHOLDS)
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    storage = storage_options(storage_option)
    config = _client_config(bootstrap_server, command_config)
    runs, live = Runs(tables, storage, say), None
    try:
        live = None if config is None else _live(config, tables, storage)
        pages = PagesPort(host, port, runs, allow_host or (), live)
        beside = "" if config is None else f", beside it what {config['bootstrap.servers']} says"
        print(f"muster dashboard serves {pages.url} from {tables}{beside}. Ctrl-C stops it.", flush=True)
        stop.wait()
        pages.close()
    finally:
        if live is not None:
            live.close()
        runs.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    return Status.OK


def _client_config(bootstrap_server: str | None, command_config: Path | None) -> dict[str, str] | None:
    """How to reach the cluster; None where none is named."""
    from muster.config.client import read_client_properties
    from muster.references import resolved

    config = {} if command_config is None else resolved(read_client_properties(command_config))
    servers = known_bootstrap_servers(bootstrap_server, config)
    return None if servers is None else config | {"bootstrap.servers": servers}


def _live(config: dict[str, str], tables: str, storage: dict[str, str]) -> "LiveCluster":
    from muster.extras import COLUMNS, need

    need(COLUMNS, "`muster dashboard --bootstrap-server`")
    from muster.pages.live import LiveCluster
    from muster.tables.storage.store import TableStore

    return LiveCluster(config, TableStore(tables, storage), say)


def report(
    tables: Annotated[str, TABLES] = ...,  # type: ignore[assignment]  # as above
    html: Annotated[
        Path,
        option("--html", panel=OUTPUT, metavar="FILE", help="The file to write; it appears when it is whole."),
    ] = ...,  # type: ignore[assignment]
    moments: Annotated[
        int,
        option(
            "--moments",
            panel=OUTPUT,
            metavar="N",
            min=48,
            max=1000,
            help="How many moments of the past are in it, at equal distances. Default: 60.",
        ),
    ] = 60,
    force: Annotated[bool, option("--force", panel=OUTPUT, help="Replace FILE if it is there.")] = False,
    storage_option: Annotated[list[str] | None, STORAGE_OPTION] = None,
    debug: Annotated[bool, DEBUG] = False,
) -> int:
    """Write the pages of the dashboard into one file: for a mail, a ticket, or a machine without muster.

    It needs nothing but a browser, and loads nothing from elsewhere. Its slider moves over the moments that are in it.
    """
    from muster.extras import WEB, need

    need(WEB, "`muster report`")
    from muster.pages.report import report as written
    from muster.tables.reading import open_tables

    if html.exists() and not html.is_dir() and not force:
        raise BadInput(f"{html} is there already. --force replaces it, or choose another name.")
    with open_tables(tables, storage_options(storage_option)) as opened, whole_file(html) as draft:
        content = written(opened, moments)
        draft.write_bytes(content)
    say(f"wrote {html}, {len(content) / 1e6:.1f} MB.")
    return Status.OK
