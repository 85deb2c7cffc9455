"""`GroupTable`: the groups of one partition as its log has them (the hard state), and two ways to load a log.

A `Group` is its last group record, its committed offsets, and the offsets that transactions hold pending. It changes in
`GroupTable.replay` and its siblings alone, which are given what is in the log: record by record when the log is read,
and again for each record that the coordinator has just had appended. There is no other way in, and no question whether
the partition is loading: a restart and an ordinary day run the same code.

Beside that a group has `seats`, the soft state (`seats.py`): made from the record when the log has been read, changed
by decisions and what follows from them, forgotten in a crash. Replay never looks at it. Seats are not made anew from
each record, because they know more: a record has one protocol of each member, and one of an older version neither
instance ids nor rebalance timeouts.

A commit in a transaction is *pending* under its producer until the marker. Where an ordinary commit and one of a
transaction meet, or two transactions, the one further down the log wins; the place of the marker does not count.

A group that never had members (a *simple* group) exists because an offset does: the first one creates it. Tombstones
create nothing. The last offset may go and leave an empty group behind; the next expiration ends it.

A whole log becomes a table in one of two ways that are proven equal. `replay_batches` is the plain one, record by
record. `restore` takes what the columnar reader kept of a whole partition, and puts it in its places; why nothing is
lost on the way is told in `muster.codec.partition_state`. One difference is no part of the state: a group of which the
log leaves neither a record nor an offset is an empty group after a replay, until it expires, and no group at all after
a restore (nor after the log has been compacted). Both end with the members in their seats.

What is wrong in a log is of two kinds. A record without a key, or in a version that only a newer broker writes, fails
the load as in Kafka: to go on would be to answer with older offsets than were committed. Damage (a checksum, a record
that makes no sense) is stepped over, counted and told; with `strict` it fails the load too.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from muster.codec.batches import ReadBatch, decode_control
from muster.codec.offsets_topic import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    TypedKey,
    decode_key,
    decode_value,
)
from muster.codec.partition_state import (
    CommitColumns,
    LoadedPartition,
    encode_commit,
    encode_log_offset,
    is_further,
    log_offset_of,
    no_collections,
)
from muster.codec.records import ABORT, COMMIT, Record
from muster.core.newer_groups import NewerGroups
from muster.core.seats import Seats
from muster.errors import CodecError, MusterError, UnsupportedVersion

TopicPartition = tuple[str, int]
DecidedCommit = tuple[TopicPartition, bytes]
"""What a record of a commit means, so that its replay need not decode what was just encoded: the partition, and the
committed offset in bytes, all but its place in the log, which is known once it is appended."""
NO_PRODUCER = -1
MOST_PROBLEMS_KEPT = 20
BATCHES_BETWEEN_PROGRESS = 1_000


@dataclass(slots=True)
class Group:
    """One group. All but `seats` is hard."""

    group_id: str
    record: GroupValue | None = None
    """The last group record; None for a simple group."""
    offsets: dict[TopicPartition, bytes] = field(default_factory=dict)
    """In bytes, as in `muster.codec.partition_state`; the pending ones too."""
    pending: dict[int, dict[TopicPartition, bytes]] = field(default_factory=dict)
    """Offsets of open transactions, by producer."""
    seats: Seats = field(default_factory=Seats, compare=False)

    @property
    def hard_state(self) -> tuple[Any, ...]:
        """A copy of what the log says."""
        return self.record, dict(self.offsets), {producer: dict(held) for producer, held in self.pending.items()}

    def take_seats(self) -> None:
        """The members sit down as the record says; of a simple group there are none."""
        if self.record is not None:
            self.seats = Seats.recorded(self.record)

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
        self.unknown_records = 0
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
            self.unknown_records += 1

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
        commit_bytes = encode_commit(log_offset, value)
        if producer_id == NO_PRODUCER:
            self._group(group_id).offsets[topic, partition] = commit_bytes
        else:
            self._hold(group_id, (topic, partition), commit_bytes, producer_id)

    def replay_commits(self, group_id: str, commits: list[DecidedCommit], base_offset: int, producer_id: int) -> None:
        """The same for our own commits, which need not be decoded: one record after another from the base offset."""
        if producer_id == NO_PRODUCER:
            group = self.groups.get(group_id) or self._group(group_id)
            for log_offset, (partition, commit_bytes) in enumerate(commits, base_offset):
                group.offsets[partition] = encode_log_offset(log_offset) + commit_bytes
        else:
            for log_offset, (partition, commit_bytes) in enumerate(commits, base_offset):
                self._hold(group_id, partition, encode_log_offset(log_offset) + commit_bytes, producer_id)

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

    def _hold(self, group_id: str, partition: TopicPartition, commit_bytes: bytes, producer_id: int) -> None:
        held = self._group(group_id).pending.setdefault(producer_id, {})
        self.pending_offsets += partition not in held
        held[partition] = commit_bytes
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

    def take_seats(self) -> None:
        """The log is read to its end: all members sit down. They are many, so this is part of loading."""
        for group in self.groups.values():
            group.take_seats()

    def reindex(self) -> None:
        """Find the open transactions anew, after groups were put in their places without `replay`."""
        self._groups_of_producer.clear()
        self.pending_offsets = 0
        for group_id, group in self.groups.items():
            for producer_id, held in group.pending.items():
                self.pending_offsets += len(held)
                self._groups_of_producer.setdefault(producer_id, set()).add(group_id)


# Reading a whole log.


class LoadFailed(MusterError):
    """A partition that must not be served from its log; the text says what is wrong with it, and where."""


@dataclass(slots=True)
class LoadReport:
    """What a load has met, and what came of it. `records` counts all but control records."""

    records: int = 0
    size_bytes: int = 0
    control_records: int = 0
    tombstones: int = 0
    unknown_records: int = 0
    bad_records: int = 0
    bad_batches: int = 0
    problems: list[str] = field(default_factory=list)
    """What was wrong with the bad ones; the first `MOST_PROBLEMS_KEPT`."""
    groups: int = 0
    newer_groups: int = 0
    offsets: int = 0
    pending_offsets: int = 0
    transactional_ids: int = 0
    seconds: float = 0.0
    """The caller's to fill in: no clock runs in here."""

    def tell(self, problem: str) -> None:
        if len(self.problems) < MOST_PROBLEMS_KEPT:
            self.problems.append(problem)

    def count_state(self, table: GroupTable) -> None:
        """Take down what there is now."""
        groups = table.groups.values()
        self.groups = sum(group.is_in_log for group in groups)
        self.newer_groups = len(table.newer.kinds)
        self.offsets = sum(len(group.offsets) for group in groups)
        self.pending_offsets = sum(len(held) for group in groups for held in group.pending.values())


Progress = Callable[[LoadReport], None]
"""Called now and then with how far a load has come: records and bytes so far."""


def replay_batches(
    table: GroupTable,
    batches: Iterable[ReadBatch],
    *,
    strict: bool = False,
    progress: Progress | None = None,
) -> LoadReport:
    """Let every record of these batches count, in log order; raises `LoadFailed`."""
    report = replay_all(table, batches, strict=strict, progress=progress)
    table.take_seats()
    report.count_state(table)
    return report


class ReplayedTable(Protocol):
    """What is kept of a log: of one with groups, or of one with transactions."""

    unknown_records: int

    def replay(self, record: tuple[bytes, bytes | None], log_offset: int, producer_id: int = ...) -> None: ...

    def replay_marker(self, producer_id: int, commit: bool) -> None: ...


def replay_all(
    table: ReplayedTable, batches: Iterable[ReadBatch], *, strict: bool = False, progress: Progress | None = None
) -> LoadReport:
    """The same for any table; what is there then is not counted yet."""
    report = LoadReport()
    for number, batch in enumerate(batches, 1):
        if progress is not None and number % BATCHES_BETWEEN_PROGRESS == 0:
            progress(report)
        header = batch.header
        report.size_bytes += header.size_bytes
        if batch.problem is not None:
            problem = f"the batch at byte {batch.position} (base offset {header.base_offset}) {batch.problem}"
            if strict:
                raise LoadFailed(f"{problem}. The batches before it are whole.")
            report.bad_batches += 1
            report.tell(problem)
        elif header.is_control:
            for record in batch.records:
                report.control_records += 1
                _replay_marker(table, record, header.producer_id)
        else:
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
            for record in batch.records:
                _replay_record(table, record, producer_id, report, strict)
    return report


def _replay_marker(table: ReplayedTable, record: Record, producer_id: int) -> None:
    """End a transaction. Other control records mean nothing here."""
    try:
        kind = decode_control(record).type
    except CodecError:
        return
    if kind in (ABORT, COMMIT):
        table.replay_marker(producer_id, kind == COMMIT)


def _replay_record(table: ReplayedTable, record: Record, producer_id: int, report: LoadReport, strict: bool) -> None:
    report.records += 1
    if record.key is None:
        raise LoadFailed(f"the record at offset {record.offset} has no key, which no broker writes")
    unknown_before = table.unknown_records
    try:
        table.replay((record.key, record.value), record.offset, producer_id)
    except UnsupportedVersion as error:
        raise LoadFailed(f"the record at offset {record.offset} is of a newer broker: {error}") from error
    except CodecError as error:
        _bad(record, error, report, strict)
        return
    if table.unknown_records > unknown_before:
        report.unknown_records += 1
    elif record.value is None:
        report.tombstones += 1


def _bad(record: Record, error: CodecError, report: LoadReport, strict: bool) -> None:
    problem = f"the record at offset {record.offset} cannot be read: {error}"
    if strict:
        raise LoadFailed(problem) from error
    report.bad_records += 1
    report.tell(problem)


def restore(table: GroupTable, loaded: LoadedPartition, *, strict: bool = False) -> LoadReport:
    """Give a new table the state that a replay of the whole log would give it; raises `LoadFailed`."""
    assert not table.groups, "only an empty table is restored"
    if loaded.fatal is not None:
        raise LoadFailed(loaded.fatal)
    if strict and loaded.problems:
        raise LoadFailed(loaded.problems[0])
    groups = table.groups
    with no_collections():
        for group_id, value in loaded.groups.items():
            table.replay_group(group_id, value)
        for commits in loaded.commits:
            _put_commits(table, commits)
    for commit in loaded.open_commits:
        held = table._group(commit.group_id).pending.setdefault(commit.producer_id, {})
        held[commit.partition] = encode_commit(commit.log_offset, commit.value)
    for (group_id, topic, partition), log_offset in loaded.tombstones.items():
        _bury(groups, group_id, (topic, partition), log_offset)
    table.take_seats()
    table.reindex()
    for key, newer_value, log_offset in loaded.newer_records:
        table.replay((key, newer_value), log_offset)
    table.unknown_records += loaded.unknown_records
    report = LoadReport(
        loaded.records,
        loaded.size_bytes,
        loaded.control_records,
        loaded.tombstone_records,
        loaded.unknown_records,
        loaded.bad_records,
        loaded.bad_batches,
        list(loaded.problems[:MOST_PROBLEMS_KEPT]),
    )
    report.count_state(table)
    return report


def _put_commits(table: GroupTable, commits: CommitColumns) -> None:
    rows = zip(commits.partitions, commits.commit_bytes, strict=True)
    for group_id, count in commits.runs:
        table._group(group_id).offsets.update(islice(rows, count))


def _bury(groups: dict[str, Group], group_id: str, partition: tuple[str, int], log_offset: int) -> None:
    """Forget what stands before a tombstone, and the group if that was all there was of it."""
    group = groups.get(group_id)
    if group is None:
        return
    for producer_id, held in [(None, group.offsets), *group.pending.items()]:
        offset = held.get(partition)
        if offset is None or log_offset_of(offset) > log_offset:
            continue
        del held[partition]
        if producer_id is not None and not held:
            del group.pending[producer_id]
    if not group.is_in_log:
        del groups[group_id]
