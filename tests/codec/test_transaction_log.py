"""Records of __transaction_state: bytes laid out by hand, and what Kafka's own classes make of ours."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.codec.transaction_log import (
    TransactionKey,
    TransactionValue,
    UnknownTransactionKey,
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
)
from muster.errors import Truncated, UnsupportedVersion
from tests.codec.golden_bytes import golden
from tests.codec.strategies import INT32, INT64, TEXT, bounded
from tests.kit.java.compiled import start
from tests.kit.kafka import require_kafka

GOLDEN = golden("transactions.hex")
NOON = 1600000000000
PARTITIONS = (("a", 0), ("a", 2), ("b", 1))
EMPTY, ONGOING, PREPARE_COMMIT = 0, 1, 2

VALUES = {
    "empty-v0": (0, TransactionValue(7, 3, 60000, EMPTY, (), NOON)),
    "ongoing-v0": (0, TransactionValue(7, 3, 60000, ONGOING, PARTITIONS, NOON, NOON - 1000)),
    "empty-v1": (1, TransactionValue(7, 3, 60000, EMPTY, (), NOON, previous_producer_id=7)),
    "ongoing-v1": (
        1,
        TransactionValue(7, 3, 60000, ONGOING, PARTITIONS, NOON, NOON - 1000, previous_producer_id=7, client_version=2),
    ),
    "overflow-v1": (
        1,
        TransactionValue(
            7, 32767, 60000, PREPARE_COMMIT, (("a", 0),), NOON, NOON - 1000,
            previous_producer_id=7, next_producer_id=8, client_version=2,
        ),
    ),
    "two-phase-v1": (
        1,
        TransactionValue(
            7, 3, 2**31 - 1, ONGOING, (), NOON, NOON - 1000, next_producer_epoch=4, unknown_tags=((9, b"\xff"),)
        ),
    ),
}  # fmt: skip

INT16 = st.integers(-(2**15), 2**15 - 1)
TOPICS = st.lists(
    st.tuples(TEXT, st.lists(INT32, min_size=1, max_size=3)), max_size=3, unique_by=lambda topic: topic[0]
)
PARTITION_SETS = TOPICS.map(lambda topics: tuple([(name, each) for name, partitions in topics for each in partitions]))
MADE_UP = st.builds(
    TransactionValue,
    INT64,
    INT16,
    INT32,
    st.integers(1, 7),
    PARTITION_SETS,
    INT64,
    INT64,
    INT64,
    INT64,
    INT16,
    INT16,
    unknown_tags=st.just(()),
)


@pytest.mark.parametrize("name", VALUES)
def test_values_read_and_write_as_laid_out_by_hand(name: str) -> None:
    version, value = VALUES[name]
    assert decode_transaction_value(GOLDEN[name]) == (version, value)
    assert encode_transaction_value(value, version) == GOLDEN[name]
    for cut in range(len(GOLDEN[name])):
        with pytest.raises(Truncated):
            decode_transaction_value(GOLDEN[name][:cut])


def test_keys_read_and_write_as_laid_out_by_hand() -> None:
    assert decode_transaction_key(GOLDEN["key"]) == TransactionKey("t1")
    assert encode_transaction_key(TransactionKey("t1")) == GOLDEN["key"]
    for cut in range(len(GOLDEN["key"])):
        with pytest.raises(Truncated):
            decode_transaction_key(GOLDEN["key"][:cut])


def test_a_key_of_another_kind_is_kept() -> None:
    key = decode_transaction_key(GOLDEN["key-unknown"])
    assert key == UnknownTransactionKey(1, GOLDEN["key-unknown"])
    assert encode_transaction_key(key) == GOLDEN["key-unknown"]


@pytest.mark.parametrize("version", [-1, 2])
def test_a_value_of_a_newer_broker_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        decode_transaction_value(version.to_bytes(2, "big", signed=True) + GOLDEN["empty-v1"][2:])
    with pytest.raises(UnsupportedVersion):
        encode_transaction_value(VALUES["empty-v1"][1], version)


@bounded
@given(MADE_UP)
def test_version_1_brings_everything_back(value: TransactionValue) -> None:
    assert decode_transaction_value(encode_transaction_value(value)) == (1, value)


def test_version_0_drops_what_it_cannot_hold() -> None:
    value = VALUES["overflow-v1"][1]
    _, read = decode_transaction_value(encode_transaction_value(value, 0))
    assert read == value._replace(previous_producer_id=-1, next_producer_id=-1, client_version=0)


@pytest.mark.kafka
def test_kafkas_own_classes_read_and_write_the_same() -> None:
    values = made_up(150)
    records = [("value", encode_transaction_value(value, version)) for value in values for version in (0, 1)]
    records += [("value", GOLDEN[name]) for name in VALUES]
    keys = [TransactionKey("t1"), TransactionKey("消"), TransactionKey("x" * 300)]
    records += [("key", encode_transaction_key(key)) for key in keys]
    lines = asked("".join(f"{kind} {data.hex()}\n" for kind, data in records))
    assert len(lines) == len(records)
    for (kind, data), line in zip(records, lines, strict=True):
        text, written = line.split("\t")
        assert written == data.hex()
        if kind == "key":
            assert json.loads(text) == {"transactionalId": decode_transaction_key(data)[0]}
        else:
            assert json.loads(text) == as_kafka_says(*decode_transaction_value(data))


def made_up(count: int) -> list[TransactionValue]:
    """As many values as the property tests make up, with names that Java can hold."""
    made: list[TransactionValue] = []

    @settings(bounded, max_examples=count, database=None, derandomize=True)
    @given(MADE_UP)
    def make(value: TransactionValue) -> None:
        if not any("\ud800" <= letter <= "\udfff" for topic, _ in value.partitions for letter in topic):
            made.append(value)

    make()
    assert len(made) > count / 2
    return made


def asked(records: str) -> list[str]:
    program = start(require_kafka(), "TransactionRecords")
    out, errors = program.communicate(records, timeout=60)
    assert program.returncode == 0, errors
    return out.removesuffix("\n").split("\n")  # names have line separators of Unicode


def as_kafka_says(version: int, value: TransactionValue) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for topic, partition in value.partitions:
        topics.setdefault(topic, []).append(partition)
    said = {
        "producerId": value.producer_id,
        "producerEpoch": value.producer_epoch,
        "transactionTimeoutMs": value.timeout_ms,
        "transactionStatus": value.status,
        "transactionPartitions": None
        if value.status == EMPTY
        else [{"topic": topic, "partitionIds": ids} for topic, ids in topics.items()],
        "transactionLastUpdateTimestampMs": value.update_ms,
        "transactionStartTimestampMs": value.start_ms,
    }
    tagged = {
        "previousProducerId": (value.previous_producer_id, -1),
        "nextProducerId": (value.next_producer_id, -1),
        "nextProducerEpoch": (value.next_producer_epoch, -1),
        "clientTransactionVersion": (value.client_version, 0),
    }
    return said | {name: held for name, (held, default) in tagged.items() if version == 1 and held != default}
