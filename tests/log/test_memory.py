"""The log in memory: what a shell relies on, and the faults it can have."""

import pytest

from muster.codec.error_codes import ErrorCode
from muster.errors import LogDamaged
from muster.log.validation import AppendRefused
from tests.kit.memory_log import MemoryLog, PartitionLog

T = 1_700_000_000_000
KEY = bytes.fromhex("000200026731")


def test_records_come_back_as_batches_with_offsets() -> None:
    log: PartitionLog = MemoryLog(codec=4)
    assert log.append([(KEY, b"v"), (KEY, None)], T) == 0
    assert log.append([(KEY, b"w")], T + 1, producer_id=7, producer_epoch=2) == 2
    assert log.append_marker(7, 2, T + 2, commit=True) == 3
    assert log.end_offset == 4
    batches = list(log.batches())
    assert [[record.offset for record in batch.records] for batch in batches] == [[0, 1], [2], [3]]
    assert [batch.header.is_transactional for batch in batches] == [False, True, True]
    assert [batch.header.base_sequence for batch in batches] == [0, 0, -1]
    assert batches[2].header.is_control
    assert all(batch.problem is None for batch in batches)


def test_a_refusal_leaves_nothing_behind() -> None:
    log = MemoryLog(max_batch_bytes=100)
    with pytest.raises(AppendRefused) as refused:
        log.append([(KEY, bytes(200))], T)
    assert refused.value.error is ErrorCode.RECORD_LIST_TOO_LARGE
    log.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(AppendRefused):
        log.append([(KEY, b"")], T)
    assert log.end_offset == 0
    assert log.append([(KEY, b"")], T) == 0


def test_a_crash_loses_what_was_not_flushed() -> None:
    log = MemoryLog()
    log.append([(KEY, b"1")], T)
    log.flush()
    log.append([(KEY, b"2")], T)
    log.append([(KEY, b"3")], T)
    assert (log.flushed_offset, log.end_offset) == (1, 3)
    log.crash(kept_batches=1)
    assert [record.value for batch in log.batches() for record in batch.records] == [b"1", b"2"]
    assert log.end_offset == log.flushed_offset == 2


def test_a_failing_disk() -> None:
    log = MemoryLog(break_next=True)
    with pytest.raises(LogDamaged):
        log.append([(KEY, b"")], T)
    assert log.append([(KEY, b"")], T) == 0
