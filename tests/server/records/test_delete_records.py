"""Records that were deleted are gone, and stay so."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from muster.broker import Broker
from muster.codec.error_codes import ErrorCode
from muster.errors import LogDamaged
from muster.protocol.apis import ApiKey
from tests.server.raw import Raw
from tests.server.records.talking import batch, fetch, produce, records_in


def delete(raw: Raw, offset: int, topic: str = "orders") -> tuple[int, int]:
    """The error, and where the log begins."""
    asked = [{"name": topic, "partitions": [{"partitionIndex": 0, "offset": offset}]}]
    (told,) = raw.ask(ApiKey.DELETE_RECORDS, 2, topics=asked, timeoutMs=10_000)["topics"][0]["partitions"]
    return told["errorCode"], told["lowWatermark"]


def filled(broker: Broker, raw: Raw) -> None:
    broker.create_topic("orders")
    for value in "abcdef":
        assert produce(raw, "orders", 0, batch(value))[0] == 0


def first_values(raw: Raw, offset: int) -> list[Any]:
    told = fetch(raw, "orders", 0, offset)
    assert (told["errorCode"], told["logStartOffset"]) == (0, offset)
    return [record.value for record in records_in(told["records"])]


def test_they_stay_deleted_when_the_server_is_killed(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "data") as broker, Raw((broker.host, broker.port)) as raw:
        filled(broker, raw)
        assert delete(raw, 4) == (0, 4)
        assert delete(raw, 2) == (0, 4), "what is gone does not come back"
        assert fetch(raw, "orders", 0, 3)["errorCode"] == ErrorCode.OFFSET_OUT_OF_RANGE
        assert first_values(raw, 4) == [b"e", b"f"]
        shutil.copytree(tmp_path / "data", tmp_path / "killed")
    for data in ("data", "killed"):
        with Broker(data=tmp_path / data) as broker, Raw((broker.host, broker.port)) as raw:
            assert first_values(raw, 4) == [b"e", b"f"]
            assert delete(raw, -1) == (0, 6)
            assert produce(raw, "orders", 0, batch("g")) == (0, 6)


def test_a_disk_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker, Raw((broker.host, broker.port)) as raw:
        filled(broker, raw)
        assert broker._server is not None

        def failing() -> None:
            raise LogDamaged("the log starts could not be written: no space.")

        with monkeypatch.context() as broken:
            broken.setattr(broker._server.parts.directory, "write_log_starts", failing)
            assert delete(raw, 3) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert delete(raw, 3) == (0, 3)
