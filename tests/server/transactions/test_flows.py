"""Transactions from end to end, over raw requests, in both flows that clients use."""

from collections.abc import Iterator

import pytest

from muster.broker import Broker
from muster.codec.error_codes import ErrorCode
from muster.protocol.apis import ApiKey
from tests.server.raw import Raw
from tests.server.records.talking import all_values
from tests.server.transactions.talking import FLOWS, Producer, committed_values, describe

E = ErrorCode


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
    name: str = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    broker.create_topic(name, partitions=2)
    return name


@pytest.fixture(params=FLOWS.values(), ids=FLOWS.keys())
def producer(raw: Raw, topic: str, request: pytest.FixtureRequest) -> Producer:
    return Producer(raw, f"id-{topic}", request.param).begin()


def test_what_is_committed_is_read_and_what_is_aborted_is_not(broker: Broker, producer: Producer, topic: str) -> None:
    producer.send(topic, 0, "a")
    producer.send(topic, 1, "b")
    assert (producer.state(), producer.end(commit=True)) == ("Ongoing", 0)
    producer.send(topic, 0, "never")
    assert producer.end(commit=False) == 0
    producer.send(topic, 0, "c")
    assert producer.end(commit=True) == 0
    raw = producer.raw
    wait_until_ended(producer)
    assert (committed_values(raw, topic, 0), committed_values(raw, topic, 1)) == (["a", "c"], ["b"])
    assert [value for value in all_values(raw, topic, 0) if value in "a never c"] == ["a", "never", "c"]


def wait_until_ended(producer: Producer) -> None:
    while producer.state().startswith("Prepare"):
        pass


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_count_with_their_transaction(broker: Broker, producer: Producer, topic: str, commit: bool) -> None:
    group = f"group-{topic}"
    broker.seed_commits(group, {(topic, 0): 1})
    assert producer.commit_offset(group, topic, 0, 7) == 0
    assert broker.committed(group) == {(topic, 0): 1}
    assert producer.end(commit=commit) == 0
    wait_until_ended(producer)
    assert broker.committed(group) == {(topic, 0): 7 if commit else 1}


def test_a_second_producer_fences_the_first(producer: Producer, raw: Raw, topic: str) -> None:
    producer.send(topic, 0, "a")
    second = Producer(raw, producer.transactional_id, producer.version).begin()
    assert (second.producer_id, second.epoch > producer.epoch) == (producer.producer_id, True)
    assert producer.write(topic, 0, "b") == E.INVALID_PRODUCER_EPOCH
    assert producer.end(commit=True) == E.PRODUCER_FENCED
    assert committed_values(raw, topic, 0) == []
    second.send(topic, 0, "c")
    assert second.end(commit=True) == 0
    wait_until_ended(second)
    assert committed_values(raw, topic, 0) == ["c"]


def test_a_batch_whose_partition_was_not_added_is_refused(raw: Raw, topic: str) -> None:
    producer = Producer(raw, f"id-{topic}", 0).begin()
    assert producer.write(topic, 0, "a") == E.TRANSACTION_ABORTABLE
    assert producer.add(topic, 1) == [0]
    assert producer.write(topic, 0, "a") == E.TRANSACTION_ABORTABLE
    assert producer.write(topic, 1, "a") == 0
    assert producer.write_offset("g", topic, 0, 1) == E.TRANSACTION_ABORTABLE


def test_partitions_that_are_not_there_keep_the_others_from_being_added(raw: Raw, topic: str) -> None:
    producer = Producer(raw, f"id-{topic}", 0).begin()
    assert producer.add(topic, 0, 2) == [E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.state() == "Empty"


def test_batches_that_are_sent_together_keep_their_order(raw: Raw, topic: str) -> None:
    """The first one waits until its partition is added; the others wait behind it."""
    producer = Producer(raw, f"id-{topic}", 2).begin()
    for number in range(20):
        raw.send(ApiKey.PRODUCE, 12, **producer.next_batch(topic, 0, str(number)))
    answers = [raw.hear(ApiKey.PRODUCE, 12)[1] for _ in range(20)]
    told = [answer["responses"][0]["partitionResponses"][0] for answer in answers]
    assert [(one["errorCode"], one["baseOffset"]) for one in told] == [(0, number) for number in range(20)]
    assert producer.end(commit=True) == 0
    wait_until_ended(producer)
    assert committed_values(raw, topic, 0) == [str(number) for number in range(20)]


def test_transactions_are_listed_and_described(producer: Producer, topic: str) -> None:
    raw = producer.raw
    producer.send(topic, 1, "a")
    told = describe(raw, producer.transactional_id)
    assert told["topics"] == [{"topic": topic, "partitions": [1]}]
    assert (told["producerId"], told["producerEpoch"]) == (producer.producer_id, producer.epoch)
    listed = raw.ask(ApiKey.LIST_TRANSACTIONS, 2, stateFilters=["Ongoing"], transactionalIdPattern=f"id-{topic[:20]}.*")
    assert producer.transactional_id in [one["transactionalId"] for one in listed["transactionStates"]]
    bad = raw.ask(ApiKey.LIST_TRANSACTIONS, 2, stateFilters=[], transactionalIdPattern="(")
    assert bad["errorCode"] == E.INVALID_REGULAR_EXPRESSION
    assert describe(raw, "nobody")["errorCode"] == E.TRANSACTIONAL_ID_NOT_FOUND


def test_a_transaction_that_is_open_for_too_long_is_aborted(broker: Broker, producer: Producer, topic: str) -> None:
    producer.send(topic, 0, "a")
    broker.clock.advance("61 s")
    broker.clock.advance("11 s")
    wait_until_ended(producer)
    assert producer.state() == "CompleteAbort"
    assert committed_values(producer.raw, topic, 0) == []
    assert producer.end(commit=True) == (E.INVALID_TXN_STATE if producer.version else E.PRODUCER_FENCED)
    assert producer.write(topic, 0, "b") == E.INVALID_PRODUCER_EPOCH


def test_an_operator_ends_a_transaction_that_hangs(raw: Raw, topic: str) -> None:
    producer = Producer(raw, f"id-{topic}", 0).begin()
    producer.send(topic, 0, "a")
    marker = {
        "producerId": producer.producer_id, "producerEpoch": producer.epoch, "transactionResult": False,
        "coordinatorEpoch": 0, "topics": [{"name": topic, "partitionIndexes": [0, 5]}],
    }  # fmt: skip
    answer = raw.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
    told = answer["markers"][0]["topics"][0]["partitions"]
    assert {one["partitionIndex"]: one["errorCode"] for one in told} == {0: 0, 5: E.UNKNOWN_TOPIC_OR_PARTITION}
    assert committed_values(raw, topic, 0) == []


def test_what_the_broker_can_do_is_told(raw: Raw) -> None:
    told = raw.ask(ApiKey.API_VERSIONS, 4, clientSoftwareName="t", clientSoftwareVersion="1")
    assert [(one["name"], one["maxVersionLevel"]) for one in told["finalizedFeatures"]] == [("transaction.version", 2)]
    assert {one["name"]: one["maxVersion"] for one in told["supportedFeatures"]}["transaction.version"] == 2
