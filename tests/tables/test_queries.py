"""State out of history: against what live brokers answered, and against a replay of the log up to a moment."""

from typing import Any

import pyarrow as pa
import pytest

from muster.tables.schemas import COMMITS, GROUP_RECORDS
from tests.codec.corpus_records import NAMES
from tests.tables.history import answers, state_at_the_end, state_of

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


def record(record_type: int, epoch: int | None = None, member: str | None = None, **more: Any) -> dict[str, Any]:
    row = {"offsets_partition": 0, "record_type": record_type, "group_id": "g", "is_tombstone": False, "epoch": epoch}
    return row | {"member_id": member} | more


def group_of(*records: dict[str, Any]) -> dict[str, Any] | None:
    """The one group that these records make, in log order."""
    rows = [{"log_offset": place, **row} for place, row in enumerate(records)]
    tables = {
        "commits": COMMITS.empty_table(),
        "open_commits": COMMITS.empty_table(),
        "group_records": pa.Table.from_pylist(rows, schema=GROUP_RECORDS),
    }
    found: list[dict[str, Any]] = state_of(tables)["groups"].to_pylist()
    assert len(found) <= 1
    return found[0] if found else None


CONSUMER = (record(3, 5), record(5, member="m"), record(6, 5), record(8, 5, "m", member_state=0))
STREAMS = (record(17, 2), record(23, 0), record(19, member="m"), record(20, 2), record(22, 2, "m", member_state=1))
SHARE = (record(11, 2), record(10, member="m"), record(12, 1), record(14, 1, "m", member_state=0))


@pytest.mark.parametrize(
    ("records", "type", "state"),
    [
        (CONSUMER, "consumer", "Stable"),
        ((*CONSUMER, record(3, 6)), "consumer", "Assigning"),  # a new epoch, and nobody has its assignment yet
        ((*CONSUMER, record(3, 6), record(6, 6)), "consumer", "Reconciling"),  # m is still at 5
        ((*CONSUMER, record(8, 5, "m", member_state=1)), "consumer", "Reconciling"),  # m has partitions to give up
        ((*CONSUMER, record(5, member="n")), "consumer", "Reconciling"),  # n has not been given any yet
        ((*CONSUMER, record(8, -2, "m", member_state=0)), "consumer", "Reconciling"),  # a static member is away
        ((*CONSUMER, record(5, member="m", is_tombstone=True)), "consumer", "Empty"),
        (STREAMS, "streams", "Stable"),
        ((*STREAMS, record(22, 2, "m", member_state=2)), "streams", "Reconciling"),
        ((*STREAMS, record(17, 3)), "streams", "Assigning"),
        ((*STREAMS, record(23, is_tombstone=True)), "streams", "NotReady"),
        (SHARE, "share", "Stable"),  # its members have nothing to reconcile
        ((*SHARE, record(10, member="m", is_tombstone=True)), "share", "Empty"),
        ((record(2, 4, protocol_type="consumer", members=[{"member_id": "m"}]),), "classic", "Stable"),
        ((record(2, 4, protocol_type="consumer", members=[]),), "classic", "Empty"),
        ((record(2, 0, protocol_type="", members=[]),), "simple", "Empty"),
        ((record(2, 4, protocol_type="consumer"), record(2, is_tombstone=True), *CONSUMER), "consumer", "Stable"),
    ],
)
def test_states(records: tuple[dict[str, Any], ...], type: str, state: str) -> None:
    group = group_of(*records)
    assert group is not None
    assert (group["type"], group["state"]) == (type, state)


def test_a_deleted_group_is_gone_and_what_cannot_be_read_replaces_nothing() -> None:
    classic = record(2, 4, protocol_type="consumer", members=[])
    assert group_of(classic, record(2, is_tombstone=True)) is None
    group = group_of(classic, record(2, problem="value version 9 is not known here"))
    assert group is not None
    assert group["generation"] == 4


def test_a_member_that_changes_its_regular_expression_is_one_member() -> None:
    group = group_of(*CONSUMER, record(5, member="m", regular_expression="a.*"))
    assert group is not None
    assert group["members"] == 1
