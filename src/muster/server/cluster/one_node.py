"""What admin tools ask of a cluster that may have many nodes, answered for one: leaders, replicas, the quorum, who may.

Every partition has one replica, which is here and leads. So no election is needed (ElectLeaders), replicas can be moved
to where they are and nowhere else (AlterPartitionReassignments), and no move is under way (ListPartitionReassignments).
The quorum of controllers is this node (DescribeQuorum); it keeps no log of its own, so the offsets of one are 0. Of
resources with settings there are this node and the topics (ListConfigResources). There is no access control
(DescribeAcls, CreateAcls, DeleteAcls). Errors and their sentences are Kafka's; of a great many errors in one answer the
later ones come without a sentence, and a name that no topic can have is cut short in it.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.server.cluster.cluster import Cluster, ClusterApi
from muster.server.cluster.topics import assignment_problem

Body = dict[str, Any]
ELECTIONS = frozenset({0, 1})
"""Of the preferred replica, of any."""
BROKER_KIND, BROKER_LOGGER_KIND, TOPIC_KIND, METRICS_KIND, GROUP_KIND = 4, 8, 2, 16, 32
KINDS = (TOPIC_KIND, BROKER_KIND, BROKER_LOGGER_KIND, METRICS_KIND, GROUP_KIND)
QUORUM_TOPIC = "__cluster_metadata"
NO_ACCESS_CONTROL = "No Authorizer is configured."
MOST_TOLD = 10_000
LONGEST_NAME = 249


class Asked(NamedTuple):
    version: int
    body: Body


def elect_leaders(asked: Asked, cluster: Cluster) -> Body:
    """All partitions have their leaders: those that were named hear so; if all are meant it is said of none."""
    kind = asked.body["electionType"]
    named = asked.body["topicPartitions"]
    if named is None:
        named = [{"topic": topic.name, "partitions": ()} for topic in cluster.topics.in_order()]
    results = [
        {"topic": topic["topic"], "partitionResult": [
            _elected(topic["topic"], partition, kind, cluster) for partition in topic["partitions"]]}
        for topic in named
    ]  # fmt: skip
    _say_no_more(one for topic in results for one in topic["partitionResult"])
    error = ErrorCode.NONE if kind in ELECTIONS else ErrorCode.INVALID_REQUEST
    return {"errorCode": error, "replicaElectionResults": results}


def _elected(name: str, partition: int, kind: int, cluster: Cluster) -> Body:
    topic = cluster.topics.get(name)
    if kind not in ELECTIONS:
        error, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}"
    elif topic is None:
        error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name[:LONGEST_NAME]}"
    elif not 0 <= partition < topic.partitions:
        error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{partition}"
    else:
        error, message = ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    return {"partitionId": partition, "errorCode": error, "errorMessage": message}


def reassign(asked: Asked, cluster: Cluster) -> Body:
    """Each partition may go to where it is."""
    responses = [
        {"name": topic["name"], "partitions": [
            _reassigned(topic["name"], one["partitionIndex"], one["replicas"], cluster) for one in topic["partitions"]]}
        for topic in asked.body["topics"]
    ]  # fmt: skip
    _say_no_more(one for topic in responses for one in topic["partitions"])
    allows = asked.body["allowReplicationFactorChange"]
    return {
        "errorMessage": None if responses else "", "responses": responses, "allowReplicationFactorChange": allows,
    }  # fmt: skip


def _reassigned(name: str, partition: int, replicas: list[int] | None, cluster: Cluster) -> Body:
    topic = cluster.topics.get(name)
    error, message = ErrorCode.NONE, None
    if topic is None:
        error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name[:LONGEST_NAME]}."
    elif not 0 <= partition < topic.partitions:
        error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{partition}."
    elif replicas is None:
        error = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    else:
        message = assignment_problem(replicas, cluster.node.node_id)
        error = ErrorCode.NONE if message is None else ErrorCode.INVALID_REPLICA_ASSIGNMENT
    return {"partitionIndex": partition, "errorCode": error, "errorMessage": message}


def _say_no_more(told: Iterable[Body]) -> None:
    for one in islice(told, MOST_TOLD, None):
        one["errorMessage"] = None


def list_reassignments(asked: Asked, cluster: Cluster) -> Body:
    return {"errorMessage": None, "topics": []}


def describe_quorum(asked: Asked, cluster: Cluster) -> Body:
    topics = [
        {"topicName": topic["topicName"], "partitions": [
            _quorum(topic["topicName"], one["partitionIndex"], cluster) for one in topic["partitions"]]}
        for topic in asked.body["topics"]
    ]  # fmt: skip
    node = cluster.node
    is_told = any(one["errorCode"] is ErrorCode.NONE for topic in topics for one in topic["partitions"])
    listeners = [{"name": "CONTROLLER", "host": node.host, "port": node.port}]
    nodes = [{"nodeId": node.node_id, "listeners": listeners}] if is_told else []
    return {"errorMessage": "", "topics": topics, "nodes": nodes}


def _quorum(topic: str, partition: int, cluster: Cluster) -> Body:
    if (topic, partition) != (QUORUM_TOPIC, 0):
        message = "This server does not host this topic-partition."
        return {
            "partitionIndex": partition, "errorCode": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "errorMessage": message,
            "leaderId": 0, "leaderEpoch": 0, "highWatermark": 0, "currentVoters": [], "observers": [],
        }  # fmt: skip
    node_id = cluster.node.node_id
    return {
        "partitionIndex": 0, "errorCode": ErrorCode.NONE, "errorMessage": "", "leaderId": node_id, "leaderEpoch": 1,
        "highWatermark": 0, "currentVoters": [{"replicaId": node_id, "logEndOffset": 0}], "observers": [],
    }  # fmt: skip


def list_config_resources(asked: Asked, cluster: Cluster) -> Body:
    kinds = set(asked.body["resourceTypes"] or KINDS) if asked.version else {METRICS_KIND}
    if not kinds <= set(KINDS):
        return {"errorCode": ErrorCode.UNSUPPORTED_VERSION, "configResources": []}
    node_id = str(cluster.node.node_id)
    names: dict[int, Iterable[str]] = {
        TOPIC_KIND: (topic.name for topic in cluster.topics.in_order()),
        BROKER_KIND: (node_id,),
        BROKER_LOGGER_KIND: (node_id,),
    }
    resources = [
        {"resourceName": name, "resourceType": kind} for kind in KINDS if kind in kinds for name in names.get(kind, ())
    ]
    return {"errorCode": ErrorCode.NONE, "configResources": resources}


def describe_acls(asked: Asked, cluster: Cluster) -> Body:
    return {**_refused(), "errorMessage": "No Authorizer is configured on the broker", "resources": []}


def create_acls(asked: Asked, cluster: Cluster) -> Body:
    return {"results": [_refused() for _ in asked.body["creations"]]}


def delete_acls(asked: Asked, cluster: Cluster) -> Body:
    return {"filterResults": [{**_refused(), "matchingAcls": []} for _ in asked.body["filters"]]}


def _refused() -> Body:
    return {"errorCode": ErrorCode.SECURITY_DISABLED, "errorMessage": NO_ACCESS_CONTROL}


def _decode(api_key: ApiKey, version: int, data: Buffer, position: int = 0, end: int | None = None) -> Asked:
    return Asked(version, decode_request(api_key, version, data, position, end))


def _api(api_key: ApiKey, answer: Callable[[Asked, Cluster], Body]) -> ClusterApi:
    return ClusterApi(partial(_decode, api_key), partial(encode_response, api_key), answer=answer)


APIS = {
    api_key: _api(api_key, answer)
    for api_key, answer in (
        (ApiKey.DESCRIBE_ACLS, describe_acls),
        (ApiKey.CREATE_ACLS, create_acls),
        (ApiKey.DELETE_ACLS, delete_acls),
        (ApiKey.ELECT_LEADERS, elect_leaders),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, reassign),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, list_reassignments),
        (ApiKey.DESCRIBE_QUORUM, describe_quorum),
        (ApiKey.LIST_CONFIG_RESOURCES, list_config_resources),
    )
}
