"""AlterReplicaLogDirs: a log is moved to another directory; there is one, so it stays where it is.

Versions
    1  the first one served
    2  flexible
"""

from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.log.directory import LogDirectory
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.segments.checkpoints import TopicPartition


class Move(NamedTuple):
    key: TopicPartition
    path: str


class Moved(NamedTuple):
    key: TopicPartition
    error: ErrorCode


def decode(version: int, data: Buffer, position: int = 0, end: int | None = None) -> list[Move]:
    return [
        Move(TopicPartition(topic["name"], number), where["path"])
        for where in decode_request(ApiKey.ALTER_REPLICA_LOG_DIRS, version, data, position, end)["dirs"]
        for topic in where["topics"]
        for number in topic["partitions"]
    ]


def alter_replica_log_dirs(moves: list[Move], directory: LogDirectory) -> list[Moved]:
    """A directory that is not ours counts before a log that is not there."""
    own = str(directory.path.absolute())

    def error(move: Move) -> ErrorCode:
        if move.path != own:
            return ErrorCode.LOG_DIR_NOT_FOUND
        return ErrorCode.NONE if move.key in directory.logs else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return [Moved(move.key, error(move)) for move in moves]


def encode(version: int, correlation_id: int, moved: list[Moved]) -> bytes:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (name, number), error in moved:
        topics.setdefault(name, []).append({"partitionIndex": number, "errorCode": error})
    results = [{"topicName": name, "partitions": partitions} for name, partitions in topics.items()]
    return encode_response(ApiKey.ALTER_REPLICA_LOG_DIRS, version, correlation_id, {"results": results})
