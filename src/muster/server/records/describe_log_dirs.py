"""DescribeLogDirs: the data directory, how large the logs in it are, and how much room there is.

Versions
    1  the first one served
    2  flexible
    3  an error for the whole answer
    4  the size of the volume, and what of it is free
    5  whether the directory takes no new logs; this one always does

There is one directory, and no log is on its way to another. Partitions that do not exist are left out.
"""

import os
from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.log.directory import LogDirectory
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.segments.checkpoints import TopicPartition

UNKNOWN_BYTES = -1


class DescribeLogDirsRequest(NamedTuple):
    partitions: frozenset[TopicPartition] | None
    """None: all there are."""


class LogDescribed(NamedTuple):
    key: TopicPartition
    size_bytes: int
    lag: int


class LogDirDescribed(NamedTuple):
    path: str
    logs: tuple[LogDescribed, ...]
    total_bytes: int
    usable_bytes: int


def decode(version: int, data: Buffer, position: int = 0, end: int | None = None) -> DescribeLogDirsRequest:
    topics = decode_request(ApiKey.DESCRIBE_LOG_DIRS, version, data, position, end)["topics"]
    if topics is None:
        return DescribeLogDirsRequest(None)
    return DescribeLogDirsRequest(
        frozenset(TopicPartition(topic["topic"], number) for topic in topics for number in topic["partitions"])
    )


def describe_log_dirs(request: DescribeLogDirsRequest, directory: LogDirectory) -> LogDirDescribed:
    described = [
        LogDescribed(key, log.size_bytes, max(log.high_watermark - log.end_offset, 0))
        for key, log in sorted(directory.logs.items(), key=lambda item: item[0])
        if request.partitions is None or key in request.partitions
    ]
    return LogDirDescribed(str(directory.path.absolute()), tuple(described), *_room(directory))


def _room(directory: LogDirectory) -> tuple[int, int]:
    """Of the volume: all bytes, and those that are free for us."""
    try:
        volume = os.statvfs(directory.path)
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize


def encode(version: int, correlation_id: int, described: LogDirDescribed) -> bytes:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (name, number), size_bytes, lag in described.logs:
        told = {"partitionIndex": number, "partitionSize": size_bytes, "offsetLag": lag, "isFutureKey": False}
        topics.setdefault(name, []).append(told)
    result = {
        "errorCode": ErrorCode.NONE,
        "logDir": described.path,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "totalBytes": described.total_bytes,
        "usableBytes": described.usable_bytes,
        "isCordoned": False,
    }
    return encode_response(ApiKey.DESCRIBE_LOG_DIRS, version, correlation_id, {"results": [result]})
