"""The table of APIs: key, name, the versions that are described here, and the first flexible one.

Server and clients use the same table. The server answers those APIs of it for which it has a handler, in all versions
of the table; SaslHandshake and SaslAuthenticate are for clients only. `advertised_from` may be lower than
`min_version`: Produce is advertised from 0, as Kafka does it, because librdkafka turns compression off when it sees a
higher minimum. A request of Produce 0 to 2 is refused all the same.
"""

from collections.abc import Container
from enum import IntEnum
from typing import NamedTuple

from muster.protocol.errors import NotServed

NEVER = 0x7FFF


class ApiKey(IntEnum):
    """Kafka's names and numbers."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


class Api(NamedTuple):
    """One API; `name` is Kafka's."""

    key: ApiKey
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    advertised_from: int

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        """Which header a request has; defined for unknown versions too, as the header is read first."""
        return 2 if version >= self.flexible_from else 1

    def response_header_version(self, version: int) -> int:
        """A response to ApiVersions never has tagged fields: the client does not know yet what the broker speaks."""
        return 1 if version >= self.flexible_from and self.key is not ApiKey.API_VERSIONS else 0


def _api(key: ApiKey, name: str, served: tuple[int, int], flexible_from: int, from_version: int | None = None) -> Api:
    low, high = served
    return Api(key, name, low, high, flexible_from, low if from_version is None else from_version)


APIS: dict[int, Api] = {
    api.key: api
    for api in (
        _api(ApiKey.PRODUCE, "Produce", (3, 13), 9, from_version=0),
        _api(ApiKey.FETCH, "Fetch", (4, 18), 12),
        _api(ApiKey.LIST_OFFSETS, "ListOffsets", (1, 11), 6),
        _api(ApiKey.METADATA, "Metadata", (0, 13), 9),
        _api(ApiKey.OFFSET_COMMIT, "OffsetCommit", (2, 10), 8),
        _api(ApiKey.OFFSET_FETCH, "OffsetFetch", (1, 10), 6),
        _api(ApiKey.FIND_COORDINATOR, "FindCoordinator", (0, 6), 3),
        _api(ApiKey.JOIN_GROUP, "JoinGroup", (0, 9), 6),
        _api(ApiKey.HEARTBEAT, "Heartbeat", (0, 4), 4),
        _api(ApiKey.LEAVE_GROUP, "LeaveGroup", (0, 5), 4),
        _api(ApiKey.SYNC_GROUP, "SyncGroup", (0, 5), 4),
        _api(ApiKey.DESCRIBE_GROUPS, "DescribeGroups", (0, 6), 5),
        _api(ApiKey.LIST_GROUPS, "ListGroups", (0, 5), 3),
        _api(ApiKey.SASL_HANDSHAKE, "SaslHandshake", (0, 1), NEVER),
        _api(ApiKey.API_VERSIONS, "ApiVersions", (0, 4), 3),
        _api(ApiKey.CREATE_TOPICS, "CreateTopics", (2, 7), 5),
        _api(ApiKey.DELETE_TOPICS, "DeleteTopics", (1, 6), 4),
        _api(ApiKey.DELETE_RECORDS, "DeleteRecords", (0, 2), 2),
        _api(ApiKey.INIT_PRODUCER_ID, "InitProducerId", (0, 5), 2),
        _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", (2, 4), 4),
        _api(ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", (0, 5), 3),
        _api(ApiKey.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", (0, 4), 3),
        _api(ApiKey.END_TXN, "EndTxn", (0, 5), 3),
        _api(ApiKey.WRITE_TXN_MARKERS, "WriteTxnMarkers", (1, 2), 1),
        _api(ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommit", (0, 5), 3),
        _api(ApiKey.DESCRIBE_ACLS, "DescribeAcls", (1, 3), 2),
        _api(ApiKey.CREATE_ACLS, "CreateAcls", (1, 3), 2),
        _api(ApiKey.DELETE_ACLS, "DeleteAcls", (1, 3), 2),
        _api(ApiKey.DESCRIBE_CONFIGS, "DescribeConfigs", (1, 4), 4),
        _api(ApiKey.ALTER_CONFIGS, "AlterConfigs", (0, 2), 2),
        _api(ApiKey.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", (1, 2), 2),
        _api(ApiKey.DESCRIBE_LOG_DIRS, "DescribeLogDirs", (1, 5), 2),
        _api(ApiKey.SASL_AUTHENTICATE, "SaslAuthenticate", (0, 2), 2),
        _api(ApiKey.CREATE_PARTITIONS, "CreatePartitions", (0, 3), 2),
        _api(ApiKey.DELETE_GROUPS, "DeleteGroups", (0, 2), 2),
        _api(ApiKey.ELECT_LEADERS, "ElectLeaders", (0, 2), 2),
        _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", (0, 1), 1),
        _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", (0, 1), 0),
        _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", (0, 0), 0),
        _api(ApiKey.OFFSET_DELETE, "OffsetDelete", (0, 0), NEVER),
        _api(ApiKey.DESCRIBE_QUORUM, "DescribeQuorum", (0, 2), 0),
        _api(ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", (0, 2), 0),
        _api(ApiKey.DESCRIBE_PRODUCERS, "DescribeProducers", (0, 0), 0),
        _api(ApiKey.DESCRIBE_TRANSACTIONS, "DescribeTransactions", (0, 0), 0),
        _api(ApiKey.LIST_TRANSACTIONS, "ListTransactions", (0, 2), 0),
        _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", (0, 1), 0),
        _api(ApiKey.LIST_CONFIG_RESOURCES, "ListConfigResources", (0, 1), 0),
        _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", (0, 0), 0),
    )
}


def served(api_key: int, version: int) -> Api:
    """The API asked for. `NotServed` if there is none of that key and version; ApiVersions is answered even then."""
    api = APIS.get(api_key)
    if api is None:
        raise NotServed(f"API {api_key} is not known here")
    if not api.min_version <= version <= api.max_version:
        raise NotServed(f"{api.name} version {version} is not served, {api.min_version} to {api.max_version} are")
    return api


def advertised(handled: Container[int]) -> list[Api]:
    """The APIs to tell clients about: those that `handled` contains, in order of their keys."""
    return [api for key, api in sorted(APIS.items()) if key in handled]
