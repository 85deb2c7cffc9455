"""EndTxn, markers and timeouts: how transactions end, in both flows and through crashes."""

import pytest

from muster.codec.error_codes import ErrorCode
from muster.core.transactions.events import LAST_EPOCH, AbortTimedOut, EndAnswer, ExpireTransactionalIds, MarkersWritten
from muster.core.transactions.states import LEGAL_MOVES, TransactionState
from muster.core.transactions.transactions import Transaction
from muster.core.transactions.writes import WriteMarkers
from tests.core.transactions.world import (
    A0,
    A1,
    COORDINATOR_EPOCH,
    FIRST_FRESH_ID,
    NEW,
    OLD,
    START_MS,
    TIMEOUT_MS,
    TransactionWorld,
)

NONE = ErrorCode.NONE
WEEK_MS = 604_800_000
State = TransactionState


@pytest.mark.parametrize("commit", [True, False])
def test_the_older_flow_keeps_the_epoch(commit: bool) -> None:
    world = TransactionWorld()
    world.in_state(State.ONGOING)
    assert world.end(commit, OLD) == EndAnswer(NONE)
    assert world.state() is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
    (markers,) = world.write_markers()
    assert markers == WriteMarkers("t", FIRST_FRESH_ID, 0, commit, COORDINATOR_EPOCH, (A0,), 0)
    record = world.last_record()
    assert world.state() is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert (record.producer_epoch, record.partitions, record.start_ms) == (0, (), START_MS)


@pytest.mark.parametrize("commit", [True, False])
def test_the_newer_flow_bumps_the_epoch_at_every_end(commit: bool) -> None:
    world = TransactionWorld()
    world.in_state(State.ONGOING)
    assert world.end(commit, NEW) == EndAnswer(NONE, FIRST_FRESH_ID, 1)
    (markers,) = world.write_markers()
    assert markers == WriteMarkers("t", FIRST_FRESH_ID, 1, commit, COORDINATOR_EPOCH, (A0,), 2)
    assert world.record().producer_epoch == 1


def test_an_end_has_no_answer_and_no_markers_before_the_log_has_it() -> None:
    world = TransactionWorld()
    world.in_state(State.ONGOING)
    world.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.end() == EndAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert (world.state(), world.markers) == (State.ONGOING, [])


def test_a_repeated_end_of_the_newer_flow_is_answered_as_before() -> None:
    world = TransactionWorld()
    world.in_state(State.ONGOING)
    first = world.end(True, NEW, producer_epoch=0)
    assert world.end(True, NEW, producer_epoch=0).error is ErrorCode.CONCURRENT_TRANSACTIONS
    world.write_markers()
    assert world.end(True, NEW, producer_epoch=0) == first
    assert world.end(False, NEW, producer_epoch=0).error is ErrorCode.INVALID_TXN_STATE


_FENCED, _INVALID = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("state", "version", "epochs_ago", "commit", "error"),
    [
        (State.EMPTY, OLD, 0, True, _INVALID),
        (State.EMPTY, OLD, 0, False, _INVALID),
        (State.COMPLETE_COMMIT, OLD, 0, True, NONE),
        (State.COMPLETE_COMMIT, OLD, 0, False, _INVALID),
        (State.COMPLETE_ABORT, OLD, 0, True, _INVALID),
        (State.COMPLETE_ABORT, OLD, 0, False, NONE),
        (State.EMPTY, NEW, 0, True, _INVALID),
        (State.COMPLETE_COMMIT, NEW, 0, True, _INVALID),
        (State.COMPLETE_ABORT, NEW, 0, True, _INVALID),
        (State.EMPTY, NEW, 1, True, _FENCED),
        (State.EMPTY, NEW, 1, False, _FENCED),
        (State.ONGOING, NEW, 1, True, _FENCED),
        (State.ONGOING, NEW, 1, False, _FENCED),
        (State.COMPLETE_COMMIT, NEW, 1, True, NONE),
        (State.COMPLETE_COMMIT, NEW, 1, False, _INVALID),
        (State.COMPLETE_ABORT, NEW, 1, True, _INVALID),
        (State.COMPLETE_ABORT, NEW, 1, False, NONE),
    ],
)
def test_an_end_that_changes_nothing_is_answered_as_kafka_does(
    state: TransactionState, version: int, epochs_ago: int, commit: bool, error: ErrorCode
) -> None:
    world = TransactionWorld()
    world.init()
    world.in_state(state, version)
    log_end = len(world.log)
    assert world.end(commit, version, producer_epoch=world.producer_epoch - epochs_ago).error is error
    assert len(world.log) == log_end


def test_what_is_decided_stays_decided() -> None:
    assert LEGAL_MOVES[State.PREPARE_COMMIT] == (State.COMPLETE_COMMIT,)
    assert LEGAL_MOVES[State.PREPARE_ABORT] == (State.COMPLETE_ABORT,)


def test_nothing_can_be_committed_twice_with_the_newer_flow() -> None:
    world = TransactionWorld()
    world.in_state(State.COMPLETE_COMMIT, NEW)
    assert world.end(True, NEW).error is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_a_producer_that_does_not_know_may_abort_what_never_began(state: TransactionState) -> None:
    world = TransactionWorld()
    world.in_state(state, NEW)
    world.pass_ms(7)
    epoch = world.producer_epoch
    assert world.end(False, NEW) == EndAnswer(NONE, FIRST_FRESH_ID, epoch + 1)
    assert world.last_record().start_ms == START_MS + 7
    assert world.markers[0].partitions == ()
    world.write_markers()
    assert world.state() is State.COMPLETE_ABORT


def test_a_used_up_epoch_ends_with_a_fresh_producer_id() -> None:
    world = TransactionWorld()
    world.with_epoch(LAST_EPOCH - 1, State.ONGOING)
    assert world.end(True, NEW) == EndAnswer(NONE, world.last_fresh_id, 0)
    record = world.last_record()
    assert (record.producer_id, record.producer_epoch) == (FIRST_FRESH_ID, LAST_EPOCH)
    assert record.next_producer_id == world.last_fresh_id
    fresh = world.last_fresh_id
    world.write_markers()
    record = world.last_record()
    assert (record.producer_id, record.producer_epoch, record.next_producer_id) == (fresh, 0, -1)
    again = world.end(True, NEW, producer_id=FIRST_FRESH_ID, producer_epoch=LAST_EPOCH - 1)
    assert again == EndAnswer(NONE, fresh, 0)


def test_the_producer_id_before_is_known_until_the_next_transaction_begins() -> None:
    world = TransactionWorld()
    world.with_epoch(LAST_EPOCH - 1, State.ONGOING)
    world.end(True, NEW)
    world.write_markers()
    assert world.record().previous_producer_id == FIRST_FRESH_ID
    world.add(A1)
    assert world.record().previous_producer_id == world.producer_id
    again = world.end(True, NEW, producer_id=FIRST_FRESH_ID, producer_epoch=LAST_EPOCH - 1)
    assert again.error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_older_flow_keeps_a_used_up_epoch() -> None:
    world = TransactionWorld()
    world.with_epoch(LAST_EPOCH - 1, State.ONGOING)
    world.end(True, OLD)
    world.write_markers()
    assert (world.record().producer_id, world.record().producer_epoch) == (FIRST_FRESH_ID, LAST_EPOCH - 1)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_another_producer_id_is_not_that_of_the_transactional_id(version: int) -> None:
    world = TransactionWorld()
    world.in_state(State.ONGOING)
    assert world.end(version=version, producer_id=7).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.end(version=version, transactional_id="").error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("version", "error"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_older_clients_hear_of_fencing_by_its_older_name(version: int, error: ErrorCode) -> None:
    world = TransactionWorld()
    world.in_state(State.ONGOING)
    assert world.end(version=version, producer_epoch=9).error is error


# Markers.


def test_news_of_other_markers_complete_nothing() -> None:
    world = TransactionWorld()
    world.in_state(State.PREPARE_COMMIT, NEW)
    world.ask(MarkersWritten("t", FIRST_FRESH_ID, 0))
    world.ask(MarkersWritten("t", 7, 1))
    world.ask(MarkersWritten("u", FIRST_FRESH_ID, 1))
    assert world.state() is State.PREPARE_COMMIT


def test_markers_that_are_written_twice_complete_once() -> None:
    world = TransactionWorld()
    world.in_state(State.PREPARE_COMMIT)
    markers = list(world.markers)
    world.write_markers()
    log_end = len(world.log)
    world.markers = markers
    world.write_markers()
    assert len(world.log) == log_end


@pytest.mark.parametrize("state", [State.PREPARE_COMMIT, State.PREPARE_ABORT])
def test_a_load_asks_for_the_markers_of_every_decided_end_again(state: TransactionState) -> None:
    world = TransactionWorld()
    world.in_state(state, NEW)
    asked = list(world.markers)
    world.crash()
    assert world.markers == asked
    world.write_markers()
    assert world.state() is (State.COMPLETE_COMMIT if state is State.PREPARE_COMMIT else State.COMPLETE_ABORT)


@pytest.mark.parametrize("state", [State.EMPTY, State.ONGOING, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_a_load_asks_for_no_other_markers(state: TransactionState) -> None:
    world = TransactionWorld()
    world.in_state(state)
    world.crash()
    assert (world.markers, world.state()) == ([], state)


def test_a_complete_that_the_log_refuses_is_decided_on_again_behind_the_same_markers() -> None:
    world = TransactionWorld()
    world.in_state(State.PREPARE_COMMIT)
    asked = list(world.markers)
    world.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    world.write_markers()
    assert (world.state(), world.markers) == (State.PREPARE_COMMIT, asked)
    world.write_markers()
    assert world.state() is State.COMPLETE_COMMIT


# Time.


def test_a_transaction_is_aborted_when_its_timeout_is_over_not_when_it_ends() -> None:
    world = TransactionWorld()
    world.in_state(State.ONGOING)
    world.pass_ms(TIMEOUT_MS)
    assert world.abort_timed_out() == []
    world.pass_ms(1)
    assert world.abort_timed_out() == ["t"]
    assert world.state() is State.PREPARE_ABORT
    assert world.last_record().producer_epoch == 1
    assert world.abort_timed_out() == []


def test_a_transaction_that_is_not_late_any_more_is_left_alone() -> None:
    world = TransactionWorld()
    world.in_state(State.ONGOING)
    world.pass_ms(TIMEOUT_MS)
    world.ask(AbortTimedOut("t", world.fresh()))
    assert world.state() is State.ONGOING


def test_the_timeout_runs_from_the_first_partition() -> None:
    world = TransactionWorld()
    world.in_state(State.ONGOING)
    world.pass_ms(TIMEOUT_MS - 1)
    world.add(A1)
    world.pass_ms(2)
    assert world.abort_timed_out() == ["t"]


def test_a_producer_that_timed_out_is_fenced_in_the_older_flow_and_told_so_in_the_newer() -> None:
    world = TransactionWorld()
    world.in_state(State.ONGOING)
    world.pass_ms(TIMEOUT_MS + 1)
    world.abort_timed_out()
    world.write_markers()
    assert world.end(True, OLD).error is ErrorCode.PRODUCER_FENCED
    assert world.end(True, NEW).error is ErrorCode.INVALID_TXN_STATE
    assert world.end(False, NEW) == EndAnswer(NONE, FIRST_FRESH_ID, 1)


def test_a_timeout_that_the_log_refuses_is_tried_again() -> None:
    world = TransactionWorld()
    world.in_state(State.ONGOING)
    world.pass_ms(TIMEOUT_MS + 1)
    world.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    world.abort_timed_out()
    assert world.state() is State.ONGOING
    assert world.abort_timed_out() == ["t"]
    assert world.state() is State.PREPARE_ABORT


# Expiration.


def test_a_transactional_id_is_forgotten_when_unused_for_long() -> None:
    world = TransactionWorld()
    world.init("t")
    world.pass_ms(1)
    world.init("u")
    world.pass_ms(WEEK_MS - 1)
    world.ask(ExpireTransactionalIds())
    assert list(world.coordinator.transactions) == ["u"]
    assert world.log[-1][1] is None
    world.crash()
    assert list(world.coordinator.transactions) == ["u"]


def test_what_is_forgotten_begins_anew_with_another_producer_id() -> None:
    world = TransactionWorld()
    world.init()
    world.pass_ms(WEEK_MS)
    world.ask(ExpireTransactionalIds())
    assert world.end().error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.init(as_known=True) == (NONE, world.last_fresh_id, 0)


def test_many_are_forgotten_in_writes_of_a_bounded_size() -> None:
    world = TransactionWorld()
    for number in range(2_500):
        world.log.append(Transaction.new(f"t{number}", number, TIMEOUT_MS, START_MS).encoded)
    world.crash()
    world.pass_ms(WEEK_MS)
    log_end = len(world.log)
    world.ask(ExpireTransactionalIds())
    assert world.coordinator.transactions == {}
    assert len(world.log) - log_end == 2_500


def test_a_write_of_tombstones_that_is_too_large_becomes_two() -> None:
    world = TransactionWorld()
    world.init("t")
    world.init("u")
    world.init("v")
    world.pass_ms(WEEK_MS)
    world.refuse_with = ErrorCode.MESSAGE_TOO_LARGE
    world.ask(ExpireTransactionalIds())
    assert world.coordinator.transactions == {}
