"""What librdkafka's `list_groups` says, as groups: one answer of each broker for all the groups it coordinates.

It speaks DescribeGroups version 0. That has no instance ids, hands on assignments as the bytes that members gave, and
takes groups of the newer protocol for Dead. Whatever is not certain is left out, for somebody to ask about it properly.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from muster.cli.groups.model import Group, GroupType, Member, Node, State, TopicPartition
from muster.errors import CodecError

CONSUMER_PROTOCOL = "consumer"
STATES = {state.value: state for state in State if state not in (State.DEAD, State.UNKNOWN)}


def from_list_groups(described: Iterable[Any], wanted: set[str], types: Mapping[str, GroupType]) -> dict[str, Group]:
    """The groups among `wanted` that are described beyond doubt."""
    groups: dict[str, Group] = {}
    for one in described:
        if one.id not in wanted or one.error is not None or one.state not in STATES:
            continue
        if one.protocol_type not in ("", CONSUMER_PROTOCOL):
            continue
        try:
            members = tuple(_member(member) for member in one.members)
        except CodecError:  # librdkafka has a reader of its own; let it try
            continue
        node = Node(one.broker.id, one.broker.host, one.broker.port)
        kind = types.get(one.id, GroupType.UNKNOWN)
        groups[one.id] = Group(one.id, kind, STATES[one.state], one.protocol, node, members)
    return groups


def _member(member: Any) -> Member:
    from muster.codec.consumer_protocol import decode_assignment  # the codec takes a while, and many groups are empty

    assignment = decode_assignment(member.assignment or b"")
    partitions = () if assignment is None else tuple(
        TopicPartition(topic, partition)
        for topic, numbers in assignment.assigned_partitions
        for partition in numbers
    )  # fmt: skip
    return Member(member.id, member.client_id, member.client_host, None, partitions)
