"""ListTransactions where there are many transactional ids, and with patterns that are much work."""

import random
import select
from collections.abc import Iterator
from typing import Any

import pytest

from muster.broker import Broker
from muster.codec.error_codes import ErrorCode
from muster.core.transactions.transactions import Transaction
from muster.protocol.apis import ApiKey
from tests.server.raw import Raw
from tests.server.transactions.inside import inside
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


def test_a_pattern_that_is_too_much_work_is_given_up_and_others_are_served_meanwhile(broker: Broker, raw: Raw) -> None:
    raw.send(ApiKey.LIST_TRANSACTIONS, 2, transactionalIdPattern=HOSTILE)
    with Raw((broker.host, broker.port)) as other:
        assert other.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactionalIds=["worker"])["transactionStates"]
    assert select.select([raw.socket], [], [], 0)[0] == [], "it is not done yet"
    assert raw.hear(ApiKey.LIST_TRANSACTIONS, 2)[1]["errorCode"] == ErrorCode.POLICY_VIOLATION
