"""A log on disk against a list of records: appends, transactions, rolls, rounds of compaction, retention, restarts.

Whatever happens in whatever order, a reader of committed data ends with the same value for every key, transactions are
as open as they were, and every producer is known by the same epoch and sequence.
"""

from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muster.log.compaction.manager import LogCleaner
from muster.log.compaction.plan import CompactionConfig
from muster.log.config import LogConfig
from muster.log.partition import DiskLog
from muster.segments.checkpoints import TopicPartition
from tests.log.compaction import DAY_MS, START_MS
from tests.log.disk.faults import FaultyFiles

ROOT = Path("/data")
KEY = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=100, compacted=True)
KEYS = st.sampled_from([b"a", b"b", b"c", b"long" * 10])
VALUES = st.one_of(st.none(), st.binary(max_size=60))
RECORDS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4)
PRODUCERS = st.integers(1, 3)


class LogMachine(RuleBasedStateMachine):
    @initialize(memory_keys=st.sampled_from([1, 3, 1000]))
    def begin(self, memory_keys: int) -> None:
        self.files = FaultyFiles()
        self.files.mkdir(ROOT)
        self.log = DiskLog.open(ROOT / str(KEY), CONFIG, files=self.files)
        self.memory_bytes = memory_keys * 176
        self.cleaner = self.new_cleaner()
        self.now_ms = START_MS
        self.written: list[tuple[int, bytes, bytes | None, int]] = []  # offset, key, value, transaction
        self.open: dict[int, int] = {}  # producer -> transaction
        self.aborted: set[int] = set()
        self.transactions = 0

    def new_cleaner(self) -> LogCleaner:
        logs = {KEY: self.log}
        config = CompactionConfig(min_cleanable_dirty_ratio=0.0)
        return LogCleaner(ROOT, logs, lambda key: config, files=self.files, memory_bytes=self.memory_bytes)

    @rule(records=RECORDS)
    def append(self, records: list[tuple[bytes, bytes | None]]) -> None:
        offset = self.log.append(records, self.now_ms)
        self.log.write()
        self.written += [(offset + number, key, value, 0) for number, (key, value) in enumerate(records)]

    @rule(records=RECORDS, producer_id=PRODUCERS)
    def append_in_a_transaction(self, records: list[tuple[bytes, bytes | None]], producer_id: int) -> None:
        if producer_id not in self.open:
            self.transactions += 1
            self.open[producer_id] = self.transactions
        offset = self.log.append(records, self.now_ms, producer_id, 0)
        self.log.write()
        transaction = self.open[producer_id]
        self.written += [(offset + number, key, value, transaction) for number, (key, value) in enumerate(records)]

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commit=st.booleans())
    def end_a_transaction(self, data: st.DataObject, commit: bool) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.open)))
        self.log.append_marker(producer_id, 0, self.now_ms, commit=commit)
        self.log.write()
        transaction = self.open.pop(producer_id)
        if not commit:
            self.aborted.add(transaction)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(hours=st.sampled_from([0, 12, 30]))
    def compact(self, hours: int) -> None:
        self.now_ms += hours * DAY_MS // 24
        self.cleaner.run_once(self.now_ms)
        assert not self.cleaner.uncleanable, self.cleaner.notes

    @rule(how=st.sampled_from(["close", "kill", "kill, nothing written down"]))
    def restart(self, how: str) -> None:
        producers = self.producers()
        recovery_point = 0
        if how == "close":
            assert self.log.close()
        else:
            self.log.flush()
            recovery_point = self.log.recovery_point if how == "kill" else 0
            self.files = self.files.killed()
        self.log = DiskLog.open(
            ROOT / str(KEY), CONFIG, files=self.files, clean=how == "close", recovery_point=recovery_point
        )
        self.cleaner = self.new_cleaner()
        assert not self.log.report.truncated_bytes
        assert self.producers() == producers

    def producers(self) -> dict[int, tuple[int, int, int]]:
        """Epoch, last sequence and the beginning of the open transaction."""
        return {
            number: (producer.epoch, producer.last_sequence, producer.transaction_first_offset)
            for number, producer in self.log.producers.producers.items()
        }

    @invariant()
    def readers_see_what_was_written(self) -> None:
        if not hasattr(self, "log"):
            return
        stable = self.log.last_stable_offset
        wanted = {
            key: value
            for offset, key, value, transaction in self.written
            if offset < stable and transaction not in self.aborted
        }
        assert self.seen(stable) == {key: value for key, value in wanted.items() if value is not None}

    def seen(self, stable: int) -> dict[bytes, bytes]:
        """By a reader of committed data: aborted transactions are told from the index."""
        aborted = self.log.aborted_transactions(0, stable)
        found: dict[bytes, bytes | None] = {}
        last = -1
        for batch in self.log.batches():
            header = batch.header
            assert batch.problem is None
            assert header.base_offset > last
            last = header.last_offset
            if header.is_control or header.base_offset >= stable:
                continue
            if header.is_transactional and any(
                one.producer_id == header.producer_id and one.first_offset <= header.base_offset < one.last_offset
                for one in aborted
            ):
                continue
            found |= {record.key: record.value for record in batch.records if record.key is not None}
        return {key: value for key, value in found.items() if value is not None}

    @invariant()
    def transactions_are_as_open_as_they_were(self) -> None:
        if not hasattr(self, "log"):
            return
        opened = [offset for offset, _, _, transaction in self.written if transaction in self.open.values()]
        assert self.log.producers.first_undecided_offset() == min(opened, default=None)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
