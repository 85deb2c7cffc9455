"""State out of history: against what live brokers answered, and against a replay of the log up to a moment."""

from typing import Any

import pytest

from tests.codec.corpus_records import NAMES
from tests.tables.history import answers, state_at_the_end

WHOLE = [name for name in NAMES if not name.startswith("damaged")]
"""Corpora of which the broker could read all that we can."""


def by_group(name: str) -> dict[str, dict[str, Any]]:
    return {group["groupId"]: group for group in answers(name)["groups"]}


@pytest.mark.parametrize("name", WHOLE)
def test_offsets_are_those_that_the_broker_told(name: str) -> None:
    ours: dict[str, dict[str, Any]] = {group_id: {} for group_id in by_group(name)}
    for row in state_at_the_end(name)["offsets"].to_pylist():
        told = {"offset": row["committed_offset"], "leaderEpoch": row["leader_epoch"], "metadata": row["metadata"]}
        ours.setdefault(row["group_id"], {})[f"{row['topic']}-{row['partition']}"] = told
    theirs = {group_id: group.get("committed") or {} for group_id, group in by_group(name).items()}
    assert ours == theirs


@pytest.mark.parametrize("name", WHOLE)
def test_groups_are_those_that_the_broker_listed(name: str) -> None:
    ours = {row["group_id"]: row for row in state_at_the_end(name)["groups"].to_pylist()}
    theirs = by_group(name)
    assert ours.keys() == theirs.keys()
    for group_id, group in theirs.items():
        row, listed = ours[group_id], group["listed"]
        is_simple = group.get("isSimpleConsumerGroup") or listed["isSimpleConsumerGroup"]
        assert row["type"] == ("simple" if is_simple else (listed["type"] or "Classic").lower()), group
        assert row["state"] == listed["state"], group
        assert (row["protocol_type"] or "") == listed["protocolType"], group
        assert row["committed_partitions"] == len(group.get("committed") or {})
        if "groupEpoch" in group:
            assert row["generation"] == group["groupEpoch"]
        if row["type"] == "classic" and "assignor" in group and row["members"]:
            assert row["protocol"] == group["assignor"]
        if "members" in group:
            assert row["members"] == len(group["members"])


@pytest.mark.parametrize("name", WHOLE)
def test_members_are_those_that_the_broker_described(name: str) -> None:
    ours = {(row["group_id"], row["member_id"]): row for row in state_at_the_end(name)["members"].to_pylist()}
    described = {group_id for group_id, group in by_group(name).items() if "members" in group}
    theirs = {
        (group_id, member["memberId"]): member
        for group_id in described
        for member in by_group(name)[group_id]["members"]
    }
    assert {key for key in ours if key[0] in described} == theirs.keys()
    for key, member in theirs.items():
        row = ours[key]
        assert row["instance_id"] == member.get("groupInstanceId")
        assert (row["client_id"], row["client_host"]) == (member["clientId"], member["host"])
        assert row["rack_id"] == member.get("rackId")
        if "memberEpoch" in member:
            assert row["generation"] == member["memberEpoch"]
        if isinstance(member.get("assignment"), list):
            assert assigned(row["assignment"]) == sorted(member["assignment"])
        if isinstance(member.get("targetAssignment"), list) and row["type"] == "consumer":
            assert assigned(row["target_assignment"]) == sorted(member["targetAssignment"])
        if row["type"] == "streams":
            tasks = sorted(f"{each['topic']}_{number}" for each in row["assignment"] for number in each["partitions"])
            assert tasks == sorted(member["assignment"]["active"].strip("[]").replace(" ", "").split(","))


def assigned(assignment: list[dict[str, Any]] | None) -> list[str]:
    return sorted(f"{each['topic']}-{number}" for each in assignment or [] for number in each["partitions"])
