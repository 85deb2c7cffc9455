"""Rebalances of one group, counted by cause while they are followed. Causes are those of the table `rebalances`.

Of a newer group the newest row may still change: its assignment comes in a later record. So a row is counted when the
next one follows it, or when a whole round has passed without news of it.
"""

import json
from collections import Counter
from typing import Any

from muster.codec.consumer_protocol import decode_assignment, decode_subscription
from muster.codec.offsets_topic import GroupKey, GroupValue, MemberValue, StructValue, TypedKey
from muster.codec.records import Record
from muster.errors import CodecError
from muster.live.cluster import printed_id
from muster.pipeline.rebalances.causes import CLASSIC, CLASSIC_GROUP, COLUMNS, History
from muster.pipeline.rebalances.snapshot import Snapshot

UNKNOWN = "unknown"
"""What came before is no longer in the log."""
Row = dict[str, Any]
_EPOCHS = ("epoch", "assignmentEpoch", "memberEpoch")


class Rebalances:
    def __init__(self, at: Snapshot | None = None) -> None:
        """`at` is the group as an earlier reader left it."""
        self.by_cause: Counter[str] = Counter()
        self._history = History(at or Snapshot())
        self._counted: Row | None = None
        self._waiting: Row | None = None

    def take(self, key: GroupKey | TypedKey, value: object, record: Record, is_live: bool) -> None:
        """One record of the group. What is not live is history, and counts for nothing."""
        self._history.take(_row(key, value, record))
        for row in self._history.final_rows():
            if is_live:
                self._count(row)

    def forget_counts(self) -> None:
        self.by_cause.clear()
        self._counted = self._history.at.open_row

    def settle(self) -> None:
        """A round is over: count the newest row if its cause stands."""
        at = self._history.at
        row = at.open_row
        if row is not None and (at.settled or at.type == CLASSIC or row is self._waiting):
            self._count(row)
        self._waiting = row

    def _count(self, row: Row) -> None:
        if row is self._counted:
            return
        self._counted = row
        if row["generation"] != row["previous_generation"]:
            self.by_cause[row["cause"] or UNKNOWN] += 1


def _row(key: GroupKey | TypedKey, value: object, record: Record) -> Row:
    """A record as the table `group_records` has it; what causes do not look at is left out."""
    row: Row = dict.fromkeys(COLUMNS)
    row["record_type"] = CLASSIC_GROUP if isinstance(key, GroupKey) else key.record_type
    row["group_id"], row["log_offset"], row["timestamp_ms"] = key.group_id, record.offset, record.timestamp_ms
    row["is_tombstone"] = value is None
    if isinstance(key, TypedKey):
        row["member_id"] = key.data.get("memberId")
        row["regular_expression"] = key.data.get("regularExpression")
    if isinstance(value, GroupValue):
        row["epoch"], row["protocol"], row["leader"] = value.generation, value.protocol, value.leader
        row["members"] = [_member(member) for member in value.members]
    elif isinstance(value, StructValue):
        row["epoch"] = next((value.data[name] for name in _EPOCHS if name in value.data), None)
        row["instance_id"] = value.data.get("instanceId")
        row["json"] = json.dumps(value.data, default=printed_id)
    return row


def _member(member: MemberValue) -> Row:
    """Blobs that cannot be read are None: other things than consumers form groups, too."""
    topics: list[str] | None = None
    assigned: list[Row] | None = None
    try:
        subscription, assignment = decode_subscription(member.subscription), decode_assignment(member.assignment)
        topics = list(subscription.topics) if subscription is not None else []
        given = assignment.assigned_partitions if assignment is not None else ()
        assigned = [{"topic": one.topic, "topic_id": None, "partitions": one.partitions} for one in given]
    except CodecError:
        pass
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "subscribed_topics": topics,
        "assignment": assigned,
    }
