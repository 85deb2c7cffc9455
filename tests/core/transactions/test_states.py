"""What each state answers is what the table says: every request is put to a transaction in every state."""

from typing import Any

import pytest

from muster.codec.error_codes import ErrorCode
from muster.core.transactions.events import AbortTimedOut, Event, ExpireTransactionalIds, MarkersWritten
from muster.core.transactions.states import (
    ABORT,
    ABORT_2,
    ADD,
    AGAIN,
    COMMIT,
    COMMIT_2,
    DESCRIBE,
    EXPIRE,
    FENCED_PRODUCER,
    INIT,
    KAFKA_NAMES,
    LEGAL_MOVES,
    MARKERS,
    NEW,
    RULES,
    TIME_OUT,
    VERIFY,
    IllegalMove,
    Rule,
    Served,
    TransactionState,
)
from muster.core.transactions.transactions import Transaction
from tests.core.transactions import world as made
from tests.core.transactions.world import NO_ANSWER, START_MS, TransactionWorld

WEEK_MS = 604_800_000
OLDER_EPOCHS = 3
ENDS = {COMMIT: (True, 4), ABORT: (False, 4), COMMIT_2: (True, 5), ABORT_2: (False, 5)}
EVERY_STATE: tuple[TransactionState | None, ...] = (None, *TransactionState)


def answer_to(rule: Rule, state: TransactionState | None) -> ErrorCode | Served:
    """How a request is served, or the error that it hears."""
    world = TransactionWorld()
    if state is None:
        world.producer_id, world.producer_epoch = 7, 3
    else:
        for _ in range(OLDER_EPOCHS):
            world.init()
        world.in_state(state, made.OLD if rule.request in (COMMIT, ABORT) else made.NEW)
    before = world.coordinator.hard_state(), len(world.log), len(world.markers)
    answer = put(world, rule, state)
    error = ErrorCode.NONE if answer is NO_ANSWER else answer.error
    is_written, asks_for_markers = len(world.log) > before[1], len(world.markers) > before[2]
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and asks_for_markers:
        return Served.ABORTS
    if error is not ErrorCode.NONE:
        assert world.coordinator.hard_state() == before[0]
        return error
    if answer is NO_ANSWER and not is_written:
        return Served.NOTHING
    if is_written and world.log[-1][1] is None:
        return Served.FORGOTTEN
    if answer is NO_ANSWER:
        return Served.TIMES_OUT if asks_for_markers else Served.COMPLETES
    return Served.ENDS if asks_for_markers else Served.WRITTEN if is_written else Served.AT_ONCE


def put(world: TransactionWorld, rule: Rule, state: TransactionState | None) -> Any:
    epoch = world.producer_epoch
    if rule.who == AGAIN:
        epoch -= 1
    if rule.who == FENCED_PRODUCER:
        epoch -= OLDER_EPOCHS
    if rule.request in ENDS:
        return world.end(*ENDS[rule.request], producer_epoch=epoch)
    if rule.request == INIT:
        return world.init() if rule.who == NEW else world.init(as_known=True, producer_epoch=epoch)
    if rule.request in (ADD, VERIFY):
        return world.add(("b", 7), verify_only=rule.request == VERIFY, producer_epoch=epoch)
    if rule.request == DESCRIBE:
        return world.described()
    return world.ask(from_the_shell(world, rule.request, state))


def from_the_shell(world: TransactionWorld, request: str, state: TransactionState | None) -> Event:
    if request == MARKERS:
        known = (7, 3) if state is None else (world.record().producer_id, world.record().producer_epoch)
        return MarkersWritten("t", *known)
    if request == TIME_OUT:
        world.pass_ms(made.TIMEOUT_MS + 1)
        return AbortTimedOut("t", world.fresh())
    assert request == EXPIRE
    world.pass_ms(WEEK_MS)
    return ExpireTransactionalIds()


@pytest.mark.parametrize("state", EVERY_STATE, ids=lambda state: "unknown" if state is None else state.kafka_name)
@pytest.mark.parametrize("rule", RULES, ids=[f"{rule.request} of {rule.who}" for rule in RULES])
def test_every_state_answers_as_the_table_says(rule: Rule, state: TransactionState | None) -> None:
    assert answer_to(rule, state) == rule.by_state()[state]


def test_each_row_of_the_table_stands_once() -> None:
    assert len({(rule.request, rule.who) for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("came_from", TransactionState)
@pytest.mark.parametrize("to", TransactionState)
def test_only_legal_moves_are_made(came_from: TransactionState, to: TransactionState) -> None:
    transaction = Transaction("t", Transaction.new("t", 7, 1000, START_MS).record._replace(status=int(came_from)))
    if to in LEGAL_MOVES[came_from]:
        assert transaction._moved(to).state is to
    else:
        with pytest.raises(IllegalMove):
            transaction._moved(to)


def test_states_have_kafkas_names_and_numbers() -> None:
    assert [(state.value, state.kafka_name) for state in TransactionState] == list(enumerate(KAFKA_NAMES[:6]))
