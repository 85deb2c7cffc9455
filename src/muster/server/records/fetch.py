"""Fetch: records from partitions, from an offset each, as they lie in the logs; a consumer may wait for some.

Versions
    4   the first one served
    5   log start offset
    7   sessions, forgotten topics
    9   current leader epoch
    11  rack
    12  flexible; the epoch of the last record the consumer has, and an answer if its log and ours have parted
    13  topics by id
    15  a replica says who it is in another place
    16  where the leader is, for one who asks with an outdated epoch
    17, 18  more about replicas

A request is answered at once, or parked: `handle` says which. Whoever parks it calls `complete` when the deadline has
come, or when something happens to a topic that it waits for; and looks whether it `is_enough` when a log has grown.

Batches are handed out whole. The first partition that has records gives one batch at least, however large it is, so
that no consumer is stuck before it; all others keep to what the request allows.

Which partitions a request is about, if it is one of a session, `fetch_sessions.py` knows.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from muster.codec.batches import read_header
from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.errors import CodecError, LogDamaged
from muster.log.reads import NOTHING
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.segments.indexes import AbortedTransaction
from muster.server.cluster.cluster import (
    NO_EPOCH,
    NO_OFFSET,
    UNKNOWN_EPOCH_END,
    Cluster,
    EpochEnd,
    Node,
    PartitionOffsets,
    epoch_problem,
)
from muster.server.cluster.list_offsets import READ_COMMITTED, READ_UNCOMMITTED
from muster.server.cluster.topics import Topic

FIRST_WITH_IDS = 13
_FIRST_WITH_LEADER = 16
_KNOWS_THE_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class PartitionAsked(NamedTuple):
    topic: str
    topic_id: bytes
    """Only one of the two is in a request, depending on its version."""
    partition: int
    offset: int
    leader_epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    max_bytes: int = 1 << 20

    @property
    def key(self) -> tuple[str, bytes, int]:
        return self.topic, self.topic_id, self.partition


class FetchRequest(NamedTuple):
    version: int
    partitions: tuple[PartitionAsked, ...]
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = 2**31 - 1
    isolation_level: int = READ_UNCOMMITTED
    replica_id: int = -1
    session_id: int = 0
    session_epoch: int = -1
    forgotten: tuple[tuple[str, bytes, int], ...] = ()
    """Partitions that a session is to go on without, by name and id (of which a version has one) and number."""


class Leader(NamedTuple):
    node_id: int
    epoch: int


class PartitionFetched(NamedTuple):
    topic: str
    topic_id: bytes
    partition: int
    error: ErrorCode
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    start_offset: int = NO_OFFSET
    diverging: EpochEnd = UNKNOWN_EPOCH_END
    leader: Leader | None = None
    """Whom the client should turn to, where it has the wrong idea."""
    aborted: tuple[AbortedTransaction, ...] | None = None
    """Transactions of these records that were aborted; None if they were not looked for."""
    records: memoryview = NOTHING

    @property
    def key(self) -> tuple[str, bytes, int]:
        return self.topic, self.topic_id, self.partition


class FetchAnswer(NamedTuple):
    partitions: tuple[PartitionFetched, ...]
    error: ErrorCode = ErrorCode.NONE
    endpoint: Node | None = None
    """Where the leaders are that the partitions name, if they name any."""
    session_id: int = 0


class ParkedFetch(NamedTuple):
    """A fetch that waits for records: until `deadline_ms`, or until something happens to one of `topics`."""

    request: FetchRequest
    """Without its partitions: `found` and `erroneous` have what is needed of them."""
    deadline_ms: int
    found: tuple[tuple[PartitionAsked, Topic], ...]
    erroneous: tuple[PartitionFetched, ...]

    @property
    def keys(self) -> frozenset[tuple[str, int]]:
        """The partitions that it waits for."""
        return frozenset((topic.name, asked.partition) for asked, topic in self.found)

    @property
    def partitions(self) -> int:
        """How many it will answer for."""
        return len(self.found) + len(self.erroneous)


def decode(version: int, data: Buffer, position: int = 0, end: int | None = None) -> FetchRequest:
    body = decode_request(ApiKey.FETCH, version, data, position, end)
    partitions = [
        PartitionAsked(
            topic["topic"],
            topic["topicId"],
            one["partition"],
            one["fetchOffset"],
            max(one["currentLeaderEpoch"], NO_EPOCH),
            max(one["lastFetchedEpoch"], NO_EPOCH),
            one["partitionMaxBytes"],
        )
        for topic in body["topics"]
        for one in topic["partitions"]
    ]
    return FetchRequest(
        version,
        tuple(partitions),
        body["maxWaitMs"],
        body["minBytes"],
        body["maxBytes"],
        body["isolationLevel"],
        body["replicaState"]["replicaId"] if version >= 15 else body["replicaId"],
        body["sessionId"],
        body["sessionEpoch"],
        tuple(
            [
                (topic["topic"], topic["topicId"], number)
                for topic in body["forgottenTopicsData"]
                for number in topic["partitions"]
            ]
        ),
    )


def handle(request: FetchRequest, cluster: Cluster, now_ms: int) -> FetchAnswer | ParkedFetch:
    """The answer, or what to do until there is one."""
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _nonsense(request)
    found, erroneous = _looked_up(request, cluster)
    deadline_ms = now_ms + max(request.max_wait_ms, 0)
    parked = ParkedFetch(request._replace(partitions=()), deadline_ms, tuple(found), tuple(erroneous))
    answer = complete(parked, cluster)
    is_due = request.max_wait_ms <= 0 or not found
    return answer if is_due or is_enough(answer, parked, cluster) else parked


def is_enough(answer: FetchAnswer, parked: ParkedFetch, cluster: Cluster) -> bool:
    """Whether a client need not wait any longer: it has as much as it wanted, or must hear something."""
    request, fetched = parked.request, answer.partitions[: len(parked.found)]
    wanted_bytes = min(request.min_bytes, request.max_bytes, cluster.config.fetch_max_bytes)
    return sum(len(one.records) for one in fetched) >= wanted_bytes or any(map(_must_know, fetched))


def _must_know(fetched: PartitionFetched) -> bool:
    """Whether a client must hear this at once. A topic it made up is not such a thing, as long as others are real."""
    return fetched.error is not ErrorCode.NONE or fetched.diverging is not UNKNOWN_EPOCH_END


def complete(parked: ParkedFetch, cluster: Cluster) -> FetchAnswer:
    """What there is to say now. Partitions that were found come first, as in Kafka."""
    request = parked.request
    left_bytes, is_first = min(request.max_bytes, cluster.config.fetch_max_bytes), True
    fetched = []
    for asked, topic in parked.found:
        one = _fetched(asked, topic, request, cluster, left_bytes, at_least_one=is_first)
        if len(one.records):
            left_bytes, is_first = max(left_bytes - len(one.records), 0), False
        fetched.append(one)
    names_leader = any(one.leader is not None for one in fetched)
    # A replica finds brokers in other ways.
    endpoint = cluster.node if names_leader and request.replica_id < 0 else None
    return FetchAnswer((*fetched, *parked.erroneous), endpoint=endpoint)


def _nonsense(request: FetchRequest) -> FetchAnswer:
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    if request.version >= FIRST_WITH_IDS:
        return FetchAnswer((), error)
    partitions = [PartitionFetched(*asked.key, error, aborted=()) for asked in request.partitions]
    return FetchAnswer(tuple(partitions), error)


def _looked_up(
    request: FetchRequest, cluster: Cluster
) -> tuple[list[tuple[PartitionAsked, Topic]], list[PartitionFetched]]:
    """Partitions that are there, and answers for those that are not. Of two for one partition the last one counts."""
    found = []
    erroneous = []
    by_id = request.version >= FIRST_WITH_IDS
    for asked in {asked.key: asked for asked in request.partitions}.values():
        topic = cluster.topics.by_id(asked.topic_id) if by_id else cluster.topics.get(asked.topic)
        if topic is not None and 0 <= asked.partition < topic.partitions:
            found.append((asked, topic))
            continue
        is_unknown_id = by_id and topic is None
        error = ErrorCode.UNKNOWN_TOPIC_ID if is_unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        erroneous.append(PartitionFetched(*asked.key, error, aborted=()))
    return found, erroneous


def _fetched(
    asked: PartitionAsked,
    topic: Topic,
    request: FetchRequest,
    cluster: Cluster,
    left_bytes: int,
    *,
    at_least_one: bool,
) -> PartitionFetched:
    key = asked.key
    if cluster.topics.by_id(topic.topic_id) is None:
        return PartitionFetched(*key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    log = cluster.partition_of(topic, asked.partition)
    error = _problem(asked, log, request.replica_id)
    if error is not ErrorCode.NONE:
        tells_leader = error in _KNOWS_THE_LEADER and request.version >= _FIRST_WITH_LEADER
        return PartitionFetched(
            *key, error, leader=Leader(cluster.node.node_id, log.leader_epoch) if tells_leader else None
        )
    is_committed = request.isolation_level == READ_COMMITTED
    fetched = PartitionFetched(
        *key,
        ErrorCode.NONE,
        log.high_watermark,
        log.last_stable_offset,
        log.start_offset,
        _diverging(asked, log),
        aborted=() if is_committed else None,
    )
    max_bytes = min(asked.max_bytes, left_bytes)
    if fetched.diverging is not UNKNOWN_EPOCH_END or (max_bytes <= 0 and not at_least_one):
        return fetched
    try:
        up_to = fetched.last_stable_offset if is_committed else fetched.high_watermark
        records = log.read(asked.offset, max_bytes, up_to)
        if len(records) > max_bytes and not at_least_one:
            return fetched
        return fetched._replace(records=records, aborted=_aborted(log, asked.offset, records) if is_committed else None)
    except (LogDamaged, CodecError):
        return PartitionFetched(*key, ErrorCode.KAFKA_STORAGE_ERROR)


def _aborted(log: PartitionOffsets, from_offset: int, records: memoryview) -> tuple[AbortedTransaction, ...]:
    """Transactions that were aborted, and of which there may be records in these batches."""
    position, to_offset = 0, from_offset
    while position < len(records):
        header = read_header(records, position)
        position, to_offset = position + header.size_bytes, header.last_offset + 1
    return tuple(log.aborted_transactions(from_offset, to_offset)) if position else ()


def _problem(asked: PartitionAsked, log: PartitionOffsets, replica_id: int) -> ErrorCode:
    error = epoch_problem(log, asked.leader_epoch)
    if error is not ErrorCode.NONE:
        return error
    if replica_id >= 0:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER  # this cluster has no replicas
    if asked.offset < log.start_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if asked.last_epoch == NO_EPOCH:
        is_possible = asked.offset <= log.end_offset
    else:  # an epoch still to come has no end; an offset behind the end of a known one is answered, see `_diverging`
        is_possible = log.epoch_end(asked.last_epoch) != UNKNOWN_EPOCH_END
    return ErrorCode.NONE if is_possible else ErrorCode.OFFSET_OUT_OF_RANGE


def _diverging(asked: PartitionAsked, log: PartitionOffsets) -> EpochEnd:
    """Where our log and the consumer's went apart, if they did."""
    if asked.last_epoch == NO_EPOCH:
        return UNKNOWN_EPOCH_END
    end = log.epoch_end(asked.last_epoch)
    return end if end.epoch < asked.last_epoch or end.end_offset < asked.offset else UNKNOWN_EPOCH_END


def encode(version: int, correlation_id: int, answer: FetchAnswer) -> bytes:
    body: dict[str, Any] = {
        "errorCode": answer.error,
        "sessionId": answer.session_id,
        "responses": _by_topic(answer.partitions),
    }
    if answer.endpoint is not None:
        node = answer.endpoint
        body["nodeEndpoints"] = [{"nodeId": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}]
    return encode_response(ApiKey.FETCH, version, correlation_id, body)


def _by_topic(partitions: Sequence[PartitionFetched]) -> list[dict[str, Any]]:
    """Neighbours of one topic together; a topic may come more than once."""
    topics: list[dict[str, Any]] = []
    last: tuple[str, bytes] | None = None
    for fetched in partitions:
        if (fetched.topic, fetched.topic_id) != last:
            last = fetched.topic, fetched.topic_id
            topics.append({"topic": fetched.topic, "topicId": fetched.topic_id, "partitions": []})
        topics[-1]["partitions"].append(_encoded(fetched))
    return topics


def _encoded(fetched: PartitionFetched) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "partitionIndex": fetched.partition,
        "errorCode": fetched.error,
        "highWatermark": fetched.high_watermark,
        "lastStableOffset": fetched.last_stable_offset,
        "logStartOffset": fetched.start_offset,
        "abortedTransactions": _encoded_aborted(fetched.aborted),
        "records": fetched.records,
    }
    if fetched.diverging is not UNKNOWN_EPOCH_END:
        encoded["divergingEpoch"] = {"epoch": fetched.diverging.epoch, "endOffset": fetched.diverging.end_offset}
    if fetched.leader is not None:
        encoded["currentLeader"] = {"leaderId": fetched.leader.node_id, "leaderEpoch": fetched.leader.epoch}
    return encoded


def _encoded_aborted(aborted: Sequence[AbortedTransaction] | None) -> list[dict[str, int]] | None:
    if aborted is None:
        return None
    return [{"producerId": one.producer_id, "firstOffset": one.first_offset} for one in aborted]
