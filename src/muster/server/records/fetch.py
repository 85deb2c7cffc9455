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

A request is answered at once, or parked: `handle` says which. While it is parked those partitions are counted that have
grown (`count`), until it `has_enough`. That counts bytes and reads none. Records are read once, when the request is
answered (`complete`): when they are enough, when the deadline has come, or something happens to a topic that it waits
for.

What is enough is counted as in Kafka: of each partition what there is, up to its limit, though that may be in the midst
of a batch; and a segment that is followed by another one is enough. Else a consumer whose limits are no multiple of its
batches would wait before a log that is full.

Batches are handed out whole. The first partition that has records gives one batch at least, however large it is, so
that no consumer is stuck before it; all others keep to what the request allows.

Which partitions a request is about, if it is one of a session, `fetch_sessions.py` knows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from muster.codec.batches import read_header
from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.errors import CodecError, LogDamaged
from muster.log.reads import NOTHING, Extent
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
from muster.server.slices import Slices, finished

FIRST_WITH_IDS = 13
_FIRST_WITH_LEADER = 16
ENOUGH = 1 << 62
"""More bytes than any client waits for: of a partition that a client must be told of at once."""
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


class PartitionSeen(NamedTuple):
    """What there is to say of a partition now, but for its records, and where these lie."""

    fetched: PartitionFetched
    records: Extent | None = None
    log: PartitionOffsets | None = None
    """To be asked for aborted transactions: of a client that wants to know them."""
    offset: int = NO_OFFSET
    counted_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        return 0 if self.records is None else self.records.size_bytes


Key = tuple[str, int]
"""A topic's name, and a partition."""


@dataclass(slots=True, eq=False)
class ParkedFetch:
    """A fetch that waits for records: until `deadline_ms`, or until something happens to one of `topics`."""

    request: FetchRequest
    """Without its partitions: `found` and `erroneous` have what is needed of them."""
    deadline_ms: int
    wanted_bytes: int
    found: dict[Key, tuple[PartitionAsked, Topic]]
    """The partitions that it waits for."""
    erroneous: tuple[PartitionFetched, ...]
    counted: dict[Key, int] = field(default_factory=dict)
    """What there is of a partition, where there is anything."""
    counted_bytes: int = 0

    def note(self, key: Key, counted_bytes: int) -> None:
        self.counted_bytes += counted_bytes - self.counted.get(key, 0)
        if counted_bytes:
            self.counted[key] = counted_bytes
        else:
            self.counted.pop(key, None)

    @property
    def has_enough(self) -> bool:
        """Whether a client need not wait any longer: it has as much as it wanted, or must hear something.

        A topic that it made up is no such thing, as long as others are real.
        """
        return self.counted_bytes >= self.wanted_bytes

    @property
    def is_due(self) -> bool:
        """Whether there is nothing to wait for, whatever there is."""
        return self.request.max_wait_ms <= 0 or not self.found

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
    if makes_no_sense(request):
        return nonsense(request)
    parked = finished(wait_for(request, cluster, now_ms))
    seen = list(looks(parked, cluster))
    for key, one in zip(parked.found, seen, strict=True):
        if one.counted_bytes:
            parked.note(key, one.counted_bytes)
    return complete(parked, cluster, seen) if parked.is_due or parked.has_enough else parked


def makes_no_sense(request: FetchRequest) -> bool:
    return request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED)


def wait_for(request: FetchRequest, cluster: Cluster, now_ms: int) -> Slices[ParkedFetch]:
    found, erroneous = yield from _looked_up(request, cluster)
    deadline_ms = now_ms + max(request.max_wait_ms, 0)
    wanted_bytes = min(request.min_bytes, request.max_bytes, cluster.config.fetch_max_bytes)
    return ParkedFetch(request._replace(partitions=()), deadline_ms, wanted_bytes, found, tuple(erroneous))


def count(parked: ParkedFetch, key: Key, cluster: Cluster) -> None:
    """Look at one partition that a fetch waits for, which has grown."""
    asked, topic = parked.found[key]
    parked.note(key, _seen(asked, topic, parked.request, cluster, asked.max_bytes, at_least_one=True).counted_bytes)


def _counted(extent: Extent, max_bytes: int) -> int:
    if extent.is_followed:
        return ENOUGH
    return max(min(extent.readable_end - extent.start, max_bytes), extent.size_bytes)


def looks(parked: ParkedFetch, cluster: Cluster) -> Iterator[PartitionSeen]:
    """What there is of the partitions that were found, one after the other. No record is read."""
    request = parked.request
    left_bytes, is_first = min(request.max_bytes, cluster.config.fetch_max_bytes), True
    for asked, topic in parked.found.values():
        one = _seen(asked, topic, request, cluster, left_bytes, at_least_one=is_first)
        if one.records is not None:
            left_bytes, is_first = max(left_bytes - one.size_bytes, 0), False
        yield one


def complete(parked: ParkedFetch, cluster: Cluster, seen: Iterable[PartitionSeen] | None = None) -> FetchAnswer:
    """The answer, with the records that are there now (and were `seen` just before)."""
    return answer_of(parked, cluster, [read(one) for one in (looks(parked, cluster) if seen is None else seen)])


def answer_of(parked: ParkedFetch, cluster: Cluster, fetched: list[PartitionFetched]) -> FetchAnswer:
    """Partitions that were found come first, as in Kafka."""
    names_leader = any(one.leader is not None for one in fetched)
    # A replica finds brokers in other ways.
    endpoint = cluster.node if names_leader and parked.request.replica_id < 0 else None
    return FetchAnswer((*fetched, *parked.erroneous), endpoint=endpoint)


def nonsense(request: FetchRequest) -> FetchAnswer:
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    if request.version >= FIRST_WITH_IDS:
        return FetchAnswer((), error)
    partitions = [PartitionFetched(*asked.key, error, aborted=()) for asked in request.partitions]
    return FetchAnswer(tuple(partitions), error)


def _looked_up(
    request: FetchRequest, cluster: Cluster
) -> Slices[tuple[dict[Key, tuple[PartitionAsked, Topic]], list[PartitionFetched]]]:
    """Partitions that are there, and answers for those that are not. Of two for one partition the last one counts."""
    found = {}
    erroneous = []
    by_id = request.version >= FIRST_WITH_IDS
    for asked in {asked.key: asked for asked in request.partitions}.values():
        yield
        topic = cluster.topics.by_id(asked.topic_id) if by_id else cluster.topics.get(asked.topic)
        if topic is not None and 0 <= asked.partition < topic.partitions:
            found[topic.name, asked.partition] = asked, topic
            continue
        is_unknown_id = by_id and topic is None
        error = ErrorCode.UNKNOWN_TOPIC_ID if is_unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        erroneous.append(PartitionFetched(*asked.key, error, aborted=()))
    return found, erroneous


def _seen(
    asked: PartitionAsked,
    topic: Topic,
    request: FetchRequest,
    cluster: Cluster,
    left_bytes: int,
    *,
    at_least_one: bool,
) -> PartitionSeen:
    key = asked.key
    if cluster.topics.by_id(topic.topic_id) is None:
        return PartitionSeen(PartitionFetched(*key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), counted_bytes=ENOUGH)
    log = cluster.partition_of(topic, asked.partition)
    error = _problem(asked, log, request.replica_id)
    if error is not ErrorCode.NONE:
        tells_leader = error in _KNOWS_THE_LEADER and request.version >= _FIRST_WITH_LEADER
        leader = Leader(cluster.node.node_id, log.leader_epoch) if tells_leader else None
        return PartitionSeen(PartitionFetched(*key, error, leader=leader), counted_bytes=ENOUGH)
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
    if fetched.diverging is not UNKNOWN_EPOCH_END:
        return PartitionSeen(fetched, counted_bytes=ENOUGH)
    if max_bytes <= 0 and not at_least_one:
        return PartitionSeen(fetched)
    try:
        up_to = fetched.last_stable_offset if is_committed else fetched.high_watermark
        extent = log.find(asked.offset, max_bytes, up_to)
    except (LogDamaged, CodecError):
        return PartitionSeen(PartitionFetched(*key, ErrorCode.KAFKA_STORAGE_ERROR), counted_bytes=ENOUGH)
    if extent is None:
        return PartitionSeen(fetched)
    counted_bytes = _counted(extent, asked.max_bytes)
    if extent.size_bytes > max_bytes and not at_least_one:
        return PartitionSeen(fetched, counted_bytes=counted_bytes)
    return PartitionSeen(fetched, extent, log if is_committed else None, asked.offset, counted_bytes)


def read(seen: PartitionSeen) -> PartitionFetched:
    fetched, extent, log, offset, _ = seen
    if extent is None:
        return fetched
    try:
        records = extent.read()
        return fetched._replace(records=records, aborted=None if log is None else _aborted(log, offset, records))
    except (LogDamaged, CodecError):
        return PartitionFetched(*fetched.key, ErrorCode.KAFKA_STORAGE_ERROR)


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
