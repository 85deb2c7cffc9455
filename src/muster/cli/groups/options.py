"""Options that the commands of `muster groups` share, and what is made of them.

Imported whenever muster starts, so what takes time is imported where it is needed.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from datetime import UTC
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from muster.cli.options import (
    BOOTSTRAP_SERVER,
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
    refuse_both,
)
from muster.cli.status import Status
from muster.tables.clocks import parse_time

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

OneGroup = Annotated[str | None, option("--group", "-g", panel=GROUPS, metavar="NAME", help="This group.")]
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

    bootstrap_server: Annotated[str | None, BOOTSTRAP_SERVER] = None
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
            help=f"How long a request may take. Default: {KAFKAS_TIMEOUT_MS}. That no broker answers is noticed within "
            "10 s.",
        ),
    ] = KAFKAS_TIMEOUT_MS
    as_json: Annotated[bool, option("--json", panel=OUTPUT, help="An object a line; null for what is not known.")] = (
        False
    )
    as_csv: Annotated[bool, CSV] = False
    csv_exact: Annotated[bool, CSV_EXACT] = False
    wide: Annotated[bool, WIDE] = False
    quiet: Annotated[bool, option("--quiet", "-q", help="Nothing on stderr but what went wrong.")] = False
    debug: Annotated[bool, DEBUG] = False


@dataclass(frozen=True, slots=True)
class Groups:
    """Which groups a command is about."""

    group: Annotated[
        list[str] | None,
        option("--group", "-g", panel=GROUPS, metavar="NAME", help="This group; * and ? are wildcards. Repeatable."),
    ] = None
    all_groups: Annotated[bool, option("--all-groups", panel=GROUPS, help="All consumer groups.")] = False

    def scope(self) -> "Scope":
        from muster.cli.groups.look import Scope

        refuse_both("--group", bool(self.group), "--all-groups", self.all_groups)
        if not (self.group or self.all_groups):
            raise typer.BadParameter("name a group, or take --all-groups", param_hint="--group")
        return Scope(tuple(dict.fromkeys(map(group_name, self.group or ()))), self.all_groups)


@dataclass(frozen=True, slots=True)
class Topics:
    """Which partitions are reset."""

    topic: Topic = None
    all_topics: Annotated[bool, option("--all-topics", panel=TOPICS, help="Every partition the group committed.")] = (
        False
    )

    def refuse_contradictions(self, to: "NewOffsets") -> None:
        refuse_both("--topic", bool(self.topic), "--all-topics", self.all_topics)
        if to.from_file is not None:
            name = "--topic" if self.topic else "--all-topics"
            refuse_both("--from-file", True, name, bool(self.topic) or self.all_topics)
        elif not (self.topic or self.all_topics):
            raise typer.BadParameter("name some, or take --all-topics", param_hint="--topic")


@dataclass(frozen=True, slots=True)
class NewOffsets:
    """Where offsets are moved to: one of these."""

    to_earliest: Annotated[bool, option("--to-earliest", panel=WHERE_TO, help="The start of the log.")] = False
    to_latest: Annotated[bool, option("--to-latest", panel=WHERE_TO, help="The end of the log.")] = False
    to_current: Annotated[
        bool, option("--to-current", panel=WHERE_TO, help="Where the group is; the end where it never was.")
    ] = False
    to_offset: Annotated[
        int | None, option("--to-offset", panel=WHERE_TO, metavar="N", help="This offset, held within the log.")
    ] = None
    shift_by: Annotated[
        int | None,
        option(
            "--shift-by", panel=WHERE_TO, metavar="N", help="So many on, or back with a minus; held within the log."
        ),
    ] = None
    to_datetime: Annotated[
        str | None,
        option(
            "--to-datetime",
            panel=WHERE_TO,
            metavar="TIME",
            help="The first record of this time or later: 2026-01-31T12:30:00.000 (UTC without a zone, as in "
            "Kafka's tool), epoch ms, or 2h, 3d (ago).",
        ),
    ] = None
    by_duration: Annotated[
        str | None,
        option(
            "--by-duration", panel=WHERE_TO, metavar="PnDTnHnMnS", help="The first record since so long ago: PT2H30M."
        ),
    ] = None
    from_file: Annotated[
        Path | None,
        option("--from-file", panel=WHERE_TO, metavar="FILE", readable=False, help="CSV, as --export writes it."),
    ] = None

    def spec(self) -> "ResetSpec":
        """The one specification among these; what it says is checked, and its file read."""
        names = {f"--{one.name.replace('_', '-')}": getattr(self, one.name) for one in fields(self)}
        given = [name for name, value in names.items() if value is not None and value is not False]
        if len(given) != 1:
            raise typer.BadParameter(f"choose one of {_listed(given or names)}", param_hint="reset-offsets")
        return parsed(given[0], self._spec, names[given[0]])

    def _spec(self, value: Any) -> "ResetSpec":
        from muster.cli.groups import plan

        now_ms = int(time.time() * 1000)
        if self.to_earliest:
            return plan.ToEarliest()
        if self.to_latest:
            return plan.ToLatest()
        if self.to_current:
            return plan.ToCurrent()
        if self.to_offset is not None:
            return plan.ToOffset(value)
        if self.shift_by is not None:
            return plan.ShiftBy(value)
        if self.to_datetime is not None:
            return plan.ToTime(parse_time(value, now_ms, UTC))  # as Kafka's tool has it
        if self.by_duration is not None:
            return plan.ToTime(plan.time_before(now_ms, plan.parse_duration(value)))
        return plan.parse_plan(_plan_text(value), str(value))

    def refuse_nameless_plan(self, spec: "ResetSpec", scope: "Scope") -> None:
        """A file without groups is for one group, which must be named."""
        from muster.cli.groups.plan import FromFile

        has_many_groups = scope.all_groups or scope.is_wild or len(scope.named) != 1
        if has_many_groups and isinstance(spec, FromFile) and None in spec.offsets:
            raise typer.BadParameter(
                "its lines name no group, so name one with --group, or write group,topic,partition,offset",
                param_hint="--from-file",
            )


@dataclass(frozen=True, slots=True)
class Execution:
    """Whether offsets are really reset, and what is shown of it."""

    dry_run: Annotated[bool, option("--dry-run", help="Only show the new offsets. This is the default.")] = False
    execute: Annotated[bool, option("--execute", help="Really reset them.")] = False
    export: Annotated[
        bool,
        option(
            "--export",
            panel=OUTPUT,
            help="CSV without a header, for --from-file: topic,partition,offset, with the group in front if there "
            "are several.",
        ),
    ] = False
    verbose: Annotated[bool, option("--verbose", help="One more column: where the group is now.")] = False

    def refuse_contradictions(self, common: Common) -> None:
        refuse_both("--dry-run", self.dry_run, "--execute", self.execute)
        format = "--json" if common.as_json else "--csv"
        refuse_both("--export", self.export, format, common.as_json or common.as_csv)


def ask(common: Common, work: "Callable[[Cluster, Asked], Status]") -> Status:
    """Do some work with the cluster that the options name."""
    from muster.cli.groups.connect import Asked, run

    config = one_config(common.command_config, common.kafka_config)
    format = chosen_format(common.as_json, common.as_csv, common.csv_exact, common.wide)
    asked = Asked(common.bootstrap_server, config, common.timeout, format, common.quiet)
    return run(asked, lambda cluster: work(cluster, asked))


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
