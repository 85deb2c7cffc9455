"""What happens to a data directory before the power goes, and what must be there afterwards.

A `Teller` runs a directory and notes in the journal what it tried and what it was promised. `check` opens what a power
cut left and holds it against those notes:

    every record that was acknowledged is there, and nothing that was not appended; the log is a beginning of what was
    appended, whole batches only (under `flush=os`, what was never synced may lack the end of a segment, as in Kafka);
    aborted transactions, leader epochs and searches by time are what the records say;
    indexes are those that a rebuild would make;
    what was checked by reading is no more than what followed the last checkpoint;
    after a clean stop nothing is read, rebuilt or said at all;
    topics that were made are there, topics that were deleted are not, and no directory is nobody's;
    no loss of durable records is told where there is none.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from muster.codec.batches import ReadBatch, decode_control
from muster.codec.records import ABORT
from muster.log.config import Flush, LogConfig
from muster.log.directory import LogDirectory
from muster.log.partition import DiskLog
from muster.log.recovery_scan import rebuild_indexes
from muster.log.segment import CLEANED, INDEX, TIMEINDEX, Segment, WritableSegment, WrittenBatch
from muster.segments.batches import walk_batches
from muster.segments.checkpoints import LeaderEpochs, TopicPartition
from muster.segments.files import Files, read_file
from tests.log.disk.changes import checkpoint, create_topic, delete_topic, set_configs
from tests.log.disk.crashes import Journal
from tests.log.disk.faults import FaultyFiles

ROOT = Path("/data")
T0 = TopicPartition("t", 0)
START_MS = 1_800_000_000_000
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=120, flush=Flush.ALWAYS)
ON_THE_OS = LogConfig(segment_bytes=700, index_interval_bytes=120, flush=Flush.OS)
CLUSTER = "bXVzdGVyLWNyYXNoLXRlc3Q"

Fact = tuple[object, ...]


@dataclass(slots=True)
class Teller:
    """Works on a directory and notes everything."""

    files: FaultyFiles
    journal: Journal
    config: LogConfig = CONFIG
    directory: LogDirectory = field(init=False)
    number: int = 0

    def note(self, *fact: object) -> None:
        self.journal.note(fact)

    def open(self) -> LogDirectory:
        self.note("opening")
        self.note("holes", self.config.flush is Flush.OS)
        self.directory = LogDirectory.open(ROOT, lambda topic: self.config, files=self.files, cluster_id=CLUSTER)
        self.note("opened", self.directory.meta.cluster_id)
        return self.directory

    @property
    def log(self) -> DiskLog:
        return self.directory.logs[T0]

    def create(self, topic: str = "t", partitions: int = 1) -> None:
        self.note("creating", topic, partitions)
        created = create_topic(self.directory, topic, partitions, {"cleanup.policy": "compact"})
        self.note("created", topic, partitions, created.topic_id)

    def fill(self, topic: str) -> None:
        """A record in every partition."""
        logs = [log for key, log in self.directory.logs.items() if key.topic == topic]
        for log in logs:
            log.append([(b"k", b"v")], START_MS)
            log.flush()
        stored = self.directory.registry.get(topic)
        assert stored is not None
        self.note("filled", stored.topic_id)

    def configure(self, topic: str, **configs: str) -> None:
        set_configs(self.directory, topic, configs)
        self.note("configured", topic, configs)
        self.files.watch("configured")

    def delete(self, topic: str) -> None:
        self.note("deleting", topic)
        delete_topic(self.directory, topic)
        self.note("deleted", topic)

    def append(self, count: int = 1, size: int = 10, producer_id: int = -1, epoch: int = 0) -> None:
        records = []
        for _ in range(count):
            self.number += 1
            records.append((b"key-%d" % self.number, b"v" * size))
        offset = self.log.append(records, START_MS + self.number, producer_id, epoch if producer_id >= 0 else -1)
        for place, (key, value) in enumerate(records):
            self.note("appended", offset + place, key, value)

    def marker(self, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
        self.number += 1
        offset = self.log.append_marker(producer_id, epoch, START_MS + self.number, commit=commit)
        self.note("appended", offset, None, None)

    def write(self) -> None:
        self.log.write()

    def flush(self) -> None:
        self.log.flush()
        self.note("acknowledged", self.log.flushed_offset)
        self.note("durable segments", self.log.segments[-1].base_offset)

    def checkpoint(self) -> None:
        checkpoint(self.directory)
        self.note("acknowledged", self.log.flushed_offset)
        self.note("checkpointed", self.log.recovery_point, self.log.size_bytes)

    def write_checkpoints(self) -> None:
        self.directory.write_checkpoints()

    def truncate(self, offset: int, batch_offset: int) -> None:
        self.note("truncating", batch_offset)
        self.log.truncate_to(offset)
        assert self.log.end_offset == batch_offset
        self.note("truncated", batch_offset)

    def raise_start(self, offset: int) -> None:
        self.note("starting", offset)
        self.log.increase_start_offset(offset)
        self.directory.write_log_starts()
        self.note("starts", offset)

    def cleaned(self, segments: list[Segment], superseded: set[int]) -> Segment:
        """Segments as compaction would write them, without some records, in one `.cleaned` segment; synced."""
        new = WritableSegment(
            self.files, self.log.directory, segments[0].base_offset, CLEANED,
            index_interval_bytes=self.config.index_interval_bytes,
        )  # fmt: skip
        for segment in segments:
            with segment.opened() as log:
                for _, header, data in walk_batches(log, 0, segment.size_bytes, 1000):
                    if header.base_offset not in superseded:
                        batch = WrittenBatch(len(data), header.base_offset, header.last_offset, header.max_timestamp_ms)
                        new.append(data, [batch])
        new.seal()
        for kind, file in new.open_files():
            file.sync(f"test{kind}")
        new.close()
        return new.closed()

    def close(self) -> None:
        assert self.directory.close()
        self.note("acknowledged", self.log.written_offset)
        self.note("closed")
        self.files.watch("closed")


@dataclass(slots=True)
class Promised:
    """The notes of a story, read from its beginning."""

    cluster: object = None
    appended: dict[int, tuple[object, object]] = field(default_factory=dict)
    acknowledged: int = 0
    truncating_to: int | None = None
    start: int = 0
    latest_start: int = 0
    checkpoint: tuple[int, int] | None = None
    durable_base: int = 0
    closed: bool = False
    may_have_holes: bool = False
    superseded: set[int] = field(default_factory=set)
    swapped: bool = False
    topics: dict[object, tuple[object, ...]] = field(default_factory=dict)
    in_doubt: set[object] = field(default_factory=set)
    configs: dict[object, object] = field(default_factory=dict)
    filled: set[object] = field(default_factory=set)
    missing: bool = False
    """Whether somebody has taken a partition away: the only loss there may be."""

    @classmethod
    def of(cls, facts: list[object]) -> "Promised":
        promised = cls()
        for fact in facts:
            assert isinstance(fact, tuple)
            promised.take(*fact)
        return promised

    def take(self, kind: object, *details: object) -> None:
        match kind, details:
            case "opening", ():
                self.closed = False
            case "holes", (bool(allowed),):
                self.may_have_holes = self.may_have_holes or allowed
            case "superseded", offsets:
                self.superseded |= {offset for offset in offsets if isinstance(offset, int)}
            case "swapped", ():
                self.swapped = True
            case "opened", (cluster,):
                self.cluster = cluster
            case "appended", (int(offset), key, value):
                self.appended[offset] = key, value
            case "acknowledged", (int(end),):
                self.acknowledged = max(self.acknowledged, end)
            case "durable segments", (int(base),):
                self.durable_base = max(self.durable_base, base)
            case "checkpointed", (int(point), int(size)):
                self.checkpoint = point, size
            case "truncating", (int(offset),):
                self.truncating_to = offset
                self.acknowledged = min(self.acknowledged, offset)
                self.checkpoint, self.durable_base = None, 0
            case "truncated", (int(end),):
                self.truncating_to = None
                self.acknowledged = end
                self.appended = {offset: record for offset, record in self.appended.items() if offset < end}
            case "starting", (int(offset),):
                self.latest_start = offset
            case "starts", (int(offset),):
                self.start = offset
            case "closed", ():
                self.closed = True
            case "creating" | "deleting", (topic, *_):
                self.in_doubt.add(topic)
            case "created", (topic, *rest):
                self.in_doubt.discard(topic)
                self.topics[topic] = tuple(rest)
            case "missing", ():
                self.missing = True
            case "filled", (topic_id,):
                self.filled.add(topic_id)
            case "configured", (topic, configs):
                self.configs[topic] = configs
            case "deleted", (topic,):
                self.in_doubt.discard(topic)
                self.topics.pop(topic, None)
            case _:
                raise AssertionError(kind)


def check(disk: FaultyFiles, facts: list[object], config: LogConfig = CONFIG) -> None:
    """Open what is left and hold it against what was promised."""
    promised = Promised.of(facts)
    was_there = disk.exists(ROOT)
    if promised.cluster is None and not was_there:
        return
    directory = LogDirectory.open(ROOT, lambda topic: config, files=disk)
    if promised.cluster is not None:
        assert directory.meta.cluster_id == promised.cluster, "another cluster id"
    damaged = ("ignored, so", "leader epochs are taken")
    bad = [note for note in directory.notes if any(words in note for words in damaged)]
    assert not bad, f"a small file was damaged: {bad}"
    check_topics(directory, promised)
    check_directories(directory)
    assert promised.missing or not directory.losses, f"nothing is lost: {directory.losses}"
    if promised.closed:
        assert directory.was_clean, "no mark of the clean stop"
        assert not directory.notes, directory.notes
    log = directory.logs.get(T0)
    if log is not None:
        check_log(log, promised)
        check_goes_on(directory, log)


def check_topics(directory: LogDirectory, promised: Promised) -> None:
    there = {topic.name: (topic.partitions, topic.topic_id) for topic in directory.registry.topics()}
    for name, (partitions, topic_id) in promised.topics.items():
        if name not in promised.in_doubt:
            assert there.get(str(name)) == (partitions, topic_id), f"{name} is {there.get(str(name))}"
    for name, configs in promised.configs.items():
        topic = directory.registry.get(str(name))
        assert topic is not None
        assert topic.configs == configs, f"{name} has the settings {topic.configs}"
    for name in there:
        assert name in promised.topics or name in promised.in_doubt, f"{name} is back"
        topic = directory.registry.get(name)
        assert topic is not None
        logs = [directory.logs[TopicPartition(name, number)] for number in range(topic.partitions)]
        if topic.topic_id in promised.filled:
            assert all(log.end_offset > 0 for log in logs), f"{name} has lost the records of a partition"


def check_directories(directory: LogDirectory) -> None:
    there = {entry.name for entry in directory.files.entries(ROOT) if entry.is_directory}
    assert there == {str(key) for key in directory.logs}, "a directory that no topic has"
    assert not directory.registry.unfinished()


def check_log(log: DiskLog, promised: Promised) -> None:
    batches = list(log.batches())
    check_records(log, batches, promised)
    check_aborted(log, batches)
    check_times(log, batches)
    check_indexes(log)
    begun = {batch.header.leader_epoch: batch.header.base_offset for batch in reversed(batches)}
    begun.setdefault(log.leader_epoch, log.end_offset)
    epochs = LeaderEpochs(sorted(begun.items()))
    epochs.truncate_from_start(log.start_offset)
    if not promised.may_have_holes:
        assert log.epochs.entries == epochs.entries, f"{log.epochs.entries}, and the batches say {epochs.entries}"
    report = log.report
    if promised.closed:
        assert (report.checked_bytes, report.replayed_bytes) == (0, 0), "work after a clean stop"
    if promised.checkpoint is not None and promised.start == 0:
        behind = log.size_bytes + report.truncated_bytes - promised.checkpoint[1]
        assert report.checked_bytes <= behind + 400, f"{report.checked_bytes} bytes checked, {behind} are new"
    newer = sum(segment.size_bytes for segment in log.segments if segment.base_offset >= promised.durable_base)
    assert report.replayed_bytes <= newer, f"{report.replayed_bytes} bytes read for the producers, {newer} are new"


def check_records(log: DiskLog, batches: list[ReadBatch], promised: Promised) -> None:
    assert all(batch.problem is None for batch in batches), "a batch that cannot be read"
    offsets = [record.offset for batch in batches for record in batch.records]
    assert log.start_offset >= promised.start, "a deleted record is back"
    assert offsets == sorted(set(offsets)), "offsets twice, or out of order"
    assert not (promised.swapped and promised.superseded & set(offsets)), "what compaction removed is back"
    missing = set(range(log.start_offset, log.end_offset)) - set(offsets) - promised.superseded
    if promised.may_have_holes:
        bases = {segment.base_offset for segment in log.segments}
        assert all(one + 1 == other or other in bases for one, other in pairwise(offsets)), "a hole within a segment"
        missing &= set(range(promised.acknowledged))
    else:
        assert log.start_offset <= promised.latest_start, f"the log begins at {log.start_offset}"
    assert not missing, f"a hole: {missing}"
    assert log.end_offset >= promised.acknowledged, (
        f"ends at {log.end_offset}, {promised.acknowledged} was acknowledged"
    )
    assert log.flushed_offset == log.high_watermark == log.end_offset
    for record in (record for batch in batches for record in batch.records):
        assert record.offset in promised.appended, f"record {record.offset} was never appended"
        key, value = promised.appended[record.offset]
        assert key is None or (record.key, record.value) == (key, value), f"record {record.offset} is another one"


def check_aborted(log: DiskLog, batches: list[ReadBatch]) -> None:
    first: dict[int, int] = {}
    expected = []
    for batch in batches:
        header = batch.header
        if header.is_control:
            began = first.pop(header.producer_id, None)
            if began is not None and decode_control(batch.records[0]).type == ABORT:
                expected.append((header.producer_id, began, header.base_offset))
        elif header.is_transactional:
            first.setdefault(header.producer_id, header.base_offset)
    found = log.aborted_transactions(0, log.end_offset)
    assert [one[:3] for one in found] == expected, f"aborted: {found}, and the records say {expected}"
    assert log.last_stable_offset == min(first.values(), default=log.end_offset)


def check_times(log: DiskLog, batches: list[ReadBatch]) -> None:
    for batch in batches:
        for record in batch.records:
            if record.offset >= log.start_offset:
                found = log.offset_for_timestamp(record.timestamp_ms)
                assert found is not None, f"no record since {record.timestamp_ms}"
                assert found.offset <= record.offset, f"the first record since {record.timestamp_ms} is {found}"


def check_indexes(log: DiskLog) -> None:
    for segment in log.segments:
        before = index_bytes(log.files, segment.path(INDEX)), index_bytes(log.files, segment.path(TIMEINDEX))
        rebuilt = WritableSegment(
            log.files, segment.directory, segment.base_offset, index_interval_bytes=log.config.index_interval_bytes
        )
        rebuild_indexes(rebuilt)
        after = index_bytes(log.files, segment.path(INDEX)), index_bytes(log.files, segment.path(TIMEINDEX))
        assert before == after, f"the indexes of {segment}: {before}, rebuilt {after}"


def index_bytes(files: Files, path: Path) -> str:
    return read_file(files, path).hex()


def check_goes_on(directory: LogDirectory, log: DiskLog) -> None:
    """What was left can be written to, closed and opened again."""
    offset = log.append([(b"afterwards", b"")], START_MS + 10_000)
    log.flush()
    assert directory.close()
    again = LogDirectory.open(ROOT, lambda topic: log.config, files=directory.files)
    assert not again.notes, again.notes
    [*_, last] = records(again.logs[T0])
    assert last == (offset, b"afterwards")
    again.close()


def records(log: DiskLog) -> Iterator[tuple[int, bytes | None]]:
    for batch in log.batches():
        for record in batch.records:
            yield record.offset, record.key
