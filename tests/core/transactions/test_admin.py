"""Describing and listing transactions."""

from muster.codec.error_codes import ErrorCode
from muster.core.transactions.events import DescribedTransaction, ListTransactions, ListTransactionsAnswer
from muster.core.transactions.states import TransactionState
from tests.core.transactions.world import A0, FIRST_FRESH_ID, START_MS, TIMEOUT_MS, TransactionWorld


def listed(world: TransactionWorld, **filters: object) -> list[str]:
    answer: ListTransactionsAnswer = world.ask(ListTransactions("client", **filters))  # type: ignore[arg-type]
    assert answer.error is ErrorCode.NONE
    return [each.transactional_id for each in answer.transactions]


def test_a_transaction_is_described_as_its_record_has_it() -> None:
    world = TransactionWorld()
    world.in_state(TransactionState.ONGOING)
    assert world.described() == DescribedTransaction(
        ErrorCode.NONE, "Ongoing", TIMEOUT_MS, START_MS, FIRST_FRESH_ID, 0, (A0,)
    )


def test_what_is_not_there_is_not_found_and_no_name_is_no_question() -> None:
    world = TransactionWorld()
    assert world.described("t") == DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    assert world.described("") == DescribedTransaction(ErrorCode.INVALID_REQUEST)


def two_of_them() -> TransactionWorld:
    """t is Ongoing for 10 ms, u is Empty."""
    world = TransactionWorld()
    world.in_state(TransactionState.ONGOING)
    world.init("u")
    world.pass_ms(10)
    return world


def test_all_are_listed_with_producer_id_and_state() -> None:
    answer = two_of_them().ask(ListTransactions("client"))
    assert answer == ListTransactionsAnswer(
        ErrorCode.NONE, (), (("t", FIRST_FRESH_ID, "Ongoing"), ("u", FIRST_FRESH_ID + 1, "Empty"))
    )


def test_filters_leave_out_what_does_not_pass_all_of_them() -> None:
    world = two_of_them()
    assert listed(world, states=("Ongoing",)) == ["t"]
    assert listed(world, states=("Ongoing", "Empty")) == ["t", "u"]
    assert listed(world, states=("ongoing",)) == []
    assert listed(world, producer_ids=frozenset({FIRST_FRESH_ID + 1, 7})) == ["u"]
    assert listed(world, producer_ids=frozenset({FIRST_FRESH_ID + 1}), states=("Ongoing",)) == []


def test_a_duration_must_be_longer_and_what_never_began_lasts_for_ever() -> None:
    world = two_of_them()
    assert listed(world, min_duration_ms=0) == ["t", "u"]
    assert listed(world, min_duration_ms=9) == ["t", "u"]
    assert listed(world, min_duration_ms=10) == ["u"]


def test_names_that_are_no_states_are_told_and_match_nothing() -> None:
    answer = two_of_them().ask(ListTransactions("client", ("Open", "Dead", "PrepareEpochFence")))
    assert answer == ListTransactionsAnswer(ErrorCode.NONE, ("Open",), ())
