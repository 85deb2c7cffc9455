"""Records over a plain connection: batches in, records out."""

import time
from typing import Any

from muster.codec.batches import decode_records, encode_batch, read_header
from muster.codec.records import Record
from muster.protocol.apis import ApiKey
from tests.server.raw import Raw

PRODUCE, FETCH, LIST_OFFSETS = 12, 12, 7
LATEST, EARLIEST = -1, -2


def batch(*values: str, timestamp_ms: int | None = None, **more: Any) -> bytes:
    now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    return encode_batch([Record(n, now_ms, b"key", value.encode()) for n, value in enumerate(values)], **more)


def produce_body(topic: str, batches: dict[int, bytes], acks: int = -1, timeout_ms: int = 30_000) -> dict[str, Any]:
    data = [{"index": partition, "records": records} for partition, records in batches.items()]
    return {"acks": acks, "timeoutMs": timeout_ms, "topicData": [{"name": topic, "partitionData": data}]}


def produce(raw: Raw, topic: str, partition: int, records: bytes, **more: Any) -> tuple[int, int]:
    """Error code and base offset."""
    answer = raw.ask(ApiKey.PRODUCE, PRODUCE, **produce_body(topic, {partition: records}, **more))
    (told,) = answer["responses"][0]["partitionResponses"]
    return told["errorCode"], told["baseOffset"]


def fetch_body(topic: str, offsets: dict[int, int], **more: Any) -> dict[str, Any]:
    partitions = [
        {"partition": partition, "fetchOffset": offset, "partitionMaxBytes": 1 << 20}
        for partition, offset in offsets.items()
    ]
    given = {"maxWaitMs": 0, "minBytes": 1, "maxBytes": 1 << 24, "isolationLevel": 0, "sessionId": 0}
    return {
        **given, "sessionEpoch": -1, "topics": [{"topic": topic, "partitions": partitions}],
        "forgottenTopicsData": [], "rackId": "", **more,
    }  # fmt: skip


def fetch(raw: Raw, topic: str, partition: int, offset: int, **more: Any) -> dict[str, Any]:
    answer = raw.ask(ApiKey.FETCH, FETCH, **fetch_body(topic, {partition: offset}, **more))
    told: dict[str, Any] = answer["responses"][0]["partitions"][0]
    return told


def records_in(data: bytes) -> list[Record]:
    found, position = [], 0
    while position < len(data):
        header = read_header(data, position)
        found += decode_records(data, position, header)
        position += header.size_bytes
    return found


def all_values(raw: Raw, topic: str, partition: int) -> list[str]:
    """Everything that readers may see in a partition."""
    values: list[str] = []
    offset = 0
    while True:
        told = fetch(raw, topic, partition, offset)
        assert told["errorCode"] == 0, told
        if not told["records"]:
            assert told["highWatermark"] == offset
            return values
        records = [record for record in records_in(told["records"]) if record.offset >= offset]
        values += [(record.value or b"").decode() for record in records]
        offset = records[-1].offset + 1
