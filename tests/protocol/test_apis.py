"""Which APIs and versions are answered, and which are told of."""

import pytest

from muster.protocol.apis import APIS, ApiKey, advertised, served
from muster.protocol.errors import NotServed

SERVED = {
    "Produce": (3, 13), "Fetch": (4, 18), "ListOffsets": (1, 11), "Metadata": (0, 13), "OffsetCommit": (2, 10),
    "OffsetFetch": (1, 10), "FindCoordinator": (0, 6), "JoinGroup": (0, 9), "Heartbeat": (0, 4), "LeaveGroup": (0, 5),
    "SyncGroup": (0, 5), "DescribeGroups": (0, 6), "ListGroups": (0, 5), "ApiVersions": (0, 4),
    "SaslHandshake": (0, 1), "SaslAuthenticate": (0, 2),
    "CreateTopics": (2, 7), "DeleteTopics": (1, 6), "DeleteRecords": (0, 2), "InitProducerId": (0, 5),
    "OffsetForLeaderEpoch": (2, 4),
    "AddPartitionsToTxn": (0, 5), "AddOffsetsToTxn": (0, 4), "EndTxn": (0, 5), "TxnOffsetCommit": (0, 5),
    "WriteTxnMarkers": (1, 2), "DescribeTransactions": (0, 0), "ListTransactions": (0, 2),
    "DescribeConfigs": (1, 4), "CreatePartitions": (0, 3), "DeleteGroups": (0, 2), "OffsetDelete": (0, 0),
    "DescribeCluster": (0, 2), "DescribeProducers": (0, 0), "ConsumerGroupHeartbeat": (0, 1),
    "DescribeTopicPartitions": (0, 0), "DescribeLogDirs": (1, 5), "AlterReplicaLogDirs": (1, 2), "AlterConfigs": (0, 2),
    "IncrementalAlterConfigs": (0, 1), "DescribeAcls": (1, 3), "CreateAcls": (1, 3), "DeleteAcls": (1, 3),
    "ElectLeaders": (0, 2), "AlterPartitionReassignments": (0, 1), "ListPartitionReassignments": (0, 0),
    "DescribeQuorum": (0, 2), "ListConfigResources": (0, 1),
}  # fmt: skip


def test_the_versions_clients_were_seen_to_need_are_served() -> None:
    assert {api.name: (api.min_version, api.max_version) for api in APIS.values()} == SERVED


def test_an_api_without_a_handler_is_not_advertised() -> None:
    assert [api.name for api in advertised({ApiKey.HEARTBEAT, ApiKey.METADATA})] == ["Metadata", "Heartbeat"]
    assert [api.key for api in advertised(APIS)] == sorted(APIS)


def test_produce_is_advertised_from_0_and_served_from_3() -> None:
    assert APIS[ApiKey.PRODUCE].advertised_from == 0
    assert [api.name for api in APIS.values() if api.advertised_from != api.min_version] == ["Produce"]
    with pytest.raises(NotServed, match="Produce version 2 is not served, 3 to 13 are"):
        served(ApiKey.PRODUCE, 2)


@pytest.mark.parametrize(("key", "version"), [(99, 0), (-1, 0), (8, 1), (8, 11), (9, 0), (12, -1), (12, 5)])
def test_other_apis_and_versions_are_refused(key: int, version: int) -> None:
    with pytest.raises(NotServed):
        served(key, version)


def test_only_an_answer_to_apiversions_keeps_the_old_header() -> None:
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            is_flexible = version >= api.flexible_from
            assert api.request_header_version(version) == (2 if is_flexible else 1)
            expected = 1 if is_flexible and api.name != "ApiVersions" else 0
            assert api.response_header_version(version) == expected
