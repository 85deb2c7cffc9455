"""Questions to leaders: batched, repeated while that helps, and answered partition by partition."""

from typing import Any

import pytest

from muster.errors import ClusterError, ClusterRefused, ClusterUnreachable
from muster.live import cluster as live_cluster
from muster.live.cluster import Cluster, LogEnds
from muster.live.requests import EpochEnd
from muster.protocol.apis import ApiKey
from tests.live.fake import TOPIC, TOPIC_ID, FakeBroker, FakeCluster, FakeLog, batch

PRINTED_ID = "AAECAwQFBgcICQoLDA0ODw"


def logs(count: int) -> list[FakeLog]:
    return [FakeLog.of(batch(number, number + 9), start=number) for number in range(count)]


def test_log_ends_of_every_partition_at_every_leader() -> None:
    with FakeCluster(*logs(7), brokers=3) as fake, Cluster(fake.config) as cluster:
        fake.leaders = {number: 1 + number % 3 for number in range(7)}
        ends = cluster.log_ends()
        assert ends == {(TOPIC, number): LogEnds(number, number + 10, number + 10, 3) for number in range(7)}
        asked = [one for broker in fake.brokers.values() for one in broker.asked]
        questions = [body for api, _, body in asked if api is ApiKey.LIST_OFFSETS]
        assert len(questions) == 9  # three leaders, asked for the start, the stable end and the end
        kinds = {(body["isolationLevel"], body["topics"][0]["partitions"][0]["timestamp"]) for body in questions}
        assert kinds == {(0, -2), (0, -1), (1, -1)}


def test_requests_are_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_cluster, "MOST_PARTITIONS", 3)
    with FakeCluster(*logs(7)) as fake, Cluster(fake.config) as cluster:
        assert len(cluster.log_ends()) == 7
        sizes = [
            len(body["topics"][0]["partitions"]) for api, _, body in fake.brokers[1].asked if api is ApiKey.LIST_OFFSETS
        ]
        assert sizes == [3, 3, 1] * 3


def test_what_passes_is_asked_again_and_only_that() -> None:
    with FakeCluster(*logs(3)) as fake, Cluster(fake.config) as cluster:
        fake.errors = [0, 6, 0]
        assert cluster.log_ends()[TOPIC, 1] == LogEnds(1, 11, 11, 3)
        sizes = [
            len(body["topics"][0]["partitions"]) for api, _, body in fake.brokers[1].asked if api is ApiKey.LIST_OFFSETS
        ]
        assert sizes == [3, 1, 3, 3]


def test_one_partition_without_a_leader_does_not_hide_the_others() -> None:
    with FakeCluster(*logs(3)) as fake, Cluster(fake.config) as cluster:
        fake.leaders[1] = -1
        ends = cluster.log_ends(patience_s=0.2)
    assert ends[TOPIC, 0].high_watermark == 10
    assert ends[TOPIC, 1].high_watermark is None
    assert "has no leader" in str(ends[TOPIC, 1].problem)


def test_topics_that_cannot_be_read() -> None:
    with FakeCluster(*logs(1)) as fake, Cluster(fake.config) as cluster:
        fake.topic_error = 29
        with pytest.raises(ClusterRefused, match=r"no rights on topic offsets"):
            cluster.topic(TOPIC)
        fake.topic_error = 3
        with pytest.raises(ClusterError, match=r"has no topic offsets"):
            cluster.topic(TOPIC)
        with pytest.raises(ClusterError, match=r"has no topic other"):
            cluster.topic("other")
        ends = cluster.log_ends([(TOPIC, 0), ("other", 1)])
        assert ["has no topic" in str(end.problem) for end in ends.values()] == [True, True]
        fake.topic_error = 0
        assert "has no partition 9; it has 1" in str(cluster.log_ends([(TOPIC, 9)])[TOPIC, 9].problem)


def test_an_error_of_one_partition() -> None:
    with FakeCluster(*logs(2)) as fake, Cluster(fake.config) as cluster:
        fake.errors = [0, 43]
        ends = cluster.log_ends()
    assert ends[TOPIC, 0].log_start_offset == 0
    assert "UNSUPPORTED_FOR_MESSAGE_FORMAT" in str(ends[TOPIC, 1].problem)


def test_where_an_epoch_ended() -> None:
    with FakeCluster(*logs(2)) as fake, Cluster(fake.config) as cluster:
        assert cluster.epoch_ends({(TOPIC, 1): 3}) == {(TOPIC, 1): EpochEnd(0, 3, 42)}
        fake.errors = [42]
        problem = cluster.epoch_ends({(TOPIC, 1): 3})[TOPIC, 1]
    assert isinstance(problem, ClusterError)


def test_topic_ids_as_kafka_prints_them() -> None:
    with FakeCluster(*logs(1)) as fake, Cluster(fake.config) as cluster:
        assert cluster.topic_names() == {PRINTED_ID: TOPIC}
        assert cluster.topic_id(TOPIC) == TOPIC_ID


def test_a_broker_that_restarts_is_found_again() -> None:
    with FakeCluster(*logs(1), brokers=2) as fake, Cluster(fake.config) as cluster:
        assert cluster.log_ends()[TOPIC, 0].high_watermark == 10
        fake.brokers[1].close()  # the one we came in by, and the leader

        def lead(broker: int, body: Any) -> None:
            fake.leaders[0] = 2

        fake.on[ApiKey.METADATA] = lead
        assert cluster.log_ends([(TOPIC, 0)])[TOPIC, 0].high_watermark == 10


def test_partitions_left_out_of_an_answer() -> None:
    with FakeCluster(*logs(1)) as fake, Cluster(fake.config) as cluster:
        fake.on[ApiKey.LIST_OFFSETS] = lambda broker, body: {"throttleTimeMs": 0, "topics": []}
        problem = cluster.log_ends(patience_s=0.1)[TOPIC, 0].problem
    assert "left offsets-0 out" in str(problem)


class TestCoordinators:
    """Deleting offsets, at a coordinator that is to be found first."""

    def at(self, broker: FakeBroker | None, error: int = 0, key: str = "app") -> dict[str, Any]:
        port = 0 if broker is None else broker.port
        return {"coordinators": [{"key": key, "nodeId": 2, "host": "127.0.0.1", "port": port, "errorCode": error}]}

    def test_a_coordinator_that_is_not_there_yet_and_then_moves(self) -> None:
        with FakeCluster(FakeLog.of(batch(0)), brokers=2) as fake, Cluster(fake.config) as cluster:
            first, second = fake.brokers[1], fake.brokers[2]
            found = [self.at(None, 15), self.at(first), self.at(second)]
            fake.on[ApiKey.FIND_COORDINATOR] = lambda broker, body: found.pop(0)
            parts = [{"partitionIndex": 0, "errorCode": 0}, {"partitionIndex": 3, "errorCode": 86}]
            done = {"topics": [{"name": TOPIC, "partitions": parts}]}
            fake.on[ApiKey.OFFSET_DELETE] = lambda broker, body: {"errorCode": 16} if broker == 1 else done
            answer = cluster.delete_offsets("app", [(TOPIC, 0), (TOPIC, 3)])
            assert answer == (0, {(TOPIC, 0): 0, (TOPIC, 3): 86})
            assert (first.count(ApiKey.OFFSET_DELETE), second.count(ApiKey.OFFSET_DELETE)) == (1, 1)
            assert not found

    def test_patience_ends(self) -> None:
        with FakeCluster(FakeLog.of(batch(0))) as fake, Cluster(fake.config, patience_s=0.2) as cluster:
            fake.on[ApiKey.FIND_COORDINATOR] = lambda broker, body: self.at(fake.brokers[1])
            fake.on[ApiKey.OFFSET_DELETE] = lambda broker, body: {"errorCode": 14}
            assert cluster.delete_offsets("app", [(TOPIC, 0)]) == (14, {})
            assert fake.brokers[1].count(ApiKey.OFFSET_DELETE) > 1
            fake.on[ApiKey.FIND_COORDINATOR] = lambda broker, body: self.at(None)
            with pytest.raises(ClusterUnreachable, match=r"gives 127\.0\.0\.1:0 as its address"):
                cluster.delete_offsets("app", [(TOPIC, 0)])

    def test_a_partition_that_is_left_out_of_the_answer_is_not_deleted(self) -> None:
        with FakeCluster(FakeLog.of(batch(0))) as fake, Cluster(fake.config) as cluster:
            fake.on[ApiKey.FIND_COORDINATOR] = lambda broker, body: self.at(fake.brokers[1])
            done = {"topics": [{"name": TOPIC, "partitions": [{"partitionIndex": 0, "errorCode": 0}]}]}
            fake.on[ApiKey.OFFSET_DELETE] = lambda broker, body: done
            with pytest.raises(ClusterError, match=f"leaves {TOPIC}-3 out of its answer"):
                cluster.delete_offsets("app", [(TOPIC, 0), (TOPIC, 3)])

    def test_an_error_that_stays_is_the_answer_at_once(self) -> None:
        with FakeCluster(FakeLog.of(batch(0))) as fake, Cluster(fake.config) as cluster:
            fake.on[ApiKey.FIND_COORDINATOR] = lambda broker, body: self.at(fake.brokers[1], 30)
            assert cluster.delete_offsets("app", [(TOPIC, 0)]) == (30, {})
            assert fake.brokers[1].count(ApiKey.FIND_COORDINATOR) == 1

    def test_an_answer_about_another_group(self) -> None:
        with FakeCluster(FakeLog.of(batch(0))) as fake, Cluster(fake.config) as cluster:
            fake.on[ApiKey.FIND_COORDINATOR] = lambda broker, body: self.at(fake.brokers[1], key="other")
            with pytest.raises(ClusterError, match="cannot be read: it does not name the coordinator of group 'app'"):
                cluster.delete_offsets("app", [(TOPIC, 0)])
