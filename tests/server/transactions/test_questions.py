"""ListTransactions where there are many transactional ids, and with patterns that are much work."""

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from muster.broker import Broker
from muster.codec.error_codes import ErrorCode
from muster.core.transactions.transactions import Transaction
from muster.protocol.apis import ApiKey
from muster.server.slices import Slices
from muster.server.transactions import patterns, questions
from tests.server.raw import Raw
from tests.server.transactions.inside import WITHIN_S, inside
from tests.server.transactions.talking import Producer

MANY = 3_000
HOSTILE = "(a|b)*a(a|b){300}c"
"""A set of states for nearly every beginning of an id."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(transaction_state_log_num_partitions=1, muster_max_response_bytes=150_000) as broker:
        with Raw((broker.host, broker.port)) as raw:
            Producer(raw, "worker", 2).begin()
        inside(broker, put_many)
        yield broker


def put_many(parts: Any) -> None:
    known = parts.transactions.led.by_number[0].coordinator.transactions
    chance = random.Random(1)
    for number in range(MANY):
        known[f"many-{number}"] = Transaction.new(f"many-{number}", 1000 + number, 60_000, 1)
    for _ in range(100):
        name = "".join(chance.choices("ab", k=600))
        known[name] = Transaction.new(name, 1, 60_000, 1)


@pytest.fixture
def raw(broker: Broker) -> Iterator[Raw]:
    with Raw((broker.host, broker.port)) as raw:
        yield raw


def listed(raw: Raw, **filters: Any) -> list[str]:
    answer = raw.ask(ApiKey.LIST_TRANSACTIONS, 2, **filters)
    assert answer["errorCode"] == 0
    return [one["transactionalId"] for one in answer["transactionStates"]]


def test_many_are_listed_as_far_as_there_is_room_in_an_answer(raw: Raw) -> None:
    assert raw.ask(ApiKey.LIST_TRANSACTIONS, 2)["errorCode"] == ErrorCode.POLICY_VIOLATION
    assert listed(raw, producerIdFilters=list(range(1000, 1000 + MANY))) == [f"many-{n}" for n in range(MANY)]
    assert listed(raw, producerIdFilters=[1005, *range(10**6, 10**6 + MANY)]) == ["many-5"]
    assert listed(raw, stateFilters=["Ongoing", *(f"no state {number}" for number in range(MANY))]) == []


def test_those_that_match_a_pattern(raw: Raw) -> None:
    assert listed(raw, transactionalIdPattern="many-1?7") == ["many-7", "many-17"]
    answer = raw.ask(ApiKey.LIST_TRANSACTIONS, 2, transactionalIdPattern="many-(")
    assert answer["errorCode"] == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_pattern_that_is_too_much_work_is_given_up(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MOST_LOOKED_AT", 50_000)
    answer = raw.ask(ApiKey.LIST_TRANSACTIONS, 2, transactionalIdPattern=HOSTILE)
    assert answer["errorCode"] == ErrorCode.POLICY_VIOLATION


def test_others_are_served_while_ids_are_matched(broker: Broker, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on = threading.Event()
    matching = questions._matching

    def held(*given: Any) -> Slices[Any]:
        deadline = time.monotonic() + WITHIN_S
        while not may_go_on.is_set():
            assert time.monotonic() < deadline
            yield
        return (yield from matching(*given))

    monkeypatch.setattr(questions, "_matching", held)
    raw.send(ApiKey.LIST_TRANSACTIONS, 2, transactionalIdPattern="work.*")
    with Raw((broker.host, broker.port)) as other:
        assert other.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactionalIds=["worker"])["transactionStates"]
    may_go_on.set()
    (told,) = raw.hear(ApiKey.LIST_TRANSACTIONS, 2)[1]["transactionStates"]
    assert told["transactionalId"] == "worker"
