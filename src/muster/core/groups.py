"""What the log says of the groups of one partition: the hard state.

A `Group` is its last group record, its committed offsets, and the offsets that transactions hold pending. It changes in
`GroupTable.replay` and its siblings alone, which are given what is in the log: record by record when the log is read,
and again for each record that the coordinator has just had appended. There is no other way in, and no question whether
the partition is loading: a restart and an ordinary day run the same code.

Beside that a group has `seats`, the soft state (`seats.py`): made from the record when the partition becomes active,
changed by decisions and what follows from them, forgotten in a crash. Replay never looks at it. Seats are not made anew
from each record, because they know more: a record has one protocol of each member, and one of an older version neither
instance ids nor rebalance timeouts.

A commit in a transaction is *pending* under its producer until the marker. Where an ordinary commit and one of a
transaction meet, or two transactions, the one further down the log wins; the place of the marker does not count.

A group that never had members (a *simple* group) exists because an offset does: the first one creates it. Tombstones
create nothing. The last offset may go and leave an empty group behind; the next expiration ends it.
"""

from dataclasses import dataclass, field
from typing import Any

from muster.codec.committed import is_further, pack, pack_log_offset
from muster.codec.offsets_topic import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    TypedKey,
    decode_key,
    decode_value,
)
from muster.core.newer_groups import NewerGroups
from muster.core.seats import Seats

TopicPartition = tuple[str, int]
DecidedCommit = tuple[TopicPartition, bytes]
"""What a record of a commit means, so that its replay need not decode what was just encoded: the partition, and the
packed offset, all but its place in the log, which is known once it is appended."""
NO_PRODUCER = -1


@dataclass(slots=True)
class Group:
    """One group. All but `seats` is hard."""

    group_id: str
    record: GroupValue | None = None
    """The last group record; None for a simple group."""
    offsets: dict[TopicPartition, bytes] = field(default_factory=dict)
    """Packed as in `muster.codec.committed`, the pending ones too."""
    pending: dict[int, dict[TopicPartition, bytes]] = field(default_factory=dict)
    """Offsets of open transactions, by producer."""
    seats: Seats = field(default_factory=Seats, compare=False)

    @property
    def hard_state(self) -> tuple[Any, ...]:
        """A copy of what the log says."""
        return self.record, dict(self.offsets), {producer: dict(held) for producer, held in self.pending.items()}

    @property
    def is_in_log(self) -> bool:
        return self.record is not None or bool(self.offsets) or bool(self.pending)

    def holds_pending(self, partition: TopicPartition) -> bool:
        return any(partition in offsets for offsets in self.pending.values())

    def all_partitions(self) -> dict[TopicPartition, None]:
        """Every partition with an offset, committed or pending, once."""
        partitions = dict.fromkeys(self.offsets)
        for offsets in self.pending.values():
            partitions.update(dict.fromkeys(offsets))
        return partitions


class GroupTable:
    """All groups of one partition of the offsets topic, by id."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.newer = NewerGroups()
        self.unreadable_records = 0
        self.pending_offsets = 0
        """How many offsets wait for the marker of their transaction."""
        self._groups_of_producer: dict[int, set[str]] = {}

    def replay(self, record: tuple[bytes, bytes | None], log_offset: int, producer_id: int = NO_PRODUCER) -> None:
        """Let one record of the log count. An unknown kind is stepped over and counted; a bad one raises.

        `log_offset` is the record's own, not that of its batch.
        """
        raw_key, raw_value = record
        key = decode_key(raw_key)
        if isinstance(key, OffsetKey):
            offset: OffsetValue | None = None
            if raw_value is not None:
                _, decoded = decode_value(key.record_type, raw_value)
                assert isinstance(decoded, OffsetValue)
                offset = decoded
            self.replay_offset(key, offset, log_offset, producer_id)
        elif isinstance(key, GroupKey):
            value: GroupValue | None = None
            if raw_value is not None:
                _, group_value = decode_value(key.record_type, raw_value)
                assert isinstance(group_value, GroupValue)
                value = group_value
            self.replay_group(key.group_id, value)
        elif isinstance(key, TypedKey):
            self.newer.replay(key, raw_key, raw_value)
        else:
            self.unreadable_records += 1

    def replay_group(self, group_id: str, value: GroupValue | None) -> None:
        """A tombstone ends a classic group, not its offsets: those have tombstones of their own."""
        if value is not None:
            self._group(group_id).record = value
            return
        group = self.groups.get(group_id)
        if group is not None:
            group.record = None
            if not group.is_in_log:
                del self.groups[group_id]

    def replay_offset(self, key: OffsetKey, value: OffsetValue | None, log_offset: int, producer_id: int) -> None:
        group_id, topic, partition, _ = key
        if value is None:
            group = self.groups.get(group_id)
            if group is not None:
                self._remove(group, (topic, partition))
            return
        packed = pack(log_offset, value)
        if producer_id == NO_PRODUCER:
            self._group(group_id).offsets[topic, partition] = packed
        else:
            self._hold(group_id, (topic, partition), packed, producer_id)

    def replay_commits(self, group_id: str, commits: list[DecidedCommit], base_offset: int, producer_id: int) -> None:
        """The same for our own commits, which need not be decoded: one record after another from the base offset."""
        if producer_id == NO_PRODUCER:
            group = self.groups.get(group_id) or self._group(group_id)
            for log_offset, (partition, packed) in enumerate(commits, base_offset):
                group.offsets[partition] = pack_log_offset(log_offset) + packed
        else:
            for log_offset, (partition, packed) in enumerate(commits, base_offset):
                self._hold(group_id, partition, pack_log_offset(log_offset) + packed, producer_id)

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """The end of a transaction: its offsets count, or are forgotten. A repeated or unknown one does nothing."""
        for group_id in self._groups_of_producer.pop(producer_id, ()):
            group = self.groups.get(group_id)
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

    def _group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id)
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
        """Find the open transactions anew, after groups were put in their places without `replay`."""
        self._groups_of_producer.clear()
        self.pending_offsets = 0
        for group_id, group in self.groups.items():
            for producer_id, held in group.pending.items():
                self.pending_offsets += len(held)
                self._groups_of_producer.setdefault(producer_id, set()).add(group_id)
