"""Groups as the records of one partition of __consumer_offsets tell of them: commits, members, what they own. No I/O.

`OffsetsPartition.take` is given the batches of the log in order, from its start. Until `is_live` is set they are
history: they say how things are, and nothing that is counted happens.

A commit in a transaction waits for its marker, and counts then unless what is committed stands further down the log. A
tombstone forgets a commit and what waits for the same key (`muster.codec.partition_state` has the reasons).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.codec.batches import decode_control
from muster.codec.consumer_protocol import decode_assignment
from muster.codec.layouts import StructData
from muster.codec.offsets_topic import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    StructValue,
    TypedKey,
    UnknownKey,
    decode_key,
    decode_value,
    offset_key,
)
from muster.codec.records import COMMIT, BatchHeader, Record
from muster.errors import CodecError
from muster.exporter.limits import LeftOut, Limits, Wanted
from muster.exporter.rebalances import Rebalances
from muster.verdicts import Commit, lag_at_arrival, with_commit

TopicPartition = tuple[str, int]
OwnedById = tuple[tuple[bytes, tuple[int, ...]], ...]

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
_GROUPS = {3: CONSUMER, 11: SHARE, 17: STREAMS}
_MEMBERS, _CURRENT = (5, 10, 19), (8, 14)


class Member(NamedTuple):
    """`owned` goes by names in classic groups, `owned_by_id` by topic ids in newer ones."""

    client_id: str
    host: str
    owned: frozenset[TopicPartition] = frozenset()
    owned_by_id: OwnedById = ()


class Position(NamedTuple):
    """How far a group has got in a partition: the last commits, the newest last, and where that one stands."""

    window: tuple[Commit, ...]
    log_offset: int


@dataclass(slots=True)
class Group:
    type: str | None = None
    """None: it never had members, it only commits."""
    protocol_type: str = ""
    protocol: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    positions: dict[TopicPartition, Position] = field(default_factory=dict)
    rebalances: Rebalances | None = None
    commits: int = 0
    """That were made since the exporter began to follow."""

    @property
    def is_gone(self) -> bool:
        return self.type is None and not self.members and not self.positions


class Room:
    """How many groups and partitions are held, by all partitions of the offsets topic together."""

    def __init__(self, limits: Limits, left_out: LeftOut) -> None:
        self.limits, self.left_out = limits, left_out
        self.groups = self.partitions = 0


class OpenCommit(NamedTuple):
    """A commit whose transaction has not ended."""

    producer_id: int
    key: OffsetKey
    log_offset: int
    value: OffsetValue


class Beginning(NamedTuple):
    """One partition of the offsets topic as an earlier reader left it, and the place up to which that had read."""

    next_offset: int
    leader_epoch: int
    groups: dict[str, Group]
    open_commits: list[OpenCommit]


EndOf = Callable[[TopicPartition], int | None]


class OffsetsPartition:
    """What the log of one partition comes down to."""

    def __init__(self, room: Room, wanted: Wanted, end_of: EndOf) -> None:
        self.groups: dict[str, Group] = {}
        self.is_live = False
        self.records = 0
        self.unreadable = 0
        self._room, self._wanted, self._end_of = room, wanted, end_of
        self._pending: dict[int, dict[OffsetKey, tuple[int, OffsetValue]]] = {}
        self._waiting = 0

    def go_live(self) -> None:
        """All that was there when we came has been read; from here on things happen."""
        self.is_live = True
        for group in self.groups.values():
            if group.rebalances is not None:
                group.rebalances.forget_counts()

    def let_go(self) -> None:
        """Another one takes over its place: it is no longer counted among what is held."""
        self._room.groups -= len(self.groups)
        self._room.partitions -= sum(len(group.positions) for group in self.groups.values())
        self.groups = {}

    def restore(self, beginning: Beginning) -> None:
        """What all records before its place come down to, as far as there is room."""
        for group_id, known in beginning.groups.items():
            if self._group(group_id) is None:
                continue
            places = {where: offset_key(group_id, *where) for where in known.positions}
            known.positions = {
                where: known.positions[where] for where, key in places.items() if self._has_room_for(key)
            }
            self.groups[group_id] = known
            self._drop_if_gone(group_id)
        for one in beginning.open_commits:
            self._wait(one.producer_id, one.key, (one.log_offset, one.value))

    def take(self, header: BatchHeader, records: Iterable[Record]) -> None:
        for record in records:
            self.records += 1
            try:
                self._record(header, record)
            except CodecError:
                self.unreadable += 1

    def _record(self, header: BatchHeader, record: Record) -> None:
        if header.is_control:
            self._end_transaction(header.producer_id, decode_control(record).type == COMMIT)
            return
        key = decode_key(record.key or b"")
        if isinstance(key, UnknownKey) or key.group_id not in self._wanted:
            return
        value = None if record.value is None else decode_value(key.record_type, record.value)[1]
        if isinstance(key, OffsetKey):
            assert value is None or isinstance(value, OffsetValue)
            self._commit(key._replace(record_type=1), value, record.offset, header)
        else:
            self._group_record(key, value, record)

    # Commits.

    def _commit(self, key: OffsetKey, value: OffsetValue | None, log_offset: int, header: BatchHeader) -> None:
        if value is None:
            self._forget(key)
        elif header.is_transactional:
            self._wait(header.producer_id, key, (log_offset, value))
        else:
            self._advance(key, value, log_offset)

    def _wait(self, producer_id: int, key: OffsetKey, commit: tuple[int, OffsetValue]) -> None:
        waiting = self._pending.get(producer_id, {})
        if key not in waiting:
            if self._waiting >= self._room.limits.partitions:
                self._room.left_out.note("partitions", key)
                return
            self._waiting += 1
        self._pending[producer_id] = waiting
        waiting[key] = commit

    def _end_transaction(self, producer_id: int, is_committed: bool) -> None:
        ended = self._pending.pop(producer_id, {})
        self._waiting -= len(ended)
        for key, (log_offset, value) in ended.items():
            if is_committed:
                self._advance(key, value, log_offset)

    def _advance(self, key: OffsetKey, value: OffsetValue, log_offset: int) -> None:
        group = self._group(key.group_id)
        if group is None:
            return
        where = (key.topic, key.partition)
        position = group.positions.get(where)
        if position is None and not self._has_room_for(key):
            self._drop_if_gone(key.group_id)
            return
        if position is not None and position.log_offset > log_offset:
            return
        lag = lag_at_arrival(value.committed_offset, self._end_of(where)) if self.is_live else None
        window = position.window if position is not None else ()
        commit = Commit(value.committed_offset, value.commit_timestamp_ms, lag)
        group.positions[where] = Position(with_commit(window, commit), log_offset)
        group.commits += self.is_live

    def _has_room_for(self, key: OffsetKey) -> bool:
        if self._room.partitions >= self._room.limits.partitions:
            self._room.left_out.note("partitions", key)
            return False
        self._room.partitions += 1
        return True

    def _forget(self, key: OffsetKey) -> None:
        for waiting in self._pending.values():
            self._waiting -= waiting.pop(key, None) is not None
        group = self.groups.get(key.group_id)
        if group is not None and group.positions.pop((key.topic, key.partition), None) is not None:
            self._room.partitions -= 1
            self._drop_if_gone(key.group_id)

    # Groups.

    def _group(self, group_id: str) -> Group | None:
        """The group, made if it is new and there is room for it."""
        group = self.groups.get(group_id)
        if group is None:
            if self._room.groups >= self._room.limits.groups:
                self._room.left_out.note("groups", group_id)
                return None
            self._room.groups += 1
            group = self.groups[group_id] = Group()
        return group

    def _drop_if_gone(self, group_id: str) -> None:
        if self.groups[group_id].is_gone:
            del self.groups[group_id]
            self._room.groups -= 1

    def _group_record(self, key: GroupKey | TypedKey, value: object, record: Record) -> None:
        if value is None and key.group_id not in self.groups:
            return
        group = self._group(key.group_id)
        if group is None:
            return
        if isinstance(key, GroupKey):
            assert value is None or isinstance(value, GroupValue)
            _take_classic(group, value)
        else:
            assert value is None or isinstance(value, StructValue)
            _take_newer(group, key, None if value is None else value.data)
        group.rebalances = group.rebalances or Rebalances()
        group.rebalances.take(key, value, record, self.is_live)
        self._drop_if_gone(key.group_id)


def _take_classic(group: Group, value: GroupValue | None) -> None:
    if value is None:
        if group.type == CLASSIC:
            group.type, group.members = None, {}
        return
    group.type, group.protocol_type, group.protocol = CLASSIC, value.protocol_type, value.protocol or ""
    group.members = {
        member.member_id: Member(member.client_id, member.client_host, _owned(member, value.protocol_type))
        for member in value.members
    }


def _owned(member: MemberValue, protocol_type: str) -> frozenset[TopicPartition]:
    """Only assignments of the consumer protocol have a known layout."""
    if protocol_type != CONSUMER:
        return frozenset()
    try:
        assignment = decode_assignment(member.assignment)
    except CodecError:
        return frozenset()
    topics = assignment.assigned_partitions if assignment is not None else ()
    return frozenset((given.topic, partition) for given in topics for partition in given.partitions)


def _take_newer(group: Group, key: TypedKey, data: StructData | None) -> None:
    kind = key.record_type
    if kind in _GROUPS:
        if data is None and group.type == _GROUPS[kind]:
            group.type, group.members = None, {}
        elif data is not None:
            group.type, group.protocol_type = _GROUPS[kind], _GROUPS[kind]
    elif kind in _MEMBERS:
        member_id = key.fields[1]
        if data is None:
            group.members.pop(member_id, None)
        else:
            before = group.members.get(member_id)
            owned = before.owned_by_id if before is not None else ()
            group.members[member_id] = Member(data["clientId"], data["clientHost"], owned_by_id=owned)
    elif kind in _CURRENT:
        _take_current(group, key.fields[1], data)


def _take_current(group: Group, member_id: str, data: StructData | None) -> None:
    member = group.members.get(member_id)
    if member is not None:
        topics = data["assignedPartitions"] if data is not None else ()
        owned = tuple((one["topicId"], tuple(one["partitions"])) for one in topics)
        group.members[member_id] = member._replace(owned_by_id=owned)
