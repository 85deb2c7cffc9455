"""The answer to a request that says nothing but an error, for every API and version, made from the two layouts.

Kafka has such a method for each request. Here one rule does: an error goes to the highest place in the response that
has one, and what the request names on the way there (topics, partitions, groups) is named in the response. Metadata has
a place for an error of the whole since version 13, and its clients look for those of topics. A Fetch has a session, and
is answered with it (`faults.py`).
"""

from typing import Any

from muster.codec.layouts import Field, StructData
from muster.protocol.apis import ApiKey
from muster.protocol.messages import RESPONSE, encode_response, message
from muster.server.cluster.cluster import Node

ERRORS = ("errorCode", "partitionErrorCode")
_LISTED_AS = {
    "responses": ("topicData", "topics", "topicNames", "resources"),
    "partitionResponses": ("partitionData",),
    "partitions": ("partitions", "partitionIndexes"),
    "coordinators": ("coordinatorKeys",),
    "results": ("groupsNames", "resources", "topics", "creations"),
    "filterResults": ("filters",),
    "replicaElectionResults": ("topicPartitions",),
    "partitionResult": ("partitions",),
    "resultsByTopicV3AndBelow": ("v3AndBelowTopics",),
    "resultsByPartition": ("partitions",),
    "transactionStates": ("transactionalIds",),
}
"""Where a request has the list that its response answers, if not under the same name."""
_NAMED_AS = {
    "partitionIndex": "partition",
    "partition": "partitionIndex",
    "topic": "name",
    "name": "topic",
    "topicName": "name",
}
_NAMES = ("key", "groupId", "transactionalId", "name", "topic", "partitionIndex", "partition", "partitionId")
"""What a response calls that of which a request has just the name or number."""


def error_response(
    api_key: int, version: int, correlation_id: int, request: StructData, error: int, sentence: str, node: Node
) -> bytes:
    """A whole frame."""
    fields = message(api_key, RESPONSE).fields
    body = _answered(fields, version, request, error, sentence, to_the_parts=api_key == ApiKey.METADATA)
    if api_key == ApiKey.METADATA:  # a client that hears of no broker forgets the one it talks to
        body["brokers"] = [{"nodeId": node.node_id, "host": node.host, "port": node.port}]
        body["controllerId"] = node.node_id
    return encode_response(api_key, version, correlation_id, body)


def _answered(
    fields: tuple[Field, ...], version: int, request: Any, error: int, sentence: str, *, to_the_parts: bool = False
) -> StructData:
    present = [field for field in fields if version in field.versions and field.tag is None]
    lists = [field for field in present if field.is_array and _has_error(field, version)]
    goes_here = any(field.name in ERRORS for field in present)
    if to_the_parts and any(_named(field, request) for field in lists):
        goes_here = False
    body: StructData = {}
    for field in present:
        if field.name in ERRORS:
            body[field.name] = error if goes_here else 0
        elif field.name == "errorMessage":
            body[field.name] = sentence
        elif field in lists:
            named = [] if goes_here else _named(field, request)
            body[field.name] = [_answered(field.fields, version, one, error, sentence) for one in named]
        elif not field.is_array and field.kind != "struct":
            body[field.name] = _scalar(field, request)
    return body


def _has_error(field: Field, version: int) -> bool:
    return any(
        version in inner.versions and (inner.name in ERRORS or (inner.is_array and _has_error(inner, version)))
        for inner in field.fields
    )


def _named(field: Field, request: Any) -> list[Any]:
    if not isinstance(request, dict):
        return []
    if "dirs" in request:  # of AlterReplicaLogDirs, whose answer is by topic
        return [topic for directory in request["dirs"] for topic in directory["topics"]]
    names = (field.name, *_LISTED_AS.get(field.name, ()))
    return next((request[name] for name in names if request.get(name)), [])


def _scalar(field: Field, request: Any) -> Any:
    if isinstance(request, dict):
        for name in (field.name, _NAMED_AS.get(field.name, "")):
            if name in request and not isinstance(request[name], list):
                return request[name]
    elif field.name in _NAMES:
        return request
    if field.kind == "int64":
        return -1
    return b"" if field.kind == "records" else field.default
