"""`muster partitions`: lists, unloads and loads the partitions of the offsets topic of a running server."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from muster.cli.options import DEBUG
from muster.cli.status import Status

app = typer.Typer(
    name="partitions",
    help="Look at, unload and load the partitions of [bold]__consumer_offsets[/bold] of a running `muster serve`.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

DATA = typer.Option(help="The data directory of the running server.")
JSON = typer.Option("--json", help="One JSON object, for other programs.")
HEADINGS = ("partition", "state", "epoch", "groups", "members", "offsets", "records", "bytes", "load_ms")


def _ask(data: Path, request: dict[str, Any]) -> dict[str, Any]:
    import asyncio  # a tenth of a second that no other command should take

    from muster.server.control import ask

    return asyncio.run(ask(data, request))


@app.command("list")
def list_partitions(
    data: Annotated[Path, DATA] = Path("muster-data"),
    as_json: Annotated[bool, JSON] = False,
    debug: Annotated[bool, DEBUG] = False,
) -> int:
    """Show every partition: its state, epoch, groups, offsets, records, size on disk, and how long it took to load.

    [bold]Example[/bold]

      [cyan]muster partitions list --data muster-data[/cyan]
    """
    answer = _ask(data, {"do": "list"})
    if as_json:
        print(json.dumps(answer))
        return Status.OK
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading.replace("_ms", ", ms"), justify="left" if heading == "state" else "right")
    for each in answer["partitions"]:
        table.add_row(*(f"{each[name]:,}" if isinstance(each[name], int | float) else each[name] for name in HEADINGS))
    Console().print(table)
    return Status.OK


@app.command()
def unload(
    partition: Annotated[int, typer.Argument(help="Its number.")],
    data: Annotated[Path, DATA] = Path("muster-data"),
    as_json: Annotated[bool, JSON] = False,
    debug: Annotated[bool, DEBUG] = False,
) -> int:
    """Let a partition go: its groups are told NOT_COORDINATOR until it is loaded again. Nothing is deleted.

    [bold]Example[/bold]

      [cyan]muster partitions unload 7 --data muster-data[/cyan]
    """
    answer = _ask(data, {"do": "unload", "partition": partition})
    let_go = f"partition {partition} unloaded: {answer['groups']} groups and {answer['offsets']} offsets let go"
    print(
        json.dumps(answer) if as_json else let_go if answer["was_loaded"] else f"partition {partition} was not loaded"
    )
    return Status.OK


@app.command()
def load(
    partition: Annotated[int, typer.Argument(help="Its number.")],
    data: Annotated[Path, DATA] = Path("muster-data"),
    as_json: Annotated[bool, JSON] = False,
    debug: Annotated[bool, DEBUG] = False,
) -> int:
    """Take a partition over, in a new epoch: read its log, then answer for its groups.

    [bold]Example[/bold]

      [cyan]muster partitions load 7 --data muster-data[/cyan]
    """
    answer = _ask(data, {"do": "load", "partition": partition})
    begun = f"partition {partition} is {answer['state']} in epoch {answer['epoch']}"
    print(json.dumps(answer) if as_json else f"{begun}{' already' if answer['was_loaded'] else ''}")
    return Status.OK
