"""State after a run, as SQL: what was in force before, and the newest record of each key in what is new. Pure.

A partition that was *rebuilt* (its log had gaps, or was cut) has its state from the log alone: `before` holds none of
its rows. Whatever was in force there and is not in the log any more has vanished.

Relations are named as in `merge_task`: `<table>_before` is what earlier runs left, `staged_<name>` what this run found.
"""

from collections.abc import Iterable, Mapping

from muster.tables.schemas import COMMITS, OFFSETS

KEY = ("group_id", "topic", "partition")
AT_SAME_PLACE = "a.offsets_partition = b.offsets_partition AND a.log_offset = b.log_offset"
OF_SAME_KEY = " AND ".join(f"a.{name} = b.{name}" for name in KEY)


def _columns(given: Mapping[str, str]) -> str:
    """All columns of `commits` of the relation `a`, some of them replaced."""
    return ", ".join(f"{given[name]} AS {name}" if name in given else f"a.{name}" for name in COMMITS.names)


def not_in(partitions: Iterable[int]) -> str:
    """A condition: rows of other partitions of the offsets topic."""
    numbers = ", ".join(str(int(number)) for number in sorted(partitions))
    return f"offsets_partition NOT IN ({numbers})" if numbers else "TRUE"


def as_commits(offsets: str) -> str:
    """Rows of `offsets` as the commits they once were."""
    known = dict.fromkeys((name for name in COMMITS.names if name not in OFFSETS.names), "NULL")
    known["kind"] = "'commit'"
    return f"SELECT {_columns(known)} FROM {offsets} a"


def candidates(offsets_before: str, winners: str, resolved: str, open_before: str) -> str:
    """Everything that may be in force: what was, what is new, and what a marker has released.

    And deletions that wait beside an open commit they have ended: without them it would come back with its marker.
    """
    return f"""
        {as_commits(offsets_before)}
        UNION ALL SELECT {_columns({})} FROM {winners} a
        UNION ALL SELECT {_columns({})} FROM {resolved} a
        UNION ALL SELECT {_columns({})} FROM {open_before} a WHERE a.txn_outcome IS NULL"""


def resolved(open_before: str, markers: str) -> str:
    """Commits of earlier runs whose transaction has ended since: the first marker of their producer decides."""
    told = {"txn_outcome": "CASE WHEN b.is_commit THEN 'committed' ELSE 'aborted' END", "txn_marker_offset": "b.marker"}
    return f"""
        SELECT {_columns(told)} FROM {open_before} a JOIN (
            SELECT o.offsets_partition, o.log_offset, min(m.log_offset) AS marker,
                min_by(m.type = 'COMMIT', m.log_offset) AS is_commit
            FROM {open_before} o JOIN {markers} m
                ON o.offsets_partition = m.offsets_partition AND o.producer_id = m.producer_id
                AND m.log_offset > o.log_offset
            GROUP BY o.offsets_partition, o.log_offset
        ) b ON {AT_SAME_PLACE} WHERE a.txn_outcome = 'open'"""


def resolved_by_rebuilding(open_before: str, open_now: str, winners: str) -> str:
    """The same for rebuilt partitions, where the marker itself may have been cleaned away: then nobody knows."""
    told = {"txn_outcome": "coalesce(b.txn_outcome, 'unknown')", "txn_marker_offset": "b.txn_marker_offset"}
    return f"""
        SELECT {_columns(told)} FROM {open_before} a
        LEFT JOIN (SELECT * FROM {winners} w WHERE w.txn_outcome IS NOT NULL) b ON {AT_SAME_PLACE}
        WHERE a.txn_outcome = 'open' AND NOT EXISTS (SELECT 1 FROM {open_now} c
            WHERE a.offsets_partition = c.offsets_partition AND a.log_offset = c.log_offset)"""


def still_open(open_before: str, resolved: str, open_now: str) -> str:
    """Commits whose transaction has not ended, as far as the log has been read."""
    return f"""
        SELECT {_columns({})} FROM {open_before} a
        WHERE a.txn_outcome = 'open' AND NOT EXISTS (SELECT 1 FROM {resolved} b WHERE {AT_SAME_PLACE})
        UNION ALL SELECT {_columns({})} FROM {open_now} a"""


def deletions_that_wait(still_open: str, candidates: str) -> str:
    """The newest deletion of each key that has an older commit in an open transaction, which it has ended already."""
    return f"""
        SELECT {_columns({})} FROM {candidates} a JOIN (
            SELECT c.group_id, c.topic, c.partition, max(c.log_offset) AS log_offset FROM {candidates} c
            WHERE c.kind <> 'commit' AND c.txn_outcome IS NULL GROUP BY c.group_id, c.topic, c.partition
        ) b ON {OF_SAME_KEY} AND a.log_offset = b.log_offset
        WHERE a.kind <> 'commit' AND EXISTS (SELECT 1 FROM {still_open} o
            WHERE o.group_id = a.group_id AND o.topic = a.topic AND o.partition = a.partition
            AND o.log_offset < a.log_offset)"""


def vanished(offsets_held: str, winners: str, open_now: str, read_before: Mapping[int, int]) -> str:
    """Keys that were in force and of which the log has no record any more: deleted between two runs, nobody saw when.

    `read_before` has how far each rebuilt partition had been read. The deletion's place is unknown too; it is put right
    there, behind everything an earlier run had seen. What waits for a marker again, since a truncation took the one it
    had, is not gone.
    """
    places = " ".join(f"WHEN {int(number)} THEN {int(place)}" for number, place in sorted(read_before.items()))
    told = dict.fromkeys(COMMITS.names, "NULL") | {
        "offsets_partition": "a.offsets_partition", "log_offset": f"CASE a.offsets_partition {places} END",
        "kind": "'vanished'", "previous_commit_timestamp_ms": "a.commit_timestamp_ms",
        **{name: f"a.{name}" for name in KEY},
    }  # fmt: skip
    return f"""
        SELECT {_columns(told)} FROM {offsets_held} a
        WHERE NOT EXISTS (SELECT 1 FROM {winners} b WHERE {OF_SAME_KEY})
            AND NOT EXISTS (SELECT 1 FROM {open_now} b WHERE {OF_SAME_KEY})"""
