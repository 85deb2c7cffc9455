"""A partition downloaded from brokers that move, lose their log's start, throttle, cut batches off, or lie."""

import struct
import time
from pathlib import Path

import pytest

from muster.codec import iter_batches
from muster.codec.compression import ZSTD
from muster.errors import ClusterError, ClusterUnreachable
from muster.live import cluster as live_cluster
from muster.live import download as module
from muster.live.download import download
from muster.live.requests import SPOKEN
from muster.protocol.apis import ApiKey
from tests.live.fake import HANG_UP, TOPIC, FakeCluster, FakeLog, batch, fetched_partition


def pieces(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def offsets(data: bytes) -> list[int]:
    return [record.offset for one in iter_batches(data) for record in one.records]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CATCHING_UP_S", 0.3)
    monkeypatch.setattr(live_cluster, "PATIENCE_S", 2.0)


@pytest.mark.parametrize("version", range(SPOKEN[ApiKey.FETCH][0], SPOKEN[ApiKey.FETCH][1] + 1))
def test_every_version_of_fetch(version: int, tmp_path: Path) -> None:
    batches = [batch(0, 4), batch(5, codec=ZSTD), batch(9, 12)]
    with FakeCluster(FakeLog.of(*batches), versions=SPOKEN | {ApiKey.FETCH: (version, version)}) as fake:
        assert download(fake.config, TOPIC, 0, 0, None, tmp_path) == 13
        assert {asked for api, asked, _ in fake.brokers[1].asked if api is ApiKey.FETCH} == {version}
    assert pieces(tmp_path) == {"00000000000000000000.log": b"".join(batches)}


def test_topics_without_ids_are_fetched_by_name(tmp_path: Path) -> None:
    with FakeCluster(FakeLog.of(batch(0)), versions=SPOKEN | {ApiKey.METADATA: (4, 9)}) as fake:
        assert download(fake.config, TOPIC, 0, 0, None, tmp_path) == 1
        assert {version for api, version, _ in fake.brokers[1].asked if api is ApiKey.FETCH} == {12}


def test_in_many_answers_each_cut_off_somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [batch(3 * number, 3 * number + 2, size=number) for number in range(200)]
    monkeypatch.setattr(module, "FETCH_BYTES", 777)
    with FakeCluster(FakeLog.of(*batches)) as fake:
        seen: list[int] = []
        assert download(fake.config, TOPIC, 0, 0, None, tmp_path, seen.append) == 600
        assert fake.logs[0].fetches > 10
    assert pieces(tmp_path) == {"00000000000000000000.log": b"".join(batches)}
    assert sum(seen) == len(b"".join(batches))


def test_more_batches_than_the_table_has_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.live.download._ROWS", 7)
    batches = [batch(number) for number in range(50)]
    with FakeCluster(FakeLog.of(*batches)) as fake:
        assert download(fake.config, TOPIC, 0, 0, 33, tmp_path) == 33
    assert pieces(tmp_path) == {"00000000000000000000.log": b"".join(batches[:33])}


def test_whole_batches_from_and_to_the_middle_of_one(tmp_path: Path) -> None:
    batches = [batch(0, 4), batch(5, 9), batch(10, 14), batch(15, 19)]
    with FakeCluster(FakeLog.of(*batches)) as fake:
        assert download(fake.config, TOPIC, 0, 7, 12, tmp_path) == 15
    assert pieces(tmp_path) == {"00000000000000000005.log": b"".join(batches[1:3])}


def test_nothing_new_is_no_file_and_no_wait(tmp_path: Path) -> None:
    with FakeCluster(FakeLog.of(batch(0, 4))) as fake:
        started = time.monotonic()
        assert download(fake.config, TOPIC, 0, 5, None, tmp_path) == 5
        assert download(fake.config, TOPIC, 0, 5, 5, tmp_path) == 5
        assert time.monotonic() - started < 0.3
    assert pieces(tmp_path) == {}


def test_an_end_that_the_cleaner_has_taken_away(tmp_path: Path) -> None:
    """Offsets 5 to 9 are gone, and the end of the plan lies among them."""
    with FakeCluster(FakeLog.of(batch(0, 4), batch(10))) as fake:
        assert download(fake.config, TOPIC, 0, 5, 8, tmp_path) == 8
    assert pieces(tmp_path) == {}


def test_the_log_start_has_moved_past_us(tmp_path: Path) -> None:
    with FakeCluster(FakeLog.of(batch(10, 14), batch(15), start=10)) as fake:
        assert download(fake.config, TOPIC, 0, 3, 16, tmp_path) == 16
    assert list(pieces(tmp_path)) == ["00000000000000000010.log"]


def test_the_log_ends_before_us(tmp_path: Path) -> None:
    with FakeCluster(FakeLog.of(batch(0, 4))) as fake, pytest.raises(ClusterError, match="truncated"):
        download(fake.config, TOPIC, 0, 9, None, tmp_path)


def test_a_log_shorter_than_planned_gives_what_it_has(tmp_path: Path) -> None:
    with FakeCluster(FakeLog.of(batch(0, 4))) as fake:
        assert download(fake.config, TOPIC, 0, 0, 9, tmp_path) == 5
    assert offsets(pieces(tmp_path)["00000000000000000000.log"]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("last_word", [None, HANG_UP])
def test_the_leader_changes_in_between(last_word: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old one says NOT_LEADER_OR_FOLLOWER, or is gone in the middle of a request."""
    batches = [batch(number) for number in range(20)]
    monkeypatch.setattr(module, "FETCH_BYTES", 3 * len(batches[0]))
    with FakeCluster(FakeLog.of(*batches), brokers=2) as fake:

        def move(broker: int, body: object) -> object:
            if fake.logs[0].fetches == 2:
                fake.leaders[0] = 2
            return last_word if broker == 1 and fake.leaders[0] == 2 else None

        fake.on[ApiKey.FETCH] = move
        assert download(fake.config, TOPIC, 0, 0, None, tmp_path) == 20
        assert fake.brokers[1].count(ApiKey.FETCH) == 3
        assert fake.brokers[2].count(ApiKey.FETCH) == 5
    assert pieces(tmp_path) == {"00000000000000000000.log": b"".join(batches)}


def test_a_new_leader_that_has_lost_what_we_have_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unclean election: two histories must not end up in one file unnoticed."""
    batches = [batch(number) for number in range(9)]
    monkeypatch.setattr(module, "FETCH_BYTES", 3 * len(batches[0]))
    with FakeCluster(FakeLog.of(*batches)) as fake:
        fake.logs[0].cut_at = 4
        with pytest.raises(ClusterError, match=r"ends at offset 4.* offset 6 was to be read next.*truncated"):
            download(fake.config, TOPIC, 0, 0, None, tmp_path)


def test_a_start_that_moves_while_we_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read last has gone, and its epoch says nothing about the record that comes next."""
    batches = [batch(number) for number in range(9)]
    monkeypatch.setattr(module, "FETCH_BYTES", 3 * len(batches[0]))
    log = FakeLog.of(*batches)
    with FakeCluster(log) as fake:

        def trim(broker: int, body: object) -> None:
            if log.fetches == 1:
                log.start, log.cut_at = 7, 3

        fake.on[ApiKey.FETCH] = trim
        assert download(fake.config, TOPIC, 0, 0, None, tmp_path) == 9
    assert pieces(tmp_path) == {"00000000000000000000.log": b"".join(batches[:3] + batches[7:])}


def test_a_start_that_runs_away(tmp_path: Path) -> None:
    log = FakeLog.of(batch(1 << 40))
    with FakeCluster(log) as fake:

        def run(broker: int, body: object) -> None:
            log.start += 10

        fake.on[ApiKey.FETCH] = run
        with pytest.raises(ClusterError, match="was to be read next"):
            download(fake.config, TOPIC, 0, 0, None, tmp_path)


def test_a_leader_that_is_gone_for_good(tmp_path: Path) -> None:
    with FakeCluster(FakeLog.of(batch(0))) as fake:
        fake.on[ApiKey.FETCH] = lambda broker, body: HANG_UP
        with pytest.raises(ClusterUnreachable, match="hung up on Fetch"):
            download(fake.config, TOPIC, 0, 0, None, tmp_path)


def test_a_partition_without_a_leader(tmp_path: Path) -> None:
    with FakeCluster(FakeLog.of(batch(0))) as fake:
        fake.leaders[0] = -1
        with pytest.raises(ClusterUnreachable, match="offsets-0 has no leader"):
            download(fake.config, TOPIC, 0, 0, None, tmp_path)


def test_errors_that_pass_are_waited_for(tmp_path: Path) -> None:
    with FakeCluster(FakeLog.of(batch(0, 4))) as fake:
        fake.errors = [6, 5, 3, 74]
        assert download(fake.config, TOPIC, 0, 0, None, tmp_path) == 5


def test_an_error_that_does_not_pass(tmp_path: Path) -> None:
    with FakeCluster(FakeLog.of(batch(0, 4))) as fake:
        fake.errors = [29]
        with pytest.raises(ClusterError, match=r"no rights on topic offsets.*kafka-acls"):
            download(fake.config, TOPIC, 0, 0, None, tmp_path)
        fake.errors = [76]
        with pytest.raises(ClusterError, match="UNSUPPORTED_COMPRESSION_TYPE"):
            download(fake.config, TOPIC, 0, 0, None, tmp_path)


def test_a_batch_larger_than_asked_for_comes_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FETCH_BYTES", 1000)
    batches = [batch(0), batch(1, size=50_000), batch(2)]
    with FakeCluster(FakeLog.of(*batches)) as fake:
        assert download(fake.config, TOPIC, 0, 0, None, tmp_path) == 3
    assert pieces(tmp_path) == {"00000000000000000000.log": b"".join(batches)}


def test_a_batch_cut_off_is_asked_for_at_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some brokers keep to the limit whatever comes of it."""
    monkeypatch.setattr(module, "FETCH_BYTES", 1000)
    large = batch(0, size=50_000)
    with FakeCluster(FakeLog.of(large)) as fake:

        def strict(broker: int, body: dict) -> object:
            (asked,) = body["topics"][0]["partitions"]
            part = fetched_partition(0, 0, 1, large[: asked["partitionMaxBytes"]])
            topic = {"topic": TOPIC, "topicId": bytes(range(16)), "partitions": [part]}
            return {"throttleTimeMs": 0, "errorCode": 0, "sessionId": 0, "responses": [topic], "nodeEndpoints": []}

        fake.on[ApiKey.FETCH] = strict
        assert download(fake.config, TOPIC, 0, 0, None, tmp_path) == 1
        sizes = [body["topics"][0]["partitions"][0]["partitionMaxBytes"] for body in fake.fetches]
        assert sizes == [1000, len(large)]
        assert pieces(tmp_path) == {"00000000000000000000.log": large}
        small = fake.config | {"receive.message.max.bytes": "100000"}
        with pytest.raises(ClusterError, match=r"batch of 50\d\d\d bytes.*receive.message.max.bytes"):
            download(small, TOPIC, 0, 0, None, tmp_path)


def test_throttled_for_as_long_as_the_broker_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [batch(0), batch(1)]
    monkeypatch.setattr(module, "FETCH_BYTES", len(batches[0]))
    with FakeCluster(FakeLog.of(*batches)) as fake:
        fake.throttle_ms = 400
        started = time.monotonic()
        assert download(fake.config, TOPIC, 0, 0, None, tmp_path) == 2
        assert time.monotonic() - started >= 0.4


def damaged(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("records", "what"),
    [
        (damaged(batch(0, 4), 70), "the batch at offset 0 has a checksum"),
        (batch(0) + damaged(batch(1, 4), 70), "the batch at offset 1 has a checksum"),
        (batch(1) + batch(0), "do not rise"),
        (batch(0) + batch(0), "do not rise"),
        (struct.pack(">qi", 0, 5) + bytes(40), "no batch"),
        (batch(0)[:16] + b"\x07" + batch(0)[17:], "no batch"),
    ],
)
def test_records_that_cannot_be_read_are_refused(records: bytes, what: str, tmp_path: Path) -> None:
    log = FakeLog.of(batch(0, 4))
    log.batches = [(0, 4, records)]
    with FakeCluster(log) as fake, pytest.raises(ClusterError, match=what) as caught:
        download(fake.config, TOPIC, 0, 0, None, tmp_path)
    assert "offsets-0" in str(caught.value)


@pytest.mark.parametrize("rows", [1, 100])
def test_batches_that_overlap(rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.live.download._ROWS", rows)
    log = FakeLog.of(batch(0, 9))
    log.batches = [(0, 9, batch(0, 4) + batch(3, 9))]
    with FakeCluster(log) as fake, pytest.raises(ClusterError, match="do not rise"):
        download(fake.config, TOPIC, 0, 0, None, tmp_path)


def test_batches_from_before_what_was_asked_for(tmp_path: Path) -> None:
    log = FakeLog.of(batch(0, 4), batch(5, 9))
    log.batches = [(5, 9, batch(0, 4))]  # would be served again and again
    with FakeCluster(log) as fake, pytest.raises(ClusterError, match="ends at offset 4 in an answer about offset 5"):
        download(fake.config, TOPIC, 0, 5, None, tmp_path)


def test_a_leader_that_gives_nothing(tmp_path: Path) -> None:
    log = FakeLog.of(batch(0, 4))
    log.batches.clear()
    with FakeCluster(log) as fake, pytest.raises(ClusterError, match="gives nothing at offset 0"):
        download(fake.config, TOPIC, 0, 0, None, tmp_path)


def test_segments_are_of_a_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [batch(number) for number in range(10)]
    monkeypatch.setattr(module, "FETCH_BYTES", 2 * len(batches[0]))
    monkeypatch.setattr(module, "LARGEST_SEGMENT_BYTES", 5 * len(batches[0]))
    with FakeCluster(FakeLog.of(*batches)) as fake:
        assert download(fake.config, TOPIC, 0, 0, None, tmp_path) == 10
    found = pieces(tmp_path)
    assert list(found) == [f"{offset:020}.log" for offset in (0, 4, 8)]
    assert b"".join(found.values()) == b"".join(batches)


def test_a_new_segment_before_offsets_leave_an_int32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [batch(0), batch(1 << 31)]
    monkeypatch.setattr(module, "FETCH_BYTES", len(batches[0]))
    with FakeCluster(FakeLog.of(*batches)) as fake:
        assert download(fake.config, TOPIC, 0, 0, None, tmp_path) == (1 << 31) + 1
    assert list(pieces(tmp_path)) == [f"{offset:020}.log" for offset in (0, 1 << 31)]
