"""What pages say of now, beside kafka-consumer-groups on a real Kafka."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Offset
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from muster.codec.partitioning import partition_for
from muster.pages import live
from tests.kit.java.compiled import ConsumerGroups
from tests.kit.kafka import RESTARTS_QUICKLY, KafkaBroker, require_kafka
from tests.pages import world
from tests.pages.test_live import LiveSite, rows
from tests.real import test_leader_change
from tests.real.drive import QUIET, WAIT_S, check, consumer, poll_until
from tests.real.test_leader_change import leader_of, told, until
from tests.server.wire_diff import bodies
from tests.server.wire_diff.talk import Link

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]

TOPIC, GROUP, PARTITIONS = "clicks", "orders", 2
RESTARTED_S = 120.0
"""A broker that was killed leads its partitions again by then, on a machine that has much else to do."""
Row = tuple[int, int, int, int, str]
"""Partition, committed offset, log end offset, lag, member."""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds that lie 10 s apart, as they do else, take longer than a test waits for them."""
    monkeypatch.setattr(live, "ASK_EVERY_S", 1.0)


def kafkas(tool: ConsumerGroups) -> list[Row]:
    lines = [line.split() for line in tool.ask("--describe", "--group", GROUP).splitlines()]
    found = [cells for cells in lines if cells[:2] == [GROUP, TOPIC]]
    return sorted((*map(int, cells[2:6]), cells[6]) for cells in found)  # type: ignore[misc]


def ours(site: LiveSite) -> list[Row]:
    told = site.told_when(f"/group.json?id={GROUP}", is_up=True, within_s=RESTARTED_S)
    names = ("partition", "committed_offset", "log_end_offset", "lag")
    return sorted((*(each[name] for name in names), each["member_id"] or "-") for each in rows(told["partitions"]))


def write(kafka: KafkaBroker, count: int) -> None:
    failures: list[str] = []
    producer = Producer(
        QUIET | {"bootstrap.servers": kafka.bootstrap, "linger.ms": 0, "message.timeout.ms": int(RESTARTED_S * 1000)}
    )
    for number in range(count):
        producer.produce(
            TOPIC,
            b"x",
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: error and failures.append(str(error)),
        )
    assert producer.flush(RESTARTED_S + WAIT_S) == 0, "nothing was acknowledged"
    assert failures == []


def test_the_same_as_kafkas_own_tool(tmp_path: Path) -> None:
    world.publish(tmp_path / "tables", cluster_id=None)
    with KafkaBroker(require_kafka(), RESTARTS_QUICKLY) as kafka:
        admin = AdminClient(QUIET | {"bootstrap.servers": kafka.bootstrap})
        for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
            created.result(WAIT_S)
        write(kafka, 20)
        host, _, port = kafka.bootstrap.rpartition(":")
        site = LiveSite(tmp_path / "tables", (host, int(port)))
        try:
            with consumer(kafka, GROUP, **{"session.timeout.ms": 60_000}) as member:
                member.subscribe([TOPIC])
                poll_until(lambda: len(member.assignment()) == PARTITIONS, member)
                check(member.commit(offsets=[Offset(TOPIC, 0, 4), Offset(TOPIC, 1, 10)], asynchronous=False))
                assert site.live.wait_for_round(WAIT_S)
                with ConsumerGroups(kafka.kafka, kafka.bootstrap) as tool:
                    theirs = kafkas(tool)
                assert [row[:4] for row in theirs] == [(0, 4, 10, 6), (1, 10, 10, 0)]
                assert ours(site) == theirs
                group = site.told(f"/group.json?id={GROUP}")["group"]
                assert (group["state"], group["members"], group["lag"]) == ("Stable", 1, 6)
            kafka.kill()
            assert "group" not in site.told_when(f"/group.json?id={GROUP}", is_up=False)
            kafka.start()
            write(kafka, 2)
            site.told_when(f"/group.json?id={GROUP}", is_up=True, lag=8, within_s=RESTARTED_S)
            assert [row[:4] for row in ours(site)] == [(0, 4, 11, 7), (1, 10, 11, 1)]
        finally:
            site.close()


def test_a_broker_that_is_away_takes_its_own_groups_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two brokers has a partition of the offsets topic to itself."""
    monkeypatch.setitem(test_leader_change.SETTINGS, "offsets.topic.replication.factor", "1")
    world.publish(tmp_path / "tables", cluster_id=None)
    with test_leader_change.two_brokers() as brokers:
        links = {node: Link(side) for node, side in test_leader_change.sides_of(brokers).items()}
        until(lambda: len(told(links[1], "Metadata", 12, {"Topics": None})["Brokers"]) == 2)
        topic = {"Name": TOPIC, "NumPartitions": 1, "ReplicationFactor": 2}
        made = told(links[1], "CreateTopics", 7, {"Topics": [topic], "timeoutMs": 20_000})
        assert made["Topics"][0]["ErrorCode"] == 0
        until(lambda: told(links[1], "FindCoordinator", 4, bodies.find(GROUP))["Coordinators"][0]["ErrorCode"] == 0)
        names = {partition_for(name, test_leader_change.PARTITIONS): name for name in map(str, range(20))}
        for partition, group in names.items():
            until(lambda: leader_of(links[1], partition) in links)  # noqa: B023
            until(lambda: commits(links, group, partition))  # noqa: B023
        groups = {leader_of(links[1], partition): group for partition, group in names.items()}
        ports = [broker.bootstrap.rpartition(":")[2] for broker in (brokers[2], brokers[1])]
        site = LiveSite(tmp_path / "tables", ("127.0.0.1", ",127.0.0.1:".join(ports)))  # type: ignore[arg-type]
        try:
            found = site.told_when(f"/group.json?id={groups[2]}", is_up=True, lag=0, within_s=RESTARTED_S)
            assert found["is_whole"]
            brokers[2].kill()
            until(lambda: not site.told("/overview.json").get("is_whole"))
            found = site.told_when(f"/group.json?id={groups[1]}", is_up=True, lag=0, within_s=RESTARTED_S)
            assert (found["is_whole"], bool(found["sentence"])) == (False, True)
            until(lambda: shown_groups(site) == [groups[1]])  # what was read in the round before was shown once more
        finally:
            site.close()


def shown_groups(site: LiveSite) -> list[str]:
    told = site.told("/overview.json")
    return [each["group_id"] for each in rows(told["groups"])] if told["is_up"] else []


def commits(links: dict[int, Link], group: str, partition: int) -> bool:
    """Whether the coordinator has taken a commit: it may not have loaded its partition yet."""
    coordinator = links[leader_of(links[1], partition)]
    answer = told(coordinator, "OffsetCommit", 8, bodies.commit(group, {(TOPIC, 0): 0}))
    return bool(answer["Topics"][0]["Partitions"][0]["ErrorCode"] == 0)
