"""Settings of topics that are changed: they count from the next record on, and outlive the server."""

from pathlib import Path
from typing import Any

import pytest

from muster.broker import Broker
from muster.codec.batches import iter_batches
from muster.codec.error_codes import ErrorCode
from muster.protocol.apis import ApiKey
from muster.server.cluster import alter_configs
from tests.server.cluster.asking import a_topic, memory_cluster
from tests.server.raw import Raw
from tests.server.records.talking import batch, fetch, produce, records_in

TOPIC, BROKER = 2, 4
LONG_AGO_MS = 1_000_000_000_000


def alter(raw: Raw, name: str, kind: int = TOPIC, **settings: str) -> tuple[int, str | None]:
    configs = [{"name": key.replace("_", "."), "configOperation": 0, "value": value} for key, value in settings.items()]
    asked = [{"resourceType": kind, "resourceName": name, "configs": configs}]
    (told,) = raw.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=asked, validateOnly=False)["responses"]
    return told["errorCode"], told["errorMessage"]


def described(raw: Raw, name: str) -> dict[str, Any]:
    asked = [{"resourceType": TOPIC, "resourceName": name, "configurationKeys": None}]
    (told,) = raw.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=asked)["results"]
    return {one["name"]: one["value"] for one in told["configs"]}


def times(raw: Raw) -> list[bool]:
    """Whether the log has given each record its time."""
    found: list[bool] = []
    while data := fetch(raw, "orders", 0, len(found))["records"]:  # a fetch ends with its segment
        found += [record.timestamp_ms > LONG_AGO_MS for record in records_in(data)]
    return found


def test_they_count_from_the_next_record_on_and_after_a_restart(tmp_path: Path) -> None:
    old = batch("a", timestamp_ms=LONG_AGO_MS)
    with Broker(data=tmp_path / "data") as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic("orders", partitions=2)
        assert produce(raw, "orders", 0, old)[0] == 0
        assert alter(raw, "orders", message_timestamp_type="LogAppendTime", max_message_bytes="100") == (0, None)
        assert produce(raw, "orders", 0, old)[0] == 0
        assert times(raw) == [False, True]
        assert produce(raw, "orders", 1, batch("x" * 100))[0] == ErrorCode.MESSAGE_TOO_LARGE
    with Broker(data=tmp_path / "data") as broker, Raw((broker.host, broker.port)) as raw:
        assert described(raw, "orders")["max.message.bytes"] == "100"
        assert produce(raw, "orders", 0, old)[0] == 0
        assert times(raw) == [False, True, True]
        assert alter(raw, "orders", message_timestamp_type="CreateTime", max_message_bytes="200") == (0, None)
        assert produce(raw, "orders", 0, old)[0] == 0
        assert times(raw) == [False, True, True, False]
        assert produce(raw, "orders", 1, batch("x" * 100))[0] == 0


def test_segments_become_as_large_as_is_said(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "data", log_segment_bytes=10 << 20) as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic("orders")
        produce(raw, "orders", 0, batch("x" * 600_000))
        assert alter(raw, "orders", segment_bytes=str(1 << 20)) == (0, None)
        for _ in range(2):
            assert produce(raw, "orders", 0, batch("x" * 600_000))[0] == 0
        assert len(list((tmp_path / "data" / "orders-0").glob("*.log"))) == 3


def test_records_are_packed_as_the_topic_asks() -> None:
    """Large ones too, which are checked in compiled code if it is there."""
    values = [letter * 30_000 for letter in "ab"]
    with Broker() as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic("orders", configs={"compression.type": "gzip", "compression.gzip.level": "1"})
        for kind in ("gzip", "snappy", "lz4", "zstd", "uncompressed", "producer"):
            assert alter(raw, "orders", compression_type=kind) == (0, None)
            for codec in (0, 1):
                assert produce(raw, "orders", 0, batch(*values, codec=codec))[0] == 0
        kept: list[int] = []
        while data := fetch(raw, "orders", 0, 2 * len(kept))["records"]:
            for read in iter_batches(data):
                assert read.problem is None
                assert [(record.value or b"").decode() for record in read.records] == values
                kept.append(read.header.codec)
        assert kept == [1, 1, 2, 2, 3, 3, 4, 4, 0, 0, 0, 1]


def test_a_disk_that_fails_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic("orders")
        before = described(raw, "orders")
        assert broker._server is not None

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as broken:
            broken.setattr(broker._server.parts.directory.registry, "put", full)
            error, message = alter(raw, "orders", max_message_bytes="100")
        assert error == ErrorCode.KAFKA_STORAGE_ERROR
        assert "No space left on device" in (message or "")
        assert described(raw, "orders") == before
        assert produce(raw, "orders", 0, batch("x" * 100))[0] == 0


class Part(str):
    """Counts how often it is compared with another."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Part.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class Parts(str):
    __slots__ = ()

    def split(self, *_: Any) -> list[Any]:
        return [Part(part) for part in super().split(",")]


@pytest.mark.parametrize("operation", [alter_configs.APPEND, alter_configs.SUBTRACT])
def test_a_list_of_very_many_parts_is_not_compared_part_by_part(operation: int) -> None:
    count = 3_000
    there = Parts(",".join(f"there-{number}" for number in range(count)))
    given = Parts(",".join([f"given-{number}" for number in range(count)] * 2))
    topic = a_topic("orders")._replace(configs={"cleanup.policy": there})
    change = alter_configs.Change("cleanup.policy", operation, given)
    request = alter_configs.AlterConfigsRequest(
        (alter_configs.ResourceToAlter(TOPIC, "orders", (change,)),), validate_only=True, is_incremental=True
    )
    Part.comparisons = 0
    (told,) = alter_configs.plan_alter_configs(request, memory_cluster(topic)).answer([]).resources
    assert told.error is ErrorCode.INVALID_CONFIG
    assert Part.comparisons < 4 * count


def test_settings_of_the_server_are_not_changed() -> None:
    with Broker() as broker, Raw((broker.host, broker.port)) as raw:
        before = described(raw, "__consumer_offsets")
        assert alter(raw, "__consumer_offsets", cleanup_policy="delete")[0] == ErrorCode.INVALID_REQUEST
        assert described(raw, "__consumer_offsets") == before
        error, message = alter(raw, "1", kind=BROKER, log_retention_ms="5")
        assert error == ErrorCode.INVALID_REQUEST
        assert "those of the server are read from its file when it starts" in (message or "")
