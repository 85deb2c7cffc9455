"""DescribeCluster: the nodes alone. Admin clients ask this where consumers ask Metadata.

Versions
    0  flexible from the start
    1  whether brokers or controllers are meant; we have brokers
    2  fenced brokers too, which a cluster of one node does not have
"""

from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.server.cluster.cluster import ALL_CLUSTER_OPERATIONS, NOT_ASKED, Cluster

BROKERS, CONTROLLERS = 1, 2


class DescribeClusterRequest(NamedTuple):
    endpoint_type: int = BROKERS
    wants_operations: bool = False


class DescribeClusterAnswer(NamedTuple):
    error: ErrorCode
    message: str | None = None
    cluster: Cluster | None = None
    operations: int = NOT_ASKED


def decode(version: int, data: Buffer, position: int = 0, end: int | None = None) -> DescribeClusterRequest:
    body = decode_request(ApiKey.DESCRIBE_CLUSTER, version, data, position, end)
    return DescribeClusterRequest(body["endpointType"], body["includeClusterAuthorizedOperations"])


def handle(request: DescribeClusterRequest, cluster: Cluster) -> DescribeClusterAnswer:
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterAnswer(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        message = f"Unsupported endpoint type {request.endpoint_type}"
        return DescribeClusterAnswer(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, message)
    operations = ALL_CLUSTER_OPERATIONS if request.wants_operations else NOT_ASKED
    return DescribeClusterAnswer(ErrorCode.NONE, None, cluster, operations)


def encode(version: int, correlation_id: int, answer: DescribeClusterAnswer) -> bytes:
    body: dict[str, Any] = {
        "errorCode": answer.error,
        "errorMessage": answer.message,
        "clusterAuthorizedOperations": answer.operations,
    }
    if answer.cluster is not None:
        node = answer.cluster.node
        body["clusterId"] = answer.cluster.cluster_id
        body["controllerId"] = node.node_id
        body["brokers"] = [{"brokerId": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}]
    return encode_response(ApiKey.DESCRIBE_CLUSTER, version, correlation_id, body)
