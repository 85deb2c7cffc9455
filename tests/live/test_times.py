"""Timestamps at offsets, and where data ends, from logs with markers, holes, and batches of all sizes."""

import pytest

from muster.codec import Record, encode_batch, encode_marker
from muster.codec.compression import GZIP, LZ4, SNAPPY, ZSTD
from muster.codec.records import LOG_APPEND_TIME
from muster.live import times
from muster.live.cluster import Cluster, LogEnds
from muster.live.times import data_ends, timestamps_at
from muster.protocol.apis import ApiKey
from tests.live.fake import TOPIC, FakeCluster, FakeLog, batch
from tests.live.test_download import damaged


def marker(offset: int) -> bytes:
    return encode_marker(offset, 5, 7, 0, commit=True, coordinator_epoch=0)


def at(*offsets: int, partition: int = 0) -> list[tuple[str, int, int]]:
    return [(TOPIC, partition, offset) for offset in offsets]


def ends_of(fake: FakeCluster) -> dict[tuple[str, int], LogEnds]:
    with Cluster(fake.config) as cluster:
        return cluster.log_ends()


def values(found: dict[tuple[str, int, int], int | None]) -> list[int | None]:
    return list(found.values())


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
def test_the_record_at_an_offset_or_the_next_one(codec: int) -> None:
    log = FakeLog.of(batch(0, 4, codec=codec), batch(10, 14, codec=codec))
    with FakeCluster(log) as fake:
        found = timestamps_at(fake.config, at(0, 3, 4, 5, 9, 12, 14, 15, 99))
        assert values(found) == [0, 3000, 4000, 10_000, 10_000, 12_000, 14_000, None, None]
        assert log.fetches == 1


def test_markers_are_not_data() -> None:
    with FakeCluster(FakeLog.of(batch(0), marker(1), marker(2), batch(3), marker(4))) as fake:
        assert values(timestamps_at(fake.config, at(0, 1, 2, 3, 4))) == [0, 3000, 3000, 3000, None]


def test_many_markers_in_a_row_are_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "SMALL_BYTES", 200)
    with FakeCluster(FakeLog.of(*[marker(offset) for offset in range(50)], batch(50))) as fake:
        assert values(timestamps_at(fake.config, at(0))) == [50_000]


def test_records_that_the_broker_stamped() -> None:
    records = [Record(0, 100, None, b""), Record(1, 200, None, b"")]
    with FakeCluster(FakeLog.of(encode_batch(records, attributes=LOG_APPEND_TIME))) as fake:
        assert values(timestamps_at(fake.config, at(0, 1))) == [200, 200]


def test_a_timestamp_that_nobody_set_is_none() -> None:
    with FakeCluster(FakeLog.of(encode_batch([Record(0, -1, None, b"")]))) as fake:
        assert values(timestamps_at(fake.config, at(0))) == [None]


def test_an_offset_that_is_no_longer_in_the_log() -> None:
    with FakeCluster(FakeLog.of(batch(10), batch(11), start=10)) as fake:
        assert values(timestamps_at(fake.config, at(0, 5, 11))) == [10_000, 10_000, 11_000]


def test_many_partitions_in_one_request_and_many_offsets_of_one() -> None:
    logs = [FakeLog.of(*[batch(offset) for offset in range(20)]) for _ in range(30)]
    with FakeCluster(*logs) as fake:
        wanted = [one for partition in range(30) for one in at(1, 18, partition=partition)]
        assert values(timestamps_at(fake.config, wanted)) == [1000, 18_000] * 30
        assert [log.fetches for log in logs] == [1] * 30


def test_the_whole_answer_has_a_limit() -> None:
    """A broker leaves out what does not fit any more, but never the first batch."""
    logs = [FakeLog.of(batch(0, size=3000 * partition)) for partition in range(8)]
    with FakeCluster(*logs) as fake:
        whole = fake._fetched
        left = 0

        def stingy(asked: dict, error: int) -> dict:
            nonlocal left
            answer = whole(asked, error)
            size = len(answer["records"])
            if left and size > min(left, asked["partitionMaxBytes"]):
                return answer | {"records": b""}
            left = max(left - size, 1) if left else max(4000 - size, 1)
            return answer

        fake._fetched = stingy  # type: ignore[method-assign]

        def renew(broker: int, body: dict) -> None:
            nonlocal left
            left = 0

        fake.on[ApiKey.FETCH] = renew
        wanted = [one for partition in range(8) for one in at(0, partition=partition)]
        assert values(timestamps_at(fake.config, wanted)) == [0] * 8


def test_what_cannot_be_read_is_none() -> None:
    with FakeCluster(FakeLog.of(damaged(batch(0, 4), 70)), FakeLog.of(batch(0))) as fake:
        wanted = [*at(0), *at(0, partition=1), (TOPIC, 7, 0), ("other", 0, 0)]
        assert values(timestamps_at(fake.config, wanted)) == [None, 0, None, None]


def test_bounded_in_count_and_time() -> None:
    with FakeCluster(FakeLog.of(batch(0, 4))) as fake:
        assert values(timestamps_at(fake.config, at(0, 1, 2), most=2)) == [0, 1000, None]
        assert values(timestamps_at(fake.config, at(0), patience_s=0)) == [None]
        fake.leaders[0] = -1
        assert values(timestamps_at(fake.config, at(0), patience_s=0.2)) == [None]


@pytest.mark.parametrize(
    ("batches", "end"),
    [
        ([batch(0, 4)], 5),
        ([batch(0, 4), marker(5)], 5),
        ([batch(0), batch(1, 4), *[marker(offset) for offset in range(5, 25)]], 5),
        ([marker(0), marker(1)], 0),
        ([encode_batch([Record(0, 0, None, b"")], last_offset=4), marker(5)], 1),
        ([batch(0), encode_batch([], base_offset=1, last_offset=3, base_timestamp_ms=0)], 1),
        ([batch(0, size=200_000), marker(1)], 1),
        ([], 0),
    ],
)
def test_where_data_ends(batches: list[bytes], end: int) -> None:
    with FakeCluster(FakeLog.of(*batches)) as fake:
        assert data_ends(fake.config, ends_of(fake)) == {(TOPIC, 0): end}


def test_answers_end_with_a_segment() -> None:
    log = FakeLog.of(batch(0), batch(1), marker(2), marker(3), marker(4))
    log.segments = (0, 2, 3, 4)
    with FakeCluster(log) as fake:
        assert data_ends(fake.config, ends_of(fake)) == {(TOPIC, 0): 2}
        assert values(timestamps_at(fake.config, at(0, 1, 2))) == [0, 1000, None]


def test_data_too_far_back_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "FARTHEST_BACK", 8)
    far = FakeLog.of(batch(0), *[marker(offset) for offset in range(1, 20)])
    with FakeCluster(far, FakeLog.of(batch(0)), FakeLog.of(damaged(batch(0), 65))) as fake:
        asked = ends_of(fake) | {("other", 0): LogEnds(0, 1, 1, 0)}
        assert list(data_ends(fake.config, asked).values()) == [None, 1, None, None]


def test_data_written_since_the_end_was_looked_at_is_behind_it() -> None:
    log = FakeLog.of(batch(0, 4), marker(5))
    with FakeCluster(log) as fake:
        seen = ends_of(fake)
        later = FakeLog.of(batch(0, 4), marker(5), batch(6, 9), marker(10))
        log.batches, log.end = later.batches, later.end
        assert data_ends(fake.config, seen) == {(TOPIC, 0): 5}
        assert data_ends(fake.config, ends_of(fake)) == {(TOPIC, 0): 10}
