"""The same thing named several times in one request: Kafka answers each time, but for groups to be deleted."""

import pytest

from tests.server.wire_diff import bodies
from tests.server.wire_diff.talk import Both, Side

pytestmark = pytest.mark.kafka


def test_groups_that_are_described_twice(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        member = link.ask("JoinGroup", 3, bodies.join("again"))["MemberId"]
        link.ask("SyncGroup", 3, bodies.sync("again", 1, member, {member: b"yours"}))
        for version in 0, 4, 6:
            link.ask("DescribeGroups", version, {"Groups": ["again", "nobody", "again", "nobody", "again"]})

    answers = both.same(story)
    assert [len(answer["Groups"]) for answer in answers[-3:]] == [5, 5, 5]


def test_offsets_that_are_fetched_twice(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        link.ask("OffsetCommit", 8, bodies.commit("again", {("orders", 0): 5, ("orders", 1): 6, ("payments", 0): 7}))
        everything = {"GroupId": "again", "MemberId": None, "MemberEpoch": -1, "Topics": None}
        twice = [{"Name": "orders", "PartitionIndexes": [0, 1, 0, 2, 0]}, {"Name": "orders", "PartitionIndexes": [0]}]
        some = {**everything, "Topics": twice}
        for groups in [everything] * 3, [some], [some, everything, some], [{**some, "GroupId": "nobody"}, some, some]:
            link.ask("OffsetFetch", 9, {"Groups": groups, "RequireStable": False})

    both.same(story)


def test_keys_members_and_partitions_that_are_named_twice(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        link.ask("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": ["a", "a", "b", "a"]})
        member = link.ask("JoinGroup", 3, bodies.join("leavers"))["MemberId"]
        link.ask("LeaveGroup", 5, bodies.leave("leavers", member, member, "nobody", "nobody"))
        commit = bodies.commit("twice", {("orders", 0): 5})
        link.ask("OffsetCommit", 8, {**commit, "Topics": commit["Topics"] * 2})
        zero = {"PartitionIndex": 0}
        topics = [{"Name": name, "Partitions": [zero, zero]} for name in ("orders", "orders", "unheard-of")]
        link.ask("OffsetDelete", 0, {"GroupId": "twice", "Topics": topics})
        link.ask("DeleteGroups", 2, {"GroupsNames": ["twice", "twice", "nobody", "nobody"]})

    both.same(story)
