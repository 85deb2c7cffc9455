"""Offsets: commit, fetch, delete, expire.

Committed offsets are hard state: a request only puts records into a `Write`, and the group changes when they come back
through `replay_offset`. So a refused append leaves nothing to undo, and what a fetch sees has always been appended.

A commit in a transaction is *pending* under its producer until the marker. Where an ordinary commit and one of a
transaction meet, or two transactions, the one further down the log wins; the place of the marker does not count.

A group that never had members (a *simple* group) exists because an offset does: the first one creates it in
`replay_offset`, also when the log is loaded. Tombstones create nothing. The last offset may go and leave an empty group
behind; the next expiration ends it, with the tombstone of the group that the coordinator replays.

Groups of the newer protocols are only kept safe here. Their offsets can be read; nobody can commit, because we do not
know their members, and nothing of theirs is ever deleted.
"""

from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from struct import Struct

from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import (
    NO_TOPIC_ID,
    GroupKey,
    OffsetKey,
    OffsetValue,
    encode_key,
    encode_offset_value,
    offset_key,
    offset_value_version,
)
from muster.codec.primitives import java_text
from muster.core.answers import CommitAnswer, FetchAnswer, FetchedOffset, OffsetDeleteAnswer, PartitionError
from muster.core.config import GroupConfig
from muster.core.events import (
    CommittedPartition,
    DeleteGroup,
    EndTransaction,
    ExpireOffsets,
    Instant,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    TopicsDeleted,
    TxnOffsetCommit,
)
from muster.core.group import CONSUMER_PROTOCOL, CommittedOffset, Group, Member, State, TopicPartition
from muster.core.outcome import NO_PRODUCER, OffsetsRecord, Outcome, Reply, Write
from muster.core.refusals import commit_error, member_error

NO_TIMESTAMP = -1
DEFAULT_RETENTION = -1
NO_OFFSET = -1
NO_LEADER_EPOCH = -1

_NONE = ErrorCode.NONE
_INT32 = Struct(">i")
_FIRST_VERSION_OF_MEMBER_EPOCHS = 9
_FIRST_VALUE_WITH_LEADER_EPOCH = 3
_FIRST_FLEXIBLE_VALUE = 4
_MAX_STRING_BYTES = 0x7FFF
_MAX_BYTES_OF_A_UNIT = 3

Touch = Callable[[Group, Member, Instant, Outcome], None]


class Offsets:
    """The offsets of all groups of one partition of the offsets topic.

    `groups` and `newer` are the coordinator's own, shared. `touch` restarts the session of a member.
    """

    def __init__(self, groups: dict[str, Group], newer: dict[str, str], config: GroupConfig, touch: Touch) -> None:
        self._groups = groups
        self._newer = newer
        self._touch = touch
        self._max_metadata_units = config.offset_metadata_max_bytes
        self._retention_ms = config.offsets_retention_ms
        self._value_version = offset_value_version(config.inter_broker_protocol_version)
        self._expiring_value_version = offset_value_version(config.inter_broker_protocol_version, True)
        self._groups_of_producer: dict[int, set[str]] = {}
        self.reindex()

    # Commit.

    def commit(self, event: OffsetCommit, now: Instant, out: Outcome) -> None:
        """Commit for a member, or for anybody while the group has none."""
        group = self._groups.get(event.group_id)
        error = self._commit_refusal(event, group)
        if error is not _NONE:
            out.replies.append(Reply(event.reply_to, _all_refused(event.partitions, error)))
            return
        if group is not None:
            member = group.members.get(event.member_id)
            if member is not None:
                self._touch(group, member, now, out)
        if event.retention_ms == DEFAULT_RETENTION:
            self._store(event, now.wall_ms, NO_TIMESTAMP, self._value_version, out)
        else:
            expire_ms = now.wall_ms + event.retention_ms
            self._store(event, now.wall_ms, expire_ms, self._expiring_value_version, out)

    def _commit_refusal(self, event: OffsetCommit, group: Group | None) -> ErrorCode:
        if event.group_id in self._newer:
            has_old_protocol = event.member_id and event.version < _FIRST_VERSION_OF_MEMBER_EPOCHS
            return ErrorCode.UNSUPPORTED_VERSION if has_old_protocol else ErrorCode.UNKNOWN_MEMBER_ID
        if group is None:
            if event.generation < 0:
                return _NONE
            is_told = event.version >= _FIRST_VERSION_OF_MEMBER_EPOCHS
            return ErrorCode.GROUP_ID_NOT_FOUND if is_told else ErrorCode.ILLEGAL_GENERATION
        state = group.state
        if state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if event.generation < 0 and state is State.EMPTY:
            return _NONE  # an administrator, or a consumer that assigns itself; who they say they are is not checked
        if event.generation < 0 and not event.member_id and event.instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = _seat_refusal(event, group)
        if error is _NONE and state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return error

    def txn_commit(self, event: TxnOffsetCommit, now: Instant, out: Outcome) -> None:
        """Commit within a transaction. It does not keep a member's session alive."""
        error = self._txn_commit_refusal(event)
        if error is not _NONE:
            out.replies.append(Reply(event.reply_to, _all_refused(event.partitions, error)))
            return
        self._store(event, now.wall_ms, NO_TIMESTAMP, self._value_version, out)

    def _txn_commit_refusal(self, event: TxnOffsetCommit) -> ErrorCode:
        if not event.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if event.verification_error is not _NONE:
            return commit_error(event.verification_error)
        if event.group_id in self._newer:
            return ErrorCode.ILLEGAL_GENERATION if event.member_id else ErrorCode.UNKNOWN_MEMBER_ID
        group = self._groups.get(event.group_id)
        if group is None:
            return _NONE if event.generation < 0 else ErrorCode.ILLEGAL_GENERATION
        state = group.state
        if state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if event.generation < 0 and (state is State.EMPTY or (not event.member_id and event.instance_id is None)):
            return _NONE  # clients before version 3 cannot say who they are
        return _seat_refusal(event, group)

    def _store(
        self, event: OffsetCommit | TxnOffsetCommit, wall_ms: int, expire_ms: int, version: int, out: Outcome
    ) -> None:
        """Write what is not too large; the answer waits for it."""
        # What the version has no room for is forgotten now, not at the next start.
        has_epoch = version >= _FIRST_VALUE_WITH_LEADER_EPOCH
        has_topic_id = version >= _FIRST_FLEXIBLE_VALUE and not isinstance(event, TxnOffsetCommit)
        group_id = event.group_id
        records: list[OffsetsRecord] = []
        results: list[PartitionError] = []
        for topic, partition, offset, leader_epoch, metadata, topic_id in event.partitions:
            if metadata and self._is_too_large(metadata, version):
                results.append(PartitionError(topic, partition, ErrorCode.OFFSET_METADATA_TOO_LARGE))
                continue
            value = OffsetValue(
                offset,
                leader_epoch if has_epoch else NO_LEADER_EPOCH,
                metadata or "",
                wall_ms,
                expire_ms,
                topic_id if has_topic_id else NO_TOPIC_ID,
            )
            key = _key_prefix(group_id, topic) + _INT32.pack(partition)
            means = OffsetKey(group_id, topic, partition), value
            records.append(OffsetsRecord(key, encode_offset_value(value, version), means))
            results.append(PartitionError(topic, partition, _NONE))
        answer = Reply(event.reply_to, CommitAnswer(tuple(results)))
        if not records:
            out.replies.append(answer)
            return

        def refused(error: ErrorCode, out: Outcome) -> None:
            out.replies.append(Reply(event.reply_to, _all_refused(event.partitions, commit_error(error))))

        write = Write(records, lambda out: out.replies.append(answer), refused)
        if isinstance(event, TxnOffsetCommit):
            write.producer_id, write.producer_epoch = event.producer_id, event.producer_epoch
        out.writes.append(write)

    def _is_too_large(self, metadata: str, version: int) -> bool:
        """Kafka counts in Java's characters; and before version 4 a value has no room for more than 32767 bytes."""
        if metadata.isascii():
            units = size = len(metadata)
        else:
            units = len(java_text(metadata).encode("utf-16-le", "surrogatepass")) // 2
            size = units * _MAX_BYTES_OF_A_UNIT
            if size > _MAX_STRING_BYTES:
                size = len(metadata.encode("utf-8", "surrogateescape"))
        return units > self._max_metadata_units or (version < _FIRST_FLEXIBLE_VALUE and size > _MAX_STRING_BYTES)

    # Transactions.

    def end_transaction(self, event: EndTransaction, now: Instant, out: Outcome) -> None:
        """A marker has been written: its producer's pending offsets count, or are forgotten."""
        self.complete(event.producer_id, event.commit)

    def complete(self, producer_id: int, commit: bool) -> None:
        """Replay a marker; one that is repeated, or of an unknown producer, does nothing."""
        for group_id in self._groups_of_producer.pop(producer_id, ()):
            group = self._groups.get(group_id)
            pending = None if group is None else group.pending.pop(producer_id, None)
            if group is None or pending is None or not commit:
                continue
            for partition, offset in pending.items():
                committed = group.offsets.get(partition)
                if committed is None or committed.log_offset < offset.log_offset:
                    group.offsets[partition] = offset

    # Replay.

    def replay_offset(self, key: OffsetKey, value: OffsetValue | None, log_offset: int, producer_id: int) -> None:
        """Take one record of the log; `log_offset` is the record's own, not that of its batch."""
        group_id, topic, partition, _ = key
        group = self._groups.get(group_id)
        if value is None:
            if group is not None:
                _remove(group, (topic, partition))
            return
        if group is None:
            group = self._groups[group_id] = Group(group_id)
        if producer_id == NO_PRODUCER:
            group.offsets[topic, partition] = CommittedOffset(log_offset, value)
        else:
            group.pending.setdefault(producer_id, {})[topic, partition] = CommittedOffset(log_offset, value)
            self._groups_of_producer.setdefault(producer_id, set()).add(group_id)

    def reindex(self) -> None:
        """Find the open transactions anew; for whoever has put groups in their place without `replay_offset`."""
        self._groups_of_producer.clear()
        for group_id, group in self._groups.items():
            for producer_id in group.pending:
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
            fetched = tuple([FetchedOffset(*partition, NO_OFFSET, -1, "", _NONE) for partition in wanted])
        else:
            topic_ids = event.topic_ids if event.partitions is not None else None
            fetched = _fetched(group, wanted, event.require_stable and bool(group.pending), topic_ids or {})
        out.replies.append(Reply(event.reply_to, FetchAnswer(_NONE, fetched)))

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
        answer = Reply(event.reply_to, OffsetDeleteAnswer(_NONE, tuple(results)))
        if not deleted:
            out.replies.append(answer)
            return

        def refused(error: ErrorCode, out: Outcome) -> None:
            out.replies.append(Reply(event.reply_to, OffsetDeleteAnswer(commit_error(error))))

        records = _tombstones(event.group_id, deleted)
        out.writes.append(Write(records, lambda out: out.replies.append(answer), refused))

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
            records.append(_group_tombstone(group_id))
            out.writes.append(
                Write(
                    records,
                    lambda out: out.replies.append(Reply(reply_to, _NONE)),
                    lambda error, out: out.replies.append(Reply(reply_to, commit_error(error))),
                )
            )

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
            out.writes.append(Write(_tombstones(group_id, deleted)))

    # Expire.

    def expire(self, event: ExpireOffsets, now: Instant, out: Outcome) -> None:
        """Tombstones for what is past its retention, and for the groups that end with it; one write per group."""
        for group_id, group in self._groups.items():
            if group_id in self._newer:
                continue
            expired = self._expired(group, now.wall_ms)
            records = _tombstones(group_id, expired)
            if len(expired) == len(group.offsets) and not group.pending and group.state is State.EMPTY:
                records.append(_group_tombstone(group_id))
            if records:
                out.writes.append(Write(records))

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
            for partition, (_, value) in group.offsets.items()
            if self._is_over(value, base_ms, wall_ms)
            and not group.is_subscribed(partition[0])
            and not group.holds_pending(partition)
        ]

    def _is_over(self, value: OffsetValue, base_ms: int, wall_ms: int) -> bool:
        if value.expire_timestamp_ms != NO_TIMESTAMP:
            return wall_ms >= value.expire_timestamp_ms
        return wall_ms - (value.commit_timestamp_ms if base_ms == NO_TIMESTAMP else base_ms) >= self._retention_ms


def _seat_refusal(event: OffsetCommit | TxnOffsetCommit, group: Group) -> ErrorCode:
    error = member_error(group, event.member_id, event.instance_id)
    if error is _NONE and event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _all_refused(partitions: tuple[CommittedPartition, ...], error: ErrorCode) -> CommitAnswer:
    return CommitAnswer(tuple([PartitionError(asked.topic, asked.partition, error) for asked in partitions]))


def _fetched(
    group: Group, wanted: Iterable[TopicPartition], only_stable: bool, topic_ids: dict[str, bytes]
) -> tuple[FetchedOffset, ...]:
    """A topic id that differs from the one committed under is another topic of the same name: it has no offset."""
    fetched: list[FetchedOffset] = []
    for wanted_partition in wanted:
        topic, partition = wanted_partition
        if only_stable and group.holds_pending(wanted_partition):
            fetched.append(FetchedOffset(topic, partition, NO_OFFSET, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT))
            continue
        committed = group.offsets.get(wanted_partition)
        if committed is None or (topic_ids and _differ(topic_ids.get(topic, NO_TOPIC_ID), committed.value.topic_id)):
            fetched.append(FetchedOffset(topic, partition, NO_OFFSET, -1, "", _NONE))
            continue
        offset, leader_epoch, metadata = committed.value[:3]
        fetched.append(FetchedOffset(topic, partition, offset, leader_epoch, metadata, _NONE))
    return tuple(fetched)


def _differ(asked: bytes, stored: bytes) -> bool:
    return asked != stored and asked != NO_TOPIC_ID and stored != NO_TOPIC_ID


def _remove(group: Group, partition: TopicPartition) -> None:
    """What was committed, and what every producer holds pending: no later marker brings it back."""
    group.offsets.pop(partition, None)
    if not group.pending:
        return
    for producer_id, offsets in list(group.pending.items()):
        offsets.pop(partition, None)
        if not offsets:
            del group.pending[producer_id]


def _all_partitions(group: Group) -> dict[TopicPartition, None]:
    """Every partition with an offset, committed or pending, once."""
    partitions = dict.fromkeys(group.offsets)
    for offsets in group.pending.values():
        partitions.update(dict.fromkeys(offsets))
    return partitions


def _tombstones(group_id: str, partitions: Collection[TopicPartition]) -> list[OffsetsRecord]:
    return [OffsetsRecord(_key(group_id, topic, partition), None) for topic, partition in partitions]


def _group_tombstone(group_id: str) -> OffsetsRecord:
    return OffsetsRecord(encode_key(GroupKey(group_id)), None)


def _key(group_id: str, topic: str, partition: int) -> bytes:
    return _key_prefix(group_id, topic) + _INT32.pack(partition)


@lru_cache(maxsize=16_384)
def _key_prefix(group_id: str, topic: str) -> bytes:
    """All of a key but the partition at its end: a consumer commits under the same ones again and again."""
    return encode_key(offset_key(group_id, topic, 0))[: -_INT32.size]
