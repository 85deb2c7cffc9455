"""The rebalances of one group as a picture: members as bars from generation to generation, and why they changed."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from muster.tables.reading import Tables
from muster.tables.sql.queries import CURRENTS, SEATS

RETURNED = "static member returned"
"""The cause in `rebalances` of what is none: the generation stays, and nothing stops for it."""
CLASSIC = 2
MOST_RECORDS = 20_000
"""Of a group, the newest. A group that rebalances for days without end is told of as far as this goes back."""
MOST_REBALANCES = 500
MOST_MEMBERS = 300


class Bar(NamedTuple):
    """What a member had, from when to when."""

    from_ms: int
    to_ms: int | None
    """None: it still has it."""
    generation: int | None
    """In which it began."""
    partitions: int | None
    """How many; None: it cannot be told."""
    assignment: str
    """`orders 0-3, 7; refunds 1`"""


class Member(NamedTuple):
    member_id: str
    client_id: str | None
    client_host: str | None
    instance_id: str | None
    bars: list[Bar]


class Rebalance(NamedTuple):
    at_ms: int
    generation: int | None
    cause: str | None
    members: int
    joined: list[str] | None
    left: list[str] | None
    partitions_moved: int | None
    commit_gap_ms: int | None


class Timeline(NamedTuple):
    members: list[Member]
    """Those that were there at some time, by when they came."""
    rebalances: list[Rebalance]
    left_out: int
    """Members beyond the most that are shown; those that came first are left out."""

    def owners(self) -> list[Member]:
        """Who was there at the end."""
        return [member for member in self.members if member.bars[-1].to_ms is None]


EMPTY_TIMELINE = Timeline([], [], 0)


def timeline(tables: Tables, group_id: str, since_ms: int, until_ms: int) -> Timeline:
    """A group between two moments. Bars that were there at the first are shown from when they began."""
    return timelines(tables, since_ms, until_ms, "group_id = ?", [group_id]).get(group_id, EMPTY_TIMELINE)


def timelines(
    tables: Tables, since_ms: int, until_ms: int, only: str = "TRUE", values: Sequence[str] = ()
) -> dict[str, Timeline]:
    """The same of all groups for which a condition holds."""
    bars: dict[str, _Bars] = defaultdict(_Bars)
    for group_id, record in _records(tables, until_ms, only, values):
        bars[group_id].take(record)
    rebalances = _rebalances(tables, since_ms, until_ms, only, values)
    return {
        group_id: _cut(bars[group_id].members() if group_id in bars else [], rebalances[group_id], since_ms, until_ms)
        for group_id in {*bars, *rebalances}
    }


def _cut(members: list[Member], rebalances: list[Rebalance], since_ms: int, until_ms: int) -> Timeline:
    there = [
        member._replace(bars=bars)
        for member in members
        if (bars := [bar for bar in member.bars if (bar.to_ms or until_ms) >= since_ms])
    ]
    left_out = max(len(there) - MOST_MEMBERS, 0)
    return Timeline(there[left_out:], rebalances, left_out)


def _records(tables: Tables, until_ms: int, only: str, values: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Records that tell of members, group by group in log order."""
    names = ("record_type", "is_tombstone", "member_id", "epoch", "members", "instance_id", "client_id", "client_host",
             "assignment", "timestamp_ms")  # fmt: skip
    rows = tables.asked(
        f"""
        SELECT g.group_id, {", ".join(f"g.{name}" for name in names)}
        FROM {tables.relation("group_records")} g
        WHERE {only} AND g.problem IS NULL AND g.timestamp_ms <= {int(until_ms)}
            AND (g.record_type = {CLASSIC} OR g.record_type IN {SEATS} OR g.record_type IN {CURRENTS})
        QUALIFY row_number() OVER (PARTITION BY g.group_id ORDER BY g.log_offset DESC) <= {MOST_RECORDS}
        ORDER BY g.group_id, g.log_offset""",
        values,
    )
    for group_id, *row in rows:
        yield group_id, dict(zip(names, row, strict=True))


def _rebalances(
    tables: Tables, since_ms: int, until_ms: int, only: str, values: Sequence[str]
) -> dict[str, list[Rebalance]]:
    """Of each group, the newest first."""
    found: dict[str, list[Rebalance]] = defaultdict(list)
    rows = tables.asked(
        f"""
        SELECT group_id, at_ms, generation, cause, members, joined, "left", partitions_moved, commit_gap_ms
        FROM {tables.relation("rebalances")} r
        WHERE {only} AND at_ms BETWEEN {int(since_ms)} AND {int(until_ms)}
        QUALIFY row_number() OVER (PARTITION BY group_id ORDER BY at_ms DESC, log_offset DESC) <= {MOST_REBALANCES}
        ORDER BY group_id, at_ms DESC, log_offset DESC""",
        values,
    )
    for group_id, *row in rows:
        found[group_id].append(Rebalance(*row))
    return found


def assigned_text(assignment: Sequence[Mapping[str, Any]] | None) -> str:
    """`orders 0-3, 7; refunds 1`"""
    topics = sorted(
        (str(one["topic"] or one["topic_id"] or "?"), sorted(one["partitions"] or ())) for one in assignment or ()
    )
    return "; ".join(f"{topic} {_ranges(numbers)}" for topic, numbers in topics if numbers)


def _ranges(numbers: Iterable[int]) -> str:
    """0, 1, 2, 7 as `0-2, 7`."""
    told = []
    for _, some in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in some]
        told.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ", ".join(told)


@dataclass(slots=True)
class _Seat:
    """A member while its records are read."""

    facts: Mapping[str, Any]
    bars: list[Bar] = field(default_factory=list)

    @property
    def is_there(self) -> bool:
        return bool(self.bars) and self.bars[-1].to_ms is None

    def end(self, at_ms: int) -> None:
        if self.is_there:
            self.bars[-1] = self.bars[-1]._replace(to_ms=max(at_ms, self.bars[-1].from_ms))

    def have(self, at_ms: int, generation: int | None, assignment: Sequence[Mapping[str, Any]] | None) -> None:
        """A bar goes on where nothing changed."""
        text = assigned_text(assignment)
        if self.is_there and self.bars[-1].assignment == text:
            return
        self.end(at_ms)
        count = None if assignment is None else sum(len(one["partitions"] or ()) for one in assignment)
        self.bars.append(Bar(at_ms, None, generation, count, text))


class _Bars:
    """Bars of all members, from the records of their group in log order."""

    def __init__(self) -> None:
        self._seats: dict[str, _Seat] = {}
        self._at_ms = 0

    def take(self, record: Mapping[str, Any]) -> None:
        self._at_ms = max(self._at_ms, record["timestamp_ms"])  # clocks step back
        if record["record_type"] == CLASSIC:
            self._classic(record)
        elif record["is_tombstone"]:
            if record["record_type"] in _numbers(SEATS) and record["member_id"] in self._seats:
                self._seats[record["member_id"]].end(self._at_ms)
        elif record["record_type"] in _numbers(SEATS):
            self._seat(record["member_id"], record).have(self._at_ms, record["epoch"], ())
        elif record["member_id"] in self._seats:
            self._seats[record["member_id"]].have(self._at_ms, record["epoch"], record["assignment"])

    def _classic(self, record: Mapping[str, Any]) -> None:
        members = {member["member_id"]: member for member in record["members"] or ()}
        for member_id, seat in self._seats.items():
            if member_id not in members:
                seat.end(self._at_ms)
        for member_id, member in members.items():
            self._seat(member_id, member).have(self._at_ms, record["epoch"], member["assignment"])

    def _seat(self, member_id: str, facts: Mapping[str, Any]) -> _Seat:
        seat = self._seats.setdefault(member_id, _Seat(facts))
        seat.facts = facts
        return seat

    def members(self) -> list[Member]:
        return [
            Member(member_id, seat.facts["client_id"], seat.facts["client_host"], seat.facts["instance_id"], seat.bars)
            for member_id, seat in self._seats.items()
            if seat.bars
        ]


def _numbers(kinds: str) -> tuple[int, ...]:
    return tuple(int(number) for number in kinds.strip("()").split(","))
