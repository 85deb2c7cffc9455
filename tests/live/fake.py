"""A broker of a few lines, for what a real one cannot be made to do: it lies, falls silent, and hangs up on request.

Answers are made by the server's own layouts. A `Script` says what each request is answered with: a body, raw bytes,
HANG or HANG_UP.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from muster.codec import Record, encode_batch
from muster.live.requests import SPOKEN
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_header, decode_request, encode_response

HANG, HANG_UP = object(), object()
TOPIC, TOPIC_ID = "offsets", bytes(range(16))
Script = Callable[[ApiKey, int, Any], Any]


class FakeBroker:
    """Listens on loopback until closed. `asked` has every request it understood: API, version, body."""

    def __init__(self, script: Script, versions: dict[int, tuple[int, int]] | None = None) -> None:
        self._script = script
        self._versions = SPOKEN if versions is None else versions
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._links: list[socket.socket] = []
        self._closed = threading.Event()
        self.asked: list[tuple[ApiKey, int, Any]] = []
        self.port: int = self._listener.getsockname()[1]
        self.config = {"bootstrap.servers": f"127.0.0.1:{self.port}"}
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "FakeBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed.set()
        self._listener.close()
        for link in self._links:
            link.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._listener.accept()
                self._links.append(link)
                threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), link:
            while True:
                frame = _exactly(link, int.from_bytes(_exactly(link, 4), "big"))
                api_key, version, correlation_id, _, position = decode_header(frame)
                answer = self._answer(ApiKey(api_key), version, frame, position)
                if answer is HANG:
                    self._closed.wait(30)
                    return
                if answer is HANG_UP:
                    return
                if isinstance(answer, dict):
                    answer = encode_response(api_key, version, correlation_id, answer)
                elif api_key == ApiKey.API_VERSIONS:
                    answer = struct.pack(">ii", len(answer) + 4, correlation_id) + answer
                link.sendall(answer)

    def _answer(self, api: ApiKey, version: int, frame: bytes, position: int) -> Any:
        if api is not ApiKey.API_VERSIONS:
            body = decode_request(api, version, frame, position)
            self.asked.append((api, version, body))
            return self._script(api, version, body)
        answer = self._script(api, version, None)
        if answer is not None:
            return answer
        entries = [struct.pack(">hhh", key, *span) for key, span in self._versions.items()]
        return struct.pack(">hi", 0, len(entries)) + b"".join(entries)

    def count(self, api: ApiKey) -> int:
        return sum(asked is api for asked, _, _ in list(self.asked))


def _exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def batch(first: int, last: int | None = None, size: int = 10, epoch: int = 0, **options: Any) -> bytes:
    """A batch of records with these offsets, whose timestamps are a thousand times their offsets."""
    last = first if last is None else last
    records = [Record(offset, 1000 * offset, b"k", b"v" * size) for offset in range(first, last + 1)]
    return encode_batch(records, leader_epoch=epoch, **options)


@dataclass
class FakeLog:
    """One partition, and what a leader says of it."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    fetches: int = 0
    segments: tuple[int, ...] = ()
    """Where segments begin: an answer goes no further."""
    cut_at: int | None = None
    """Where the log was truncated by a new leader, which has written on from there."""

    @classmethod
    def of(cls, *batches: bytes, start: int = 0) -> "FakeLog":
        log = cls(start=start)
        for data in batches:
            (base,) = struct.unpack_from(">q", data)
            (delta,) = struct.unpack_from(">i", data, 23)
            log.batches.append((base, base + delta, data))
            log.end = base + delta + 1
        return log

    def read(self, offset: int, max_bytes: int) -> bytes:
        """As a broker reads: from the batch with the offset on, the first whole, the last cut off."""
        first = next((base for base, last, _ in self.batches if last >= offset), 0)
        end = min((begin for begin in self.segments if begin > first), default=self.end)
        found = [data for base, last, data in self.batches if last >= offset and base < end]
        return b"".join(found)[: max(max_bytes, len(found[0]))] if found else b""

    def fetched(self, asked: Any) -> dict[str, Any]:
        self.fetches += 1
        offset = asked["fetchOffset"]
        if asked["lastFetchedEpoch"] >= 0 and self.cut_at is not None and offset > self.cut_at:
            return fetched_partition(asked["partition"], 0, self.end, b"", (0, self.cut_at))
        inside = self.start <= offset <= self.end
        records = self.read(offset, asked["partitionMaxBytes"]) if inside else None
        return fetched_partition(asked["partition"], 0 if inside else 1, self.end if inside else -1, records)


def fetched_partition(
    partition: int, error: int, high_watermark: int, records: bytes | None, diverging: tuple[int, int] = (-1, -1)
) -> dict[str, Any]:
    epoch, end_offset = diverging
    return {
        "partitionIndex": partition, "errorCode": error, "highWatermark": high_watermark,
        "lastStableOffset": high_watermark, "logStartOffset": -1,
        "divergingEpoch": {"epoch": epoch, "endOffset": end_offset},
        "currentLeader": {"leaderId": -1, "leaderEpoch": -1}, "snapshotId": {"endOffset": -1, "epoch": -1},
        "abortedTransactions": None, "preferredReadReplica": -1, "records": records,
    }  # fmt: skip


class FakeCluster:
    """Brokers by id over the same logs, of one topic. Change `leaders`, `errors` and `on` as a test goes on.

    `errors` are answered once each, to the next questions about any partition; `on` overrides the answer to an API.
    """

    def __init__(self, *logs: FakeLog, brokers: int = 1, versions: dict[int, tuple[int, int]] | None = None) -> None:
        self.logs = logs
        self.leaders = dict.fromkeys(range(len(logs)), 1)
        self.errors: list[int] = []
        self.topic_error = 0
        self.throttle_ms = 0
        self.epoch, self.epoch_end = 3, (3, 42)
        self.on: dict[ApiKey, Callable[[int, Any], Any]] = {}
        self.brokers = {number: FakeBroker(self._script(number), versions) for number in range(1, brokers + 1)}

    @property
    def config(self) -> dict[str, str]:
        return self.brokers[1].config

    @property
    def fetches(self) -> list[Any]:
        """The Fetch requests that the first broker got."""
        return [body for api, _, body in self.brokers[1].asked if api is ApiKey.FETCH]

    def __enter__(self) -> "FakeCluster":
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            broker.close()

    def _script(self, broker: int) -> Script:
        def answer(api: ApiKey, version: int, body: Any) -> Any:
            if api in self.on and (answered := self.on[api](broker, body)) is not None:
                return answered
            match api:
                case ApiKey.METADATA:
                    return self._metadata()
                case ApiKey.LIST_OFFSETS:
                    return self._per_partition("name", "partitionIndex", body, self._listed, broker)
                case ApiKey.FETCH:
                    parts = self._per_partition("topic", "partition", body, self._fetched, broker)
                    topics = [topic | {"topicId": TOPIC_ID} for topic in parts["topics"]]
                    return {"errorCode": 0, "sessionId": 0, "responses": topics, "nodeEndpoints": [],
                            "throttleTimeMs": self.throttle_ms}  # fmt: skip
                case ApiKey.DESCRIBE_CONFIGS:
                    return {"throttleTimeMs": 0, "results": []}
                case ApiKey.OFFSET_FOR_LEADER_EPOCH:
                    return self._per_partition("topic", "partition", body, self._epoch, broker)
            return None

        return answer

    def _metadata(self) -> dict[str, Any]:
        partitions = [
            {"errorCode": 0, "partitionIndex": number, "leaderId": leader, "leaderEpoch": self.epoch,
             "replicaNodes": [1], "isrNodes": [1], "offlineReplicas": []}
            for number, leader in self.leaders.items()
        ]  # fmt: skip
        topic = {
            "errorCode": self.topic_error, "name": TOPIC, "topicId": TOPIC_ID, "isInternal": True,
            "partitions": partitions, "topicAuthorizedOperations": 0,
        }  # fmt: skip
        brokers = [
            {"nodeId": number, "host": "127.0.0.1", "port": broker.port, "rack": None}
            for number, broker in self.brokers.items()
        ]
        return {
            "throttleTimeMs": 0, "brokers": brokers, "clusterId": "fake", "controllerId": 1, "topics": [topic],
            "clusterAuthorizedOperations": 0, "errorCode": 0,
        }  # fmt: skip

    def _per_partition(
        self, name: str, number: str, body: Any, each: Callable[[Any, int], Any], broker: int
    ) -> dict[str, Any]:
        topics = []
        for topic in body["topics"]:
            partitions = []
            for one in topic["partitions"]:
                error = self.errors.pop(0) if self.errors else 0
                error = error or (0 if self.leaders[one[number]] == broker else 6)
                partitions.append(each(one, error))
            topics.append({name: TOPIC, "partitions": partitions})
        return {"throttleTimeMs": self.throttle_ms, "topics": topics}

    def _listed(self, asked: Any, error: int) -> dict[str, Any]:
        log = self.logs[asked["partitionIndex"]]
        offset = log.start if asked["timestamp"] == -2 else log.end
        return {"partitionIndex": asked["partitionIndex"], "errorCode": error, "timestamp": -1,
                "offset": -1 if error else offset, "leaderEpoch": 3}  # fmt: skip

    def _fetched(self, asked: Any, error: int) -> dict[str, Any]:
        if error:
            return fetched_partition(asked["partition"], error, -1, None)
        return self.logs[asked["partition"]].fetched(asked)

    def _epoch(self, asked: Any, error: int) -> dict[str, Any]:
        epoch, end_offset = self.epoch_end
        return {"errorCode": error, "partition": asked["partition"], "leaderEpoch": epoch, "endOffset": end_offset}


@contextlib.contextmanager
def says(*parts: bytes) -> Iterator[int]:
    """A port that answers whatever it hears with these bytes, and then nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    link, _ = listener.accept()
                    links.append(link)
                    link.recv(1 << 16)
                    for part in parts:
                        link.sendall(part)

        links: list[socket.socket] = []
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        for link in links:
            link.close()
