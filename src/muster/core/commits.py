"""Offset commits, ordinary and transactional: who may, and what is written.

The hottest path of a coordinator, so it makes little: one record and one packed offset for each partition, and one
`CommitWrite`. A request only decides; the group changes when the records come back through `GroupTable.replay_commits`.
So a refused append leaves nothing to undo, and what a fetch sees has always been appended.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct

from muster.codec.committed import pack_fixed
from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import (
    NO_TOPIC_ID,
    OffsetValue,
    encode_key,
    encode_offset_value,
    encode_plain_commit,
    offset_key,
    offset_value_version,
)
from muster.codec.partitioning import LONGEST_REMEMBERED_ID
from muster.codec.primitives import MAX_STRING_BYTES, java_text
from muster.core.answers import ALL_COMMITTED, CommitAnswer, commit_error, refusal
from muster.core.config import GroupConfig
from muster.core.events import Instant, OffsetCommit, TxnOffsetCommit
from muster.core.groups import DecidedCommit, Group, GroupTable
from muster.core.outcome import CommitWrite, Notice, NoticeKind, Outcome, Reply
from muster.core.seats import Member, Seats
from muster.core.states import COMMIT_ERRORS, State

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
        if state is State.DEAD:
            return COMMIT_ERRORS[state]
        if event.generation < 0 and state is State.EMPTY:
            return _NONE  # an administrator, or a consumer that assigns itself; who they say they are is not checked
        if event.generation < 0 and not event.member_id and event.instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = _seat_refusal(event, group.seats)
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
        if state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if event.generation < 0 and (state is State.EMPTY or (not event.member_id and event.instance_id is None)):
            return _NONE  # clients before version 3 cannot say who they are
        return _seat_refusal(event, group.seats)

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
            packed = pack_fixed(offset, leader_epoch, wall_ms, expire_ms, topic_id)
            if metadata:
                if self._is_too_large(metadata):
                    answer = self._too_large(event)
                    continue
                packed += metadata.encode("utf-8", "surrogateescape")
            if version == _FIRST_FLEXIBLE_VALUE and not metadata:
                value = encode_plain_commit(offset, leader_epoch, wall_ms, topic_id)
            else:
                value = encode_offset_value(
                    OffsetValue(offset, leader_epoch, metadata or "", wall_ms, expire_ms, topic_id), version
                )
            records.append((prefix_of(group_id, topic) + pack_partition(partition), value))
            commits.append(((topic, partition), packed))
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


def _seat_refusal(event: OffsetCommit | TxnOffsetCommit, seats: Seats) -> ErrorCode:
    error = seats.member_error(event.member_id, event.instance_id)
    if error is _NONE and event.generation != seats.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


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
