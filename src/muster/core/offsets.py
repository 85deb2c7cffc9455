"""Offsets of groups: commit (ordinary, or within a transaction), fetch, delete, expire.

Commits are the hottest path of a coordinator, so they make little: one record and one committed offset in bytes for
each partition, and one `CommitWrite`. A request only decides; the group changes when the records come back through
`GroupTable.replay_commits`. So a refused append leaves nothing to undo, and what a fetch sees has always been appended.

Deleting writes tombstones. A group that has no offsets and no members left is ended by the next expiration, with the
tombstone of the group.

Offsets of groups of the newer protocols are only kept safe. They can be read; no client can commit, because we do not
know their members, and nothing of theirs is ever deleted.
"""

from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from struct import Struct

from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import (
    NO_TOPIC_ID,
    GroupKey,
    OffsetValue,
    encode_key,
    encode_offset_value,
    encode_plain_commit,
    offset_key,
    offset_value_version,
)
from muster.codec.partition_state import encode_fixed, fetched, times_ms, topic_id_of
from muster.codec.partitioning import LONGEST_REMEMBERED_ID
from muster.codec.primitives import MAX_STRING_BYTES, java_text
from muster.core.config import GroupConfig
from muster.core.events import (
    ALL_COMMITTED,
    CommitAnswer,
    DeleteGroup,
    ExpireOffsets,
    FetchAnswer,
    FetchedOffset,
    Instant,
    OffsetCommit,
    OffsetDelete,
    OffsetDeleteAnswer,
    OffsetFetch,
    PartitionError,
    TopicsDeleted,
    TxnOffsetCommit,
    commit_error,
    refusal,
)
from muster.core.groups import DecidedCommit, Group, GroupTable, TopicPartition
from muster.core.outcome import CommitWrite, Deleted, Notice, NoticeKind, OffsetsRecord, Outcome, Reply, Write
from muster.core.seats import CONSUMER_PROTOCOL, Member, Seats
from muster.core.states import COMMIT_ERRORS, DELETE_GROUP_ERRORS, Cause, State

NO_TIMESTAMP = -1
DEFAULT_RETENTION = -1
NO_LEADER_EPOCH = -1
ORDINARY, TRANSACTIONAL = 1, 2

_NONE = ErrorCode.NONE
_STABLE = State.STABLE  # members of an enum cost a lookup each time they are named
_INT32 = Struct(">i")
pack_partition = _INT32.pack
_FIRST_VERSION_OF_MEMBER_EPOCHS = 9
_FIRST_VALUE_WITH_LEADER_EPOCH = 3
_FIRST_FLEXIBLE_VALUE = 4
_MAX_BYTES_OF_A_UNIT = 3

NO_OFFSET = -1
_named = tuple.__new__  # the constructor of a named tuple is Python code that ends in this
_DEAD = State.DEAD

ExtendSession = Callable[[Group, Member, Instant, Outcome], None]


class Commits:
    """The commits of all groups of one partition. `extend_session` restarts the session of a member."""

    def __init__(self, table: GroupTable, config: GroupConfig, extend_session: ExtendSession) -> None:
        self._table = table
        self._groups = table.groups
        self._newer = table.newer.kinds
        self._extend_session = extend_session
        self._max_metadata_units = config.offset_metadata_max_bytes
        self._max_groups = config.muster_max_groups
        self._max_pending_offsets = config.muster_max_pending_offsets
        self._value_version = offset_value_version(config.inter_broker_protocol_version)
        self._expiring_value_version = offset_value_version(config.inter_broker_protocol_version, True)

    def commit(self, event: OffsetCommit, now: Instant, out: Outcome) -> None:
        """Commit for a member, or for any client while the group has no members."""
        group = self._groups.get(event.group_id)
        seats = None if group is None else group.seats
        member = None if seats is None else seats.members.get(event.member_id)
        if seats is None or member is None or not _is_settled(event, seats, member):
            error = self._commit_refusal(event, group)
            if error is not _NONE:
                out.replies.append(Reply(event.reply_to, refusal(event, error)))
                return
        if group is not None and seats is not None:
            if member is not None:
                self._extend_session(group, member, now, out)
            if seats.commit_kinds != ORDINARY:
                _note_kind(group, ORDINARY, out)
        if event.retention_ms == DEFAULT_RETENTION:
            self._store(event, now.wall_ms, NO_TIMESTAMP, self._value_version, out)
        else:
            expire_ms = _as_int64(now.wall_ms + event.retention_ms)  # a retention beyond all time wraps, as in Java
            self._store(event, now.wall_ms, expire_ms, self._expiring_value_version, out)

    def _commit_refusal(self, event: OffsetCommit, group: Group | None) -> ErrorCode:
        if event.group_id in self._newer:
            has_old_protocol = event.member_id and event.version < _FIRST_VERSION_OF_MEMBER_EPOCHS
            return ErrorCode.UNSUPPORTED_VERSION if has_old_protocol else ErrorCode.UNKNOWN_MEMBER_ID
        if group is None:
            if event.generation < 0:
                return self._new_group_refusal()
            is_told = event.version >= _FIRST_VERSION_OF_MEMBER_EPOCHS
            return ErrorCode.GROUP_ID_NOT_FOUND if is_told else ErrorCode.ILLEGAL_GENERATION
        state = group.seats.state
        if state is _DEAD:
            return COMMIT_ERRORS[state]
        if event.generation < 0 and state is State.EMPTY:
            return _NONE  # an administrator, or a consumer that assigns itself; who they say they are is not checked
        if event.generation < 0 and not event.member_id and event.instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.seats.seat_error(event.member_id, event.instance_id, event.generation)
        return COMMIT_ERRORS[state] if error is _NONE else error

    def _new_group_refusal(self) -> ErrorCode:
        return _NONE if len(self._groups) < self._max_groups else ErrorCode.POLICY_VIOLATION

    def txn_commit(self, event: TxnOffsetCommit, now: Instant, out: Outcome) -> None:
        """Commit within a transaction. It does not keep a member's session alive."""
        error = self._txn_commit_refusal(event)
        if error is not _NONE:
            out.replies.append(Reply(event.reply_to, refusal(event, error)))
            return
        group = self._groups.get(event.group_id)
        if group is not None and group.seats.commit_kinds != TRANSACTIONAL:
            _note_kind(group, TRANSACTIONAL, out)
        write = self._store(event, now.wall_ms, NO_TIMESTAMP, self._value_version, out)
        if write is not None:
            write.producer_id, write.producer_epoch = event.producer_id, event.producer_epoch

    def _txn_commit_refusal(self, event: TxnOffsetCommit) -> ErrorCode:
        if not event.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if event.verification_error is not _NONE:
            return commit_error(event.verification_error)
        if event.group_id in self._newer:
            return ErrorCode.ILLEGAL_GENERATION if event.member_id else ErrorCode.UNKNOWN_MEMBER_ID
        if self._table.pending_offsets + len(event.partitions) > self._max_pending_offsets:
            return ErrorCode.POLICY_VIOLATION
        group = self._groups.get(event.group_id)
        if group is None:
            return self._new_group_refusal() if event.generation < 0 else ErrorCode.ILLEGAL_GENERATION
        state = group.seats.state
        if state is _DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if event.generation < 0 and (state is State.EMPTY or (not event.member_id and event.instance_id is None)):
            return _NONE  # clients before version 3 cannot say who they are
        return group.seats.seat_error(event.member_id, event.instance_id, event.generation)

    def _store(
        self, event: OffsetCommit | TxnOffsetCommit, wall_ms: int, expire_ms: int, version: int, out: Outcome
    ) -> CommitWrite | None:
        """Write what is not too large; the answer waits for it. None if nothing was left to write."""
        # What the version has no room for is forgotten now, not at the next start.
        has_epoch = version >= _FIRST_VALUE_WITH_LEADER_EPOCH
        has_topic_id = version >= _FIRST_FLEXIBLE_VALUE and type(event) is OffsetCommit
        group_id = event.group_id
        prefix_of = key_prefix if len(group_id) <= LONGEST_REMEMBERED_ID else key_prefix.__wrapped__
        records: list[tuple[bytes, bytes | None]] = []
        commits: list[DecidedCommit] = []
        answer = ALL_COMMITTED
        for topic, partition, offset, leader_epoch, metadata, topic_id in event.partitions:
            if not has_epoch:
                leader_epoch = NO_LEADER_EPOCH
            if not has_topic_id:
                topic_id = NO_TOPIC_ID
            commit_bytes = encode_fixed(offset, leader_epoch, wall_ms, expire_ms, topic_id)
            if metadata:
                if self._is_too_large(metadata):
                    answer = self._too_large(event)
                    continue
                commit_bytes += metadata.encode("utf-8", "surrogateescape")
            if version == _FIRST_FLEXIBLE_VALUE and not metadata:
                value = encode_plain_commit(offset, leader_epoch, wall_ms, topic_id)
            else:
                value = encode_offset_value(
                    OffsetValue(offset, leader_epoch, metadata or "", wall_ms, expire_ms, topic_id), version
                )
            records.append((prefix_of(group_id, topic) + pack_partition(partition), value))
            commits.append(((topic, partition), commit_bytes))
        if not records:
            out.replies.append(Reply(event.reply_to, answer))
            return None
        write = CommitWrite(records, event, answer, commits)
        out.writes.append(write)
        return write

    def _too_large(self, event: OffsetCommit | TxnOffsetCommit) -> CommitAnswer:
        return CommitAnswer(
            tuple([
                ErrorCode.OFFSET_METADATA_TOO_LARGE if asked[4] and self._is_too_large(asked[4]) else _NONE
                for asked in event.partitions
            ])
        )  # fmt: skip

    def _is_too_large(self, metadata: str) -> bool:
        """Kafka counts in Java's characters; and no text of a record may have more than 32767 bytes."""
        if metadata.isascii():
            units = size = len(metadata)
        else:
            units = len(java_text(metadata).encode("utf-16-le", "surrogatepass")) // 2
            size = units * _MAX_BYTES_OF_A_UNIT
            if size > MAX_STRING_BYTES:
                size = len(metadata.encode("utf-8", "surrogateescape"))
        return units > self._max_metadata_units or size > MAX_STRING_BYTES


def _is_settled(event: OffsetCommit, seats: Seats, member: Member) -> bool:
    """Whether there is nothing to refuse: the quick way through `_commit_refusal`, for nearly every commit."""
    return (
        event.generation == seats.generation
        and seats.state is _STABLE
        and (event.instance_id is None or event.instance_id == member.instance_id)
    )


def _note_kind(group: Group, kind: int, out: Outcome) -> None:
    """Ordinary and transactional commits in one group generally end in surprises: say so, once."""
    seats = group.seats
    if seats.commit_kinds | kind != seats.commit_kinds:
        seats.commit_kinds |= kind
        if seats.commit_kinds == ORDINARY | TRANSACTIONAL:
            out.notices.append(Notice(NoticeKind.MIXED_COMMITS, group.group_id))


@lru_cache(maxsize=16_384)
def key_prefix(group_id: str, topic: str) -> bytes:
    """All of a key but the partition at its end: a consumer commits under the same ones again and again.

    Only for ids up to `LONGEST_REMEMBERED_ID`: of longer ones this would keep gigabytes.
    """
    return encode_key(offset_key(group_id, topic, 0))[: -_INT32.size]


def commit_key(group_id: str, topic: str, partition: int) -> bytes:
    prefix_of = key_prefix if len(group_id) <= LONGEST_REMEMBERED_ID else key_prefix.__wrapped__
    return prefix_of(group_id, topic) + pack_partition(partition)


def _as_int64(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


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
            for partition, commit_bytes in group.offsets.items()
            if self._is_over(commit_bytes, base_ms, wall_ms)
            and not seats.is_subscribed(partition[0])
            and not group.holds_pending(partition)
        ]

    def _is_over(self, commit_bytes: bytes, base_ms: int, wall_ms: int) -> bool:
        commit_ms, expire_ms = times_ms(commit_bytes)
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
        commit_bytes = group.offsets.get(wanted_partition)
        if commit_bytes is None or (
            topic_ids and _differ(topic_ids.get(topic, NO_TOPIC_ID), topic_id_of(commit_bytes))
        ):
            found.append(FetchedOffset(topic, partition, NO_OFFSET, -1, "", _NONE))
            continue
        if wanted_partition in with_metadata:
            found.append(with_metadata[wanted_partition])
            continue
        offset, leader_epoch, metadata = fetched(commit_bytes)
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
