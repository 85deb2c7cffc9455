"""Produce: batches of records for partitions, and what became of each.

Versions
    3   the first one served (0 to 2 are advertised, see `protocol/apis.py`); transactional id
    5   log start offset in the answer
    8   which records of a batch are at fault, and a sentence about it
    9   flexible
    10  where the leader is
    13  topics by id

The bytes of a batch are not copied when a request is read: `records` is a view of the request.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Any, NamedTuple

from muster.codec.batches import HEADER_SIZE
from muster.codec.compression import CODEC_NAMES
from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.codec.records import CODEC_MASK, TRANSACTIONAL
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.protocol.reader import MAX_ELEMENTS
from muster.server.cluster.cluster import NO_OFFSET, Cluster
from muster.server.cluster.topics import INTERNAL_TOPICS, Topic

FIRST_WITH_IDS = 13
NO_ANSWER, WRITTEN, ALL = 0, 1, -1
"""`acks`: a client waits for nothing, for the leader's log, for all replicas that are in sync."""
NO_TIME = -1
FIRST_WITH_ZSTD = 7
MAGIC, ATTRIBUTES, WRITER = 16, 22, 43
"""Where they are in a batch; of the attributes the byte that matters. A writer is a producer id and its epoch."""
_WRITER, _SEQUENCE = Struct(">qh"), Struct(">i")
_BEFORE_SIZE, _SHORTEST = 12, 26
"""What the size of a batch does not count; what Kafka takes for the smallest size of any version."""


class PartitionData(NamedTuple):
    topic: str
    topic_id: bytes
    """Only one of the two is in a request, depending on its version."""
    partition: int
    records: memoryview


class ProduceRequest(NamedTuple):
    version: int
    acks: int
    timeout_ms: int
    transactional_id: str | None
    partitions: tuple[PartitionData, ...]


class Produced(NamedTuple):
    """What became of the batch of one partition."""

    error: ErrorCode
    base_offset: int = NO_OFFSET
    append_time_ms: int = NO_TIME
    start_offset: int = NO_OFFSET
    message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()


class ProduceAnswer(NamedTuple):
    request: ProduceRequest
    produced: tuple[Produced, ...]
    """As many as the request has partitions, in their order."""


def decode(
    version: int, data: Buffer, position: int = 0, end: int | None = None, max_elements: int = MAX_ELEMENTS
) -> ProduceRequest:
    """Of two batches for one partition the last one counts, as in Kafka."""
    body = decode_request(ApiKey.PRODUCE, version, data, position, end, max_elements=max_elements, leaves_records=True)
    view = memoryview(data)
    partitions: dict[tuple[str, bytes, int], PartitionData] = {}
    for topic in body["topicData"]:
        for one in topic["partitionData"]:
            key = topic["name"], topic["topicId"], one["index"]
            partitions[key] = PartitionData(*key, view[one["records"] or slice(0, 0)])
    return ProduceRequest(version, body["acks"], body["timeoutMs"], body["transactionalId"], tuple(partitions.values()))


def refusal(request: ProduceRequest) -> ErrorCode:
    """Why nothing of a request is taken; NONE if it may be."""
    if request.acks not in (NO_ANSWER, WRITTEN, ALL):
        return ErrorCode.INVALID_REQUIRED_ACKS
    writers = set(filter(None, (writer_of(one.records) for one in request.partitions)))
    if writers and request.transactional_id is None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING if len(writers) > 1 else ErrorCode.NONE


class Writer(NamedTuple):
    """Who has written a batch of a transaction."""

    producer_id: int
    producer_epoch: int


def writer_of(batch: memoryview | bytes) -> Writer | None:
    """None for a batch that is part of no transaction, for part of a batch, and for messages from before 0.11."""
    size = _whole_batch(batch)
    if size is None or size < HEADER_SIZE or batch[MAGIC] != 2 or not batch[ATTRIBUTES] & TRANSACTIONAL:
        return None
    return Writer(*_WRITER.unpack_from(batch, WRITER))


def sequence_of(batch: memoryview | bytes) -> int:
    """The first sequence number of a batch."""
    (sequence,) = _SEQUENCE.unpack_from(batch, WRITER + _WRITER.size)
    return int(sequence)


def one_batch(records: memoryview, version: int) -> memoryview | Produced:
    """The batch that is in a request for a partition, and nothing that may lie behind it. Kafka wants exactly one."""
    size = _whole_batch(records)
    if size is None:
        return Produced(ErrorCode.INVALID_RECORD, message="There is no whole batch.")
    if size < _SHORTEST:
        return Produced(ErrorCode.CORRUPT_MESSAGE, message=f"A batch of {size} bytes.")
    if _whole_batch(records[size:]) is not None:
        return Produced(ErrorCode.INVALID_RECORD, message="There is more than one batch for a partition.")
    if records[MAGIC] > 2:
        return Produced(ErrorCode.CORRUPT_MESSAGE, message=f"A batch of magic {records[MAGIC]}.")
    if records[MAGIC] != 2:
        return Produced(ErrorCode.INVALID_RECORD, message=f"A batch of magic {records[MAGIC]}; 2 is what is taken.")
    codec = records[ATTRIBUTES] & CODEC_MASK
    if version < FIRST_WITH_ZSTD and codec >= CODEC_NAMES.index("zstd"):
        if codec < len(CODEC_NAMES):
            return Produced(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message="zstd needs Produce version 7.")
        return Produced(ErrorCode.UNKNOWN_SERVER_ERROR, message=f"There is no compression codec {codec}.")
    return records[:size]


def _whole_batch(records: memoryview | bytes) -> int | None:
    """The size of the first batch; None if there is none, or only part of one."""
    if len(records) <= MAGIC:
        return None
    size = int.from_bytes(records[8:12], "big", signed=True) + _BEFORE_SIZE
    return size if size <= len(records) else None


def found(asked: PartitionData, request: ProduceRequest, cluster: Cluster) -> Topic | Produced:
    """The topic that a batch is for, or why it is not taken, before anything is known of its bytes.

    `min.insync.replicas` refuses nothing: since 4.0 no more are waited for than a partition has, and here it has one.
    """
    by_id = request.version >= FIRST_WITH_IDS
    topic = cluster.topics.by_id(asked.topic_id) if by_id else cluster.topics.get(asked.topic)
    if topic is None:
        return Produced(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not 0 <= asked.partition < topic.partitions:
        return Produced(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.name in INTERNAL_TOPICS:
        return Produced(ErrorCode.INVALID_TOPIC_EXCEPTION)
    return topic


def encode(version: int, correlation_id: int, answer: ProduceAnswer) -> bytes:
    responses: list[dict[str, Any]] = []
    for topic, topic_id, partitions in _by_topic(answer):
        responses.append({"name": topic, "topicId": topic_id, "partitionResponses": partitions})
    return encode_response(ApiKey.PRODUCE, version, correlation_id, {"responses": responses})


def _by_topic(answer: ProduceAnswer) -> Iterable[tuple[str, bytes, list[dict[str, Any]]]]:
    topics: dict[tuple[str, bytes], list[dict[str, Any]]] = {}
    for asked, produced in zip(answer.request.partitions, answer.produced, strict=True):
        topics.setdefault((asked.topic, asked.topic_id), []).append(_encoded(asked.partition, produced))
    return ((topic, topic_id, partitions) for (topic, topic_id), partitions in topics.items())


def _encoded(partition: int, produced: Produced) -> dict[str, Any]:
    return {
        "index": partition,
        "errorCode": produced.error,
        "baseOffset": produced.base_offset,
        "logAppendTimeMs": produced.append_time_ms,
        "logStartOffset": produced.start_offset,
        "recordErrors": [
            {"batchIndex": number, "batchIndexErrorMessage": message} for number, message in produced.record_errors
        ],
        "errorMessage": produced.message,
    }
