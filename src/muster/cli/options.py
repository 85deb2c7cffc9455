"""What several commands share: options, and what people write turned into numbers (lengths, sizes, types).

Imported whenever muster starts, so what takes time is imported where it is needed.
"""

import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from muster.cli.output import say
from muster.tables.clocks import AGO, UNIT_MS

if TYPE_CHECKING:
    from muster.segments.archives import UnpackLimit

CLUSTER, OUTPUT = "Cluster", "Output"


def option(*names: str, panel: str | None = None, metavar: str = "", **settings: Any) -> Any:
    return typer.Option(*names, metavar=metavar, rich_help_panel=panel, show_default=False, **settings)


DEBUG = option("--debug", help="Show the traceback when something goes wrong; MUSTER_DEBUG=1 does the same.")


def wants_traceback(is_asked_for: bool) -> bool:
    return is_asked_for or os.environ.get("MUSTER_DEBUG", "0") not in ("", "0")


BOOTSTRAP_SERVERS_VARIABLE = "MUSTER_BOOTSTRAP_SERVERS"
BOOTSTRAP_SERVER = option(
    "--bootstrap-server",
    "-b",
    panel=CLUSTER,
    metavar="HOST:PORT",
    help=f"Brokers to ask first, with commas. {BOOTSTRAP_SERVERS_VARIABLE} in the environment does the same.",
)
COMMAND_CONFIG = option(
    "--command-config",
    panel=CLUSTER,
    metavar="FILE",
    readable=False,
    help="Properties of the client, as Java's clients or librdkafka write them: security, mostly. A value may be "
    "${env:NAME} or ${file:PATH}.",
)
KAFKA_CONFIG = option("--kafka-config", panel=CLUSTER, metavar="FILE", readable=False, hidden=True)
"""The other name of the same."""
CSV = option(
    "--csv",
    panel=OUTPUT,
    help="CSV with a header; empty for what is not known. A name that a spreadsheet would take for a formula has an "
    "apostrophe in front.",
)
CSV_EXACT = option("--csv-exact", panel=OUTPUT, help="CSV with names exactly as they are, for programs.")
UNPACK_LIMIT = option(
    "--unpack-limit",
    metavar="SIZE",
    help="How much may come out of an archive, 200GB say. Default: 64GB, and 1000 times its size above 4GB; a file "
    "counts as 64KB at least.",
)
TABLES = typer.Option(
    "--tables",
    metavar="TABLES",
    envvar="MUSTER_TABLES",
    show_envvar=True,
    help="Where `muster pipeline run --out` keeps them.",
)
STORAGE_OPTION = typer.Option(
    "--storage-option",
    metavar="NAME=VALUE",
    show_default=False,
    help="For TABLES in an object store; repeatable. Secrets as ${env:NAME} or ${file:PATH}, or in the environment.",
)
WIDE = option("--wide", panel=OUTPUT, help="All columns, whole member ids, however long the lines get.")


class Format(StrEnum):
    """What rows are written as."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    CSV = "csv"
    CSV_EXACT = "csv-exact"

    @property
    def is_for_people(self) -> bool:
        return self in (Format.TEXT, Format.WIDE)


def chosen_format(as_json: bool, as_csv: bool, csv_exact: bool, wide: bool) -> Format:
    """The one format that was asked for, else text."""
    chosen = {Format.JSON: as_json, Format.CSV: as_csv, Format.CSV_EXACT: csv_exact, Format.WIDE: wide}
    given = [format for format, wanted in chosen.items() if wanted]
    if len(given) > 1:
        refuse_both(f"--{given[0]}", True, f"--{given[1]}", True)
    return given[0] if given else Format.TEXT


def bootstrap_servers(given: str | None, settings: Mapping[str, str]) -> str:
    """The brokers to ask first; one must be named."""
    found = known_bootstrap_servers(given, settings)
    if found is None:
        raise typer.BadParameter(
            "name a broker of the cluster, for instance localhost:9092", param_hint="--bootstrap-server"
        )
    return found


def known_bootstrap_servers(given: str | None, settings: Mapping[str, str]) -> str | None:
    """Those of the command line, else those of the settings, else those of the environment."""
    return given or settings.get("bootstrap.servers") or os.environ.get(BOOTSTRAP_SERVERS_VARIABLE) or None


def one_config(command_config: Path | None, kafka_config: Path | None) -> Path | None:
    refuse_both("--command-config", command_config is not None, "--kafka-config", kafka_config is not None)
    return command_config or kafka_config


def refuse_both(one: str, has_one: bool, other: str, has_other: bool) -> None:
    if has_one and has_other:
        raise typer.BadParameter(f"it does not go with {other}", param_hint=one)


def unpack_limit_of(text: str | None) -> "UnpackLimit":
    from muster.segments.archives import DEFAULT_LIMIT, parse_limit

    try:
        return DEFAULT_LIMIT if text is None else parse_limit(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--unpack-limit") from None


def pairs(name: str, given: Iterable[str] | None, example: str) -> dict[str, str]:
    """`NAME=VALUE`, as often as an option was given."""
    parsed = {}
    for pair in given or ():
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise typer.BadParameter(f"'{pair}' is not NAME=VALUE, like {example}", param_hint=name)
        parsed[key.strip()] = value
    return parsed


def storage_options(given: Iterable[str] | None) -> dict[str, str]:
    """`--storage-option NAME=VALUE`."""
    options = pairs("--storage-option", given, "AWS_REGION=eu-central-1")
    warn_of_secrets("--storage-option", options, "${env:NAME} or ${file:PATH}, or set the variable in the environment")
    return options


def warn_of_secrets(option: str, settings: Mapping[str, str], instead: str) -> None:
    """All users of the machine can read the arguments of a process."""
    from muster.references import literal_secrets

    for name in literal_secrets(settings):
        say(f"{option} {name}=…: everybody on this machine can read that in the list of processes. Write {instead}.")


CONTROL = "control"
NEWEST_TYPE_NUMBER = 23


def parse_length_s(option: str, text: str) -> float:
    """Seconds of a length of time."""
    match = AGO.fullmatch(text.strip())
    if text.strip().isdecimal():
        number = text.strip()
        units = f"{number}s, {number}m, {number}h or {number}d"
        raise typer.BadParameter(f"'{number}' is a number without a unit. Write {units}", param_hint=option)
    if match is None or text.strip().endswith("ago"):
        raise typer.BadParameter(f"'{text}' is not a length of time. Write 30s, 5m, 12h or 7d", param_hint=option)
    return int(match[1]) * UNIT_MS[match[2]] / 1000


def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


@cache
def type_numbers() -> dict[str, int]:
    """Names for `--type`: Kafka's own with hyphens, and `control` for transaction markers."""
    from muster.codec.group_records import RECORD_TYPES  # half of the time that help would take

    return {
        CONTROL: -1,
        "legacy-offset-commit": 0,
        "offset-commit": 1,
        "group-metadata": 2,
        **{_kebab(record_type.name): number for number, record_type in RECORD_TYPES.items()},
    }


def parse_type(text: str) -> int:
    """The number of a record type, by number or by name; case, hyphens and underscores do not matter."""
    text = text.strip()
    if text.isdigit() and int(text) <= NEWEST_TYPE_NUMBER:
        return int(text)
    squeezed = {name.replace("-", ""): number for name, number in type_numbers().items()}
    wanted = re.sub(r"[-_ ]", "", text).lower()
    if wanted in squeezed:
        return squeezed[wanted]
    near = get_close_matches(text.lower(), type_numbers(), n=1)
    hint = f"Did you mean '{near[0]}'" if near else f"Write 0 to {NEWEST_TYPE_NUMBER}, or a name like offset-commit"
    raise ValueError(f"'{text}' is not a record type. {hint}")


def complete_type(incomplete: str) -> list[tuple[str, str]]:
    """Names that begin like this, for the shell."""
    return [
        (name, "transaction markers" if name == CONTROL else f"type {number}")
        for name, number in type_numbers().items()
        if name.startswith(incomplete.lower())
    ]
