"""Fetches that wait, and offsets of partitions that are not empty."""

from dataclasses import dataclass, field
from typing import NamedTuple, cast

import pytest

from muster.codec.error_codes import ErrorCode
from muster.config.broker import BrokerConfig
from muster.log.reads import Extent
from muster.log.segment import Segment
from muster.segments.indexes import AbortedTransaction
from muster.server.cluster.cluster import NO_EPOCH, UNKNOWN_EPOCH_END, Cluster, EpochEnd, FoundRecord
from muster.server.cluster.list_offsets import (
    EpochAsked,
    ListOffsetsRequest,
    OffsetAsked,
    OffsetForLeaderEpochRequest,
    find_epoch_ends,
    list_offsets,
)
from muster.server.records import fetch
from muster.server.records.fetch import FetchAnswer, FetchRequest, ParkedFetch, PartitionAsked
from tests.server.cluster.asking import a_topic, delete, memory_cluster


class Written(NamedTuple):
    timestamp_ms: int
    epoch: int


class Zeros:
    def read(self, position: int, end: int) -> memoryview:
        return memoryview(bytes(end - position))


ZEROS = Zeros()


@dataclass
class FakeLog:
    """Records from `start_offset` on, of which the last ones are not settled or not readable yet."""

    records: list[Written] = field(default_factory=list)
    start_offset: int = 0
    unstable: int = 0
    unreadable: int = 0
    leader_epoch: int = 0
    is_followed: bool = False

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.records)

    @property
    def high_watermark(self) -> int:
        return self.end_offset - self.unreadable

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark - self.unstable

    def epoch_end(self, epoch: int) -> EpochEnd:
        if epoch > self.leader_epoch or epoch == NO_EPOCH:
            return UNKNOWN_EPOCH_END
        known = [one.epoch for one in self.records if one.epoch <= epoch]
        return EpochEnd(max(known, default=epoch), self.start_offset + len(known))

    def epoch_at(self, offset: int) -> int:
        return self.records[offset - self.start_offset].epoch

    def first_since(self, timestamp_ms: int) -> FoundRecord | None:
        for offset, one in enumerate(self.records, self.start_offset):
            if one.timestamp_ms >= timestamp_ms:
                return FoundRecord(offset, one.timestamp_ms, one.epoch)
        return None

    def youngest(self) -> FoundRecord | None:
        return self.first_since(max(one.timestamp_ms for one in self.records)) if self.records else None

    def find(self, offset: int, max_bytes: int, up_to: int) -> Extent | None:
        """A byte for each record, and two records in a batch."""
        end = min(up_to, offset + max(max_bytes // 2 * 2, 2))
        return Extent(cast(Segment, ZEROS), offset, end, up_to, self.is_followed) if up_to > offset else None

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        return []


LOG = FakeLog(
    [Written(100, 1), Written(300, 1), Written(200, 3), Written(250, 3)],
    start_offset=10,
    unstable=1,
    unreadable=1,
    leader_epoch=4,
)


@pytest.fixture
def cluster() -> Cluster:
    return memory_cluster(
        a_topic("full", 1),
        a_topic("empty", 2),
        partition_of=lambda topic, partition: LOG if topic.name == "full" else FakeLog(),
    )


def asked(topic: str, partition: int = 0, offset: int = 0, epoch: int = -1, last_epoch: int = -1) -> PartitionAsked:
    return PartitionAsked(topic, bytes(16), partition, offset, epoch, last_epoch)


def parked(request: FetchRequest, cluster: Cluster, now_ms: int = 1_000) -> ParkedFetch:
    outcome = fetch.handle(request, cluster, now_ms)
    assert isinstance(outcome, ParkedFetch)
    return outcome


def at_once(request: FetchRequest, cluster: Cluster) -> FetchAnswer:
    outcome = fetch.handle(request, cluster, 1_000)
    assert isinstance(outcome, FetchAnswer)
    return outcome


def test_a_fetch_waits_until_its_deadline(cluster: Cluster) -> None:
    waiting = parked(FetchRequest(12, (asked("empty"), asked("full", offset=13)), max_wait_ms=500), cluster, 1_000)
    assert waiting.deadline_ms == 1_500
    assert set(waiting.found) == {("empty", 0), ("full", 0)}
    answer = fetch.complete(waiting, cluster)
    assert [(one.topic, one.error, one.high_watermark) for one in answer.partitions] == [
        ("empty", 0, 0),
        ("full", 0, 13),
    ]


def test_a_fetch_that_waits_keeps_of_its_request_only_what_it_needs(cluster: Cluster) -> None:
    again = (asked("empty"),) * 1_000
    waiting = parked(FetchRequest(12, (*again, asked("full", offset=13), asked("nowhere")), max_wait_ms=500), cluster)
    assert waiting.request.partitions == ()
    assert (len(waiting.found), len(waiting.erroneous)) == (2, 1)
    assert waiting.partitions == 3


def test_a_topic_deleted_while_a_fetch_waits(cluster: Cluster) -> None:
    for version in (12, 13):
        request = FetchRequest(version, (PartitionAsked("empty", a_topic("empty").topic_id, 0, 0),), max_wait_ms=500)
        waiting = parked(request, cluster)
        delete(cluster.topics, "empty")
        (gone,) = fetch.complete(waiting, cluster).partitions
        assert gone.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "not an unknown id: it was known when it was asked"
        assert gone.aborted is None
        cluster.topics.create(a_topic("empty", 2))


def test_a_topic_made_anew_is_another_one(cluster: Cluster) -> None:
    waiting = parked(FetchRequest(12, (asked("empty"),), max_wait_ms=500), cluster)
    delete(cluster.topics, "empty")
    cluster.topics.create(a_topic("empty", 2)._replace(topic_id=b"\x09" * 16))
    assert fetch.complete(waiting, cluster).partitions[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_brokers_own_limit_on_bytes_counts_too() -> None:
    cluster = memory_cluster(a_topic("empty"), config=BrokerConfig(fetch_max_bytes=1024))
    assert parked(FetchRequest(12, (asked("empty"),), max_wait_ms=500, min_bytes=2_000), cluster)


@pytest.mark.parametrize(
    ("limit", "wanted", "in_all", "is_followed", "waits"),
    [
        (5, 5, 1 << 20, False, False),  # whole batches of it would be four bytes
        (5, 6, 1 << 20, False, True),
        (100, 9, 1 << 20, False, True),
        (100, 8, 1 << 20, False, False),
        (100, 100, 1 << 20, True, False),  # what follows is in the next segment, which is another read
        (1, 2, 1 << 20, False, False),  # a batch that is larger than the limit is handed out all the same
        (100, 9, 4, False, False),
    ],
)
def test_bytes_are_counted_up_to_the_limit_and_not_by_whole_batches(
    limit: int, wanted: int, in_all: int, is_followed: bool, waits: bool
) -> None:
    log = FakeLog([Written(1, 0)] * 8, is_followed=is_followed)
    cluster = memory_cluster(a_topic("full"), partition_of=lambda topic, partition: log)
    one = asked("full")._replace(max_bytes=limit)
    outcome = fetch.handle(FetchRequest(12, (one,), 500, wanted, in_all), cluster, 1_000)
    assert isinstance(outcome, ParkedFetch) == waits


def test_partitions_are_counted_together_although_not_all_fit_into_one_answer() -> None:
    log = FakeLog([Written(1, 0)] * 6)
    cluster = memory_cluster(a_topic("full", 2), partition_of=lambda topic, partition: log)
    both = asked("full"), asked("full", 1)
    assert [len(one.records) for one in at_once(FetchRequest(12, both, 500, 7, 7), cluster).partitions] == [6, 0]


def test_a_waiting_fetch_counts_a_partition_anew_when_it_has_grown() -> None:
    logs = [FakeLog([Written(1, 0)] * 3), FakeLog()]
    cluster = memory_cluster(a_topic("full", 2), partition_of=lambda topic, partition: logs[partition])
    waiting = parked(FetchRequest(12, (asked("full"), asked("full", 1)), 500, min_bytes=5), cluster)
    for partition, records, counted in ((1, 1, 4), (1, 1, 4), (0, 2, 3), (0, 4, 5)):
        logs[partition].records = [Written(1, 0)] * records
        fetch.count(waiting, ("full", partition), cluster)
        assert (waiting.counted_bytes, waiting.has_enough) == (counted, counted >= 5)
    logs[1].start_offset = 1  # its records are deleted: the consumer must hear that
    logs[0].records = []
    fetch.count(waiting, ("full", 0), cluster)
    assert not waiting.has_enough
    fetch.count(waiting, ("full", 1), cluster)
    assert waiting.has_enough


@pytest.mark.parametrize(
    ("offset", "epoch", "last_epoch", "error"),
    [
        (9, -1, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (15, -1, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (11, 3, -1, ErrorCode.FENCED_LEADER_EPOCH),
        (11, 5, -1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (9, -1, 1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (11, -1, 5, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_what_is_refused_at_once(cluster: Cluster, offset: int, epoch: int, last_epoch: int, error: ErrorCode) -> None:
    request = FetchRequest(12, (asked("full", 0, offset, epoch, last_epoch),), max_wait_ms=500)
    (refused,) = at_once(request, cluster).partitions
    assert (refused.error, refused.high_watermark, refused.aborted) == (error, -1, None)


@pytest.mark.parametrize(("offset", "last_epoch", "end"), [(13, 1, (1, 12)), (13, 2, (1, 12)), (99, 3, (3, 14))])
def test_a_consumer_whose_log_went_another_way(
    cluster: Cluster, offset: int, last_epoch: int, end: tuple[int, int]
) -> None:
    request = FetchRequest(12, (asked("full", 0, offset, last_epoch=last_epoch),), max_wait_ms=500)
    (told,) = at_once(request, cluster).partitions
    assert told.error is ErrorCode.NONE
    assert told.diverging == end


def test_a_fenced_consumer_hears_who_leads_from_version_16_on(cluster: Cluster) -> None:
    for version, replica_id, has_leader, has_endpoint in (
        (15, -1, False, False),
        (16, -1, True, True),
        (18, -1, True, True),
        (18, 7, True, False),
    ):
        topic_id = a_topic("full").topic_id
        one = PartitionAsked("", topic_id, 0, 11, 2)
        answer = at_once(FetchRequest(version, (one,), max_wait_ms=500, replica_id=replica_id), cluster)
        assert answer.partitions[0].leader == ((1, 4) if has_leader else None)
        assert (answer.endpoint is not None) == has_endpoint


def listed(cluster: Cluster, timestamp: int, isolation_level: int = 0, replica_id: int = -1) -> tuple[int, int, int]:
    request = ListOffsetsRequest(11, (("full", (OffsetAsked(0, timestamp),)),), isolation_level, replica_id)
    ((_, (one,)),) = list_offsets(request, cluster).topics
    assert one.error is ErrorCode.NONE
    return one.timestamp_ms, one.offset, one.leader_epoch


def test_list_offsets_of_a_log_with_records(cluster: Cluster) -> None:
    assert listed(cluster, -1) == (-1, 13, 4)
    assert listed(cluster, -1, isolation_level=1) == (-1, 12, 4)
    assert listed(cluster, -1, replica_id=-2) == (-1, 14, 4)
    assert listed(cluster, -2) == listed(cluster, -4) == (-1, 10, 1)
    assert listed(cluster, -3) == (300, 11, 1)
    assert listed(cluster, -5) == listed(cluster, -6) == (-1, -1, -1)
    assert listed(cluster, 0) == (100, 10, 1)
    assert listed(cluster, 101) == (300, 11, 1)
    assert listed(cluster, 301) == (-1, -1, -1)


def test_records_that_may_not_be_seen_yet_are_not_found() -> None:
    newest_is_hidden = FakeLog([Written(100, 0), Written(900, 0)], unreadable=1)
    cluster = memory_cluster(a_topic("full"), partition_of=lambda topic, partition: newest_is_hidden)
    assert listed(cluster, 500) == (-1, -1, -1)
    assert listed(cluster, -3) == (-1, -1, -1)


def test_ends_of_epochs(cluster: Cluster) -> None:
    epochs = tuple(EpochAsked(0, epoch) for epoch in (0, 1, 2, 3, 4, 5, -1))
    answer = find_epoch_ends(OffsetForLeaderEpochRequest((("full", epochs),)), cluster)
    ((_, ends),) = answer.topics
    assert [tuple(one.end) for one in ends] == [(0, 10), (1, 12), (1, 12), (3, 14), (3, 14), (-1, -1), (-1, -1)]
