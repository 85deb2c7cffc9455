"""A log of transactions read whole: what counts, what is stepped over, what must not be served."""

import pytest

from muster.codec.batches import encode_batch, iter_batches
from muster.codec.error_codes import ErrorCode
from muster.codec.records import Record
from muster.core.groups import LoadFailed
from muster.core.outcome import Outcome
from muster.core.transactions.coordinator import TransactionCoordinator
from muster.core.transactions.events import AddAnswer, AddPartitions, Asker, EndTxn, ListTransactions, refusal
from muster.core.transactions.states import TransactionState
from muster.core.transactions.transactions import TransactionTable, replay_transactions
from tests.core.transactions.world import START_MS, TransactionWorld

UNKNOWN_KEY = b"\x00\x07later"


def log_of(*records: tuple[bytes, bytes | None]) -> bytes:
    return b"".join(encode_batch([Record(offset, START_MS, *record)]) for offset, record in enumerate(records))


def a_log() -> TransactionWorld:
    world = TransactionWorld()
    world.in_state(TransactionState.PREPARE_COMMIT)
    world.init("u")
    return world


def test_a_whole_log_gives_the_state_that_it_was_written_from() -> None:
    world = a_log()
    coordinator = TransactionCoordinator()
    report = replay_transactions(coordinator.table, iter_batches(log_of(*world.log)))
    assert coordinator.hard_state() == world.coordinator.hard_state()
    assert (report.records, report.transactional_ids) == (len(world.log), 2)


def test_tombstones_and_other_kinds_of_records_are_counted() -> None:
    world = a_log()
    key, _ = world.log[-1]
    table = TransactionTable()
    report = replay_transactions(table, iter_batches(log_of(*world.log, (key, None), (UNKNOWN_KEY, b"?"))))
    assert list(table.transactions) == ["t"]
    assert (report.tombstones, report.unknown_records, report.transactional_ids) == (1, 1, 1)


def test_a_value_of_a_newer_broker_fails_the_load() -> None:
    key, value = a_log().log[-1]
    assert value is not None
    with pytest.raises(LoadFailed, match="newer broker"):
        replay_transactions(TransactionTable(), iter_batches(log_of((key, b"\x00\x02" + value[2:]))))


def test_a_state_that_the_log_never_has_is_damage_and_stepped_over() -> None:
    key, value = a_log().log[-1]
    assert value is not None
    status = 2 + 8 + 2 + 4
    table = TransactionTable()
    damaged = value[:status] + b"\x06" + value[status + 1 :]
    report = replay_transactions(table, iter_batches(log_of((key, damaged))))
    assert (report.bad_records, table.transactions) == (1, {})
    with pytest.raises(LoadFailed):
        replay_transactions(TransactionTable(), iter_batches(log_of((key, damaged))), strict=True)


def test_an_unloaded_partition_knows_nothing() -> None:
    coordinator = a_log().coordinator
    assert coordinator.unload(Outcome()) == (2, 0)
    assert coordinator.hard_state() == {}


def test_a_request_that_fails_as_a_whole_gets_an_answer_of_its_kind() -> None:
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    add = AddPartitions("client", "t", 7, 0, (("a", 0), ("a", 1)), Asker.PRODUCE, 12)
    assert refusal(add, loading) == AddAnswer(loading)
    assert refusal(add, loading).of_each(add) == (loading, loading)
    assert refusal(EndTxn("client", "t", 7, 0, True, 5), loading) == (loading, -1, -1)
    assert refusal(ListTransactions("client"), loading).error is loading
