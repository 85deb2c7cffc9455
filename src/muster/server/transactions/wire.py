"""Requests about transactions, and their answers, by the layouts of the protocol.

AddPartitionsToTxn
    0 to 3  one transaction of a producer
    4, 5    several, asked for by brokers; each may only be verified
TxnOffsetCommit
    3       the member that commits
    5       the partition of the group is added with it
EndTxn
    5       producer id and epoch to go on with
ListTransactions
    1, 2    at least so long; a pattern of ids
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.codec.transaction_log import TopicPartition
from muster.core.events import CommitAnswer, CommittedPartition, TxnOffsetCommit
from muster.core.transactions.events import (
    DescribedTransaction,
    DescribeTransaction,
    EndAnswer,
    EndTxn,
    InitAnswer,
    InitProducerId,
    ListTransactions,
    ListTransactionsAnswer,
)
from muster.core.transactions.writes import WriteMarkers
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.server.wire import TopicNames

FIRST_WITH_SEVERAL = 4
NO_ID = -1


class ToAdd(NamedTuple):
    """Partitions for one transaction, as a request names them."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: tuple[tuple[str, tuple[int, ...]], ...]
    """As they came: the answer has the same shape, whatever is in it twice."""
    partitions: tuple[TopicPartition, ...]
    """Each once."""


def _shaped(topics: Iterable[Any]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple([(topic["name"], tuple(topic["partitions"])) for topic in topics])


def _named(topics: Iterable[Any]) -> tuple[TopicPartition, ...]:
    """Each partition once, in the order of the request."""
    return tuple(dict.fromkeys((topic["name"], number) for topic in topics for number in topic["partitionIndexes"]))


def decode_add_partitions(version: int, data: Buffer, position: int, end: int) -> list[ToAdd]:
    body = decode_request(ApiKey.ADD_PARTITIONS_TO_TXN, version, data, position, end)
    if version >= FIRST_WITH_SEVERAL:
        return [
            _to_add(one["transactionalId"], one["producerId"], one["producerEpoch"], one["verifyOnly"], one["topics"])
            for one in body["transactions"]
        ]
    return [
        _to_add(
            body["v3AndBelowTransactionalId"], body["v3AndBelowProducerId"], body["v3AndBelowProducerEpoch"], False,
            body["v3AndBelowTopics"],
        )
    ]  # fmt: skip


def _to_add(
    transactional_id: str, producer_id: int, producer_epoch: int, verify_only: bool, topics: Iterable[Any]
) -> ToAdd:
    shaped = _shaped(topics)
    partitions = tuple(dict.fromkeys((topic, number) for topic, numbers in shaped for number in numbers))
    return ToAdd(transactional_id, producer_id, producer_epoch, verify_only, shaped, partitions)


def encode_add_partitions(
    version: int, correlation_id: int, asked: Sequence[ToAdd], errors: Sequence[Mapping[TopicPartition, ErrorCode]]
) -> bytes:
    """`errors` has one for each partition of each transaction."""
    results = [_by_topic(one, of_one) for one, of_one in zip(asked, errors, strict=True)]
    if version >= FIRST_WITH_SEVERAL:
        transactions = [
            {"transactionalId": one.transactional_id, "topicResults": topics}
            for one, topics in zip(asked, results, strict=True)
        ]
        body: dict[str, Any] = {"resultsByTransaction": transactions}
    else:
        body = {"resultsByTopicV3AndBelow": results[0]}
    return encode_response(ApiKey.ADD_PARTITIONS_TO_TXN, version, correlation_id, body)


def _by_topic(asked: ToAdd, errors: Mapping[TopicPartition, ErrorCode]) -> list[dict[str, Any]]:
    return [
        {
            "name": topic,
            "resultsByPartition": [
                {"partitionIndex": one, "partitionErrorCode": errors[topic, one]} for one in numbers
            ],
        }
        for topic, numbers in asked.topics
    ]


class OffsetsToAdd(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


def decode_add_offsets(version: int, data: Buffer, position: int, end: int) -> OffsetsToAdd:
    body = decode_request(ApiKey.ADD_OFFSETS_TO_TXN, version, data, position, end)
    return OffsetsToAdd(body["transactionalId"], body["producerId"], body["producerEpoch"], body["groupId"])


def encode_add_offsets(version: int, correlation_id: int, error: ErrorCode) -> bytes:
    return encode_response(ApiKey.ADD_OFFSETS_TO_TXN, version, correlation_id, {"errorCode": error})


def decode_end_txn(version: int, data: Buffer, position: int, end: int) -> EndTxn:
    body = decode_request(ApiKey.END_TXN, version, data, position, end)
    return EndTxn(None, body["transactionalId"], body["producerId"], body["producerEpoch"], body["committed"], version)


def encode_end_txn(version: int, correlation_id: int, answer: EndAnswer) -> bytes:
    body = {"errorCode": answer.error, "producerId": answer.producer_id, "producerEpoch": answer.producer_epoch}
    return encode_response(ApiKey.END_TXN, version, correlation_id, body)


def decode_init_producer_id(version: int, data: Buffer, position: int, end: int) -> InitProducerId | None:
    """None where there is no transactional id: such a producer has no transactions."""
    body = decode_request(ApiKey.INIT_PRODUCER_ID, version, data, position, end)
    if body["transactionalId"] is None:
        return None
    return InitProducerId(
        None, body["transactionalId"], body["transactionTimeoutMs"], NO_ID, body["producerId"], body["producerEpoch"],
        version, is_two_phase=body["enable2Pc"], keeps_prepared=body["keepPreparedTxn"],
    )  # fmt: skip


def encode_init_producer_id(version: int, correlation_id: int, answer: InitAnswer) -> bytes:
    body = {"errorCode": answer.error, "producerId": answer.producer_id, "producerEpoch": answer.producer_epoch}
    return encode_response(ApiKey.INIT_PRODUCER_ID, version, correlation_id, body)


class CommitRequest(NamedTuple):
    """A TxnOffsetCommit; `answered` are its topics and partitions with the errors that are known already."""

    transactional_id: str
    event: TxnOffsetCommit
    answered: list[tuple[str, list[dict[str, int]]]]


def decode_txn_offset_commit(topics: TopicNames, version: int, data: Buffer, position: int, end: int) -> CommitRequest:
    """Partitions that do not exist are refused here, and are not part of the event; the answer begins with them."""
    body = decode_request(ApiKey.TXN_OFFSET_COMMIT, version, data, position, end)
    committed: list[CommittedPartition] = []
    known: dict[str, list[dict[str, int]]] = {}
    unknown: dict[str, list[dict[str, int]]] = {}
    for topic in body["topics"]:
        name = topic["name"]
        topic_id, partition_count = topics.by_name.get(name) or (bytes(16), 0)
        for one in topic["partitions"]:
            index = one["partitionIndex"]
            is_known = 0 <= index < partition_count
            error = ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answered = known if is_known else unknown
            answered.setdefault(name, []).append({"partitionIndex": index, "errorCode": error})
            if is_known:
                committed.append(
                    CommittedPartition(
                        name, index, one["committedOffset"], one["committedLeaderEpoch"], one["committedMetadata"],
                        topic_id,
                    )
                )  # fmt: skip
    event = TxnOffsetCommit(
        None, body["groupId"], body["producerId"], body["producerEpoch"], tuple(committed),
        body["generationId"], body["memberId"], body["groupInstanceId"],
    )  # fmt: skip
    in_order = [(name, unknown.get(name, []) + known.get(name, [])) for name in dict.fromkeys((*unknown, *known))]
    return CommitRequest(body["transactionalId"], event, in_order)


FIRST_THAT_KNOWS_LOADING = 2


def encode_txn_offset_commit(version: int, correlation_id: int, asked: CommitRequest, answer: CommitAnswer) -> bytes:
    """Producers before version 2 stop at COORDINATOR_LOAD_IN_PROGRESS; they are told another thing."""
    accepted = [one for _, partitions in asked.answered for one in partitions if not one["errorCode"]]
    errors = answer.errors or ErrorCode.NONE
    for number, one in enumerate(accepted):
        error = errors if isinstance(errors, ErrorCode) else errors[number]
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_THAT_KNOWS_LOADING:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        one["errorCode"] = error
    topics = [{"name": name, "partitions": partitions} for name, partitions in asked.answered]
    return encode_response(ApiKey.TXN_OFFSET_COMMIT, version, correlation_id, {"topics": topics})


def decode_write_markers(version: int, data: Buffer, position: int, end: int) -> list[WriteMarkers]:
    body = decode_request(ApiKey.WRITE_TXN_MARKERS, version, data, position, end)
    return [
        WriteMarkers(
            "", one["producerId"], one["producerEpoch"], one["transactionResult"], one["coordinatorEpoch"],
            _named(one["topics"]), one["transactionVersion"],
        )
        for one in body["markers"]
    ]  # fmt: skip


def encode_write_markers(
    version: int, correlation_id: int, asked: Sequence[WriteMarkers], errors: Sequence[Sequence[ErrorCode]]
) -> bytes:
    markers = []
    for one, of_one in zip(asked, errors, strict=True):
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, number), error in zip(one.partitions, of_one, strict=True):
            topics.setdefault(topic, []).append({"partitionIndex": number, "errorCode": error})
        answered = [{"name": topic, "partitions": of_topic} for topic, of_topic in topics.items()]
        markers.append({"producerId": one.producer_id, "topics": answered})
    return encode_response(ApiKey.WRITE_TXN_MARKERS, version, correlation_id, {"markers": markers})


def decode_describe(version: int, data: Buffer, position: int, end: int) -> list[DescribeTransaction]:
    body = decode_request(ApiKey.DESCRIBE_TRANSACTIONS, version, data, position, end)
    return [DescribeTransaction(None, transactional_id) for transactional_id in body["transactionalIds"]]


def encode_describe(
    version: int, correlation_id: int, asked: Sequence[DescribeTransaction], answers: Sequence[DescribedTransaction]
) -> bytes:
    states = [_described(one.transactional_id, answer) for one, answer in zip(asked, answers, strict=True)]
    return encode_response(ApiKey.DESCRIBE_TRANSACTIONS, version, correlation_id, {"transactionStates": states})


def _described(transactional_id: str, answer: DescribedTransaction) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for topic, number in answer.partitions:
        topics.setdefault(topic, []).append(number)
    return {
        "errorCode": answer.error,
        "transactionalId": transactional_id,
        "transactionState": answer.state,
        "transactionTimeoutMs": answer.timeout_ms,
        "transactionStartTimeMs": answer.start_ms,
        "producerId": answer.producer_id,
        "producerEpoch": answer.producer_epoch,
        "topics": [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()],
    }


def described_bytes(answer: DescribedTransaction) -> int:
    """About as many as the answer takes."""
    return 64 + sum(len(topic) + 8 for topic, _ in answer.partitions)


def listed_bytes(answer: ListTransactionsAnswer) -> int:
    """About as many as the answer takes."""
    return sum(32 + len(one.transactional_id) for one in answer.transactions)


class ListRequest(NamedTuple):
    event: ListTransactions
    pattern: str | None


def decode_list(version: int, data: Buffer, position: int, end: int) -> ListRequest:
    body = decode_request(ApiKey.LIST_TRANSACTIONS, version, data, position, end)
    event = ListTransactions(
        None, tuple(body["stateFilters"]), frozenset(body["producerIdFilters"]), body["durationFilter"]
    )
    return ListRequest(event, body["transactionalIdPattern"])


def encode_list(version: int, correlation_id: int, answer: ListTransactionsAnswer) -> bytes:
    states = [
        {"transactionalId": one.transactional_id, "producerId": one.producer_id, "transactionState": one.state}
        for one in answer.transactions
    ]
    body = {
        "errorCode": answer.error, "unknownStateFilters": list(answer.unknown_states), "transactionStates": states,
    }  # fmt: skip
    return encode_response(ApiKey.LIST_TRANSACTIONS, version, correlation_id, body)
