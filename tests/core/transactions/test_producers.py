"""InitProducerId: ids and epochs, and how an older producer is fenced."""

import pytest

from muster.codec.error_codes import ErrorCode
from muster.core.transactions.events import LAST_EPOCH, InitAnswer, is_used_up
from muster.core.transactions.states import TransactionState
from tests.core.transactions.world import A0, FIRST_FRESH_ID, NEW, OLD, START_MS, TIMEOUT_MS, TransactionWorld

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
CONCURRENT = InitAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)


def test_a_new_transactional_id_gets_the_fresh_producer_id_and_epoch_0() -> None:
    world = TransactionWorld()
    assert world.init() == InitAnswer(NONE, FIRST_FRESH_ID, 0)
    record = world.last_record()
    assert (record.status, record.timeout_ms, record.update_ms, record.start_ms) == (0, TIMEOUT_MS, START_MS, -1)
    assert record.previous_producer_id == record.producer_id == FIRST_FRESH_ID
    assert record.partitions == ()


def test_every_producer_bumps_the_epoch_and_sets_its_own_timeout() -> None:
    world = TransactionWorld()
    world.init()
    assert world.init(timeout_ms=1) == InitAnswer(NONE, FIRST_FRESH_ID, 1)
    assert world.record().timeout_ms == 1


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 7}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 7}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"is_two_phase": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"keeps_prepared": True}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_request_that_cannot_be_is_refused(fields: dict[str, object], error: ErrorCode) -> None:
    world = TransactionWorld()
    assert world.init(**fields) == InitAnswer(error)  # type: ignore[arg-type]
    assert world.log == []


def test_the_longest_timeout_is_allowed() -> None:
    assert TransactionWorld().init(timeout_ms=900_000).error is NONE


def test_one_transactional_id_too_many_is_refused_and_known_ones_go_on() -> None:
    world = TransactionWorld(muster_max_transactional_ids=2)
    world.init("t")
    world.init("u")
    assert world.init("v") == InitAnswer(ErrorCode.POLICY_VIOLATION)
    assert world.init("u").error is NONE


# An open transaction is aborted first.


def test_a_new_producer_aborts_the_open_transaction_and_hears_concurrent_until_that_is_done() -> None:
    world = TransactionWorld()
    world.in_state(TransactionState.ONGOING)
    assert world.init() == CONCURRENT
    assert world.state() is TransactionState.PREPARE_ABORT
    assert world.init() == CONCURRENT
    (markers,) = world.write_markers()
    assert (markers.commit, markers.partitions) == (False, (A0,))
    assert world.init() == InitAnswer(NONE, FIRST_FRESH_ID, 2)


def test_the_abort_of_a_fenced_producer_bumps_the_epoch_once_and_its_marker_has_the_bumped_one() -> None:
    world = TransactionWorld()
    world.in_state(TransactionState.ONGOING)
    world.init()
    assert world.last_record().producer_epoch == 1
    assert world.markers[0].producer_epoch == 1


def test_a_fenced_producer_can_neither_add_nor_end() -> None:
    world = TransactionWorld()
    world.in_state(TransactionState.ONGOING)
    world.init()
    world.write_markers()
    assert world.producer_epoch == 0
    assert world.add().error is FENCED
    assert world.end(version=OLD).error is FENCED
    world.init()
    assert world.end(version=NEW, producer_epoch=0).error is FENCED


# A producer that goes on after an error says who it is.


def test_a_producer_that_goes_on_gets_the_next_epoch_and_the_same_again_if_the_answer_was_lost() -> None:
    world = TransactionWorld()
    world.init()
    first = world.init(as_known=True, producer_epoch=0)
    assert first == InitAnswer(NONE, FIRST_FRESH_ID, 1)
    assert world.init(as_known=True, producer_epoch=0) == first


def test_after_a_crash_such_a_repetition_is_fenced() -> None:
    world = TransactionWorld()
    world.init()
    world.init(as_known=True, producer_epoch=0)
    world.crash()
    assert world.init(as_known=True, producer_epoch=0).error is FENCED
    assert world.init(as_known=True, producer_epoch=1) == InitAnswer(NONE, FIRST_FRESH_ID, 2)


def test_a_new_producer_ends_what_may_be_repeated() -> None:
    world = TransactionWorld()
    world.init()
    world.init(as_known=True)
    world.init()
    assert world.init(as_known=True, producer_epoch=1).error is FENCED


@pytest.mark.parametrize(("producer_id", "epoch"), [(FIRST_FRESH_ID, 5), (7, 0)])
def test_whoever_is_not_the_producer_is_fenced(producer_id: int, epoch: int) -> None:
    world = TransactionWorld()
    world.init()
    assert world.init(producer_id=producer_id, producer_epoch=epoch).error is FENCED


def test_a_producer_whose_transactional_id_was_forgotten_begins_anew() -> None:
    world = TransactionWorld()
    assert world.init(producer_id=7, producer_epoch=9) == InitAnswer(NONE, FIRST_FRESH_ID, 0)


def test_a_producer_that_timed_out_goes_on_with_the_epoch_of_the_abort() -> None:
    world = TransactionWorld()
    world.in_state(TransactionState.ONGOING)
    world.pass_ms(TIMEOUT_MS + 1)
    world.abort_timed_out()
    world.write_markers()
    assert world.init(as_known=True, producer_epoch=0) == InitAnswer(NONE, FIRST_FRESH_ID, 1)


def test_a_producer_that_never_heard_of_its_end_goes_on_with_the_epoch_of_the_end() -> None:
    world = TransactionWorld()
    world.in_state(TransactionState.COMPLETE_COMMIT, NEW)
    assert world.init(as_known=True, producer_epoch=0) == InitAnswer(NONE, FIRST_FRESH_ID, 1)


# Epochs that are used up.


def test_the_last_epoch_is_left_for_fencing() -> None:
    assert not is_used_up(LAST_EPOCH - 2)
    assert is_used_up(LAST_EPOCH - 1)
    assert is_used_up(LAST_EPOCH)


def test_a_used_up_epoch_takes_the_fresh_producer_id() -> None:
    world = TransactionWorld()
    world.with_epoch(LAST_EPOCH - 2)
    assert world.init() == InitAnswer(NONE, FIRST_FRESH_ID, LAST_EPOCH - 1)
    answer = world.init()
    assert answer == InitAnswer(NONE, world.last_fresh_id, 0)
    assert world.last_record().previous_producer_id == FIRST_FRESH_ID


def test_a_producer_with_the_used_up_epoch_may_ask_again_for_the_new_id() -> None:
    world = TransactionWorld()
    world.with_epoch(LAST_EPOCH - 1)
    known = {"producer_id": world.producer_id, "producer_epoch": LAST_EPOCH - 1}
    answer = world.init(**known)  # type: ignore[arg-type]
    assert answer == InitAnswer(NONE, world.last_fresh_id, 0)
    assert world.init(**known) == answer  # type: ignore[arg-type]


def test_beside_a_used_up_epoch_another_one_is_an_error_of_the_server_as_in_kafka() -> None:
    world = TransactionWorld()
    world.with_epoch(LAST_EPOCH - 1)
    assert world.init(as_known=True, producer_epoch=5).error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_fencing_a_used_up_epoch_takes_a_fresh_producer_id_when_the_markers_are_written() -> None:
    world = TransactionWorld()
    world.with_epoch(LAST_EPOCH - 1, TransactionState.ONGOING)
    world.init()
    (markers,) = world.write_markers()
    assert (markers.producer_id, markers.producer_epoch) == (FIRST_FRESH_ID, LAST_EPOCH)
    assert (world.record().producer_id, world.record().producer_epoch) == (world.last_fresh_id, 0)


# Errors.


@pytest.mark.parametrize(("version", "error"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, FENCED)])
def test_older_clients_hear_of_fencing_by_its_older_name(version: int, error: ErrorCode) -> None:
    world = TransactionWorld()
    world.init()
    assert world.init(producer_id=7, producer_epoch=0, version=version).error is error


@pytest.mark.parametrize(
    ("refused", "heard"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_what_the_log_refuses_never_was(refused: ErrorCode, heard: ErrorCode) -> None:
    world = TransactionWorld()
    world.refuse_with = refused
    assert world.init() == InitAnswer(heard)
    assert world.coordinator.hard_state() == {}


def test_a_fence_that_the_log_refuses_leaves_the_transaction_open() -> None:
    world = TransactionWorld()
    world.in_state(TransactionState.ONGOING)
    world.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.init().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.state() is TransactionState.ONGOING
    assert world.markers == []
    assert world.add(("a", 9)).error is NONE
