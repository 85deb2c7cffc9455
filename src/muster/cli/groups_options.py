"""Options that the commands of `muster groups` share, and what is made of them.

Imported whenever muster starts, so what takes time is imported where it is needed.
"""

import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from muster.cli.dump import DEBUG
from muster.cli.options import parse_time
from muster.cli.status import Status

if TYPE_CHECKING:
    from muster.cli.groups_ask import Cluster
    from muster.cli.groups_connect import Asked
    from muster.cli.groups_model import TopicPartition
    from muster.cli.groups_plan import ResetSpec
    from muster.cli.groups_run import Scope

KAFKAS_TIMEOUT_MS = 30_000
LONGEST_TIMEOUT_MS = 3_600_000  # what librdkafka takes
LARGEST_PLAN_BYTES = 64 << 20

Name = TypeVar("Name", bound=StrEnum)
Parsed = TypeVar("Parsed")


def option(*names: str, panel: str | None = None, metavar: str = "", **settings: Any) -> Any:
    return typer.Option(*names, metavar=metavar, rich_help_panel=panel, show_default=False, **settings)


CLUSTER, GROUPS, TOPICS, OUTPUT, WHERE_TO = "Cluster", "Groups", "Topics", "Output", "New offsets (choose one)"

Bootstrap = Annotated[
    str | None,
    option("--bootstrap-server", "-b", panel=CLUSTER, metavar="HOST:PORT", help="Brokers to ask first, with commas."),
]
CommandConfig = Annotated[
    Path | None,
    option(
        "--command-config",
        panel=CLUSTER,
        metavar="FILE",
        readable=False,
        help="Properties of the client, as Java's clients or librdkafka write them: security, mostly.",
    ),
]
Timeout = Annotated[
    int,
    option(
        "--timeout",
        panel=CLUSTER,
        metavar="MS",
        min=100,
        max=LONGEST_TIMEOUT_MS,
        help=f"How long a request may take. Default: {KAFKAS_TIMEOUT_MS}. That nobody answers is noticed within 10 s.",
    ),
]
AsJson = Annotated[bool, option("--json", panel=OUTPUT, help="An object a line; null for what nobody knows.")]
AsCsv = Annotated[bool, option("--csv", panel=OUTPUT, help="CSV with a header; empty for what nobody knows.")]
Quiet = Annotated[bool, option("--quiet", "-q", help="Nothing on stderr but what went wrong.")]
Debug = Annotated[bool, DEBUG]
Group = Annotated[
    list[str] | None, option("--group", "-g", panel=GROUPS, metavar="NAME", help="This group. Repeatable.")
]
OneGroup = Annotated[str | None, option("--group", "-g", panel=GROUPS, metavar="NAME", help="This group.")]
AllGroups = Annotated[bool, option("--all-groups", panel=GROUPS, help="All consumer groups.")]
Topic = Annotated[
    list[str] | None,
    option(
        "--topic",
        "-t",
        panel=TOPICS,
        metavar="NAME",
        help="This topic, or some partitions of it: orders:0,3. Repeatable.",
    ),
]
Verbose = Annotated[
    bool, option("--verbose", help="More columns: the leader epoch of a commit, the assignment of a member.")
]


def ask(
    bootstrap_server: str | None,
    command_config: Path | None,
    timeout_ms: int,
    as_json: bool,
    as_csv: bool,
    quiet: bool,
    debug: bool,
    work: "Callable[[Cluster, Asked], Status]",
) -> Status:
    """Do some work with the cluster that the options name."""
    from muster.cli.groups_connect import Asked, run
    from muster.cli.groups_view import Format

    refuse_both("--json", as_json, "--csv", as_csv)
    format = Format.JSON if as_json else Format.CSV if as_csv else Format.TEXT
    asked = Asked(bootstrap_server, command_config, timeout_ms, format, quiet, debug)
    return run(asked, lambda cluster: work(cluster, asked))


def scope_of(group: list[str] | None, all_groups: bool) -> "Scope":
    from muster.cli.groups_run import Scope

    refuse_both("--group", bool(group), "--all-groups", all_groups)
    if not (group or all_groups):
        raise typer.BadParameter("name a group, or take --all-groups", param_hint="--group")
    return Scope(tuple(dict.fromkeys(map(group_name, group or ()))), all_groups)


def group_name(group: str | None) -> str:
    """A name that can be one: bytes that are no text cannot, as Kafka's protocol has no place for them."""
    if not group or any("\ud800" <= character <= "\udfff" for character in group):
        raise typer.BadParameter("name a group in UTF-8", param_hint="--group")
    return group


def refuse_both(one: str, has_one: bool, other: str, has_other: bool) -> None:
    if has_one and has_other:
        raise typer.BadParameter(f"it does not go with {other}", param_hint=one)


def names_of(hint: str, text: str | None, names: type[Name]) -> frozenset[Name]:
    """`stable,empty` as members of an enum; case, hyphens and underscores do not matter."""
    known = {name.value.lower(): name for name in names}
    chosen = []
    for word in (text or "").split(",") if text is not None else ():
        squeezed = word.strip().lower().replace("-", "").replace("_", "")
        if squeezed not in known:
            raise typer.BadParameter(f"'{word.strip()}' is none of {', '.join(known)}", param_hint=hint)
        chosen.append(known[squeezed])
    return frozenset(chosen)


def topics_of(arguments: list[str] | None) -> "tuple[tuple[str, ...], tuple[TopicPartition, ...]]":
    from muster.cli.groups_plan import parse_topics

    topics, partitions = parsed("--topic", parse_topics, arguments or [])
    return tuple(topics), tuple(partitions)


def parsed(hint: str, parse: Callable[[Any], Parsed], text: Any) -> Parsed:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from None


def spec_of(
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    from_file: Path | None,
) -> "ResetSpec":
    """The one specification among these; what it says is checked, and its file read."""
    from muster.cli import groups_plan as plan

    now_ms = int(time.time() * 1000)
    chosen: dict[str, Callable[[], ResetSpec]] = {}
    if to_earliest:
        chosen["--to-earliest"] = plan.ToEarliest
    if to_latest:
        chosen["--to-latest"] = plan.ToLatest
    if to_current:
        chosen["--to-current"] = plan.ToCurrent
    if to_offset is not None:
        chosen["--to-offset"] = lambda: plan.ToOffset(to_offset)
    if shift_by is not None:
        chosen["--shift-by"] = lambda: plan.ShiftBy(shift_by)
    if to_datetime is not None:
        chosen["--to-datetime"] = lambda: plan.ToTime(parse_time(to_datetime, now_ms))
    if by_duration is not None:
        chosen["--by-duration"] = lambda: plan.ToTime(plan.time_before(now_ms, plan.parse_duration(by_duration)))
    if from_file is not None:
        chosen["--from-file"] = lambda: plan.parse_plan(_plan_text(from_file), str(from_file))
    if len(chosen) != 1:
        raise typer.BadParameter(f"choose one of {_listed(chosen or SPECS)}", param_hint="reset-offsets")
    ((hint, make),) = chosen.items()
    return parsed(hint, lambda _: make(), None)


SPECS = (
    "--to-earliest", "--to-latest", "--to-current", "--to-offset", "--shift-by", "--to-datetime", "--by-duration",
    "--from-file",
)  # fmt: skip


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}"


def _plan_text(path: Path) -> str:
    from muster.errors import BadInput

    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_PLAN_BYTES + 1)
        if len(data) > LARGEST_PLAN_BYTES:
            raise BadInput(f"{path} is larger than {LARGEST_PLAN_BYTES >> 20} MB, and hardly a plan.")
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist. `muster groups reset-offsets --export > FILE` writes one.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not text in UTF-8.") from None


def refuse_nameless_plan(spec: "ResetSpec", has_many_groups: bool) -> None:
    """A file without groups is for one group, and somebody has to say which."""
    from muster.cli.groups_plan import FromFile

    if has_many_groups and isinstance(spec, FromFile) and None in spec.offsets:
        raise typer.BadParameter(
            "its lines name no group, so name one with --group, or write group,topic,partition,offset",
            param_hint="--from-file",
        )
