"""What a cluster said in its last round, as rows for each page. No I/O."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from muster.exporter.view import GroupRow, PartitionRow, View
from muster.pages.site import Query, listed


class LiveGroup(NamedTuple):
    """A group as its coordinator and the newest records have it. None: not known, or there is none."""

    group_id: str
    state: str | None
    type: str | None
    members: int
    lag: int | None
    """Of the partitions whose lag is known."""
    lag_ms: int | None
    partitions: int
    partitions_without_lag: int
    last_commit_ms: int | None


class LivePartition(NamedTuple):
    topic: str
    partition: int
    committed_offset: int
    log_end_offset: int | None
    lag: int | None
    """As kafka-consumer-groups has it: negative if more was committed than the log has."""
    lag_ms: int | None
    member_id: str | None
    client_id: str | None
    client_host: str | None


class LiveLog(NamedTuple):
    """A partition of a topic that some group has committed for."""

    partition: int
    log_start_offset: int | None
    log_end_offset: int


class LiveRows:
    """Of one round. Names are as tables have them: bytes that are no UTF-8 are replaced.

    Ends of logs that were last told before `since_ms` count for nothing, and so do groups whose commits were last read
    before `since` (the same by the monotonic clock): their broker does not answer.
    """

    def __init__(self, view: View, since_ms: int, since: float = 0.0) -> None:
        groups = [row for row in view.groups if view.read_at.get(row.group_id, since) >= since]
        self._groups = {_plain(row.group_id): row for row in groups}
        self._logs: dict[str, list[LiveLog]] = defaultdict(list)
        old = set()
        for where, log in sorted(view.ends.items()):
            if log.at_ms < since_ms:
                old.add(where)
            else:
                self._logs[_plain(where[0])].append(LiveLog(where[1], log.start, log.end))
        for row in groups if old else ():
            row.partitions = [_without_end(one) if one[:2] in old else one for one in row.partitions]

    def of_page(self, name: str, query: Query) -> dict[str, Any]:
        """What there is beside the tables on a page."""
        if name == "overview":
            return {"groups": self._overview}
        if name == "group":
            return self._group(query.get("id", ""))
        return self._topic(query.get("name", "")) if name == "topic" else {}

    @cached_property
    def _overview(self) -> dict[str, Any]:
        return listed(LiveGroup, [_live_group(group_id, row) for group_id, row in self._groups.items()])

    def _group(self, group_id: str) -> dict[str, Any]:
        row = self._groups.get(group_id)
        return {
            "group": None if row is None else _live_group(group_id, row)._asdict(),
            "partitions": listed(LivePartition, [] if row is None else list(map(_live_partition, row.partitions))),
        }

    def _topic(self, topic: str) -> dict[str, Any]:
        """Groups with what they have of this topic alone."""
        return {
            "groups": listed(LiveGroup, list(self._readers(topic))),
            "partitions": listed(LiveLog, self._logs.get(topic, [])),
        }

    def _readers(self, topic: str) -> Iterator[LiveGroup]:
        for group_id, row in self._groups.items():
            of_topic = [one for one in row.partitions if _plain(one.topic) == topic]
            if of_topic:
                yield _live_group(group_id, row, of_topic)


def _without_end(row: PartitionRow) -> PartitionRow:
    return row._replace(lag=None, lag_s=None)


def _live_group(group_id: str, row: GroupRow, partitions: list[PartitionRow] | None = None) -> LiveGroup:
    of_all = row.partitions if partitions is None else partitions
    lags = [max(0, one.lag) for one in of_all if one.lag is not None]
    lags_s = [one.lag_s for one in of_all if one.lag_s is not None]
    return LiveGroup(
        group_id,
        row.state,
        row.type,
        row.members,
        sum(lags) if lags else None,
        round(max(lags_s) * 1000) if lags_s else None,
        len(of_all),
        len(of_all) - len(lags),
        row.last_commit_ms,
    )


def _live_partition(row: PartitionRow) -> LivePartition:
    return LivePartition(
        _plain(row.topic),
        row.partition,
        row.offset,
        None if row.lag is None else row.offset + row.lag,
        row.lag,
        None if row.lag_s is None else round(row.lag_s * 1000),
        _plain(row.owner.consumer_id) or None,
        _plain(row.owner.client_id) or None,
        _plain(row.owner.host) or None,
    )


def _plain(name: str) -> str:
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def is_whole(offsets_partitions: Mapping[str, int], left_out: Mapping[str, int]) -> bool:
    """Whether a group that is not among the rows is not there."""
    unread = sum(offsets_partitions.get(state, 0) for state in ("loading", "failing"))
    return not unread and not any(left_out.values())
