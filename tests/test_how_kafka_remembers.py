"""docs/how-kafka-remembers.md: every byte that it shows is the one that the codec writes."""

import re
from pathlib import Path

import pytest

from muster.codec.batches import encode_batch
from muster.codec.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from muster.codec.offsets_topic import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetValue,
    encode_group_value,
    encode_key,
    encode_offset_value,
    offset_key,
)
from muster.codec.partitioning import java_string_hash, partition_for
from muster.codec.records import Record

TEXT = (Path(__file__).parent.parent / "docs" / "how-kafka-remembers.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```hex (.+?)\n(.*?)```", TEXT, re.DOTALL))

COMMITTED_MS = 1_790_000_000_000
TOPIC_ID = bytes(range(16))
COMMIT_KEY = encode_key(offset_key("tills", "orders", 3))
COMMIT_VALUE = encode_offset_value(
    OffsetValue(4210, leader_epoch=0, commit_timestamp_ms=COMMITTED_MS, topic_id=TOPIC_ID), 4
)
RECORD = Record(17, COMMITTED_MS, COMMIT_KEY, COMMIT_VALUE)
SUBSCRIPTION = encode_subscription(Subscription(0, ("orders",)))
ASSIGNMENT = encode_assignment(Assignment(0, (TopicPartitions("orders", (2, 3)),)))
MEMBER = MemberValue("till-2-9f", None, "till-2", "/10.0.0.7", 300_000, 45_000, SUBSCRIPTION, ASSIGNMENT)
GROUP_VALUE = encode_group_value(GroupValue("consumer", 2, "range", "till-2-9f", COMMITTED_MS, (MEMBER,)), 3)

SHOWN = {
    "key of the commit": COMMIT_KEY,
    "value of the commit": COMMIT_VALUE,
    "header of the batch": encode_batch([RECORD], base_sequence=0, leader_epoch=5)[:61],
    "tombstone": encode_batch([Record(18, COMMITTED_MS, COMMIT_KEY, None)])[61:],
    "key of the group": encode_key(GroupKey("tills")),
    "value of the group": GROUP_VALUE,
    "subscription": SUBSCRIPTION,
    "assignment": ASSIGNMENT,
}


@pytest.mark.parametrize("name", SHOWN)
def test_bytes(name: str) -> None:
    shown = "".join(line.split("  ")[0] for line in BLOCKS[name].splitlines())
    assert bytes.fromhex(shown) == SHOWN[name], f"{name}: {SHOWN[name].hex(' ')}"


def test_nothing_is_shown_that_is_not_compared() -> None:
    assert sorted(BLOCKS) == sorted(SHOWN)


def test_the_partition_of_the_group() -> None:
    assert f"`{java_string_hash('tills')}`" in TEXT
    assert f"partition {partition_for('tills', 50)}" in TEXT
