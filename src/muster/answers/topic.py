"""One topic: its partitions, and the groups that read it, now or as of a moment."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from muster.answers.status import verdicts_at, worst_of
from muster.answers.totals import DAY_MS, UNKNOWN, Totals
from muster.tables.reading import Tables
from muster.tables.sql.queries import added_up


class Reader(NamedTuple):
    """A group that has committed offsets of the topic. None: not known."""

    group_id: str
    overall: str | None
    verdict: str | None
    since_ms: int | None
    lag: int | None
    lag_ms: int | None
    partitions: int


class TopicPartition(NamedTuple):
    """A partition as it was last observed. None: not known."""

    partition: int
    log_start_offset: int | None
    log_end_offset: int | None
    observed_at_ms: int
    written_in_a_day: int | None
    """Records since the last observation that is a day older; None also where the topic was made anew since."""


def readers(tables: Tables, totals: Totals | None, topic: str, at_ms: int | None = None) -> list[Reader]:
    """Those farthest behind first."""
    if at_ms is None:
        behind = {group_id: (lag, lag_ms, count) for group_id, lag, lag_ms, count in tables.asked(
            f"""SELECT group_id, {added_up("lag")}, max(lag_ms), count(*) FROM {tables.relation("lag")} l
            WHERE topic = ? GROUP BY group_id""", [topic])}  # fmt: skip
        said = f"SELECT group_id, verdict, verdict_since_ms FROM {tables.relation('status')} s WHERE topic = ?"
    else:
        behind = _behind_at(totals, topic, at_ms)
        said = verdicts_at(tables, "group_id, nullif(verdict, ''), since_ms", at_ms, "v.topic = ?")
    words = defaultdict(list)
    for group_id, word, since_ms in tables.asked(said, [topic]):
        words[group_id].append((word, since_ms))
    found = [
        Reader(group_id, *worst_of(words[group_id]), *behind.get(group_id, (None, None, len(words[group_id]))))
        for group_id in {*behind, *words}
    ]
    return sorted(found, key=lambda reader: (-(reader.lag_ms or 0), -(reader.lag or 0), reader.group_id))


def _behind_at(totals: Totals | None, topic: str, at_ms: int) -> dict[str, tuple[int | None, int | None, int]]:
    found = None if totals is None else totals.at(at_ms)
    if totals is None or found is None:
        return {}
    lags, times = found
    numbers = [number for number, line in enumerate(totals.lines) if line[1] == topic and lags[number] != UNKNOWN]
    return {
        totals.lines[number][0]: (int(lags[number]), None if times[number] == UNKNOWN else int(times[number]), 0)
        for number in numbers
    }


def topic_partitions(tables: Tables, topic: str, at_ms: int | None = None) -> list[TopicPartition]:
    """The partitions of a topic as they were last observed."""
    return topic_partitions_by_topic(tables, at_ms, "topic = ?", [topic])[topic]


def topic_partitions_by_topic(
    tables: Tables, at_ms: int | None = None, only: str = "TRUE", values: Sequence[str] = ()
) -> dict[str, list[TopicPartition]]:
    """The same of all topics for which a condition holds."""
    until_ms = tables.manifest.now_ms if at_ms is None else int(at_ms)
    found: dict[str, list[TopicPartition]] = defaultdict(list)
    a_day_ago = f"max_by(log_end_offset, observed_at_ms) FILTER (observed_at_ms <= {until_ms - DAY_MS})"
    rows = tables.asked(
        f"""
        SELECT topic, partition, max_by(log_start_offset, observed_at_ms), max_by(log_end_offset, observed_at_ms),
            max(observed_at_ms), CASE WHEN max_by(log_end_offset, observed_at_ms) >= {a_day_ago}
                THEN max_by(log_end_offset, observed_at_ms) - {a_day_ago} END
        FROM {tables.relation("log_ends")} e WHERE {only} AND observed_at_ms <= {until_ms}
        GROUP BY topic, partition ORDER BY topic, partition""",
        values,
    )
    for topic, *row in rows:
        found[topic].append(TopicPartition(*row))
    return found
