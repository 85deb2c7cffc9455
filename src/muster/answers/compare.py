"""What changed between two moments: groups, members, offsets and lag, then and then."""

from collections.abc import Sequence
from typing import NamedTuple

from muster.tables.reading import Tables
from muster.tables.sql.queries import COUNTS, added_up, difference


class PartitionChange(NamedTuple):
    """One partition of a group at two moments; None: nothing was committed then, or it is not known."""

    group_id: str
    topic: str
    partition: int
    committed_before: int | None
    committed_first: int | None
    """What was committed first in between, if nothing was before."""
    committed_after: int | None
    lag_before: int | None
    lag_after: int | None
    member_before: str | None
    member_after: str | None

    @property
    def moved(self) -> int | None:
        """Records from what was committed then, or first, to what was committed later."""
        since = self.committed_first if self.committed_before is None else self.committed_before
        return None if since is None or self.committed_after is None else self.committed_after - since


class GroupChange(NamedTuple):
    """A group at two moments. State and members None: there was no such group."""

    group_id: str
    state_before: str | None
    state_after: str | None
    members_before: int | None
    members_after: int | None
    generation_before: int | None
    generation_after: int | None
    partitions_before: int
    partitions_after: int
    lag_before: int | None
    lag_after: int | None
    consumed: int
    """Records from what was committed then, or first, to what was committed later, steps back left out."""
    rewound: int
    """Records that partitions have gone back."""
    joined: list[str]
    """Members that are new."""
    left: list[str]

    @property
    def has_changed(self) -> bool:
        pairs = (
            (self.state_before, self.state_after),
            (self.members_before, self.members_after),
            (self.generation_before, self.generation_after),
            (self.partitions_before, self.partitions_after),
            (self.lag_before, self.lag_after),
        )
        return any(before != after for before, after in pairs) or bool(
            self.consumed or self.rewound or self.joined or self.left
        )


def partition_changes(
    tables: Tables, before_ms: int, after_ms: int | None, groups: Sequence[str] = ()
) -> list[PartitionChange]:
    """Partitions at two moments (None: now), those whose lag changed most first."""
    before, after = (tables.relation("lag", moment, groups) for moment in (before_ms, after_ms))
    rows = tables.asked(f"""
        WITH begun AS ({_begun(tables, before_ms, after_ms, groups)})
        SELECT coalesce(a.group_id, b.group_id) AS g, coalesce(a.topic, b.topic) AS t,
            coalesce(a.partition, b.partition) AS p,
            b.committed_offset, f.committed_offset, a.committed_offset, b.lag, a.lag, b.member_id, a.member_id
        FROM {before} b FULL JOIN {after} a
            ON b.group_id = a.group_id AND b.topic = a.topic AND b.partition = a.partition
        LEFT JOIN begun f ON f.group_id = a.group_id AND f.topic = a.topic AND f.partition = a.partition
        ORDER BY abs(coalesce(a.lag, 0) - coalesce(b.lag, 0)) DESC, g, t, p""")
    return [PartitionChange(*row) for row in rows]


def group_changes(
    tables: Tables, before_ms: int, after_ms: int | None, groups: Sequence[str] = ()
) -> list[GroupChange]:
    """Groups at two moments (None: now), those whose lag changed most first."""
    lag, known, members = (
        [tables.relation(name, moment, groups) for moment in (before_ms, after_ms)]
        for name in ("lag", "groups", "members")
    )
    moved = difference("a.committed_offset", "coalesce(b.committed_offset, f.committed_offset)")
    rows = tables.asked(f"""
        WITH begun AS ({_begun(tables, before_ms, after_ms, groups)}), parts AS (
            SELECT coalesce(b.group_id, a.group_id) AS group_id, count(b.committed_offset) AS parts_before,
                count(a.committed_offset) AS parts_after, {added_up("b.lag")} AS lag_before,
                {added_up("a.lag")} AS lag_after,
                coalesce({added_up(f"greatest({moved}, 0)")}, 0) AS consumed,
                coalesce({added_up(f"greatest(-({moved}), 0)")}, 0) AS rewound
            FROM {lag[0]} b FULL JOIN {lag[1]} a
                ON b.group_id = a.group_id AND b.topic = a.topic AND b.partition = a.partition
            LEFT JOIN begun f ON f.group_id = a.group_id AND f.topic = a.topic AND f.partition = a.partition
            GROUP BY ALL
        ), seats AS (
            SELECT group_id, list(member_id ORDER BY member_id) FILTER (WHERE is_after AND n = 1) AS joined,
                list(member_id ORDER BY member_id) FILTER (WHERE NOT is_after AND n = 1) AS gone
            FROM (
                SELECT group_id, member_id, bool_or(is_after) AS is_after, count(*) AS n FROM (
                    SELECT group_id, member_id, FALSE AS is_after FROM {members[0]} m
                    UNION ALL SELECT group_id, member_id, TRUE FROM {members[1]} n
                ) u GROUP BY group_id, member_id
            ) w GROUP BY group_id
        )
        SELECT coalesce(b.group_id, a.group_id) AS g, b.state, a.state, b.members, a.members, b.generation,
            a.generation, coalesce(p.parts_before, 0), coalesce(p.parts_after, 0), p.lag_before, p.lag_after,
            coalesce(p.consumed, 0), coalesce(p.rewound, 0), coalesce(s.joined, []), coalesce(s.gone, [])
        FROM {known[0]} b FULL JOIN {known[1]} a ON b.group_id = a.group_id
        LEFT JOIN parts p ON p.group_id = coalesce(b.group_id, a.group_id)
        LEFT JOIN seats s ON s.group_id = coalesce(b.group_id, a.group_id)
        ORDER BY abs(coalesce(p.lag_after, 0) - coalesce(p.lag_before, 0)) DESC, g""")
    return [GroupChange(*row) for row in rows]


def _begun(tables: Tables, before_ms: int, after_ms: int | None, groups: Sequence[str]) -> str:
    """What was committed first between two moments, and since the last deletion, of what was not in force at the first.

    What lies between them is told by places in the log and by markers, as what is in force is, and not by clocks.
    """
    held, known = (tables.relation(name, before_ms, groups) for name in ("offsets", "commits"))
    commits, key = tables.relation("commits", after_ms, groups), "group_id, topic, partition"

    def of_others(rows: str) -> str:
        return f"FROM {rows} r ANTI JOIN {held} h USING ({key}) WHERE {COUNTS}"

    return f"""
        SELECT {key}, min_by(committed_offset, log_offset) AS committed_offset FROM (
            SELECT *, max(CASE WHEN kind <> 'commit' THEN log_offset END) OVER (PARTITION BY {key}) AS deleted_at
            {of_others(commits)}
        ) f ANTI JOIN (SELECT offsets_partition, log_offset {of_others(known)}) b USING (offsets_partition, log_offset)
        WHERE kind = 'commit' AND coalesce(log_offset > deleted_at, TRUE) GROUP BY {key}"""
