"""How the demo checks the tables. Times are milliseconds here, as they are inside."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from muster.tables.reading import Tables, open_tables
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


def heading(command: str, sentence: str) -> None:
    console.print(f"\n[bold]{escape(command)}[/]\n[dim]{sentence}[/]\n")


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


def verdicts(tables: Path) -> dict[str, str]:
    """The worst verdict on each group, as the tables have it."""
    with open_tables(tables) as opened:
        found = rows(opened, "status")
    worst: dict[str, str] = {}
    for row in sorted(found, key=lambda row: row["verdict"] not in (None, "OK")):
        worst[row["group_id"]] = row["verdict"] or "unknown"
    return worst


def check_verdicts(tables: Path, expected: Mapping[str, str], remembered: Mapping[str, str]) -> None:
    """What is said now; and what was said once, of a group that may have caught up since."""
    found = verdicts(tables)
    if not expected.items() <= found.items():
        raise Disagreement(f"the verdicts should be {dict(expected)}, and are {found}.")
    with open_tables(tables) as opened:
        said = {(row["group_id"], row["verdict"]) for row in rows(opened, "verdicts")}
    if not remembered.items() <= said:
        raise Disagreement(f"the verdicts {dict(remembered)} are not remembered: {said}.")
    told = [f"{group} is {verdict}" for group, verdict in expected.items()]
    told += [f"{group} was {verdict}" for group, verdict in remembered.items()]
    tick(", ".join(told))


def check_invoices(keys: Sequence[str], orders: int) -> None:
    """One for every order: none lost and none twice, although their writer was killed inside a transaction."""
    if len(keys) != orders or len(set(keys)) != orders:
        raise Disagreement(f"{orders} orders have {len(keys)} invoices, {len(set(keys))} of them different.")
    tick(f"{orders:,} orders, {len(keys):,} invoices: exactly once, through the kill")


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
        "as a real Kafka 4.3.0 told them when its log was recorded (tests/corpus/k43-all)"
    )


def same(found: Mapping[Any, Any], answered: Mapping[Any, Any]) -> None:
    if found != answered:
        different = [key for key in {**found, **answered} if found.get(key) != answered.get(key)]
        raise Disagreement(f"the bundled log's tables are not what its broker said: {different[:5]}.")


def tick(line: str) -> None:
    console.print(f"[green]✓[/] {line}")
