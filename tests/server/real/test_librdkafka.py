"""librdkafka (confluent-kafka) uses muster as its broker for groups."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from muster.broker import Broker

WAIT_S = 30.0


def consumer(broker: Broker, group: str, **more: Any) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 100,
            **more,
        }
    )
    made.subscribe(["orders"])
    return made


def poll_until(consumers: list[Consumer], is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, [len(each.assignment()) for each in consumers]
        for each in consumers:
            each.poll(0.05)


def shares(consumers: list[Consumer]) -> list[int]:
    return sorted(len(each.assignment()) for each in consumers)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_come_and_go(broker: Broker, strategy: str) -> None:
    group = f"come-and-go-{strategy}"
    consumers = [consumer(broker, group, **{"partition.assignment.strategy": strategy})]
    poll_until(consumers, lambda: shares(consumers) == [6])
    consumers.append(consumer(broker, group, **{"partition.assignment.strategy": strategy}))
    consumers.append(consumer(broker, group, **{"partition.assignment.strategy": strategy}))
    poll_until(consumers, lambda: shares(consumers) == [2, 2, 2])
    assert len({(each.topic, each.partition) for one in consumers for each in one.assignment()}) == 6
    consumers.pop().close()
    poll_until(consumers, lambda: shares(consumers) == [3, 3])
    for each in consumers:
        each.close()


def test_commits_with_metadata_are_there_for_the_next_one(broker: Broker) -> None:
    first = consumer(broker, "commits")
    poll_until([first], lambda: bool(first.assignment()))
    first.commit(offsets=[TopicPartition("orders", 1, 5, "so far"), TopicPartition("orders", 2, 7)], asynchronous=False)
    first.close()
    second = consumer(broker, "commits")
    poll_until([second], lambda: bool(second.assignment()))
    committed = second.committed([TopicPartition("orders", number) for number in range(3)], timeout=10)
    assert [each.offset for each in committed] == [-1001, 5, 7]
    second.close()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("commits")]).values()
    found = {(each.topic, each.partition): (each.offset, each.metadata) for each in asked.result(10).topic_partitions}
    assert found == {("orders", 1): (5, "so far"), ("orders", 2): (7, None)}


def test_a_static_member_restarts_without_a_rebalance(broker: Broker, server_log: Any) -> None:
    names = ["one", "two"]
    members = {name: consumer(broker, "static", **{"group.instance.id": name}) for name in names}
    poll_until(list(members.values()), lambda: shares(list(members.values())) == [3, 3])
    before = server_log.getvalue().count("group static: rebalanced")
    had = sorted((each.topic, each.partition) for each in members["two"].assignment())
    members["two"].close()  # a static member does not leave
    members["two"] = consumer(broker, "static", **{"group.instance.id": "two"})
    poll_until(list(members.values()), lambda: shares(list(members.values())) == [3, 3])
    assert sorted((each.topic, each.partition) for each in members["two"].assignment()) == had
    assert server_log.getvalue().count("group static: rebalanced") == before
    assert "group static: a static member restarted as two-" in server_log.getvalue()
    for each in members.values():
        each.close()


def test_one_that_dies_loses_its_partitions(broker: Broker) -> None:
    survivor, victim = (consumer(broker, "dies", **{"session.timeout.ms": 1_000}) for _ in range(2))
    poll_until([survivor, victim], lambda: shares([survivor, victim]) == [3, 3])
    silent_since = time.monotonic()
    victim.pause(victim.assignment())
    # A client that is not polled still sends heartbeats until max.poll.interval.ms; so take its seat by force.
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    described = admin.describe_consumer_groups(["dies"])["dies"].result(10)
    assert len(described.members) == 2
    victim.close()
    poll_until([survivor], lambda: len(survivor.assignment()) == 6)
    assert time.monotonic() - silent_since < WAIT_S
    survivor.close()


def test_one_that_stalls_past_max_poll_interval_leaves_by_itself(broker: Broker) -> None:
    quick = {"max.poll.interval.ms": 6_000, "session.timeout.ms": 6_000}
    stalled, other = (consumer(broker, "stalls", **quick) for _ in range(2))
    poll_until([stalled, other], lambda: shares([stalled, other]) == [3, 3])
    poll_until([other], lambda: len(other.assignment()) == 6)  # `stalled` is not polled any more
    with pytest.raises(KafkaException):
        stalled.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    other.close()
    stalled.close()


def test_the_admin_sees_what_there_is(broker: Broker) -> None:
    member = consumer(broker, "seen", **{"client.id": "watcher"})
    poll_until([member], lambda: bool(member.assignment()))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    listed = {each.group_id: each for each in admin.list_consumer_groups().result(10).valid}
    assert listed["seen"].state.name == "STABLE"
    described = admin.describe_consumer_groups(["seen"])["seen"].result(10)
    (seen,) = described.members
    assert (seen.client_id, seen.host, described.partition_assignor) == ("watcher", "/127.0.0.1", "range")
    assert len(seen.assignment.topic_partitions) == 6
    member.close()
    admin.delete_consumer_groups(["seen"])["seen"].result(10)
    assert "seen" not in {each.group_id for each in admin.list_consumer_groups().result(10).valid}
