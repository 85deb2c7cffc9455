"""What we ask brokers, and what their answers mean: bodies of requests, and values from bodies of answers. No I/O.

    API                  versions   what later ones add
    Metadata             4-13       7: leader epochs; 10: topic ids; 13: an error for all of it
    ListOffsets          2-11       4: leader epochs; 10: a timeout
    OffsetForLeaderEpoch 2-4        3: who asks
    Fetch                4-18       5: log start; 7: sessions; 9: leader epochs; 12: where logs part; 13: topic ids
    FindCoordinator      0-6        4: several groups at a time, of which we ask for one
    OffsetDelete         0
    ListGroups           0-5        4: states; 5: types
    ApiVersions          0          asked in the version that every broker has to answer
    SaslHandshake        1
    SaslAuthenticate     0-2        1: how long the session lasts

`muster.protocol` knows the layouts. Here stands what the fields mean to us, so that the rest of `live` need not know
versions. Errors in an answer are values; `RETRIABLE` says which of them asking again may cure, and `topic_problem` and
`partition_problem` have the sentences for the others.

Fetch names no session: a request names all it wants. Aborted transactions are not listed, as we always read
uncommitted: the markers are in the log.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.layouts import StructData
from muster.errors import ClusterError, ClusterRefused, ClusterUnreachable, Malformed, NotThereYet
from muster.protocol.apis import APIS, ApiKey

TopicPartition = tuple[str, int]

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
EARLIEST, LATEST = -2, -1
NO_TOPIC_ID = bytes(16)
CONSUMER = -1
NO_EPOCH = -1
LAST_BY_NAME = 12
"""Up to this version a Fetch names its topics; from the next on it goes by their ids."""
NO_WAIT_MS = 0
"""We never wait for records that are not there yet: what a run reads ends where the log ended when it began."""
_LIST_OFFSETS_TIMEOUT_MS = 10_000
_WITHOUT_SESSION = -1
_NOT_DIVERGING = {"epoch": -1, "endOffset": -1}

# The oldest version that has what we need, where the table goes further back.
_OLDEST = {ApiKey.LIST_OFFSETS: 2, ApiKey.METADATA: 4, ApiKey.SASL_HANDSHAKE: 1}
_ASKED = (
    ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.LIST_GROUPS,
    ApiKey.SASL_HANDSHAKE, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.SASL_AUTHENTICATE, ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_CONFIGS,
)  # fmt: skip
SPOKEN: dict[ApiKey, tuple[int, int]] = {
    key: (max(APIS[key].min_version, _OLDEST.get(key, 0)), APIS[key].max_version) for key in _ASKED
} | {ApiKey.API_VERSIONS: (0, 0)}


class Response(NamedTuple):
    """An answer: the frame it came in, and its body. Records are slices of the frame."""

    frame: memoryview
    body: StructData
    version: int


# --- Metadata ---


class Broker(NamedTuple):
    node_id: int
    host: str
    port: int


class Partition(NamedTuple):
    error: int
    leader_id: int
    """-1: there is none at the moment."""
    leader_epoch: int


class Topic(NamedTuple):
    error: int
    name: str
    topic_id: bytes
    """Sixteen zeros from a cluster too old to have ids."""
    is_internal: bool
    partitions: dict[int, Partition]


class Metadata(NamedTuple):
    error: int
    cluster_id: str | None
    brokers: dict[int, Broker]
    topics: dict[str, Topic]


def metadata_request(topics: Iterable[str] | None) -> StructData:
    """None asks for all topics. A topic that does not exist is never created by the question."""
    names = None if topics is None else [{"name": name} for name in topics]
    return {"topics": names, "allowAutoTopicCreation": False}


def read_metadata(response: Response) -> Metadata:
    body = response.body
    brokers = [Broker(one["nodeId"], one["host"], one["port"]) for one in body["brokers"]]
    topics = [
        Topic(
            topic["errorCode"],
            topic["name"] or "",
            topic["topicId"],
            topic["isInternal"],
            {
                one["partitionIndex"]: Partition(one["errorCode"], one["leaderId"], one["leaderEpoch"])
                for one in topic["partitions"]
            },
        )
        for topic in body["topics"]
    ]
    return Metadata(
        body["errorCode"],
        body["clusterId"],
        {broker.node_id: broker for broker in brokers},
        {topic.name: topic for topic in topics},
    )


# --- ListOffsets ---


class ListedOffset(NamedTuple):
    error: int
    offset: int
    leader_epoch: int


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def list_offsets_request(partitions: Iterable[TopicPartition], timestamp_ms: int, isolation_level: int) -> StructData:
    """No partition may be named twice: Kafka refuses both then."""
    return {
        "replicaId": CONSUMER,
        "isolationLevel": isolation_level,
        "topics": [
            {
                "name": topic,
                "partitions": [{"partitionIndex": number, "timestamp": timestamp_ms} for number in numbers],
            }
            for topic, numbers in by_topic(partitions).items()
        ],
        "timeoutMs": _LIST_OFFSETS_TIMEOUT_MS,
    }


def read_list_offsets(response: Response) -> dict[TopicPartition, ListedOffset]:
    return {
        (topic["name"], one["partitionIndex"]): ListedOffset(one["errorCode"], one["offset"], one["leaderEpoch"])
        for topic in response.body["topics"]
        for one in topic["partitions"]
    }


# --- OffsetForLeaderEpoch ---


class EpochEnd(NamedTuple):
    error: int
    leader_epoch: int
    """The largest epoch at or below the one asked for that the log has; -1 where all it has are older."""
    end_offset: int

    @property
    def is_defined(self) -> bool:
        return self.error != 0 or self.leader_epoch >= 0


def epoch_ends_request(wanted: Mapping[TopicPartition, int], current: Mapping[TopicPartition, int]) -> StructData:
    """`current` has the leader epoch that the caller knows of: a leader under another one refuses to answer."""
    return {
        "replicaId": CONSUMER,
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": number,
                        "currentLeaderEpoch": current[topic, number],
                        "leaderEpoch": wanted[topic, number],
                    }
                    for number in numbers
                ],
            }
            for topic, numbers in by_topic(wanted).items()
        ],
    }


def read_epoch_ends(response: Response) -> dict[TopicPartition, EpochEnd]:
    return {
        (topic["topic"], one["partition"]): EpochEnd(one["errorCode"], one["leaderEpoch"], one["endOffset"])
        for topic in response.body["topics"]
        for one in topic["partitions"]
    }


# --- Fetch ---


class FetchFrom(NamedTuple):
    offset: int
    max_bytes: int
    """The first batch of a whole answer comes even if it is larger; those of other partitions are left out then."""
    last_epoch: int = NO_EPOCH
    """Leader epoch of the record before `offset`, if we have it: the leader (of version 12) compares."""


class Fetched(NamedTuple):
    """One partition's part of an answer; its records are in `frame[start:end]`, the last batch perhaps cut off."""

    error: int
    high_watermark: int
    log_start_offset: int
    frame: memoryview
    start: int
    end: int
    diverging_offset: int | None = None
    """Where the leader's log and ours part, if they do; there are no records then."""


def fetch_request(
    wanted: Mapping[TopicPartition, FetchFrom], topic_ids: Mapping[str, bytes], max_bytes: int
) -> StructData:
    """The rack is not told, so the leader answers itself."""
    return {
        "maxWaitMs": NO_WAIT_MS,
        "minBytes": 1,
        "maxBytes": max_bytes,
        "isolationLevel": READ_UNCOMMITTED,
        "sessionEpoch": _WITHOUT_SESSION,
        "topics": [
            {
                "topic": topic,
                "topicId": topic_ids[topic],
                "partitions": [
                    {
                        "partition": number,
                        "fetchOffset": wanted[topic, number].offset,
                        "lastFetchedEpoch": wanted[topic, number].last_epoch,
                        "partitionMaxBytes": wanted[topic, number].max_bytes,
                    }
                    for number in numbers
                ],
            }
            for topic, numbers in by_topic(wanted).items()
        ],
    }


def read_fetch(response: Response, topic_ids: Mapping[str, bytes]) -> tuple[int, dict[TopicPartition, Fetched]]:
    """The error of the whole request, and what each partition gave. A topic is named or has its id, by version."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    partitions: dict[TopicPartition, Fetched] = {}
    for topic in response.body["responses"]:
        name = topic["topic"] if response.version <= LAST_BY_NAME else names.get(topic["topicId"])
        if name is None:
            raise Malformed(f"an answer about topic id {topic['topicId'].hex()}, which was not asked for")
        for one in topic["partitions"]:
            records = one["records"] or slice(0, 0)
            diverging = one["divergingEpoch"]
            partitions[name, one["partitionIndex"]] = Fetched(
                one["errorCode"],
                one["highWatermark"],
                one["logStartOffset"],
                response.frame,
                records.start,
                records.stop,
                None if diverging == _NOT_DIVERGING else diverging["endOffset"],
            )
    return response.body["errorCode"], partitions


# --- groups, at their coordinator ---

_GROUP = 0
_WITHOUT_KEYS = 3
"""Up to this version FindCoordinator is about one group, and its answer does not name it."""


class Coordinator(NamedTuple):
    """Where a group's coordinator is; `broker` means nothing where there is an error."""

    error: int
    broker: Broker


class DeletedOffsets(NamedTuple):
    """What became of the offsets of a group that were to be deleted: one error for all of them, or one for each."""

    error: int
    errors: dict[TopicPartition, int]


def find_coordinator_request(group_id: str) -> StructData:
    return {"key": group_id, "keyType": _GROUP, "coordinatorKeys": [group_id]}


def read_coordinator(response: Response, group_id: str) -> Coordinator:
    answers = [response.body] if response.version <= _WITHOUT_KEYS else response.body["coordinators"]
    for one in answers:
        if one.get("key", group_id) == group_id:
            return Coordinator(one["errorCode"], Broker(one["nodeId"], one["host"], one["port"]))
    raise Malformed(f"it does not name the coordinator of group {group_id!r}")


def offset_delete_request(group_id: str, partitions: Iterable[TopicPartition]) -> StructData:
    topics = [
        {"name": topic, "partitions": [{"partitionIndex": number} for number in numbers]}
        for topic, numbers in by_topic(partitions).items()
    ]
    return {"groupId": group_id, "topics": topics}


def read_offset_delete(response: Response) -> DeletedOffsets:
    errors = {
        (topic["name"], one["partitionIndex"]): one["errorCode"]
        for topic in response.body["topics"]
        for one in topic["partitions"]
    }
    return DeletedOffsets(response.body["errorCode"], errors)


class ListedGroup(NamedTuple):
    """A group as its coordinator lists it; None where the version of the answer does not tell."""

    state: str | None
    type: str | None


def list_groups_request() -> StructData:
    """All of them: whatever their states and types."""
    return {"statesFilter": [], "typesFilter": []}


def read_list_groups(response: Response) -> tuple[int, dict[str, ListedGroup]]:
    groups = {
        one["groupId"]: ListedGroup(one["groupState"] or None, one["groupType"].lower() or None)
        for one in response.body["groups"]
    }
    return response.body["errorCode"], groups


# --- settings ---

BROKER = 4
"""The type of the resource."""


def broker_settings_request(node_id: int, names: Iterable[str]) -> StructData:
    resource = {"resourceType": BROKER, "resourceName": str(node_id), "configurationKeys": list(names)}
    return {"resources": [resource], "includeSynonyms": False, "includeDocumentation": False}


def read_settings(response: Response) -> dict[str, str]:
    """Those that the broker tells: it hides what is secret, and all of them from who has no right to it."""
    found = [one for result in response.body["results"] if not result["errorCode"] for one in result["configs"]]
    return {one["name"]: one["value"] for one in found if one["value"] is not None}


# --- errors ---

COORDINATOR_MOVES = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""Errors of a coordinator that a moment's patience, or another coordinator, may cure."""

RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors that newer metadata, or a moment's patience, may cure."""


class NoSuchTopic(ClusterError, NotThereYet):
    """Not cured by asking again at once."""


def error_name(code: int) -> str:
    """Kafka's name of an error, or its number where we have no name for it."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def shown(where: TopicPartition) -> str:
    return f"{where[0]}-{where[1]}"


def topic_problem(topic: str, error: int) -> ClusterError:
    """The sentence for a topic that cannot be read."""
    match error:
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return ClusterRefused(
                f"no rights on topic {topic}. Reading it takes the operations Describe and Read: kafka-acls --add "
                f"--allow-principal User:NAME --operation Read --operation Describe --topic {topic}"
            )
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            hint = " A cluster makes it when the first group appears." if topic == "__consumer_offsets" else ""
            return NoSuchTopic(f"the cluster has no topic {topic}, or does not let us see it.{hint}")
        case _ if error in RETRIABLE:
            return ClusterUnreachable(f"topic {topic}: the cluster answers {error_name(error)}.")
        case _:
            return ClusterError(f"topic {topic}: the cluster answers {error_name(error)}.")


def partition_problem(where: TopicPartition, error: int) -> ClusterError:
    if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return topic_problem(where[0], error)
    family = ClusterUnreachable if error in RETRIABLE else ClusterError
    return family(f"{shown(where)}: its leader answers {error_name(error)}.")


def nothing_handed_out(where: TopicPartition, offset: int, end: int) -> ClusterError:
    """The sentence for a leader that says its log goes on, and gives nothing."""
    return ClusterError(
        f"{shown(where)} ends at offset {end}, its leader says, and gives nothing at offset {offset}. Point at "
        "the log directories of its brokers instead."
    )
