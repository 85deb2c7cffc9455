"""Fetch: the request, and its answer with the records left where they are. No sessions: a request names all it wants.

Topics are named up to version 12 and go by id from 13 on, so the caller says which ids belong to which names. Aborted
transactions are not listed, as we always read uncommitted: the markers are in the log.
"""

from collections.abc import Mapping
from typing import NamedTuple

from muster.codec.primitives import Reader
from muster.errors import Malformed
from muster.live.frames import Api, In, Out
from muster.live.messages import CONSUMER, NO_EPOCH, READ_UNCOMMITTED, TopicPartition, by_topic

LAST_BY_NAME = 12
_NO_SESSION, _WITHOUT_SESSION = 0, -1
_NO_OFFSET = -1
_DIVERGING_EPOCH = 0
"""Its tag."""


class FetchFrom(NamedTuple):
    offset: int
    max_bytes: int
    """The first batch of a whole answer comes even if it is larger; those of other partitions are left out then."""
    last_epoch: int = NO_EPOCH
    """Leader epoch of the record before `offset`, if we have it: the leader (of version 12) compares."""


class Fetched(NamedTuple):
    """One partition's part of an answer; `records` are in `frame[start:end]`, the last batch perhaps cut off."""

    error: int
    high_watermark: int
    log_start_offset: int
    frame: memoryview
    start: int
    end: int
    diverging_offset: int | None = None
    """Where the leader's log and ours part, if they do; there are no records then."""


def encode_fetch(
    version: int,
    wanted: Mapping[TopicPartition, FetchFrom],
    topic_ids: Mapping[str, bytes],
    max_bytes: int,
    max_wait_ms: int,
) -> bytes:
    out = Out(Api.FETCH, version)
    writer = out.writer
    if version < 15:
        writer.int32(CONSUMER)
    writer.int32(max_wait_ms)
    writer.int32(1)  # as soon as there is anything
    writer.int32(max_bytes)
    writer.int8(READ_UNCOMMITTED)
    if version >= 7:
        writer.int32(_NO_SESSION)
        writer.int32(_WITHOUT_SESSION)
    topics = by_topic(wanted)
    out.count(len(topics))
    for topic, numbers in topics.items():
        if version > LAST_BY_NAME:
            writer.uuid(topic_ids[topic])
        else:
            out.string(topic)
        out.count(len(numbers))
        for number in numbers:
            _encode_partition(out, version, number, wanted[topic, number])
        out.tags()
    if version >= 7:
        out.count(0)  # nothing to forget without a session
    if version >= 11:
        out.string("")  # our rack is unknown, so the leader answers itself
    out.tags()
    return writer.finish()


def _encode_partition(out: Out, version: int, number: int, wanted: FetchFrom) -> None:
    writer = out.writer
    writer.int32(number)
    if version >= 9:
        writer.int32(NO_EPOCH)
    writer.int64(wanted.offset)
    if version >= 12:
        writer.int32(wanted.last_epoch)
    if version >= 5:
        writer.int64(_NO_OFFSET)
    writer.int32(wanted.max_bytes)
    out.tags()


def decode_fetch(
    version: int, frame: memoryview, position: int, topic_ids: Mapping[str, bytes]
) -> tuple[int, int, dict[TopicPartition, Fetched]]:
    """Throttle time in ms, the error of the whole request, and what each partition gave."""
    answer = In(Api.FETCH, version, frame, position)
    reader = answer.reader
    throttle_ms = reader.int32()
    error = 0
    if version >= 7:
        error = reader.int16()
        reader.int32()  # the session
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    partitions: dict[TopicPartition, Fetched] = {}
    for _ in range(answer.count()):
        if version > LAST_BY_NAME:
            topic = names.get(topic_id := reader.uuid())
            if topic is None:
                raise Malformed(f"an answer about topic id {topic_id.hex()}, which was not asked for")
        else:
            topic = answer.string()
        for _ in range(answer.count()):
            number, fetched = _decode_partition(answer, version, frame)
            partitions[topic, number] = fetched
        answer.tags()
    return throttle_ms, error, partitions


def _decode_partition(answer: In, version: int, frame: memoryview) -> tuple[int, Fetched]:
    reader = answer.reader
    number, error, high_watermark = reader.int32(), reader.int16(), reader.int64()
    reader.int64()  # the last stable offset
    log_start_offset = reader.int64() if version >= 5 else _NO_OFFSET
    for _ in range(answer.count()):
        reader.raw(16)  # an aborted transaction
        answer.tags()
    if version >= 11:
        reader.int32()  # a replica we might rather ask
    start, end = answer.skip_records()
    diverging = dict(answer.tags()).get(_DIVERGING_EPOCH)
    diverging_offset = None
    if diverging is not None:
        epoch = Reader(diverging)
        epoch.int32()
        diverging_offset = epoch.int64()
    return number, Fetched(error, high_watermark, log_start_offset, frame, start, end, diverging_offset)
