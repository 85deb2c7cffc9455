"""Rows that the pieces of a partition could not finish, finished from what all of them have. SQL, run by duckdb.

    deletion        when what it deletes was committed, and so whether it has expired. It is the first record of its
                    key in its piece: what it deletes is the newest one of an earlier piece, or of the run before
    group record    the group's commits around it: the last one of an earlier piece (or of the run before), and the
                    first one of the next piece that has anything of the group, if a commit is what comes first there
    activity        when each group committed, over all pieces

The newest records of each piece are its winners, so nothing is read again.
"""

from collections.abc import Collection, Sequence
from typing import Any

from muster.pipeline.packets import Packet, rows_of
from muster.tables.schemas import ACTIVITY, COMMITS, GROUP_RECORDS

SAME_KEY = " AND ".join(f"a.{name} = b.{name}" for name in ("offsets_partition", "group_id", "topic", "partition"))
SAME_GROUP = "a.offsets_partition = b.offsets_partition AND a.group_id = b.group_id"
SAME_PLACE = "a.offsets_partition = b.offsets_partition AND a.log_offset = b.log_offset"


def finished_commits(late: str, winners: str, offsets_held: str, offsets_retention_ms: int) -> str:
    """Deletions, each with what it deletes: the same rule as `extract.activity.Past` has."""
    visible = f"SELECT * FROM {winners} WHERE txn_outcome IS NULL OR txn_outcome = 'committed'"
    found = f"""
        SELECT a.*, b.log_offset IS NOT NULL AS is_in_a_piece,
            b.commit_timestamp_ms AS commit_ms, b.expire_timestamp_ms AS expire_ms
        FROM {late} a ASOF LEFT JOIN ({visible}) b ON {SAME_KEY} AND a.log_offset > b.log_offset"""
    known = f"""
        SELECT a.* REPLACE (
            CASE WHEN is_in_a_piece THEN a.commit_ms ELSE b.commit_timestamp_ms END AS commit_ms,
            CASE WHEN is_in_a_piece THEN a.expire_ms ELSE b.expire_timestamp_ms END AS expire_ms)
        FROM ({found}) a LEFT JOIN {offsets_held} b ON {SAME_KEY} AND a.log_offset > b.log_offset"""
    age_ms = "timestamp_ms - commit_ms"
    is_due = f"(expire_ms >= 0 AND expire_ms <= timestamp_ms) OR {age_ms} >= {int(offsets_retention_ms)}"
    return f"""
        SELECT * EXCLUDE (is_in_a_piece, commit_ms, expire_ms) REPLACE (
            CASE WHEN commit_ms >= 0 AND timestamp_ms >= 0 AND ({is_due}) THEN 'expired' ELSE 'deleted' END AS kind,
            CASE WHEN commit_ms >= 0 THEN commit_ms END AS previous_commit_timestamp_ms)
        FROM ({known})"""


def finished_groups(late: str, pieces: str, activity_held: str) -> str:
    """Records of classic groups, each with the commits of the group around it."""
    begun = f"""
        SELECT a.* REPLACE (
            CASE WHEN is_begun_before THEN b.last_commit_ms ELSE last_commit_before_ms END AS last_commit_before_ms,
            is_begun_before AND b.piece_offset IS NULL AS is_begun_before)
        FROM {late} a ASOF LEFT JOIN (SELECT * FROM {pieces} WHERE has_committed) b
        ON {SAME_GROUP} AND a.piece_offset > b.piece_offset"""
    begun_earlier = f"""
        SELECT a.* REPLACE (
            CASE WHEN is_begun_before THEN b.last_commit_ms ELSE last_commit_before_ms END AS last_commit_before_ms)
        FROM ({begun}) a LEFT JOIN {activity_held} b ON {SAME_GROUP}"""
    return f"""
        SELECT a.* EXCLUDE (piece_offset, is_begun_before, goes_on_behind) REPLACE (
            CASE WHEN goes_on_behind THEN b.first_commit_ms ELSE first_commit_after_ms END AS first_commit_after_ms)
        FROM ({begun_earlier}) a ASOF LEFT JOIN {pieces} b ON {SAME_GROUP} AND a.piece_offset < b.piece_offset"""


def activity_of_pieces(pieces: str) -> str:
    """Rows of ACTIVITY; a group's first commit counts only if no record of the group stands before it."""
    return f"""
        SELECT group_id, offsets_partition, first(first_commit_ms ORDER BY piece_offset) AS first_commit_ms,
            last(last_commit_ms ORDER BY piece_offset) FILTER (WHERE has_committed) AS last_commit_ms
        FROM {pieces} GROUP BY offsets_partition, group_id HAVING bool_or(has_committed)"""


def outdone(winners: str, with_ended: bool) -> str:
    """A condition: winners of a piece that another piece has a newer visible record of the same key than.

    `with_ended`: all commits of transactions are among the winners, and stay there.
    """
    newest = f"""
        SELECT offsets_partition, group_id, topic, partition, max(log_offset) AS log_offset FROM {winners}
        WHERE txn_outcome IS NULL OR txn_outcome = 'committed' GROUP BY ALL"""
    ours = "a.txn_outcome IS NULL" if with_ended else "TRUE"
    return f"{ours} AND EXISTS (SELECT 1 FROM ({newest}) b WHERE {SAME_KEY} AND a.log_offset < b.log_offset)"


OF_PIECES = ("piece_activity", "late_commits", "late_groups")
"""Kinds of packets that only a partition read in pieces has; any of them may be missing."""


class LateRows:
    """What some packets have of late rows, finished: the relations `commits`, `groups` and `activity`.

    `offsets_held` and `activity_held` are relations of the run before.
    """

    def __init__(self, connection: Any, packets: Sequence[Packet], name: str, offsets_retention_ms: int) -> None:
        self._connection = connection
        self.commits, self.groups, self.activity = (f"late_{kind}_{name}" for kind in ("commits", "groups", "activity"))
        kinds = {packet.kind for packet in packets}
        self._cut = {packet.offsets_partition for packet in packets if packet.kind in OF_PIECES}
        self._of_pieces = [packet for packet in packets if packet.offsets_partition in self._cut]
        self._name = name
        if "late_commits" in kinds:
            late, winners = self._read("late_commits"), self._read("winners_commits")
            self._make(self.commits, finished_commits(late, winners, "offsets_held", offsets_retention_ms))
        else:
            connection.register(self.commits, COMMITS.empty_table())
        if self._cut:
            late, pieces = self._read("late_groups"), self._read("piece_activity")
            self._make(self.groups, finished_groups(late, pieces, "activity_held"))
            self._make(self.activity, activity_of_pieces(pieces))
        else:
            connection.register(self.groups, GROUP_RECORDS.empty_table())
            connection.register(self.activity, ACTIVITY.empty_table())

    def _read(self, kind: str) -> str:
        relation = f"pieces_{kind}_{self._name}"
        self._connection.register("packets", rows_of(self._of_pieces, kind))
        self._make(relation, "SELECT * FROM packets")
        self._connection.unregister("packets")
        return relation

    def _make(self, relation: str, sql: str) -> None:
        self._connection.execute(f"CREATE TEMP TABLE {relation} AS {sql}")

    def finish_winners(self, commits: str, groups: str, with_ended: bool, but_not_in: Collection[int] = ()) -> None:
        """In these two tables finish the rows that are late, and leave the winners of the partition where each piece
        had its own. Some partitions are not for us.
        """
        numbers = ", ".join(str(int(number)) for number in sorted(self._cut - set(but_not_in)))
        if not numbers:
            return
        mine = f"a.offsets_partition IN ({numbers})"
        for winners, late, columns in (
            (commits, self.commits, ("kind", "previous_commit_timestamp_ms")),
            (groups, self.groups, ("last_commit_before_ms", "first_commit_after_ms")),
        ):
            told = ", ".join(f"{name} = b.{name}" for name in columns)
            self._connection.execute(f"UPDATE {winners} AS a SET {told} FROM {late} b WHERE {SAME_PLACE} AND {mine}")
        self._connection.execute(f"DELETE FROM {commits} AS a WHERE {mine} AND {outdone(commits, with_ended)}")
