"""`muster dump`: what segments hold, or what they are made of. Here options become a `Request`; `run.py` fulfils it.

Nothing heavy is imported before there is a request, so that help is quick.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from muster.cli.dump import ONLY_TO_FILES, TABLE_LIMIT, Format, Request
from muster.cli.options import DEBUG, UNPACK_LIMIT, complete_type, parse_type, unpack_limit_of
from muster.cli.status import Status
from muster.extras import COLUMNS, need
from muster.tables.clocks import parse_time


def _output(*names: str, metavar: str = "", **settings: Any) -> Any:
    return typer.Option(*names, metavar=metavar, rich_help_panel="Output", show_default=False, **settings)


def _filter(*names: str, metavar: str = "", **settings: Any) -> Any:
    return typer.Option(*names, metavar=metavar, rich_help_panel="Filters", show_default=False, **settings)


PATHS = typer.Argument(
    metavar="PATH",
    readable=False,  # not typer's to check: we say more about it
    help="A broker's log directory, a partition's directory, a .log file, or a .tar, .tar.gz, .tar.zst of one.",
    show_default=False,
)
FORMAT = _output(
    "--format",
    "-f",
    metavar="NAME",
    help="text (as kafka-dump-log prints), json (an object a line), table, parquet or arrow. "
    "Default: table on a terminal, text otherwise.",
)
OUT = _output(
    "--out",
    "-o",
    metavar="FILE",
    readable=False,
    help="Write to a file, whole or not at all. Needed for parquet and arrow.",
)
LIMIT = _output(
    "--limit",
    "-n",
    metavar="N",
    min=0,
    help=f"Stop after N records; 0 for no limit. Default: {TABLE_LIMIT} for a table, none otherwise.",
)
LATEST = _output(
    "--latest",
    help="Only the newest record of each key, of what the filters let through. "
    "Aborted and open transactions do not count. Not for text.",
)
SUMMARY = _output("--summary", "-s", help="What the log is made of, instead of its records.")
AS_JSON = _output("--json", help="Same as --format json; with --summary too.")
GROUP = _filter("--group", "-g", metavar="NAME", help="Records of this group; * and ? are wildcards. Repeatable.")
TOPIC = _filter("--topic", "-t", metavar="NAME", help="Commits for this topic; * and ? are wildcards. Repeatable.")
TYPE = _filter(
    "--type",
    metavar="TYPE",
    autocompletion=complete_type,
    help="Record type: 0 to 23, a name such as offset-commit or GroupMetadata, or control. Repeatable.",
)
FROM_OFFSET = _filter("--from-offset", metavar="N", help="From this offset on.")
TO_OFFSET = _filter("--to-offset", metavar="N", help="Up to and including this offset.")
SINCE = _filter(
    "--since",
    metavar="TIME",
    help="Written at this time or later: 14:05, 2026-01-31T12:30 or 12:30+01:00 (local without a zone), epoch ms, or "
    "2h, 3d (ago).",
)
UNTIL = _filter("--until", metavar="TIME", help="Written at this time or earlier.")
TOMBSTONES = _filter("--tombstones/--no-tombstones", help="Only tombstones, or none.")
QUIET = typer.Option(
    "--quiet", "-q", metavar="", help="Nothing on stderr but errors; the exit code still tells of damage."
)
NO_PROGRESS = typer.Option("--no-progress", metavar="", help="No progress bar.")


def dump(
    paths: Annotated[list[Path], PATHS],
    format: Annotated[Format | None, FORMAT] = None,
    out: Annotated[Path | None, OUT] = None,
    limit: Annotated[int | None, LIMIT] = None,
    latest: Annotated[bool, LATEST] = False,
    summary: Annotated[bool, SUMMARY] = False,
    as_json: Annotated[bool, AS_JSON] = False,
    group: Annotated[list[str] | None, GROUP] = None,
    topic: Annotated[list[str] | None, TOPIC] = None,
    type: Annotated[list[str] | None, TYPE] = None,
    from_offset: Annotated[int | None, FROM_OFFSET] = None,
    to_offset: Annotated[int | None, TO_OFFSET] = None,
    since: Annotated[str | None, SINCE] = None,
    until: Annotated[str | None, UNTIL] = None,
    tombstones: Annotated[bool | None, TOMBSTONES] = None,
    quiet: Annotated[bool, QUIET] = False,
    no_progress: Annotated[bool, NO_PROGRESS] = False,
    unpack_limit: Annotated[str | None, UNPACK_LIMIT] = None,
    debug: Annotated[bool, DEBUG] = False,
) -> Status:
    """Show the records of __consumer_offsets segments.

    Damaged places are stepped over and told on stderr; the rest is still shown, and the exit code is 4.

    [bold]Examples[/bold]

    What is in there?
      [cyan]muster dump --summary /var/lib/kafka/data[/cyan]

    What did some groups commit since yesterday?
      [cyan]muster dump /var/lib/kafka/data --group 'orders-*' --since 1d[/cyan]

    As kafka-dump-log --offsets-decoder prints it:
      [cyan]muster dump --format text 00000000000000000000.log | less[/cyan]

    The offsets in force, for another program:
      [cyan]muster dump data.tar.zst --latest --no-tombstones --type 1 --json[/cyan]

    Everything as columns:
      [cyan]muster dump /var/lib/kafka/data -f parquet -o offsets.parquet[/cyan]
    """
    now_ms = int(time.time() * 1000)
    filters: dict[str, Any] = {
        "groups": tuple(group or ()) or None,
        "topics": tuple(topic or ()) or None,
        "record_types": frozenset(_parsed("--type", parse_type, text) for text in type or ()) or None,
        "from_offset": from_offset,
        "to_offset": to_offset,
        "since_ms": None if since is None else _parsed("--since", lambda text: parse_time(text, now_ms), since),
        "until_ms": None if until is None else _parsed("--until", lambda text: parse_time(text, now_ms), until),
        "tombstones": tombstones,
    }
    given = {name: value for name, value in filters.items() if value is not None}
    chosen = _chosen_format(format, as_json, out)
    most = TABLE_LIMIT if limit is None and chosen is Format.TABLE and not summary else limit or 0
    with_bar, unpacked = not (quiet or no_progress), unpack_limit_of(unpack_limit)
    request = Request(paths, chosen, out, latest, given, most, summary, quiet, with_bar, unpacked)
    _refuse_contradictions(request)
    need(COLUMNS, "`muster dump`")
    from muster.cli.dump import run

    return run.summarise(request) if summary else run.dump_records(request)


def _parsed(option: str, parse: Callable[[str], int], text: str) -> int:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _chosen_format(format: Format | None, as_json: bool, out: Path | None) -> Format:
    if as_json and format not in (None, Format.JSON):
        raise typer.BadParameter(f"it contradicts --format {format}", param_hint="--json")
    if format is not None or as_json:
        return format or Format.JSON
    return Format.TABLE if sys.stdout.isatty() and out is None else Format.TEXT


def _refuse_contradictions(request: Request) -> None:
    option, reason = _contradiction(request)
    if reason:
        raise typer.BadParameter(reason, param_hint=option)


def _contradiction(request: Request) -> tuple[str, str]:
    """The option that does not go with the others, and why; empty if all is well."""
    if request.summary:
        if request.filters or request.latest or request.limit:
            return "--summary", "it is about whole logs, and goes with no filter, --latest or --limit"
        if request.format in ONLY_TO_FILES or request.out is not None:
            return "--summary", "it is shown, or printed with --json, but not written to files"
    elif request.format in ONLY_TO_FILES and request.out is None:
        return "--format", f"{request.format} is not for terminals and pipes. Name a file with --out"
    elif request.format is Format.TABLE and request.out is not None:
        return "--out", "a table is for reading. Write text, json, parquet or arrow to a file"
    elif request.latest and request.format is Format.TEXT:
        return "--latest", "text shows batches, and the newest records come from many. Choose --format json or table"
    return "", ""
