"""Offsets: commit, fetch, delete, expire.

Committed offsets are hard state: they change in `replay_offset` and `replay_commits` alone, when what was decided comes
back from the log. Each is one packed bytes object (`muster.codec.committed`).

A commit in a transaction is *pending* under its producer until the marker. Where an ordinary commit and one of a
transaction meet, or two transactions, the one further down the log wins; the place of the marker does not count.

A group that never had members (a *simple* group) exists because an offset does: the first one creates it in
`replay_offset`, also when the log is loaded. Tombstones create nothing. The last offset may go and leave an empty group
behind; the next expiration ends it, with the tombstone of the group that the coordinator replays.

Groups of the newer protocols are only kept safe here. Their offsets can be read; nobody can commit, because we do not
know their members, and nothing of theirs is ever deleted.
"""

from collections.abc import Collection, Iterable

from muster.codec.committed import fetched, is_further, pack, pack_log_offset, times_ms, topic_id_of
from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import NO_TOPIC_ID, GroupKey, OffsetKey, OffsetValue, encode_key
from muster.core.answers import FetchAnswer, FetchedOffset, OffsetDeleteAnswer, PartitionError
from muster.core.commits import NO_TIMESTAMP, Commits, ExtendSession, commit_key
from muster.core.config import GroupConfig
from muster.core.events import (
    DeleteGroup,
    EndTransaction,
    ExpireOffsets,
    Instant,
    OffsetDelete,
    OffsetFetch,
    TopicsDeleted,
)
from muster.core.group import CONSUMER_PROTOCOL, Group, State, TopicPartition
from muster.core.outcome import (
    NO_PRODUCER,
    Cause,
    Notice,
    NoticeKind,
    OffsetsRecord,
    Outcome,
    Reply,
    StagedCommit,
    Write,
)

NO_OFFSET = -1
_named = tuple.__new__  # the constructor of a named tuple is Python code that ends in this
_NONE = ErrorCode.NONE


class Offsets(Commits):
    """The offsets of all groups of one partition of the offsets topic.

    `groups` and `newer` are the coordinator's own, shared. `extend_session` restarts the session of a member.
    """

    def __init__(
        self, groups: dict[str, Group], newer: dict[str, str], config: GroupConfig, extend_session: ExtendSession
    ) -> None:
        super().__init__(groups, newer, config, extend_session)
        self._retention_ms = config.offsets_retention_ms
        self._groups_of_producer: dict[int, set[str]] = {}
        self.reindex()

    # Transactions.

    def end_transaction(self, event: EndTransaction, now: Instant, out: Outcome) -> None:
        """A marker has been written: its producer's pending offsets count, or are forgotten."""
        self.complete(event.producer_id, event.commit)

    def complete(self, producer_id: int, commit: bool) -> None:
        """Replay a marker; one that is repeated, or of an unknown producer, does nothing."""
        for group_id in self._groups_of_producer.pop(producer_id, ()):
            group = self._groups.get(group_id)
            pending = None if group is None else group.pending.pop(producer_id, None)
            if group is None or pending is None:
                continue
            self.pending_offsets -= len(pending)
            if not commit:
                continue
            for partition, offset in pending.items():
                committed = group.offsets.get(partition)
                if committed is None or is_further(offset, committed):
                    group.offsets[partition] = offset

    # Replay.

    def replay_offset(self, key: OffsetKey, value: OffsetValue | None, log_offset: int, producer_id: int) -> None:
        """Take one record of the log; `log_offset` is the record's own, not that of its batch."""
        group_id, topic, partition, _ = key
        if value is None:
            group = self._groups.get(group_id)
            if group is not None:
                self._remove(group, (topic, partition))
            return
        packed = pack(log_offset, value)
        if producer_id == NO_PRODUCER:
            self._group(group_id).offsets[topic, partition] = packed
        else:
            self._hold(group_id, (topic, partition), packed, producer_id)

    def replay_commits(self, group_id: str, staged: list[StagedCommit], base_offset: int, producer_id: int) -> None:
        """The same for our own commits, which need not be decoded: one record after another from the base offset."""
        if producer_id == NO_PRODUCER:
            group = self._groups.get(group_id) or self._group(group_id)
            for log_offset, (partition, packed) in enumerate(staged, base_offset):
                group.offsets[partition] = pack_log_offset(log_offset) + packed
        else:
            for log_offset, (partition, packed) in enumerate(staged, base_offset):
                self._hold(group_id, partition, pack_log_offset(log_offset) + packed, producer_id)

    def _group(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id)
        return group

    def _hold(self, group_id: str, partition: TopicPartition, packed: bytes, producer_id: int) -> None:
        held = self._group(group_id).pending.setdefault(producer_id, {})
        self.pending_offsets += partition not in held
        held[partition] = packed
        self._groups_of_producer.setdefault(producer_id, set()).add(group_id)

    def _remove(self, group: Group, partition: TopicPartition) -> None:
        """What was committed, and what every producer holds pending: no later marker brings it back."""
        group.offsets.pop(partition, None)
        if not group.pending:
            return
        for producer_id, offsets in list(group.pending.items()):
            self.pending_offsets -= offsets.pop(partition, None) is not None
            if not offsets:
                del group.pending[producer_id]

    def reindex(self) -> None:
        """Find the open transactions anew; for whoever has put groups in their place without `replay_offset`."""
        self._groups_of_producer.clear()
        self.pending_offsets = 0
        for group_id, group in self._groups.items():
            for producer_id, held in group.pending.items():
                self.pending_offsets += len(held)
                self._groups_of_producer.setdefault(producer_id, set()).add(group_id)

    # Fetch.

    def fetch(self, event: OffsetFetch, now: Instant, out: Outcome) -> None:
        """Read committed offsets; anybody may, in any state of the group.

        The answer to `require_stable` may not overtake writes that were decided before it, which is the shell's rule
        for every answer; so an ordinary commit in flight never makes a partition unstable.
        """
        group = self._groups.get(event.group_id)
        if group is not None and group.is_dead:
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
        """Forget offsets of topics that nobody in the group is subscribed to."""
        group = self._groups.get(event.group_id)
        error = self._delete_offsets_refusal(event, group)
        if group is None or error is not _NONE:
            out.replies.append(Reply(event.reply_to, OffsetDeleteAnswer(error)))
            return
        is_active = group.state is not State.EMPTY
        results: list[PartitionError] = []
        deleted: dict[TopicPartition, None] = {}
        for topic, partition in event.partitions:
            if is_active and group.is_subscribed(topic):
                results.append(PartitionError(topic, partition, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
                continue
            results.append(PartitionError(topic, partition, _NONE))
            if (topic, partition) in group.offsets or group.holds_pending((topic, partition)):
                deleted[topic, partition] = None
        answer = OffsetDeleteAnswer(_NONE, tuple(results))
        if not deleted:
            out.replies.append(Reply(event.reply_to, answer))
            return
        write = _burial(
            _tombstones(event.group_id, deleted), Notice(NoticeKind.OFFSETS_DELETED, event.group_id, size=len(deleted))
        )
        write.event, write.answer = event, answer
        out.writes.append(write)

    def _delete_offsets_refusal(self, event: OffsetDelete, group: Group | None) -> ErrorCode:
        if not event.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if event.group_id in self._newer:
            return ErrorCode.NON_EMPTY_GROUP
        if group is None or group.is_dead:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not State.EMPTY and group.protocol_type != CONSUMER_PROTOCOL:
            return ErrorCode.NON_EMPTY_GROUP
        return _NONE

    def delete_group(self, event: DeleteGroup, now: Instant, out: Outcome) -> None:
        """End an empty group with all its offsets, those that transactions hold pending too. Answers an ErrorCode."""
        group_id, reply_to = event.group_id, event.reply_to
        group = self._groups.get(group_id)
        if group_id in self._newer:
            out.replies.append(Reply(reply_to, ErrorCode.NON_EMPTY_GROUP))
        elif group is None or group.is_dead:
            out.replies.append(Reply(reply_to, ErrorCode.GROUP_ID_NOT_FOUND))
        elif group.state is not State.EMPTY:
            out.replies.append(Reply(reply_to, ErrorCode.NON_EMPTY_GROUP))
        else:
            records = _tombstones(group_id, _all_partitions(group))
            notice = Notice(NoticeKind.REMOVED, group_id, Cause.GROUP_DELETED, size=len(records))
            write = _burial([*records, _group_tombstone(group_id)], notice)
            write.event, write.answer = event, _NONE
            out.writes.append(write)

    def topics_deleted(self, event: TopicsDeleted, now: Instant, out: Outcome) -> None:
        """Forget the offsets of partitions that are no more, whoever is subscribed to them."""
        gone = dict.fromkeys(event.partitions)
        for group_id, group in self._groups.items():
            if group_id in self._newer:
                continue
            held = group.offsets if not group.pending else _all_partitions(group)
            if gone.keys().isdisjoint(held):
                continue
            deleted = [partition for partition in gone if partition in held]
            notice = Notice(NoticeKind.OFFSETS_DELETED, group_id, Cause.TOPIC_DELETED, size=len(deleted))
            out.writes.append(_burial(_tombstones(group_id, deleted), notice))

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
            if len(expired) == len(group.offsets) and not group.pending and group.state is State.EMPTY:
                notices.append(Notice(NoticeKind.REMOVED, group_id, Cause.RETENTION))
                records.append(_group_tombstone(group_id))
            if records:
                out.writes.append(_burial(records, *notices))

    def _expired(self, group: Group, wall_ms: int) -> list[TopicPartition]:
        """Offsets whose time is up. A transaction in progress protects its partitions, a subscription its topics."""
        state = group.state
        base_ms = NO_TIMESTAMP  # of each offset: when it was committed
        if not group.offsets or state is State.DEAD:
            return []
        if group.protocol_type is not None:
            if state is State.EMPTY:
                base_ms = group.state_timestamp_ms
            elif state is not State.STABLE or group.subscribed_topics is None:
                return []
        return [
            partition
            for partition, packed in group.offsets.items()
            if self._is_over(packed, base_ms, wall_ms)
            and not group.is_subscribed(partition[0])
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


def _all_partitions(group: Group) -> dict[TopicPartition, None]:
    """Every partition with an offset, committed or pending, once."""
    partitions = dict.fromkeys(group.offsets)
    for offsets in group.pending.values():
        partitions.update(dict.fromkeys(offsets))
    return partitions


def _tombstones(group_id: str, partitions: Collection[TopicPartition]) -> list[tuple[bytes, bytes | None]]:
    return [OffsetsRecord(commit_key(group_id, topic, partition), None) for topic, partition in partitions]


def _burial(tombstones: list[tuple[bytes, bytes | None]], *notices: Notice) -> Write:
    """A write of tombstones. Half of them do no harm without the rest, so a log with little room may take them so."""
    return Write(tombstones, may_be_split=True, notices=notices)


def _group_tombstone(group_id: str) -> OffsetsRecord:
    return OffsetsRecord(encode_key(GroupKey(group_id)), None)
