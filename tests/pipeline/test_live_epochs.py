"""A leader that does not know the epoch under which its partition was read: no reason to withdraw anything."""

from collections.abc import Iterator
from typing import Any

import pytest

from muster.live import cluster as live_cluster
from muster.pipeline.plan import Plan, plan
from muster.pipeline.sources import live_cluster as live_source
from muster.pipeline.sources.live_cluster import LiveSource
from muster.protocol.apis import ApiKey
from muster.tables.storage.manifest import PartitionProgress
from tests.live.fake import TOPIC, FakeCluster, FakeLog, batch

READ = PartitionProgress(10, 5, 0, 0, None, None)
"""Up to offset 10, under epoch 5."""
FENCED, UNKNOWN = 74, 75


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    monkeypatch.setattr(live_source, "OFFSETS_TOPIC", TOPIC)
    monkeypatch.setattr(live_cluster, "PATIENCE_S", 0.5)
    with FakeCluster(FakeLog.of(batch(0, 9))) as cluster:
        cluster.epoch = 5
        yield cluster


def asked(fake: FakeCluster) -> list[Any]:
    return [body["topics"][0]["partitions"][0] for api, _, body in fake.brokers[1].asked
            if api is ApiKey.OFFSET_FOR_LEADER_EPOCH]  # fmt: skip


def planned(fake: FakeCluster) -> Plan:
    source = LiveSource(fake.config)
    try:
        return plan(source.partitions({0: READ}), {0: READ})
    finally:
        source.close()


def test_the_same_leader_has_cut_nothing(fake: FakeCluster) -> None:
    fake.epoch_end = (5, 10)
    assert not planned(fake).cuts
    assert asked(fake)[0]["currentLeaderEpoch"] == 5


def test_a_newer_leader_that_has_less_has_cut(fake: FakeCluster) -> None:
    fake.epoch, fake.epoch_end = 6, (4, 7)
    assert [cut.log_offset for cut in planned(fake).cuts] == [7]


def test_a_stale_leader_is_asked_again_until_the_current_one_answers(fake: FakeCluster) -> None:
    fake.epoch, fake.epoch_end = 4, (-1, -1)

    def elected(broker: int, body: Any) -> None:
        if len(asked(fake)) >= 2:
            fake.epoch, fake.epoch_end = 6, (5, 10)

    fake.on[ApiKey.METADATA] = elected
    assert not planned(fake).cuts
    assert [one["currentLeaderEpoch"] for one in asked(fake)] == [4, 4, 6]


@pytest.mark.parametrize("error", [FENCED, UNKNOWN])
def test_a_leader_under_another_epoch_is_asked_again(fake: FakeCluster, error: int) -> None:
    fake.epoch_end = (5, 10)

    def once(broker: int, body: Any) -> Any:
        fake.on.pop(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        fake.errors = [error]

    fake.on[ApiKey.OFFSET_FOR_LEADER_EPOCH] = once
    assert not planned(fake).cuts
    assert len(asked(fake)) == 2


@pytest.mark.parametrize("last", [9, 4])
def test_a_log_that_has_not_come_to_that_epoch_withdraws_nothing(fake: FakeCluster, last: int) -> None:
    """A topic made anew, or a cluster restored from a backup: what it has where records were read is not those."""
    fake.logs[0].end = last + 1
    fake.epoch, fake.epoch_end = 0, (-1, -1)
    found = planned(fake)
    assert (found.cuts, found.works) == ((), ())
    assert [len(found.conflicts), len(found.behind)] == ([1, 0] if last == 9 else [0, 1])
    assert len(asked(fake)) > 1
