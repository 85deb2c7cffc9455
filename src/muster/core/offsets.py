"""Committed offsets: fetch, delete, expire. How they come about is in `commits.py`, what the log says in `groups.py`.

Deleting writes tombstones, which `GroupTable.replay` lets count. A group that has no offsets and no members left is
ended by the next expiration, with the tombstone of the group.

Offsets of groups of the newer protocols are only kept safe here. They can be read; no client can commit, because we do
not know their members, and nothing of theirs is ever deleted.
"""

from collections.abc import Collection, Iterable

from muster.codec.committed import fetched, times_ms, topic_id_of
from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import NO_TOPIC_ID, GroupKey, encode_key
from muster.core.answers import FetchAnswer, FetchedOffset, OffsetDeleteAnswer, PartitionError
from muster.core.commits import NO_TIMESTAMP, commit_key
from muster.core.config import GroupConfig
from muster.core.events import (
    DeleteGroup,
    ExpireOffsets,
    Instant,
    OffsetDelete,
    OffsetFetch,
    TopicsDeleted,
)
from muster.core.groups import Group, GroupTable, TopicPartition
from muster.core.outcome import Deleted, Notice, NoticeKind, OffsetsRecord, Outcome, Reply, Write
from muster.core.seats import CONSUMER_PROTOCOL
from muster.core.states import DELETE_GROUP_ERRORS, Cause, State

NO_OFFSET = -1
_named = tuple.__new__  # the constructor of a named tuple is Python code that ends in this
_NONE = ErrorCode.NONE
_DEAD = State.DEAD


class Offsets:
    """The offsets of all groups of one partition of the offsets topic: read, delete, expire."""

    def __init__(self, table: GroupTable, config: GroupConfig) -> None:
        self._groups = table.groups
        self._newer = table.newer.kinds
        self._retention_ms = config.offsets_retention_ms

    # Fetch.

    def fetch(self, event: OffsetFetch, now: Instant, out: Outcome) -> None:
        """Read committed offsets; any client may, in any state of the group.

        The answer to `require_stable` may not overtake writes that were decided before it, which is the shell's rule
        for every answer; so an ordinary commit in flight never makes a partition unstable.
        """
        group = self._groups.get(event.group_id)
        if group is not None and group.seats.state is _DEAD:
            group = None
        wanted = event.partitions
        if wanted is None:
            wanted = () if group is None else tuple(group.offsets)
        if group is None:
            found = tuple([FetchedOffset(*partition, NO_OFFSET, -1, "", _NONE) for partition in wanted])
        else:
            topic_ids = event.topic_ids if event.partitions is not None else None
            found = _fetched(group, wanted, event.require_stable and bool(group.pending), topic_ids or {})
        out.replies.append((event.reply_to, FetchAnswer(_NONE, found)))

    # Delete.

    def delete_offsets(self, event: OffsetDelete, now: Instant, out: Outcome) -> None:
        """Forget offsets of topics that no member of the group is subscribed to."""
        group = self._groups.get(event.group_id)
        error = self._delete_offsets_refusal(event, group)
        if group is None or error is not _NONE:
            out.replies.append(Reply(event.reply_to, OffsetDeleteAnswer(error)))
            return
        seats = group.seats
        is_active = seats.state is not State.EMPTY
        results: list[PartitionError] = []
        deleted: dict[TopicPartition, None] = {}
        for topic, partition in event.partitions:
            if is_active and seats.is_subscribed(topic):
                results.append(PartitionError(topic, partition, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
                continue
            results.append(PartitionError(topic, partition, _NONE))
            if (topic, partition) in group.offsets or group.holds_pending((topic, partition)):
                deleted[topic, partition] = None
        answer = OffsetDeleteAnswer(_NONE, tuple(results))
        if not deleted:
            out.replies.append(Reply(event.reply_to, answer))
            return
        notice = Notice(NoticeKind.OFFSETS_DELETED, event.group_id, size=len(deleted))
        decision = Deleted(None, (notice,), event, answer)
        out.writes.append(Write(_tombstones(event.group_id, deleted), decision))

    def _delete_offsets_refusal(self, event: OffsetDelete, group: Group | None) -> ErrorCode:
        if not event.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if event.group_id in self._newer:
            return ErrorCode.NON_EMPTY_GROUP
        if group is None or group.seats.state is State.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.seats.state is not State.EMPTY and group.seats.protocol_type != CONSUMER_PROTOCOL:
            return ErrorCode.NON_EMPTY_GROUP
        return _NONE

    def delete_group(self, event: DeleteGroup, now: Instant, out: Outcome) -> None:
        """End an empty group with all its offsets, those that transactions hold pending too. Answers an ErrorCode."""
        group = self._groups.get(event.group_id)
        if event.group_id in self._newer:
            error = ErrorCode.NON_EMPTY_GROUP
        else:
            error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else DELETE_GROUP_ERRORS[group.seats.state]
        if group is None or error is not _NONE:
            out.replies.append(Reply(event.reply_to, error))
            return
        records = _tombstones(event.group_id, group.all_partitions())
        notice = Notice(NoticeKind.REMOVED, event.group_id, Cause.GROUP_DELETED, size=len(records))
        records.append(_group_tombstone(event.group_id))
        out.writes.append(Write(records, Deleted(group, (notice,), event, _NONE)))

    def topics_deleted(self, event: TopicsDeleted, now: Instant, out: Outcome) -> None:
        """Forget the offsets of partitions that have gone, also of those that a member is subscribed to."""
        gone = dict.fromkeys(event.partitions)
        for group_id, group in self._groups.items():
            if group_id in self._newer:
                continue
            held = group.offsets if not group.pending else group.all_partitions()
            if gone.keys().isdisjoint(held):
                continue
            deleted = [partition for partition in gone if partition in held]
            notice = Notice(NoticeKind.OFFSETS_DELETED, group_id, Cause.TOPIC_DELETED, size=len(deleted))
            out.writes.append(Write(_tombstones(group_id, deleted), Deleted(None, (notice,))))

    # Expire.

    def expire(self, event: ExpireOffsets, now: Instant, out: Outcome) -> None:
        """Tombstones for what is past its retention, and for the groups that end with it; one write per group."""
        for group_id in self._groups if event.group_ids is None else event.group_ids:
            group = self._groups.get(group_id)
            if group is None or group_id in self._newer:
                continue
            expired = self._expired(group, now.wall_ms)
            records = _tombstones(group_id, expired)
            notices: list[Notice] = []
            if expired:
                notices.append(Notice(NoticeKind.OFFSETS_EXPIRED, group_id, Cause.RETENTION, size=len(expired)))
            is_over = len(expired) == len(group.offsets) and not group.pending and group.seats.state is State.EMPTY
            if is_over:
                notices.append(Notice(NoticeKind.REMOVED, group_id, Cause.RETENTION))
                records.append(_group_tombstone(group_id))
            if records:
                out.writes.append(Write(records, Deleted(group if is_over else None, tuple(notices))))

    def _expired(self, group: Group, wall_ms: int) -> list[TopicPartition]:
        """Offsets whose time is up. A transaction in progress protects its partitions, a subscription its topics."""
        seats = group.seats
        state = seats.state
        base_ms = NO_TIMESTAMP  # of each offset: when it was committed
        if not group.offsets or state is State.DEAD:
            return []
        if seats.protocol_type is not None:
            if state is State.EMPTY:
                base_ms = seats.state_timestamp_ms
            elif state is not State.STABLE or seats.subscribed_topics is None:
                return []
        return [
            partition
            for partition, packed in group.offsets.items()
            if self._is_over(packed, base_ms, wall_ms)
            and not seats.is_subscribed(partition[0])
            and not group.holds_pending(partition)
        ]

    def _is_over(self, packed: bytes, base_ms: int, wall_ms: int) -> bool:
        commit_ms, expire_ms = times_ms(packed)
        if expire_ms != NO_TIMESTAMP:
            return wall_ms >= expire_ms
        return wall_ms - (commit_ms if base_ms == NO_TIMESTAMP else base_ms) >= self._retention_ms


def _fetched(
    group: Group, wanted: Iterable[TopicPartition], only_stable: bool, topic_ids: dict[str, bytes]
) -> tuple[FetchedOffset, ...]:
    """A topic id that differs from the one committed under is another topic of the same name: it has no offset.

    A partition that is wanted again and again is found each time, and its metadata is one text.
    """
    found: list[FetchedOffset] = []
    unstable = set[TopicPartition]().union(*group.pending.values()) if only_stable else ()
    with_metadata: dict[TopicPartition, FetchedOffset] = {}
    for wanted_partition in wanted:
        topic, partition = wanted_partition
        if wanted_partition in unstable:
            found.append(FetchedOffset(topic, partition, NO_OFFSET, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT))
            continue
        packed = group.offsets.get(wanted_partition)
        if packed is None or (topic_ids and _differ(topic_ids.get(topic, NO_TOPIC_ID), topic_id_of(packed))):
            found.append(FetchedOffset(topic, partition, NO_OFFSET, -1, "", _NONE))
            continue
        if wanted_partition in with_metadata:
            found.append(with_metadata[wanted_partition])
            continue
        offset, leader_epoch, metadata = fetched(packed)
        found.append(_named(FetchedOffset, (topic, partition, offset, leader_epoch, metadata, _NONE)))
        if metadata:
            with_metadata[wanted_partition] = found[-1]
    return tuple(found)


def _differ(asked: bytes, stored: bytes) -> bool:
    return asked != stored and asked != NO_TOPIC_ID and stored != NO_TOPIC_ID


def _tombstones(group_id: str, partitions: Collection[TopicPartition]) -> list[tuple[bytes, bytes | None]]:
    return [OffsetsRecord(commit_key(group_id, topic, partition), None) for topic, partition in partitions]


def _group_tombstone(group_id: str) -> OffsetsRecord:
    return OffsetsRecord(encode_key(GroupKey(group_id)), None)
