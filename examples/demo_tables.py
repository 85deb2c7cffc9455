"""What the demo prints of tables, and how it checks them. Times are milliseconds here, as `view` takes them."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from muster.cli.options import Format
from muster.cli.tables.run import view
from muster.cli.tabular import show
from muster.tables.reading import Tables
from muster.tables.schemas import TABLES
from muster.tables.times import inner

Rows = list[dict[str, Any]]
console = Console(width=None if sys.stdout.isatty() else 100, highlight=False)


class Disagreement(Exception):
    """A check of the demo does not hold."""


@dataclass(frozen=True, slots=True)
class Told:
    """What an admin client was told about the group."""

    state: str
    protocol: str
    committed: dict[tuple[str, int], int]
    members: dict[str, tuple[str | None, str, str, tuple[tuple[str, int], ...]]]
    """By member id: instance id, client id, host, assignment."""


@dataclass(frozen=True, slots=True)
class Story:
    """What happened, for the tables to be asked about."""

    asked_ms: int
    before_kill: Told
    kill_ms: int
    in_the_end: Told


def show_lag(lag: Rows) -> None:
    heading(
        "muster table lag --tables kafka-tables",
        "How far behind, in records and in the time of the data (which is dated years back here).",
    )
    chosen = {("billing", "orders", 0), ("nightly-report", "orders", 0), ("nightly-report-ledger", "ledger", 0)}
    chosen.add(("warehouse-static", "orders", 2))
    show(view("lag", [row for row in lag if (row["group_id"], row["topic"], row["partition"]) in chosen]), Format.TEXT)
    console.print(
        "\n[dim]A transaction's marker at the end is no lag. Where nothing is committed lag is unknown, not 0.[/]"
    )


def show_rebalances(rebalances: Rows) -> None:
    heading("muster table rebalances --tables tables", "Every generation, and why it came about.")
    show(view("rebalances", rebalances), Format.TEXT)


def show_moment(told: Story, then: Mapping[str, Rows], now: Mapping[str, Rows]) -> None:
    moment = datetime.fromtimestamp(told.kill_ms / 1000, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    heading(f"muster table offsets --tables tables --as-of {moment}", "Just before the first kill, and now.")
    before, after = committed(then["offsets"]), committed(now["offsets"])
    owners = [{place: row for row in each["members"] for place in assigned(row)} for each in (then, now)]
    lines = []
    for place in sorted(before):
        was, is_now = (owner_of(each.get(place)) for each in owners)
        lines.append([f"{place[0]}-{place[1]}", str(before[place]), was, str(after[place]), is_now])
    print_table("partition", ">then", "held by", ">now", "held by", rows=lines)


def owner_of(member: dict[str, Any] | None) -> str:
    return "" if member is None else f"[dim]{member['member_id'][:-28]}…[/]"


def heading(command: str, sentence: str) -> None:
    console.print(f"\n[bold]{escape(command)}[/]\n[dim]{sentence}[/]\n")


def print_table(*headings: str, rows: Iterable[Sequence[str]]) -> None:
    """A heading that begins with > is of a column of numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for each in headings:
        table.add_column(each.lstrip(">"), justify="right" if each.startswith(">") else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def rows(tables: Tables, name: str, as_of_ms: int | None = None) -> Rows:
    found: Rows = inner(tables.read(name, as_of_ms).table(), TABLES[name]).to_pylist()
    return found


def committed(offsets: Rows) -> dict[tuple[str, int], int]:
    return {(row["topic"], row["partition"]): row["committed_offset"] for row in offsets}


def assigned(member: dict[str, Any]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((one["topic"], each) for one in member["assignment"] or () for each in one["partitions"]))


# What is checked


def as_told(tables: Mapping[str, Rows]) -> Told:
    """The group, in the words of an admin client."""
    (group,) = tables["groups"]
    return Told(
        group["state"],
        group["protocol"],
        committed(tables["offsets"]),
        {
            row["member_id"]: (row["instance_id"], row["client_id"], row["client_host"], assigned(row))
            for row in tables["members"]
        },
    )


def check_now(told: Told, tables: Mapping[str, Rows]) -> None:
    found = as_told(tables)
    if found != told:
        raise Disagreement(f"the tables are not what the server says. Tables: {found}. Server: {told}.")
    tick(
        f"{len(told.committed)} committed offsets, {len(told.members)} members with assignments, the state: "
        "as the server tells an admin client"
    )


def check_moment(told: Story, earlier: Mapping[tuple[str, int], int], then: Mapping[str, Rows]) -> None:
    """Offsets only grow here, and asking takes a moment: the answer lies between the states before and after it."""
    found, asked = as_told(then), told.before_kill
    keys = set(asked.committed)
    grown = earlier.keys() == found.committed.keys() == keys and all(
        earlier[key] <= asked.committed[key] <= found.committed[key] for key in keys
    )
    if not grown or replace(found, committed={}) != replace(asked, committed={}):
        raise Disagreement(f"the state as of before the kill is not what the server said then: {found}, {asked}.")
    tick("the state as of just before the kill: as the server told it then")


def check_causes(rebalances: Rows) -> None:
    causes = {row["cause"] for row in rebalances}
    missing = {"first members", "member joined", "static member returned", "member left"} - causes
    if missing:
        raise Disagreement(f"no rebalance has the cause {' or '.join(sorted(missing))}; there are {causes}.")


def check_bundled(expected: Path, offsets: Rows, groups: Rows, members: Rows) -> str:
    """Compare with what the real broker answered through its Admin API."""
    answers: Rows = json.loads(expected.read_text(encoding="utf-8"))["groups"]
    answered = {
        (group["groupId"], place): (offset["offset"], offset["leaderEpoch"], offset["metadata"])
        for group in answers
        for place, offset in (group.get("committed") or {}).items()
    }
    found = {
        (row["group_id"], f"{row['topic']}-{row['partition']}"):
        (row["committed_offset"], row["leader_epoch"], row["metadata"])
        for row in offsets
    }  # fmt: skip
    same(found, answered)
    same(
        {row["group_id"]: row["state"] for row in groups},
        {group["groupId"]: group["listed"]["state"] for group in answers},
    )
    seats = {
        (group["groupId"], member["memberId"]): member["clientId"] for group in answers for member in group["members"]
    }
    same({(row["group_id"], row["member_id"]): row["client_id"] for row in members}, seats)
    having = {group for group, _ in answered}
    return (
        f"all {len(answered)} committed offsets of {len(having)} groups, {len(seats)} members, {len(answers)} states: "
        "as the real Kafka told them"
    )


def same(found: Mapping[Any, Any], answered: Mapping[Any, Any]) -> None:
    if found != answered:
        different = [key for key in {**found, **answered} if found.get(key) != answered.get(key)]
        raise Disagreement(f"the bundled log's tables are not what its broker said: {different[:5]}.")


def tick(line: str) -> None:
    console.print(f"[green]✓[/] {line}")
