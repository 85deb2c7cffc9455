"""A log on a disk, and a list: whatever happens to both, they stay the same.

The model is a list of (offset, timestamp, key, value). A power cut may keep more than was durable, never less, and of
every batch all or nothing.
"""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from muster.codec.batches import encode_batch, iter_batches
from muster.codec.records import Record
from muster.log.config import Flush, LogConfig
from muster.log.partition import DiskLog
from tests.log.disk.changes import checkpoint_log
from tests.log.disk.faults import FaultyFiles
from tests.log.disk.model import ALL, DATA_ONLY, NAMES_ONLY, NOTHING, SIZES, Chance, Survivors

DIRECTORY = Path("/t-0")
START_MS = 1_800_000_000_000
SURVIVORS = st.one_of(
    st.sampled_from([ALL, NOTHING, NAMES_ONLY, DATA_ONLY, SIZES]), st.integers(0, 1 << 16).map(Chance)
)
MARKER_KEYS = (b"\0\0\0\0", b"\0\0\0\1")
Row = tuple[int, int, bytes | None, bytes | None]


@dataclass(slots=True)
class Model:
    """Everything that should be there, in order; markers without key and value."""

    rows: list[Row] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.rows[-1][0] + 1 if self.rows else 0

    def cut(self, end: int) -> None:
        self.rows = [row for row in self.rows if row[0] < end]


class LogAndModel(RuleBasedStateMachine):
    @initialize(
        segment_bytes=st.sampled_from([400, 900, 3000]),
        interval=st.sampled_from([1, 100, 4096]),
        segment_ms=st.sampled_from([20, 10**9]),
        codec=st.sampled_from([0, 0, 4]),
    )
    def begin(self, segment_bytes: int, interval: int, segment_ms: int, codec: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes, index_interval_bytes=interval, segment_ms=segment_ms,
            codec=codec, flush=Flush.ALWAYS,
        )  # fmt: skip
        self.files = FaultyFiles()
        self.files.mkdir(DIRECTORY)
        self.files.root.sync()
        self.log = DiskLog.open(DIRECTORY, self.config, files=self.files)
        self.model = Model()
        self.now_ms = START_MS
        self.sequence = 0
        self.history: list[tuple[str, int, int]] = []  # transactions as they happened: what, producer, offset

    @rule(count=st.integers(1, 4), size=st.integers(0, 60), step_ms=st.integers(-3, 9))
    def append(self, count: int, size: int, step_ms: int) -> None:
        self.now_ms += step_ms
        records = [(b"k%d" % (self.model.end + number), None if size == 7 else b"v" * size) for number in range(count)]
        assert self.log.append(records, self.now_ms) == self.model.end
        self.take(records)

    def take(self, records: list[tuple[bytes, bytes | None]]) -> None:
        for key, value in records:
            self.model.rows.append((self.model.end, self.now_ms, key, value))

    @rule(producer_id=st.integers(1, 3), size=st.integers(0, 60))
    def append_in_a_transaction(self, producer_id: int, size: int) -> None:
        records: list[tuple[bytes, bytes | None]] = [(b"t", b"w" * size)]
        offset = self.log.append(records, self.now_ms, producer_id, 0)
        assert offset == self.model.end
        self.take(records)
        self.history.append(("data", producer_id, offset))

    @rule(producer_id=st.integers(1, 3), commit=st.booleans())
    def end_a_transaction(self, producer_id: int, commit: bool) -> None:
        offset = self.log.append_marker(producer_id, 0, self.now_ms, commit=commit)
        assert offset == self.model.end
        self.model.rows.append((offset, self.now_ms, None, None))
        self.history.append(("commit" if commit else "abort", producer_id, offset))

    @rule(count=st.integers(1, 3))
    def append_a_client_batch(self, count: int) -> None:
        records = [Record(number, self.now_ms + number, b"c", b"x") for number in range(count)]
        data = encode_batch(records, producer_id=50, producer_epoch=0, base_sequence=self.sequence)
        offset = self.log.append_batch(data, self.now_ms).base_offset
        assert offset == self.model.end
        assert self.log.append_batch(data, self.now_ms).base_offset == offset  # again: the client did not hear us
        self.sequence += count
        for record in records:
            self.model.rows.append((self.model.end, record.timestamp_ms, record.key, record.value))

    @rule()
    def write(self) -> None:
        self.log.write()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.flushed_offset == self.model.end

    @rule()
    def checkpoint(self) -> None:
        checkpoint_log(self.log)
        assert self.log.recovery_point == self.model.end

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.model.end + 1))
        self.log.truncate_to(offset)
        assert self.log.end_offset <= max(offset, 0) or offset > self.model.end
        self.forget_from(self.log.end_offset)

    def forget_from(self, end: int) -> None:
        self.model.cut(end)
        self.history = [one for one in self.history if one[2] < end]
        self.sequence = sum(1 for row in self.model.rows if row[2] == b"c")

    @rule()
    def close_and_open(self) -> None:
        assert self.log.close()
        self.log = DiskLog.open(DIRECTORY, self.config, files=self.files, clean=True)
        assert self.log.report.notes == []
        assert self.log.report.checked_bytes == 0

    @rule()
    def kill_and_open(self) -> None:
        written = self.log.written_offset
        self.reopen(self.files.killed())
        assert self.log.end_offset == written
        self.forget_from(written)

    @rule(survivors=SURVIVORS)
    def cut_the_power(self, survivors: Survivors) -> None:
        flushed, written = self.log.flushed_offset, self.log.written_offset
        self.reopen(self.files.cut(survivors))
        assert flushed <= self.log.end_offset <= written
        self.forget_from(self.log.end_offset)

    def reopen(self, files: FaultyFiles) -> None:
        recovery_point = self.log.recovery_point
        self.files = files
        self.log = DiskLog.open(DIRECTORY, self.config, files=files, recovery_point=recovery_point)

    @precondition(lambda self: self.log.written_offset > 0)
    @rule(data=st.data(), max_bytes=st.integers(0, 800))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        log = self.log
        from_offset = data.draw(st.integers(0, log.written_offset - 1))
        up_to = data.draw(st.sampled_from([None, log.written_offset]))
        got = log.read(from_offset, max_bytes, up_to)
        limit = log.high_watermark if up_to is None else up_to
        batches = list(iter_batches(got))
        rows = [row for batch in batches for row in rows_of(batch.records)]
        if from_offset >= limit:
            assert rows == []
            return
        assert batches[0].header.base_offset <= from_offset <= batches[0].header.last_offset
        assert len(got) <= max_bytes or len(batches) == 1
        assert rows[-1][0] < limit
        assert rows == self.model.rows[rows[0][0] : rows[-1][0] + 1]

    @invariant()
    def the_log_is_the_list(self) -> None:
        log, model = self.log, self.model
        assert log.end_offset == model.end
        assert log.flushed_offset <= log.written_offset <= log.end_offset
        written = [row for row in model.rows if row[0] < log.written_offset]
        found = [row for batch in log.batches(buffer_bytes=300) for row in rows_of(batch.records)]
        assert found == written
        largest = max((row[1] for row in written), default=None)
        if largest is not None and log.flushed_offset == log.written_offset:
            found_at = log.offset_for_timestamp(largest)
            assert found_at is not None
            assert found_at.offset == next(row[0] for row in written if row[1] >= largest)
        assert log.offset_for_timestamp((largest or START_MS) + 1) is None

    @invariant()
    def transactions_are_as_they_happened(self) -> None:
        first: dict[int, int] = {}
        aborted = []
        for what, producer_id, offset in self.history:
            if offset >= self.log.written_offset:
                break
            if what == "data":
                first.setdefault(producer_id, offset)
            elif producer_id in first:
                began = first.pop(producer_id)
                if what == "abort":
                    aborted.append((producer_id, began, offset))
        assert [one[:3] for one in self.log.aborted_transactions(0, 1 << 62)] == aborted
        if self.log.flushed_offset == self.log.end_offset:
            assert self.log.last_stable_offset == min(first.values(), default=self.log.end_offset)


def rows_of(records: list[Record]) -> list[Row]:
    return [
        (record.offset, record.timestamp_ms, None, None)
        if record.key in MARKER_KEYS
        else (record.offset, record.timestamp_ms, record.key, record.value)
        for record in records
    ]


TestLogAndModel = LogAndModel.TestCase
TestLogAndModel.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.long
def test_for_a_long_time() -> None:
    many = settings(max_examples=2000, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(LogAndModel, settings=many)
