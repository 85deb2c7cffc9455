"""A log becomes a coordinator's state, in one of two ways that are proven equal.

`replay_batches` is the plain one: record by record through `GroupTable.replay`, markers through `replay_marker`.
`restore` takes what the columnar reader kept of a whole partition, and puts it in its places; why nothing is lost on
the way is told in `muster.codec.loaded`. One difference is no part of the hard state: a group of which the log leaves
neither a record nor an offset is an empty group after a replay, until it expires, and no group at all after a restore
(nor after the log has been compacted).

What is wrong in a log is of two kinds. A record without a key, or in a version that only a newer broker writes, fails
the load as in Kafka: to go on would be to answer with older offsets than were committed. Damage (a checksum, a record
that makes no sense) is stepped over, counted and told; with `strict` it fails the load too.

Neither way ends the loading: `Coordinator.activate` does.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from muster.codec.batches import ReadBatch, decode_control
from muster.codec.committed import log_offset_of, pack
from muster.codec.loaded import CommitColumns, LoadedPartition, no_collections
from muster.codec.records import ABORT, COMMIT, Record
from muster.core.coordinator import Coordinator
from muster.core.groups import NO_PRODUCER, Group
from muster.core.outcome import OffsetsRecord
from muster.errors import CodecError, MusterError, UnsupportedVersion

MOST_PROBLEMS_KEPT = 20
BATCHES_BETWEEN_PROGRESS = 1_000


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
    seconds: float = 0.0
    """The caller's to fill in: no clock runs in here."""

    def tell(self, problem: str) -> None:
        if len(self.problems) < MOST_PROBLEMS_KEPT:
            self.problems.append(problem)

    def count_state(self, coordinator: Coordinator) -> None:
        """Take down what there is now."""
        groups = coordinator.groups.values()
        self.groups = sum(group.is_in_log for group in groups)
        self.newer_groups = len(coordinator.newer.kinds)
        self.offsets = sum(len(group.offsets) for group in groups)
        self.pending_offsets = sum(len(held) for group in groups for held in group.pending.values())


Progress = Callable[[LoadReport], None]
"""Called now and then with how far a load has come: records and bytes so far."""


def replay_batches(
    coordinator: Coordinator,
    batches: Iterable[ReadBatch],
    *,
    strict: bool = False,
    progress: Progress | None = None,
) -> LoadReport:
    """Let every record of these batches count, in log order; raises `LoadFailed`."""
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
                _replay_marker(coordinator, record, header.producer_id)
        else:
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
            for record in batch.records:
                _replay_record(coordinator, record, producer_id, report, strict)
    report.count_state(coordinator)
    return report


def _replay_marker(coordinator: Coordinator, record: Record, producer_id: int) -> None:
    """End a transaction. Other control records mean nothing here."""
    try:
        kind = decode_control(record).type
    except CodecError:
        return
    if kind in (ABORT, COMMIT):
        coordinator.table.replay_marker(producer_id, kind == COMMIT)


def _replay_record(
    coordinator: Coordinator, record: Record, producer_id: int, report: LoadReport, strict: bool
) -> None:
    report.records += 1
    if record.key is None:
        raise LoadFailed(f"the record at offset {record.offset} has no key, which no broker writes")
    unknown_before = coordinator.table.unreadable_records
    try:
        coordinator.replay(OffsetsRecord(record.key, record.value), record.offset, producer_id)
    except UnsupportedVersion as error:
        raise LoadFailed(f"the record at offset {record.offset} is of a newer broker: {error}") from error
    except CodecError as error:
        _bad(record, error, report, strict)
        return
    if coordinator.table.unreadable_records > unknown_before:
        report.unknown_records += 1
    elif record.value is None:
        report.tombstones += 1


def _bad(record: Record, error: CodecError, report: LoadReport, strict: bool) -> None:
    problem = f"the record at offset {record.offset} cannot be read: {error}"
    if strict:
        raise LoadFailed(problem) from error
    report.bad_records += 1
    report.tell(problem)


def restore(coordinator: Coordinator, loaded: LoadedPartition, *, strict: bool = False) -> LoadReport:
    """Give a new coordinator the state that a replay of the whole log would give it; raises `LoadFailed`."""
    assert not coordinator.groups, "only an empty coordinator is restored"
    if loaded.fatal is not None:
        raise LoadFailed(loaded.fatal)
    if strict and loaded.problems:
        raise LoadFailed(loaded.problems[0])
    groups = coordinator.groups
    with no_collections():
        for group_id, value in loaded.groups.items():
            coordinator.table.replay_group(group_id, value)
        for commits in loaded.commits:
            _put_commits(groups, commits)
    for commit in loaded.open_commits:
        held = _group(groups, commit.group_id).pending.setdefault(commit.producer_id, {})
        held[commit.partition] = pack(commit.log_offset, commit.value)
    for (group_id, topic, partition), log_offset in loaded.tombstones.items():
        _bury(groups, group_id, (topic, partition), log_offset)
    coordinator.table.reindex()
    for key, newer_value, log_offset in loaded.newer:
        coordinator.replay(OffsetsRecord(key, newer_value), log_offset)
    coordinator.table.unreadable_records += loaded.unknown_records
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
    report.count_state(coordinator)
    return report


def _group(groups: dict[str, Group], group_id: str) -> Group:
    group = groups.get(group_id)
    if group is None:
        group = groups[group_id] = Group(group_id)
    return group


def _put_commits(groups: dict[str, Group], commits: CommitColumns) -> None:
    rows = zip(commits.partitions, commits.packed, strict=True)
    for group_id, count in commits.runs:
        _group(groups, group_id).offsets.update(islice(rows, count))


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
