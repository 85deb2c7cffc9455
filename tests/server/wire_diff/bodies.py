"""Requests about groups, with something in every field. A version takes of a message the fields that it has."""

from collections.abc import Mapping
from typing import Any

Message = dict[str, Any]
NO_ID = bytes(16)
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff\x00\x00\x00\x00"
SESSION_MS = 30_000


def join(group: str, member: str = "", instance: str | None = None, **more: Any) -> Message:
    return {
        "GroupId": group, "SessionTimeoutMs": SESSION_MS, "RebalanceTimeoutMs": SESSION_MS, "MemberId": member,
        "GroupInstanceId": instance, "ProtocolType": "consumer",
        "Protocols": [{"Name": "range", "Metadata": SUBSCRIPTION}], "Reason": "why not", **more,
    }  # fmt: skip


def sync(group: str, generation: int, member: str, assigned: Mapping[str, bytes], **more: Any) -> Message:
    assignments = [{"MemberId": each, "Assignment": data} for each, data in assigned.items()]
    return {
        "GroupId": group, "GenerationId": generation, "MemberId": member, "GroupInstanceId": None,
        "ProtocolType": "consumer", "ProtocolName": "range", "Assignments": assignments, **more,
    }  # fmt: skip


def heartbeat(group: str, generation: int, member: str, instance: str | None = None) -> Message:
    return {"GroupId": group, "GenerationId": generation, "MemberId": member, "GroupInstanceId": instance}


def leave(group: str, *members: str, instance: str | None = None) -> Message:
    leavers = [{"MemberId": member, "GroupInstanceId": instance, "Reason": "enough"} for member in members]
    return {"GroupId": group, "MemberId": members[0] if members else "", "Members": leavers}


def commit(
    group: str, offsets: Mapping[tuple[str, int], int], ids: Mapping[str, bytes] | None = None, **more: Any
) -> Message:
    """From version 10 on topics go by their ids; one that is not among them has the id of none."""
    by_topic: dict[str, list[Message]] = {}
    for (topic, partition), offset in offsets.items():
        wanted = {"PartitionIndex": partition, "CommittedOffset": offset, "CommittedLeaderEpoch": 0}
        by_topic.setdefault(topic, []).append({**wanted, "CommittedMetadata": "so far"})
    topics = [
        {"Name": topic, "TopicId": (ids or {}).get(topic, NO_ID), "Partitions": partitions}
        for topic, partitions in by_topic.items()
    ]
    return {
        "GroupId": group, "GenerationIdOrMemberEpoch": -1, "MemberId": "", "GroupInstanceId": None, "Topics": topics,
        **more,
    }  # fmt: skip


def fetch(
    groups: Mapping[str, Mapping[str, list[int]] | None],
    ids: Mapping[str, bytes] | None = None,
    is_stable: bool = False,
) -> Message:
    """An OffsetFetch: of several groups from version 8 on, of the first one before; None is everything."""
    asked: list[Message] = []
    for group, wanted in groups.items():
        topics = None
        if wanted is not None:
            topics = [
                {"Name": topic, "TopicId": (ids or {}).get(topic, NO_ID), "PartitionIndexes": partitions}
                for topic, partitions in wanted.items()
            ]
        asked.append({"GroupId": group, "MemberId": None, "MemberEpoch": -1, "Topics": topics})
    first = asked[0] if asked else {"GroupId": "", "Topics": []}
    of_old = None if first["Topics"] is None else [_without_id(topic) for topic in first["Topics"]]
    return {"GroupId": first["GroupId"], "Topics": of_old, "Groups": asked, "RequireStable": is_stable}


def _without_id(topic: Message) -> Message:
    return {name: value for name, value in topic.items() if name != "TopicId"}


def offset_delete(group: str, partitions: Mapping[str, list[int]]) -> Message:
    topics = [
        {"Name": topic, "Partitions": [{"PartitionIndex": each} for each in wanted]}
        for topic, wanted in partitions.items()
    ]
    return {"GroupId": group, "Topics": topics}


def describe(*groups: str, has_operations: bool = True) -> Message:
    return {"Groups": list(groups), "IncludeAuthorizedOperations": has_operations}


def find(*keys: str, key_type: int = 0) -> Message:
    return {"Key": keys[0] if keys else "", "KeyType": key_type, "CoordinatorKeys": list(keys)}


def list_groups(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Message:
    return {"StatesFilter": list(states), "TypesFilter": list(types)}
