"""`muster groups`: kafka-consumer-groups' actions as commands, with its options. Here options become requests.

Neither the client library nor anything else that takes time is imported before there is something to ask.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from muster.cli.bundles import command
from muster.cli.groups.options import (
    GROUPS,
    Common,
    Execution,
    Groups,
    NewOffsets,
    OneGroup,
    Topic,
    Topics,
    Verbose,
    ask,
    group_name,
    names_of,
    topics_of,
)
from muster.cli.options import option
from muster.cli.status import Status
from muster.patterns import is_wild

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
    groups: Groups,
    offsets: Annotated[bool, option("--offsets", help="Offsets and lag, which is the default.")] = False,
    members: Annotated[bool, option("--members", help="The same as `muster groups members`.")] = False,
    state: Annotated[bool, option("--state", help="The same as `muster groups state`.")] = False,
    verbose: Verbose = False,
) -> Status:
    """Show how far groups have read, how far behind they are, and who reads what.

    LAG is LOG-END-OFFSET minus CURRENT-OFFSET, and - where one of them is not known.

    [bold]Examples[/bold]

    How far behind are all groups?
      [cyan]muster groups describe -b kafka:9092 --all-groups[/cyan]

    The ten partitions that are furthest behind:
      [cyan]muster groups describe -b kafka:9092 --all-groups --json | jq -s 'sort_by(-.lag)[:10]'[/cyan]
    """
    if offsets + members + state > 1:
        raise typer.BadParameter("choose one of --offsets, --members and --state", param_hint="groups describe")
    view = "MEMBERS" if members else "STATE" if state else "OFFSETS"
    return ask(common, _looking(groups, view, verbose))


@command(app)
def offsets(
    common: Common,
    groups: Groups,
    verbose: Verbose = False,
) -> Status:
    """Show offsets and lag, as `describe` does.

    [bold]Example[/bold]

      [cyan]muster groups offsets -b kafka:9092 -g orders-app[/cyan]
    """
    return ask(common, _looking(groups, "OFFSETS", verbose))


@command(app)
def members(
    common: Common,
    groups: Groups,
    verbose: Verbose = False,
) -> Status:
    """Show who is in a group, and with --verbose which partitions each member has.

    [bold]Example[/bold]

      [cyan]muster groups members -b kafka:9092 -g orders-app --verbose[/cyan]
    """
    return ask(common, _looking(groups, "MEMBERS", verbose))


@command(app)
def state(
    common: Common,
    groups: Groups,
) -> Status:
    """Show the state of groups: coordinator, assignor, number of members.

    [bold]Example[/bold]

      [cyan]muster groups state -b kafka:9092 --all-groups[/cyan]
    """
    return ask(common, _looking(groups, "STATE", False))


@command(app)
def reset_offsets(common: Common, groups: Groups, topics: Topics, to: NewOffsets, execution: Execution) -> Status:
    """Move the offsets of groups that have no members at the moment.

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

    spec = to.spec()
    execution.refuse_contradictions(common)
    topics.refuse_contradictions(to)
    scope = groups.scope()
    to.refuse_nameless_plan(spec, scope)
    named, partitions = topics_of(topics.topic)
    reset = Reset(
        scope,
        spec,
        named,
        partitions,
        is_dry_run=not execution.execute,
        is_dry_run_said=execution.dry_run,
        export=execution.export,
        verbose=execution.verbose,
    )
    return ask(common, lambda cluster, asked: reset_them(cluster, asked, reset))


@command(app)
def delete(
    common: Common,
    groups: Groups,
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

    scope = groups.scope()
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
    if is_wild(name):
        raise typer.BadParameter("one group at a time. Write \\* and \\? for what is no wildcard", param_hint="--group")
    if not topic:
        raise typer.BadParameter("name the topics whose offsets are to be forgotten", param_hint="--topic")
    topics, partitions = topics_of(topic)
    return ask(common, lambda cluster, asked: forget(cluster, asked, name, topics, partitions))


def _looking(groups: Groups, view: str, verbose: bool) -> "Callable[[Cluster, Asked], Status]":
    from muster.cli.groups.look import View
    from muster.cli.groups.look import describe as look

    scope = groups.scope()
    return lambda cluster, asked: look(cluster, asked, scope, View[view], verbose)
