"""librdkafka's admin client over the wire, against a muster server. Kafka's tools: `real/test_java_tools.py`."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

import muster


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with muster.Broker() as broker:
        yield broker.bootstrap_servers


def test_librdkafkas_admin(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    wanted = [NewTopic("rt", 3, 1, config={"retention.ms": "1000"}), NewTopic("rd", -1, -1)]
    for made in admin.create_topics(wanted).values():
        made.result()
    with pytest.raises(KafkaException, match=r"Topic 'rt' already exists\."):
        admin.create_topics([NewTopic("rt", 1, 1)])["rt"].result()
    admin.create_partitions([NewPartitions("rt", 5)])["rt"].result()
    assert {name: len(topic.partitions) for name, topic in admin.list_topics().topics.items() if name[0] == "r"} == {
        "rt": 5,
        "rd": 1,
    }
    resource = ConfigResource(ConfigResource.Type.TOPIC, "rt")
    configs = admin.describe_configs([resource])[resource].result()
    assert (configs["retention.ms"].value, configs["cleanup.policy"].value) == ("1000", "delete")
    changed = ConfigEntry("retention.ms", "2000", incremental_operation=AlterConfigOpType.SET)
    longer = ConfigResource(ConfigResource.Type.TOPIC, "rt", incremental_configs=[changed])
    admin.incremental_alter_configs([longer])[longer].result()
    assert admin.describe_configs([resource])[resource].result()["retention.ms"].value == "2000"
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    assert admin.describe_configs([broker])[broker].result()["num.partitions"].value == "1"
    first = TopicPartition("rt", 0)
    for spec, offset in ((OffsetSpec.latest(), 0), (OffsetSpec.max_timestamp(), -1), (OffsetSpec.for_timestamp(5), -1)):
        assert admin.list_offsets({first: spec})[first].result().offset == offset
    producer = Producer({"bootstrap.servers": address})
    for number in range(5):
        producer.produce("rt", str(number), partition=1)
    assert producer.flush(30) == 0
    cut = TopicPartition("rt", 1, 3)
    assert admin.delete_records([cut])[cut].result().low_watermark == 3
    second = TopicPartition("rt", 1)
    assert admin.list_offsets({second: OffsetSpec.earliest()})[second].result().offset == 3
    described = admin.describe_topics(TopicCollection(["rt"]))["rt"].result()
    assert [partition.leader.id for partition in described.partitions] == [1] * 5
    assert [node.id for node in admin.describe_cluster().result().nodes] == [1]
    for gone in admin.delete_topics(["rt", "rd"]).values():
        gone.result()
    assert [name for name in admin.list_topics().topics if name[0] == "r"] == []
