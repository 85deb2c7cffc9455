"""`muster groups`: kafka-consumer-groups' actions as commands, with its options. Here options become requests.

Neither the client library nor anything else that takes time is imported before there is something to ask.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from muster.cli.groups.options import (
    GROUPS,
    TOPICS,
    WHERE_TO,
    AllGroups,
    Common,
    Group,
    OneGroup,
    Topic,
    Verbose,
    ask,
    command,
    group_name,
    names_of,
    refuse_nameless_plan,
    scope_of,
    spec_of,
    topics_of,
)
from muster.cli.options import OUTPUT, option, refuse_both
from muster.cli.status import Status

if TYPE_CHECKING:
    from muster.cli.groups.cluster import Cluster
    from muster.cli.groups.connect import Asked

app = typer.Typer(
    name="groups",
    help="Consumer groups of a running cluster: look at them, reset their offsets, delete them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@command(app, "list")
def list_(
    common: Common,
    state: Annotated[
        str | None,
        option(
            "--state",
            panel=GROUPS,
            metavar="NAMES",
            help="Only groups in these states: stable,empty. There are also preparingrebalance, completingrebalance, "
            "dead and unknown.",
        ),
    ] = None,
    type: Annotated[
        str | None,
        option("--type", panel=GROUPS, metavar="NAMES", help="Only groups of these types: classic,consumer."),
    ] = None,
) -> Status:
    """Show all consumer groups, with type and state.

    [bold]Example[/bold]

      [cyan]muster groups list -b kafka:9092 --state empty[/cyan]
    """
    from muster.cli.groups.look import list_groups
    from muster.cli.groups.model import GroupType, State

    states = names_of("--state", state, State)
    types = names_of("--type", type, GroupType)
    return ask(common, lambda cluster, asked: list_groups(cluster, asked, states, types))


@command(app)
def describe(
    common: Common,
    group: Group = None,
    all_groups: AllGroups = False,
    offsets: Annotated[bool, option("--offsets", help="Offsets and lag, which is the default.")] = False,
    members: Annotated[bool, option("--members", help="The same as `muster groups members`.")] = False,
    state: Annotated[bool, option("--state", help="The same as `muster groups state`.")] = False,
    verbose: Verbose = False,
) -> Status:
    """Show how far groups have read, how far behind they are, and who reads what.

    LAG is LOG-END-OFFSET minus CURRENT-OFFSET, and - where one of them is not known.

    [bold]Examples[/bold]

    How far behind is everybody?
      [cyan]muster groups describe -b kafka:9092 --all-groups[/cyan]

    The ten partitions that are furthest behind:
      [cyan]muster groups describe -b kafka:9092 --all-groups --json | jq -s 'sort_by(-.lag)[:10]'[/cyan]
    """
    if offsets + members + state > 1:
        raise typer.BadParameter("choose one of --offsets, --members and --state", param_hint="groups describe")
    view = "MEMBERS" if members else "STATE" if state else "OFFSETS"
    return ask(common, _looking(group, all_groups, view, verbose))


@command(app)
def offsets(
    common: Common,
    group: Group = None,
    all_groups: AllGroups = False,
    verbose: Verbose = False,
) -> Status:
    """Show offsets and lag, as `describe` does.

    [bold]Example[/bold]

      [cyan]muster groups offsets -b kafka:9092 -g orders-app[/cyan]
    """
    return ask(common, _looking(group, all_groups, "OFFSETS", verbose))


@command(app)
def members(
    common: Common,
    group: Group = None,
    all_groups: AllGroups = False,
    verbose: Verbose = False,
) -> Status:
    """Show who is in a group, and with --verbose which partitions each member has.

    [bold]Example[/bold]

      [cyan]muster groups members -b kafka:9092 -g orders-app --verbose[/cyan]
    """
    return ask(common, _looking(group, all_groups, "MEMBERS", verbose))


@command(app)
def state(
    common: Common,
    group: Group = None,
    all_groups: AllGroups = False,
) -> Status:
    """Show the state of groups: coordinator, assignor, number of members.

    [bold]Example[/bold]

      [cyan]muster groups state -b kafka:9092 --all-groups[/cyan]
    """
    return ask(common, _looking(group, all_groups, "STATE", False))


@command(app)
def reset_offsets(
    common: Common,
    group: Group = None,
    all_groups: AllGroups = False,
    topic: Topic = None,
    all_topics: Annotated[
        bool, option("--all-topics", panel=TOPICS, help="Every partition the group committed.")
    ] = False,
    to_earliest: Annotated[bool, option("--to-earliest", panel=WHERE_TO, help="The start of the log.")] = False,
    to_latest: Annotated[bool, option("--to-latest", panel=WHERE_TO, help="The end of the log.")] = False,
    to_current: Annotated[
        bool, option("--to-current", panel=WHERE_TO, help="Where the group is; the end where it never was.")
    ] = False,
    to_offset: Annotated[
        int | None, option("--to-offset", panel=WHERE_TO, metavar="N", help="This offset, held within the log.")
    ] = None,
    shift_by: Annotated[
        int | None,
        option(
            "--shift-by", panel=WHERE_TO, metavar="N", help="So many on, or back with a minus; held within the log."
        ),
    ] = None,
    to_datetime: Annotated[
        str | None,
        option(
            "--to-datetime",
            panel=WHERE_TO,
            metavar="TIME",
            help="The first record of this time or later: 2026-01-31T12:30:00.000 (UTC without a zone), epoch ms, or "
            "2h, 3d (ago).",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        option(
            "--by-duration", panel=WHERE_TO, metavar="PnDTnHnMnS", help="The first record since so long ago: PT2H30M."
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        option("--from-file", panel=WHERE_TO, metavar="FILE", readable=False, help="CSV, as --export writes it."),
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", help="Only show the new offsets. This is the default.")] = False,
    execute: Annotated[bool, option("--execute", help="Really reset them.")] = False,
    export: Annotated[
        bool,
        option(
            "--export",
            panel=OUTPUT,
            help="CSV without a header, for --from-file: topic,partition,offset, with the group in front if there "
            "are several.",
        ),
    ] = False,
    verbose: Annotated[bool, option("--verbose", help="One more column: where the group is now.")] = False,
) -> Status:
    """Move the offsets of groups that nobody uses at the moment.

    Without --execute it only shows what would be. Groups with members are left alone, and named.

    [bold]Examples[/bold]

    Read a topic again from the start:
      [cyan]muster groups reset-offsets -b kafka:9092 -g orders-app -t orders --to-earliest --execute[/cyan]

    Keep a way back, go back two hours, and undo it:
      [cyan]muster groups reset-offsets -b kafka:9092 -g orders-app --all-topics --to-current --export > now.csv[/cyan]
      [cyan]muster groups reset-offsets -b kafka:9092 -g orders-app --all-topics --by-duration PT2H --execute[/cyan]
      [cyan]muster groups reset-offsets -b kafka:9092 -g orders-app --from-file now.csv --execute[/cyan]
    """
    from muster.cli.groups.change import Reset
    from muster.cli.groups.change import reset_offsets as reset_them

    spec = spec_of(to_earliest, to_latest, to_current, to_offset, shift_by, to_datetime, by_duration, from_file)
    refuse_both("--dry-run", dry_run, "--execute", execute)
    refuse_both("--export", export, "--json" if common.as_json else "--csv", common.as_json or common.as_csv)
    refuse_both("--topic", bool(topic), "--all-topics", all_topics)
    if from_file is not None:
        refuse_both("--from-file", True, "--topic" if topic else "--all-topics", bool(topic) or all_topics)
    elif not (topic or all_topics):
        raise typer.BadParameter("name some, or take --all-topics", param_hint="--topic")
    scope = scope_of(group, all_groups)
    refuse_nameless_plan(spec, scope.all_groups or len(scope.named) != 1)
    topics, partitions = topics_of(topic)
    reset = Reset(scope, spec, topics, partitions, not execute, dry_run, export, verbose)
    return ask(common, lambda cluster, asked: reset_them(cluster, asked, reset))


@command(app)
def delete(
    common: Common,
    group: Group = None,
    all_groups: AllGroups = False,
    dry_run: Annotated[
        bool, option("--dry-run", help="Only show which groups would be deleted, and which not.")
    ] = False,
) -> Status:
    """Delete groups and all they committed, at once. Only groups without members can be deleted.

    [bold]Examples[/bold]

    Which groups would go?
      [cyan]muster groups delete -b kafka:9092 --all-groups --dry-run[/cyan]

    Delete one:
      [cyan]muster groups delete -b kafka:9092 -g orders-app[/cyan]
    """
    from muster.cli.groups.change import delete_groups, would_delete

    scope = scope_of(group, all_groups)
    work = would_delete if dry_run else delete_groups
    return ask(common, lambda cluster, asked: work(cluster, asked, scope))


@command(app)
def delete_offsets(
    common: Common,
    group: OneGroup = None,
    topic: Topic = None,
) -> Status:
    """Forget what a group committed for some topics, at once. Not for topics that its members are subscribed to.

    [bold]Example[/bold]

      [cyan]muster groups delete-offsets -b kafka:9092 -g orders-app -t orders[/cyan]
    """
    from muster.cli.groups.change import delete_offsets as forget

    name = group_name(group)
    if not topic:
        raise typer.BadParameter("name the topics whose offsets are to be forgotten", param_hint="--topic")
    topics, partitions = topics_of(topic)
    return ask(common, lambda cluster, asked: forget(cluster, asked, name, topics, partitions))


def _looking(
    group: list[str] | None, all_groups: bool, view: str, verbose: bool
) -> "Callable[[Cluster, Asked], Status]":
    from muster.cli.groups.look import View
    from muster.cli.groups.look import describe as look

    scope = scope_of(group, all_groups)
    return lambda cluster, asked: look(cluster, asked, scope, View[view], verbose)
