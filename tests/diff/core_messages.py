"""Requests as the core hears them, and its answers as a client would: what a server does between the two.

Only as much of a server as shapes things: what one version calls null and another an empty string, one error for a
whole LeaveGroup or one for each member, several groups in one request. What the core does not decide (whether a topic
exists, whether a transaction may add offsets) is not imitated, and no script for the core asks about it.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.core import events
from muster.core import events as answers
from tests.diff.requests import NO_TOPIC_ID

CLIENT_HOST = "/127.0.0.1"
TOPIC_IDS = {name: uuid.uuid5(uuid.NAMESPACE_DNS, name).bytes for name in ("t0", "t1")}
NO_OPERATIONS = -(2**31)
FIRST_SYNC_WITH_PROTOCOL = 5
FIRST_NULLABLE_PROTOCOL_NAME = 7
FIRST_LEAVE_OF_MANY = 3
FIRST_FETCH_OF_MANY = 8
FIRST_WITH_TOPIC_IDS = 10

Body = dict[str, Any]
ReplyTo = tuple[int, int]


@dataclass(slots=True)
class Asked:
    """A request that may be several events; answered when all of them are."""

    api: str
    version: int
    body: Body
    parts: int
    answers: dict[int, Any] = field(default_factory=dict)


# Requests to events.


def answer_without_core(api: str, version: int, body: Body) -> Body | None:
    """What a server answers by itself."""
    if api != "SyncGroup" or version < FIRST_SYNC_WITH_PROTOCOL:
        return None
    if body["protocol_type"] is not None and body["protocol_name"] is not None:
        return None
    return _sync(answers.SyncAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))


def events_of(ticket: int, api: str, version: int, client_id: str, body: Body, fresh: str) -> Iterator[events.Event]:
    """What a request is to the core; one event for each group it is about."""
    to = (ticket, 0)
    group_id: str = body.get("group_id", "")
    match api:
        case "JoinGroup":
            session_ms = body["session_timeout_ms"]
            yield events.JoinGroup(
                to, version, group_id, body["member_id"], fresh, client_id, CLIENT_HOST,
                session_ms, body["rebalance_timeout_ms"] if version else session_ms, body["protocol_type"],
                tuple((each["name"], each["metadata"]) for each in body["protocols"]),
                body["group_instance_id"], body["reason"],
            )  # fmt: skip
        case "SyncGroup":
            assigned = {each["member_id"]: each["assignment"] for each in body["assignments"]}
            is_named = version >= FIRST_SYNC_WITH_PROTOCOL
            yield events.SyncGroup(
                to, group_id, body["generation_id"], body["member_id"], assigned, body["group_instance_id"],
                body["protocol_type"] if is_named else None, body["protocol_name"] if is_named else None, version,
            )  # fmt: skip
        case "Heartbeat":
            yield events.Heartbeat(
                to, group_id, body["generation_id"], body["member_id"], body["group_instance_id"]
            )  # fmt: skip
        case "LeaveGroup":
            leavers = [
                events.Leaver(each["member_id"], each["group_instance_id"], each["reason"])
                for each in body["members"]
            ]  # fmt: skip
            if version < FIRST_LEAVE_OF_MANY:
                leavers = [events.Leaver(body["member_id"])]
            yield events.LeaveGroup(to, group_id, tuple(leavers))
        case "OffsetCommit":
            yield events.OffsetCommit(
                to, group_id, body["generation_id_or_member_epoch"], body["member_id"], _commits(body, TOPIC_IDS),
                body["group_instance_id"], body["retention_time_ms"], version,
            )  # fmt: skip
        case "TxnOffsetCommit":
            yield events.TxnOffsetCommit(
                to, group_id, body["producer_id"], body["producer_epoch"], _commits(body, {}),
                body["generation_id"], body["member_id"], body["group_instance_id"],
            )  # fmt: skip
        case "OffsetFetch":
            asked = body["groups"] if version >= FIRST_FETCH_OF_MANY else [body]
            for part, each in enumerate(asked):
                yield _fetch((ticket, part), version, each, body["require_stable"])
        case "OffsetDelete":
            yield events.OffsetDelete(to, group_id, _partitions(body["topics"]))
        case "DescribeGroups":
            for part, each_id in enumerate(body["groups"]):
                yield events.DescribeGroup((ticket, part), each_id, version)
        case "DeleteGroups":
            for part, each_id in enumerate(dict.fromkeys(body["groups_names"])):
                yield events.DeleteGroup((ticket, part), each_id)
        case "ListGroups":
            yield events.ListGroups(to, tuple(body["states_filter"]), tuple(body["types_filter"]))
        case _:
            raise AssertionError(api)


def _commits(body: Body, topic_ids: dict[str, bytes]) -> tuple[events.CommittedPartition, ...]:
    return tuple(
        events.CommittedPartition(
            topic["name"],
            each["partition_index"],
            each["committed_offset"],
            each["committed_leader_epoch"],
            each["committed_metadata"],
            topic_ids.get(topic["name"], NO_TOPIC_ID),  # a broker knows the id, whatever the version asks by
        )
        for topic in body["topics"]
        for each in topic["partitions"]
    )


def _partitions(topics: list[Body]) -> tuple[tuple[str, int], ...]:
    return tuple((topic["name"], each["partition_index"]) for topic in topics for each in topic["partitions"])


def _fetch(to: ReplyTo, version: int, asked: Body, require_stable: bool) -> events.OffsetFetch:
    wanted = None if asked["topics"] is None else _partitions(asked["topics"])
    topic_ids = None
    if version >= FIRST_WITH_TOPIC_IDS:
        topic_ids = {topic["name"]: topic["topic_id"] for topic in asked["topics"] or ()}
    return events.OffsetFetch(to, asked["group_id"], wanted, require_stable, topic_ids)


# Answers to responses.


def response_to(asked: Asked, given: list[Any]) -> Body:
    """The answers to the events of a request, in the words of its schema and with the fields of all versions."""
    answer, body = given[0], asked.body
    match asked.api:
        case "JoinGroup":
            return _join(answer, asked.version)
        case "SyncGroup":
            return _sync(answer)
        case "Heartbeat":
            return {"error_code": answer}
        case "LeaveGroup":
            return _leave(answer, asked.version)
        case "OffsetCommit" | "TxnOffsetCommit":
            wanted = _partitions(body["topics"])
            errors = answer.errors or [ErrorCode.NONE] * len(wanted)
            return {"topics": _by_topic([{"error_code": error} for error in errors], wanted)}
        case "OffsetFetch":
            groups = [_fetched(each, asked.version, body, number) for number, each in enumerate(given)]
            return groups[0] | {"groups": groups}
        case "OffsetDelete":
            wanted = tuple((each.topic, each.partition) for each in answer.partitions)
            errors = [{"error_code": each.error} for each in answer.partitions]
            return {"error_code": answer.error, "topics": _by_topic(errors, wanted)}
        case "DescribeGroups":
            pairs = zip(body["groups"], given, strict=True)
            return {"groups": [_described(group_id, each) for group_id, each in pairs]}
        case "DeleteGroups":
            pairs = zip(dict.fromkeys(body["groups_names"]), given, strict=True)
            return {"results": [{"group_id": group_id, "error_code": error} for group_id, error in pairs]}
        case "ListGroups":
            return {
                "error_code": answer.error,
                "groups": [
                    {
                        "group_id": each.group_id,
                        "protocol_type": each.protocol_type,
                        "group_state": each.state,
                        "group_type": each.type,
                    }
                    for each in answer.groups
                ],
            }
    raise AssertionError(asked.api)


def _join(answer: answers.JoinAnswer, version: int) -> Body:
    protocol = answer.protocol
    if protocol is None and version < FIRST_NULLABLE_PROTOCOL_NAME:
        protocol = ""
    return {
        "error_code": answer.error,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": protocol,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {"member_id": each.member_id, "group_instance_id": each.instance_id, "metadata": each.metadata}
            for each in answer.members
        ],
    }


def _sync(answer: answers.SyncAnswer) -> Body:
    return {
        "error_code": answer.error,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol,
        "assignment": answer.assignment,
    }


def _leave(answer: answers.LeaveAnswer, version: int) -> Body:
    members = [
        {"member_id": each.member_id, "group_instance_id": each.instance_id, "error_code": each.error}
        for each in answer.members
    ]
    error = answer.error
    if version < FIRST_LEAVE_OF_MANY and members and error is ErrorCode.NONE:
        error = answer.members[0].error
    return {"error_code": error, "members": members}


def _by_topic(each: list[Body], partitions: tuple[tuple[str, int], ...]) -> list[Body]:
    found: dict[str, list[Body]] = {}
    for (topic, partition), told in zip(partitions, each, strict=True):
        found.setdefault(topic, []).append({"partition_index": partition, **told})
    return [
        {"name": topic, "topic_id": TOPIC_IDS.get(topic, NO_TOPIC_ID), "partitions": told}
        for topic, told in found.items()
    ]


def _fetched(answer: answers.FetchAnswer, version: int, body: Body, number: int) -> Body:
    told = [
        {
            "committed_offset": each.offset,
            "committed_leader_epoch": each.leader_epoch,
            "metadata": each.metadata,
            "error_code": each.error,
        }
        for each in answer.partitions
    ]
    wanted = tuple((each.topic, each.partition) for each in answer.partitions)
    group_id = body["groups"][number]["group_id"] if version >= FIRST_FETCH_OF_MANY else body["group_id"]
    return {"group_id": group_id, "error_code": answer.error, "topics": _by_topic(told, wanted)}


def _described(group_id: str, answer: answers.DescribeAnswer) -> Body:
    return {
        "error_code": answer.error,
        "error_message": answer.message,
        "group_id": group_id,
        "group_state": answer.state,
        "protocol_type": answer.protocol_type,
        "protocol_data": answer.protocol,
        "members": [
            {
                "member_id": each.member_id,
                "group_instance_id": each.instance_id,
                "client_id": each.client_id,
                "client_host": each.client_host,
                "member_metadata": each.metadata,
                "member_assignment": each.assignment,
            }
            for each in answer.members
        ],
        "authorized_operations": NO_OPERATIONS,
    }
