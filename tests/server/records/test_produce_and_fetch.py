"""Records go in and come out: acks, waiting readers, idempotence, failing disks, deleted topics."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.broker import Broker
from muster.codec.error_codes import ErrorCode
from muster.protocol.apis import ApiKey
from tests.server.raw import Raw
from tests.server.records.talking import (
    FETCH,
    PRODUCE,
    all_values,
    batch,
    fetch,
    fetch_body,
    produce,
    produce_body,
    records_in,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def raw(broker: Broker) -> Iterator[Raw]:
    with Raw((broker.host, broker.port)) as raw:
        yield raw


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.replace("[", "-").rstrip("]")
    broker.create_topic(name, partitions=2)
    return name


@pytest.mark.parametrize("acks", [-1, 1])
def test_what_was_acknowledged_is_read_back(raw: Raw, topic: str, acks: int) -> None:
    assert produce(raw, topic, 0, batch("a", "b"), acks=acks) == (0, 0)
    assert produce(raw, topic, 0, batch("c"), acks=acks) == (0, 2)
    assert produce(raw, topic, 1, batch("d"), acks=acks) == (0, 0)
    assert (all_values(raw, topic, 0), all_values(raw, topic, 1)) == (["a", "b", "c"], ["d"])


def test_a_producer_that_wants_no_answer_gets_none(raw: Raw, topic: str) -> None:
    raw.send(ApiKey.PRODUCE, PRODUCE, **produce_body(topic, {0: batch("a")}, acks=0))
    while not all_values(raw, topic, 0):
        time.sleep(0.01)
    assert all_values(raw, topic, 0) == ["a"]


def test_a_producer_that_wants_no_answer_and_is_refused_is_sent_away(raw: Raw) -> None:
    raw.send(ApiKey.PRODUCE, PRODUCE, **produce_body("nowhere", {0: batch("a")}, acks=0))
    with pytest.raises(EOFError):
        raw.frame()


def test_pipelined_batches_keep_their_order(raw: Raw, topic: str) -> None:
    numbers = [raw.send(ApiKey.PRODUCE, PRODUCE, **produce_body(topic, {0: batch(str(n))})) for n in range(50)]
    answers = [raw.hear(ApiKey.PRODUCE, PRODUCE) for _ in numbers]
    assert [number for number, _ in answers] == numbers
    offsets = [answer["responses"][0]["partitionResponses"][0]["baseOffset"] for _, answer in answers]
    assert offsets == list(range(50))
    assert all_values(raw, topic, 0) == [str(n) for n in range(50)]


def test_a_reader_waits_until_there_is_something(broker: Broker, raw: Raw, topic: str) -> None:
    with Raw((broker.host, broker.port)) as reader:
        reader.send(ApiKey.FETCH, FETCH, **fetch_body(topic, {0: 0, 1: 0}, maxWaitMs=60_000))
        began = time.monotonic()
        produce(raw, topic, 1, batch("late"))
        _, answer = reader.hear(ApiKey.FETCH, FETCH)
    assert time.monotonic() - began < 30
    found = {one["partitionIndex"]: records_in(one["records"]) for one in answer["responses"][0]["partitions"]}
    assert [len(found[number]) for number in (0, 1)] == [0, 1]


def test_as_much_as_is_asked_for_and_one_batch_at_least(raw: Raw, topic: str) -> None:
    large, small = batch("x" * 10_000), batch("y" * 100)
    for partition in (0, 1):
        for data in (large, small, small):
            produce(raw, topic, partition, data)
    body = fetch_body(topic, {0: 0, 1: 0}, maxBytes=500)
    told = raw.ask(ApiKey.FETCH, FETCH, **body)["responses"][0]["partitions"]
    assert [len(records_in(one["records"])) for one in told] == [1, 0], "the first that has any gives one"
    body = fetch_body(topic, {0: 1, 1: 1}, maxBytes=len(small) * 3)
    told = raw.ask(ApiKey.FETCH, FETCH, **body)["responses"][0]["partitions"]
    assert [len(records_in(one["records"])) for one in told] == [2, 1]


def test_a_batch_sent_again_is_there_once(raw: Raw, topic: str) -> None:
    first = batch("a", "b", producer_id=9, producer_epoch=0, base_sequence=0)
    second = batch("c", producer_id=9, producer_epoch=0, base_sequence=2)
    assert produce(raw, topic, 0, first) == produce(raw, topic, 0, first) == (0, 0)
    assert produce(raw, topic, 0, second) == (0, 2)
    assert produce(raw, topic, 0, first) == (0, 0)
    gap = batch("e", producer_id=9, producer_epoch=0, base_sequence=4)
    assert produce(raw, topic, 0, gap) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert all_values(raw, topic, 0) == ["a", "b", "c"]


def test_a_batch_of_a_transaction_needs_a_transactional_id(raw: Raw, topic: str) -> None:
    data = batch("a", producer_id=9, producer_epoch=0, base_sequence=0, attributes=0x10)
    assert produce(raw, topic, 0, data)[0] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_reader_of_a_deleted_topic_is_told(broker: Broker, raw: Raw, topic: str) -> None:
    produce(raw, topic, 0, batch("a"))
    with Raw((broker.host, broker.port)) as reader:
        reader.send(ApiKey.FETCH, FETCH, **fetch_body(topic, {0: 1}, maxWaitMs=60_000))
        raw.ask(ApiKey.DELETE_TOPICS, 5, topicNames=[topic], timeoutMs=10_000)
        _, answer = reader.hear(ApiKey.FETCH, FETCH)
    (told,) = answer["responses"][0]["partitions"]
    # Its log goes first, then the topic; a reader may be told in between, and clients look for the topic again.
    assert told["errorCode"] in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert produce(raw, topic, 0, batch("b"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_offsets_topic_is_read_as_any_other_and_not_written(broker: Broker, raw: Raw) -> None:
    partition = 0
    told = fetch(raw, "__consumer_offsets", partition, 0)
    assert told["errorCode"] == 0
    assert produce(raw, "__consumer_offsets", partition, batch("a"))[0] == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_ids_of_producers_are_never_handed_out_twice(tmp_path: Path) -> None:
    ids = []
    for _ in range(3):
        with Broker(data=tmp_path / "data") as broker, Raw((broker.host, broker.port)) as raw:
            for _ in range(3):
                asked = {"transactionalId": None, "transactionTimeoutMs": 1_000}
                ids.append(raw.ask(ApiKey.INIT_PRODUCER_ID, 4, **asked)["producerId"])
    assert ids == [0, 1, 2, 1000, 1001, 1002, 2000, 2001, 2002]
