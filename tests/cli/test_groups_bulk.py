"""Groups from librdkafka's oldest call: what is certain is taken, the rest is left for a closer look."""

from types import SimpleNamespace
from typing import Any

import pytest

from muster.cli.groups.cluster import from_list_groups
from muster.cli.groups.model import Group, GroupType, Member, Node, State, TopicPartition
from muster.codec.consumer_protocol import Assignment, TopicPartitions, encode_assignment

ASSIGNED = encode_assignment(Assignment(0, (TopicPartitions("orders", (2, 0)), TopicPartitions("pay", (1,)))))


def member(assignment: bytes | None) -> SimpleNamespace:
    return SimpleNamespace(id="one-1", client_id="one", client_host="/10.0.0.1", assignment=assignment, metadata=b"")


def described(**changes: Any) -> SimpleNamespace:
    broker = SimpleNamespace(id=3, host="kafka-3", port=9092)
    usual = {"id": "app", "state": "Stable", "protocol_type": "consumer", "protocol": "range", "error": None}
    return SimpleNamespace(**({"broker": broker, "members": [member(ASSIGNED)]} | usual | changes))


def test_a_group_with_what_its_members_have() -> None:
    partitions = (TopicPartition("orders", 2), TopicPartition("orders", 0), TopicPartition("pay", 1))
    assert from_list_groups([described()], {"app"}, {"app": GroupType.CLASSIC}) == {
        "app": Group(
            "app",
            GroupType.CLASSIC,
            State.STABLE,
            "range",
            Node(3, "kafka-3", 9092),
            (Member("one-1", "one", "/10.0.0.1", None, partitions),),
        )
    }


@pytest.mark.parametrize("assignment", [b"", None])
def test_a_member_that_was_given_nothing_yet(assignment: bytes | None) -> None:
    group = described(state="CompletingRebalance", members=[member(assignment)])
    assert from_list_groups([group], {"app"}, {})["app"].members[0].assignment == ()


@pytest.mark.parametrize(
    "doubtful",
    [
        described(id="other"),
        described(state="Dead"),  # what it takes groups of the newer protocol for
        described(state="Reconciling"),
        described(state=""),
        described(error="coordinator is loading"),
        described(protocol_type="connect"),
        described(members=[member(ASSIGNED[:-7])]),  # cut short
        described(members=[member(b"\xff\xff" + ASSIGNED[2:])]),  # a version that is none
    ],
    ids=["not wanted", "dead", "new state", "no state", "error", "no consumers", "cut short", "version -1"],
)
def test_what_is_not_certain_is_left_out(doubtful: SimpleNamespace) -> None:
    assert from_list_groups([doubtful], {"app"}, {}) == {}
