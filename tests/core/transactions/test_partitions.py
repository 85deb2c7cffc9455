"""AddPartitions: what a transaction writes to, added before or by writing, and verified."""

from dataclasses import replace

import pytest

from muster.codec.batches import encode_batch
from muster.codec.error_codes import ErrorCode
from muster.codec.records import Record
from muster.core.transactions.events import LAST_EPOCH, AddAnswer, Asker
from muster.core.transactions.states import TransactionState
from tests.core.transactions.world import A0, A1, NEW, START_MS, TransactionWorld

NONE = ErrorCode.NONE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


def test_the_first_partition_begins_the_transaction() -> None:
    world = TransactionWorld()
    world.init()
    world.pass_ms(5)
    assert world.add(A0) == AddAnswer(NONE)
    record = world.last_record()
    assert (record.status, record.partitions, record.start_ms, record.update_ms) == (
        1,
        (A0,),
        START_MS + 5,
        START_MS + 5,
    )


def test_further_partitions_are_added_and_the_begin_stays() -> None:
    world = TransactionWorld()
    world.in_state(TransactionState.ONGOING)
    world.pass_ms(5)
    world.add(A1, A0)
    record = world.last_record()
    assert (record.partitions, record.start_ms, record.update_ms) == ((A0, A1), START_MS, START_MS + 5)


def test_partitions_that_are_added_already_write_nothing() -> None:
    world = TransactionWorld()
    world.in_state(TransactionState.ONGOING)
    world.add(A1)
    log_end = len(world.log)
    assert world.add(A1, A0) == AddAnswer(NONE)
    assert len(world.log) == log_end


def test_the_next_transaction_begins_without_the_partitions_of_the_last() -> None:
    world = TransactionWorld()
    world.in_state(TransactionState.COMPLETE_COMMIT)
    world.pass_ms(9)
    world.add(A1)
    assert (world.record().partitions, world.record().start_ms) == ((A1,), START_MS + 9)


@pytest.mark.parametrize(
    ("asker", "version", "client_version"),
    [
        (Asker.ADD_PARTITIONS, 3, 0),
        (Asker.ADD_PARTITIONS, 4, 2),
        (Asker.ADD_OFFSETS, 4, 0),
        (Asker.PRODUCE, 12, 2),
        (Asker.TXN_OFFSET_COMMIT, 5, 2),
    ],
)
def test_the_record_has_the_version_of_whoever_adds(asker: Asker, version: int, client_version: int) -> None:
    world = TransactionWorld()
    world.init()
    world.add(asker=asker, version=version)
    assert world.last_record().client_version == client_version


def test_to_verify_says_of_each_partition_whether_it_was_added_and_adds_none() -> None:
    world = TransactionWorld()
    world.in_state(TransactionState.ONGOING)
    answer = world.add(A0, A1, verify_only=True)
    assert answer == AddAnswer(ABORTABLE, (NONE, ABORTABLE))
    assert world.add(A0, verify_only=True) == AddAnswer(NONE, (NONE,))
    assert world.record().partitions == (A0,)


@pytest.mark.parametrize(
    ("asker", "version", "error"),
    [
        (Asker.PRODUCE, 10, ErrorCode.INVALID_TXN_STATE),
        (Asker.PRODUCE, 11, ABORTABLE),
        (Asker.TXN_OFFSET_COMMIT, 3, ErrorCode.INVALID_TXN_STATE),
        (Asker.TXN_OFFSET_COMMIT, 4, ABORTABLE),
        (Asker.ADD_PARTITIONS, 4, ABORTABLE),
    ],
)
def test_what_was_not_added_has_another_name_for_older_clients(asker: Asker, version: int, error: ErrorCode) -> None:
    world = TransactionWorld()
    world.in_state(TransactionState.ONGOING)
    assert world.add(A1, verify_only=True, asker=asker, version=version).errors == (error,)


@pytest.mark.parametrize(
    ("asker", "version", "error"),
    [
        (Asker.ADD_PARTITIONS, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (Asker.ADD_PARTITIONS, 2, ErrorCode.PRODUCER_FENCED),
        (Asker.ADD_OFFSETS, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (Asker.ADD_OFFSETS, 2, ErrorCode.PRODUCER_FENCED),
        (Asker.PRODUCE, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (Asker.TXN_OFFSET_COMMIT, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_fencing_has_another_name_for_older_clients_and_for_those_that_write(
    asker: Asker, version: int, error: ErrorCode
) -> None:
    world = TransactionWorld()
    world.init()
    assert world.add(producer_epoch=7, asker=asker, version=version).error is error


@pytest.mark.parametrize("verify_only", [False, True])
def test_another_producer_id_is_not_that_of_the_transactional_id(verify_only: bool) -> None:
    world = TransactionWorld()
    world.init()
    assert world.add(producer_id=7, verify_only=verify_only).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.add(transactional_id="", verify_only=verify_only).error is ErrorCode.INVALID_REQUEST


def test_a_refused_record_adds_nothing() -> None:
    world = TransactionWorld()
    world.init()
    world.refuse_with = ErrorCode.MESSAGE_TOO_LARGE
    assert world.add(A0, A1) == AddAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert world.state() is TransactionState.EMPTY


LIMIT_BYTES = 400


def ended_at(name_length: int) -> int | None:
    """The bytes of the largest end of a transaction with a topic of so long a name; None if it was not added."""
    world = TransactionWorld(max_batch_bytes=LIMIT_BYTES)
    world.init()
    known = world.coordinator.transactions
    known["t"] = replace(known["t"], record=known["t"].record._replace(producer_epoch=LAST_EPOCH - 1))
    world.producer_epoch = LAST_EPOCH - 1
    world.log[-1] = known["t"].encoded
    answer = world.add(("x" * name_length, 0))
    if answer.error is not NONE:
        assert answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert known["t"].state is TransactionState.EMPTY
        return None
    assert world.end(version=NEW).error is NONE
    key, value = world.log[-1]
    return len(encode_batch([Record(0, START_MS, key, value)]))


def test_what_could_not_be_ended_is_not_added() -> None:
    """The record of an end is larger than that of an open transaction, and the log takes no more than its limit."""
    sizes = {name_length: ended_at(name_length) for name_length in range(150, 300)}
    taken = {length: size for length, size in sizes.items() if size is not None}
    assert 150 in taken
    assert 299 not in taken
    assert LIMIT_BYTES - 20 < max(taken.values()) <= LIMIT_BYTES
