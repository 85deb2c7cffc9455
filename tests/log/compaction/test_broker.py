"""The same log through a real broker's cleaner and through ours: every batch that stays, every byte of it.

The broker's cleaner is held back by a dirty ratio of 1 while records are written, and let go for one round at a time.
Before each round the partition's directory is copied; ours works on the copy. What time the broker thought it was
stands in the delete horizons that it wrote.
"""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from muster.codec.batches import ReadBatch, iter_batches
from muster.log.compaction.cleaner import Job, clean, facts_of
from muster.log.compaction.plan import CompactionConfig, LogFacts, cleanable
from muster.log.compaction.rules import CleaningRules, LastRecord
from muster.log.config import LogConfig
from muster.log.producers import ProducerStates
from muster.log.segment import Segment
from muster.segments import checkpoints
from muster.segments.files import REAL_FILES
from muster.segments.indexes import AbortedTransaction
from tests.kit.kafka import KafkaBroker, KafkaFailed, require_kafka
from tests.log.compaction import COMPACTORS
from tests.real.drive import check, consumer, transactional

WAIT_S = 30.0
SEGMENT_BYTES = 6000
RETENTION_MS = 500
TOPIC, OPEN_TOPIC = "compacted", "compacted-open"
OFFSETS = "__consumer_offsets"
CONFIG = LogConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=200)
START_MS = int(time.time() * 1000) - 600_000

TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "1.0",
    "delete.retention.ms": str(RETENTION_MS),
    "index.interval.bytes": "200",
}
BROKER_SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.threads": "1",
    "producer.id.expiration.check.interval.ms": "200",
    "offsets.topic.num.partitions": "1",
    "log.index.interval.bytes": "200",
    "log.cleaner.min.cleanable.ratio": "1.0",
    "log.cleaner.delete.retention.ms": str(RETENTION_MS),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(require_kafka(), BROKER_SETTINGS) as broker:
        yield broker


@dataclass(slots=True)
class Copied:
    """A partition's directory at some moment."""

    directory: Path

    @property
    def segments(self) -> list[Segment]:
        paths = sorted(self.directory.glob("*.log"))
        return [Segment(REAL_FILES, self.directory, int(path.stem), path.stat().st_size) for path in paths]

    def batches(self, segment: Segment) -> list[ReadBatch]:
        return list(iter_batches(segment.path(".log").read_bytes()))

    def producers(self) -> tuple[ProducerStates, dict[int, LastRecord]]:
        states = ProducerStates()
        for segment in self.segments:
            data = segment.path(".log").read_bytes()
            for read in iter_batches(data):
                states.replay(read.header, data[read.position : read.position + read.header.size_bytes])
        last = {
            number: LastRecord(one.batches[-1].last_offset if one.batches else None, one.epoch)
            for number, one in states.producers.items()
        }
        return states, last

    def aborted(self) -> list[AbortedTransaction]:
        return [transaction for segment in self.segments for transaction in segment.aborted_transactions()]


class Cleaner:
    """The broker's, for one partition."""

    def __init__(self, broker: KafkaBroker, topic: str, folder: Path) -> None:
        self.broker = broker
        self.topic = topic
        self.folder = folder
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
        self.rounds = 0

    def copy(self, name: str) -> Copied:
        """What the log is made of; files that the broker has replaced are left out."""
        target = self.folder / f"{self.topic}-{self.rounds}-{name}"
        source = self.broker.log_dir / f"{self.topic}-0"
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.deleted"))
        assert not [path for path in target.iterdir() if path.suffix in (".cleaned", ".swap")]
        return Copied(target)

    def segment_count(self) -> int:
        return len(list((self.broker.log_dir / f"{self.topic}-0").glob("*.log")))

    def checkpoint(self) -> int | None:
        offsets = checkpoints.read_offsets(REAL_FILES, self.broker.log_dir / checkpoints.CLEANER_OFFSETS)
        return offsets.get(checkpoints.TopicPartition(self.topic, 0))

    def let_go(self, until: int) -> None:
        """One round; its end is what the checkpoint then says."""
        self.configure("min.cleanable.dirty.ratio", "0.0")
        deadline = time.monotonic() + WAIT_S
        while self.checkpoint() != until:
            if time.monotonic() > deadline:
                raise KafkaFailed(f"cleaned up to {self.checkpoint()}, not {until}:\n{self.broker.last_words()}")
            time.sleep(0.05)
        self.configure("min.cleanable.dirty.ratio", "1.0")
        self.rounds += 1

    def configure(self, name: str, value: str) -> None:
        self._configure(ResourceType.TOPIC, self.topic, name, value)

    def configure_broker(self, name: str, value: str) -> None:
        self._configure(ResourceType.BROKER, "1", name, value)

    def _configure(self, kind: ResourceType, of: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(kind, of, incremental_configs=[entry])
        for done in self.admin.incremental_alter_configs([resource]).values():
            done.result(WAIT_S)


def compare_one_round(cleaner: Cleaner, *, producers_known: bool = True) -> tuple[Copied, Copied]:
    """Let both clean the same log, and hold one against the other. Returns it before and after."""
    before = cleaner.copy("before")
    states, last_records = before.producers()
    facts = LogFacts(
        before.segments[0].base_offset,
        states.end_offset,
        states.first_undecided_offset() or states.end_offset,
        [facts_of(segment) for segment in before.segments],
    )
    checkpoint = cleaner.checkpoint()
    part = cleanable(facts, checkpoint, CompactionConfig(min_cleanable_dirty_ratio=0.0), 0)
    assert part.dirty_bytes > 0
    earliest_ms = int(time.time() * 1000)
    cleaner.let_go(until=part.end_offset)
    latest_ms = int(time.time() * 1000)
    after = cleaner.copy("after")
    now_ms = cleaning_time(after, before) or latest_ms
    assert earliest_ms <= now_ms <= latest_ms
    rules = CleaningRules(
        now_ms,
        RETENTION_MS,
        part.first_dirty_offset,
        part.end_offset,
        last_records if producers_known else {},
        merges_offset_keys=cleaner.topic == OFFSETS,
    )
    for name, make in COMPACTORS.items():
        ours = Copied(before.directory.with_name(f"{before.directory.name}-{name}"))
        shutil.copytree(before.directory, ours.directory)
        segments = [segment for segment in ours.segments if segment.base_offset < part.end_offset]
        job = Job(cleaner.topic, segments, rules, ours.aborted(), CONFIG)
        compactor = make(job.rules, job.aborted, job.memory_bytes)
        report = clean(job, swap_plainly, compactor=compactor)
        assert report.end_offset == part.end_offset
        assert_same(ours, after)
    return before, after


def swap_plainly(old: object, new: Segment) -> None:
    assert isinstance(old, list)
    for segment in old:
        segment.delete()
    new.rename("")


def cleaning_time(after: Copied, before: Copied) -> int | None:
    """What time the round took it to be, from a delete horizon that was not there before."""

    def horizons(of: Copied) -> set[int]:
        headers = [batch.header for segment in of.segments for batch in of.batches(segment)]
        return {header.delete_horizon_ms for header in headers if header.delete_horizon_ms is not None}

    new = horizons(after) - horizons(before)
    assert len(new) <= 1
    return new.pop() - RETENTION_MS if new else None


def assert_same(ours: Copied, theirs: Copied) -> None:
    assert [segment.base_offset for segment in ours.segments] == [segment.base_offset for segment in theirs.segments]
    for mine, other in zip(ours.segments, theirs.segments, strict=True):
        my_batches, their_batches = ours.batches(mine), theirs.batches(other)
        assert [describe(batch) for batch in my_batches] == [describe(batch) for batch in their_batches]
        assert mine.aborted_transactions() == other.aborted_transactions()
        if not any(batch.header.codec for batch in their_batches):  # two packers need not agree
            for kind in (".log", ".index", ".timeindex"):
                assert mine.path(kind).read_bytes() == other.path(kind).read_bytes(), (mine, kind)


def describe(batch: ReadBatch) -> tuple[object, ...]:
    assert batch.problem is None
    return (batch.header._replace(size_bytes=0, crc=0), batch.records)


class Writers:
    """Producers of all kinds. What one of them flushes is one batch, or a few."""

    def __init__(self, broker: KafkaBroker, topic: str = TOPIC, name: str = "t") -> None:
        self.broker = broker
        self.topic = topic
        self.clock_ms = START_MS
        self.plain = self.producer()
        self.idempotent = self.producer(**{"enable.idempotence": True})
        self.packed = [self.producer(**{"compression.type": codec}) for codec in ("gzip", "snappy", "lz4", "zstd")]
        self.transactional = [self.producer(**{"transactional.id": f"{name}{number}"}) for number in range(2)]
        for producer in self.transactional:
            producer.init_transactions(WAIT_S)

    def producer(self, **settings: object) -> Producer:
        common = {"bootstrap.servers": self.broker.bootstrap, "linger.ms": 200, "log_level": 2}
        return Producer(common | settings)

    def write(self, producer: Producer, *records: tuple[str | None, str | None]) -> None:
        for key, value in records:
            self.clock_ms += 1
            producer.produce(self.topic, value, key, partition=0, timestamp=self.clock_ms)
        assert producer.flush(WAIT_S) == 0

    def some(self, seed: int) -> None:
        """A bit of everything: replaced keys, tombstones, transactions that end in either way, beside one another."""
        self.some_plain(seed)
        for number, producer in enumerate(self.packed):
            self.write(producer, *((f"p{key}", f"{seed} {number} " + "packed " * 5) for key in range(number, 9, 2)))
        self.write(self.plain, ("k1", None), (f"gone{seed}", "x"), (f"gone{seed}", None), ("k7", "stays"))
        first, second = self.transactional
        for producer in (first, second):
            producer.begin_transaction()
        self.write(first, ("t1", f"committed {seed}"), ("t2", f"committed {seed}"))
        self.write(second, ("t1", f"aborted {seed}"), (f"only-aborted{seed}", "x"))
        self.write(first, ("k2", None), ("t3", f"committed {seed}"))
        second.abort_transaction(WAIT_S)
        first.commit_transaction(WAIT_S)
        second.begin_transaction()
        self.write(second, ("t3", f"later {seed}"), ("t4", None))
        second.commit_transaction(WAIT_S)

    def some_plain(self, seed: int) -> None:
        for number in range(6):
            value = f"{seed}.{number}"
            self.write(self.plain, *((f"k{key}", value) for key in range(number, number + 3)))
            self.write(self.idempotent, (f"i{number % 3}", value), (f"k{number}", value))

    def fill(self) -> None:
        """Push everything written so far out of the active segment."""
        for number in range(4):
            self.write(self.plain, (f"filler{number}", "f" * (SEGMENT_BYTES // 2)))


def headers_of(copied: Copied) -> list[tuple[bool, int, int | None, int]]:
    """Of each batch: whether it is control, its records, its horizon, its producer."""
    return [
        (batch.header.is_control, len(batch.records), batch.header.delete_horizon_ms, batch.header.producer_id)
        for segment in copied.segments
        for batch in copied.batches(segment)
    ]


def keys(copied: Copied) -> list[str]:
    return [
        (record.key or b"").decode("latin-1")
        for segment in copied.segments
        for batch in copied.batches(segment)
        if not batch.header.is_control
        for record in batch.records
    ]


def tombstones(copied: Copied) -> int:
    batches = [batch for segment in copied.segments for batch in copied.batches(segment)]
    return sum(record.value is None for batch in batches for record in batch.records)


def commit(broker: KafkaBroker, group: str, offset: int, metadata: str = "") -> None:
    """The first one of all makes the topic, and may have to be said twice."""
    deadline = time.monotonic() + WAIT_S
    with consumer(broker, group) as simple:
        while True:
            try:
                check(simple.commit(offsets=[TopicPartition("read", offset % 3, offset, metadata)], asynchronous=False))
                return
            except KafkaException:
                if time.monotonic() > deadline:
                    raise


def commit_in_transaction(broker: KafkaBroker, producer: Producer, group: str, offset: int, *, commit: bool) -> None:
    with consumer(broker, group) as simple:
        member = simple.consumer_group_metadata()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition("read", 0, offset)], member, WAIT_S)
    if commit:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)


def markers(copied: Copied) -> int:
    return sum(1 for is_control, records, _, _ in headers_of(copied) if is_control and records)


@pytest.mark.matrix
def test_a_compacted_topic_with_transactions(broker: KafkaBroker, tmp_path: Path) -> None:
    """Five rounds, in which a tombstone and a marker live and die, and producers are forgotten."""
    cleaner = Cleaner(broker, TOPIC, tmp_path)
    new = NewTopic(TOPIC, 1, 1, config=TOPIC_CONFIG)
    for created in cleaner.admin.create_topics([new]).values():
        created.result(WAIT_S)
    writers = Writers(broker)

    writers.write(writers.producer(**{"enable.idempotence": True}), ("i1", "written once"))
    writers.some(1)
    writers.fill()
    before, after = compare_one_round(cleaner)
    assert markers(after) == markers(before) == 3
    assert tombstones(after) > 0
    assert any(horizon for _, _, horizon, _ in headers_of(after))
    assert headers_of(after)[0][:2] == (False, 0)  # of the producer that wrote once

    for seed in (2, 3, 4):
        writers.some(seed)
        writers.fill()
        time.sleep(RETENTION_MS / 1000)
        before, after = compare_one_round(cleaner)
    assert any(is_control and horizon for is_control, _, horizon, _ in headers_of(before))
    assert markers(after) < markers(before)
    assert {"gone1", "gone2"}.isdisjoint(keys(after))

    cleaner.configure_broker("producer.id.expiration.ms", "1")
    time.sleep(1)  # five times the interval in which the broker looks
    writers.write(writers.plain, ("k1", "the last of all"))
    writers.fill()
    before, after = compare_one_round(cleaner, producers_known=False)
    assert headers_of(before)[0][:2] == (False, 0)
    assert headers_of(after)[0][1] > 0
    cleaner.configure_broker("producer.id.expiration.ms", "86400000")


def test_an_open_transaction_stops_both(broker: KafkaBroker, tmp_path: Path) -> None:
    cleaner = Cleaner(broker, OPEN_TOPIC, tmp_path)
    for created in cleaner.admin.create_topics([NewTopic(OPEN_TOPIC, 1, 1, config=TOPIC_CONFIG)]).values():
        created.result(WAIT_S)
    writers = Writers(broker, OPEN_TOPIC, "open")
    writers.some(1)
    writers.fill()
    writers.transactional[0].begin_transaction()
    writers.write(writers.transactional[0], ("k1", "of an open transaction"))
    writers.some_plain(2)
    writers.fill()
    before, after = compare_one_round(cleaner)
    assert keys(before).count("k1") > 2
    assert keys(after)[-1] == keys(before)[-1]
    writers.transactional[0].abort_transaction(WAIT_S)
    writers.fill()
    _, after = compare_one_round(cleaner)
    assert keys(after).count("k1") == 1


def test_the_offsets_topic(broker: KafkaBroker, tmp_path: Path) -> None:
    """Commits, transactional ones that end in either way, a group that goes."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    for created in admin.create_topics([NewTopic("read", 3, 1)]).values():
        created.result(WAIT_S)
    commit(broker, "g0", 0)
    cleaner = Cleaner(broker, OFFSETS, tmp_path)
    cleaner.configure("internal.segment.bytes", str(SEGMENT_BYTES))
    producers = [transactional(broker, f"offsets{number}") for number in range(2)]
    for seed in range(3):
        for number in range(12):
            commit(broker, f"g{number % 4}", 100 * seed + number)
        commit_in_transaction(broker, producers[0], "g1", 1000 + seed, commit=True)
        commit_in_transaction(broker, producers[1], "g2", 2000 + seed, commit=False)
        commit(broker, f"going{seed}", 1)
        for deleted in admin.delete_consumer_groups([f"going{seed}"]).values():
            deleted.result(WAIT_S)
        closed = cleaner.segment_count()
        while cleaner.segment_count() < closed + 2:
            commit(broker, "filler", 1, "x" * 2000)
        time.sleep(RETENTION_MS / 1000)
        before, after = compare_one_round(cleaner)
    assert len(keys(after)) < len(keys(before))
    assert markers(after) > 0
