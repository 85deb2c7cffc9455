"""What pages say of now, beside kafka-consumer-groups on a real Kafka."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Offset
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kit.java.compiled import ConsumerGroups
from tests.kit.kafka import RESTARTS_QUICKLY, KafkaBroker, require_kafka
from tests.pages import world
from tests.pages.test_live import LiveSite, rows
from tests.real.drive import QUIET, WAIT_S, check, consumer, poll_until

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]

TOPIC, GROUP, PARTITIONS = "clicks", "orders", 2
RESTARTED_S = 120.0
"""A broker that was killed leads its partitions again by then, on a machine that has much else to do."""
Row = tuple[int, int, int, int, str]
"""Partition, committed offset, log end offset, lag, member."""


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
