"""Options that the commands of `muster groups` share, and what is made of them.

Imported whenever muster starts, so what takes time is imported where it is needed.
"""

import inspect
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from muster.cli.options import (
    CLUSTER,
    COMMAND_CONFIG,
    CSV,
    CSV_EXACT,
    DEBUG,
    KAFKA_CONFIG,
    OUTPUT,
    WIDE,
    chosen_format,
    one_config,
    option,
    parse_time,
    refuse_both,
)
from muster.cli.status import Status

if TYPE_CHECKING:
    from muster.cli.groups.cluster import Cluster
    from muster.cli.groups.connect import Asked
    from muster.cli.groups.look import Scope
    from muster.cli.groups.model import TopicPartition
    from muster.cli.groups.plan import ResetSpec

KAFKAS_TIMEOUT_MS = 30_000
LONGEST_TIMEOUT_MS = 3_600_000  # what librdkafka takes
LARGEST_PLAN_BYTES = 64 << 20

Name = TypeVar("Name", bound=StrEnum)
Parsed = TypeVar("Parsed")


GROUPS, TOPICS, WHERE_TO = "Groups", "Topics", "New offsets (choose one)"

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


@dataclass(frozen=True, slots=True)
class Common:
    """The options of every command: whom to ask, how long to wait, and how to answer."""

    bootstrap_server: Annotated[
        str | None,
        option(
            "--bootstrap-server", "-b", panel=CLUSTER, metavar="HOST:PORT", help="Brokers to ask first, with commas."
        ),
    ] = None
    command_config: Annotated[Path | None, COMMAND_CONFIG] = None
    kafka_config: Annotated[Path | None, KAFKA_CONFIG] = None
    timeout: Annotated[
        int,
        option(
            "--timeout",
            panel=CLUSTER,
            metavar="MS",
            min=100,
            max=LONGEST_TIMEOUT_MS,
            help=f"How long a request may take. Default: {KAFKAS_TIMEOUT_MS}. That nobody answers is noticed within "
            "10 s.",
        ),
    ] = KAFKAS_TIMEOUT_MS
    as_json: Annotated[bool, option("--json", panel=OUTPUT, help="An object a line; null for what nobody knows.")] = (
        False
    )
    as_csv: Annotated[bool, CSV] = False
    csv_exact: Annotated[bool, CSV_EXACT] = False
    wide: Annotated[bool, WIDE] = False
    quiet: Annotated[bool, option("--quiet", "-q", help="Nothing on stderr but what went wrong.")] = False
    debug: Annotated[bool, DEBUG] = False

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """The same as parameters of a function, which is what typer makes options of."""
        hints = get_type_hints(cls, include_extras=True)
        return [
            inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
            for one in fields(cls)
        ]


def command(app: typer.Typer, name: str | None = None) -> Callable[[Callable[..., Status]], Callable[..., Status]]:
    """Make a command of a function of `Common` and options of its own."""

    def register(function: Callable[..., Status]) -> Callable[..., Status]:
        first, *own = inspect.signature(function).parameters.values()
        assert first.annotation is Common
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own] + Common.parameters()

        @wraps(function)
        def run(**given: Any) -> Status:
            common = {one.name: given.pop(one.name) for one in Common.parameters()}
            return function(Common(**common), **given)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        del run.__wrapped__  # typer would look behind the signature
        app.command(name)(run)
        return function

    return register


def ask(common: Common, work: "Callable[[Cluster, Asked], Status]") -> Status:
    """Do some work with the cluster that the options name."""
    from muster.cli.groups.connect import Asked, run

    config = one_config(common.command_config, common.kafka_config)
    format = chosen_format(common.as_json, common.as_csv, common.csv_exact, common.wide)
    asked = Asked(common.bootstrap_server, config, common.timeout, format, common.quiet)
    return run(asked, lambda cluster: work(cluster, asked))


def scope_of(group: list[str] | None, all_groups: bool) -> "Scope":
    from muster.cli.groups.look import Scope

    refuse_both("--group", bool(group), "--all-groups", all_groups)
    if not (group or all_groups):
        raise typer.BadParameter("name a group, or take --all-groups", param_hint="--group")
    return Scope(tuple(dict.fromkeys(map(group_name, group or ()))), all_groups)


def group_name(group: str | None) -> str:
    """A name that can be one: bytes that are no text cannot, as Kafka's protocol has no place for them."""
    if not group or any("\ud800" <= character <= "\udfff" for character in group):
        raise typer.BadParameter("name a group in UTF-8", param_hint="--group")
    return group


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
    from muster.cli.groups.plan import parse_topics

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
    from muster.cli.groups import plan

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
    from muster.cli.groups.plan import FromFile

    if has_many_groups and isinstance(spec, FromFile) and None in spec.offsets:
        raise typer.BadParameter(
            "its lines name no group, so name one with --group, or write group,topic,partition,offset",
            param_hint="--from-file",
        )
