"""Every request about groups in every version: once as it should be, and wrong in a few ways."""

import pytest

from tests.server.wire_diff import bodies
from tests.server.wire_diff.talk import Both, Side

pytestmark = pytest.mark.kafka


def every(both: Both, api: str) -> range:
    versions = both.judge.served(api)
    assert len(versions) >= 1
    return versions


def joined(side: Side, group: str, instance: str | None = None) -> str:
    """The id of the only member of a group that is Stable in generation 1."""
    link = side.connect()
    first = link.ask("JoinGroup", 9, bodies.join(group, instance=instance))
    member: str = first["MemberId"]
    if first["ErrorCode"]:
        link.ask("JoinGroup", 9, bodies.join(group, member, instance))
    link.ask("SyncGroup", 5, bodies.sync(group, 1, member, {member: b"mine"}, GroupInstanceId=instance))
    return member


def test_joining_and_syncing(both: Both) -> None:
    def story(side: Side) -> None:
        for version in every(both, "JoinGroup"):
            group, link = f"join-{version}", side.connect()
            member = link.ask("JoinGroup", version, bodies.join(group))["MemberId"]
            if version >= 4:
                link.ask("JoinGroup", version, bodies.join(group, member))
            for wrong in (
                bodies.join("", member),
                bodies.join(group, "nobody"),
                bodies.join(group, member, SessionTimeoutMs=1),
                bodies.join(group, member, ProtocolType="connect"),
                bodies.join(group, member, Protocols=[]),
                bodies.join(group, member, ProtocolType=""),
                bodies.join(group, member, "unknown instance"),
            ):
                link.ask("JoinGroup", version, wrong)
            sync_version = min(version, 5)
            link.ask("SyncGroup", sync_version, bodies.sync(group, 1, "nobody", {}))
            link.ask("SyncGroup", sync_version, bodies.sync(group, 7, member, {}))
            link.ask("SyncGroup", sync_version, bodies.sync("", 1, member, {}))
            link.ask("SyncGroup", sync_version, bodies.sync(group, 1, member, {}, ProtocolName="sticky"))
            link.ask("SyncGroup", sync_version, bodies.sync(group, 1, member, {}, ProtocolType=None))
            link.ask("SyncGroup", sync_version, bodies.sync(group, 1, member, {member: b"mine", "other": b"x"}))
            link.ask("SyncGroup", sync_version, bodies.sync(group, 1, member, {}))

    answers = both.same(story)
    assert {answer["ErrorCode"] for answer in answers} >= {0, 22, 23, 24, 25, 26, 79}


def test_static_members(both: Both) -> None:
    def story(side: Side) -> None:
        for version in range(5, 10):
            group, link = f"static-{version}", side.connect()
            first = link.ask("JoinGroup", version, bodies.join(group, instance="one"))["MemberId"]
            link.ask("SyncGroup", 4, bodies.sync(group, 1, first, {first: b"mine"}, GroupInstanceId="one"))
            second = link.ask("JoinGroup", version, bodies.join(group, instance="one"))["MemberId"]
            for member in first, second:
                link.ask("Heartbeat", 4, bodies.heartbeat(group, 1, member, "one"))
                link.ask("SyncGroup", 5, bodies.sync(group, 1, member, {}, GroupInstanceId="one"))
                mine = {"MemberId": member, "GenerationIdOrMemberEpoch": 1, "GroupInstanceId": "one"}
                link.ask("OffsetCommit", 8, bodies.commit(group, {("orders", 0): 1}, **mine))
                link.ask("LeaveGroup", 4, bodies.leave(group, member, instance="two"))
            link.ask("DescribeGroups", 6, bodies.describe(group))
            link.ask("LeaveGroup", 5, bodies.leave(group, "", instance="one"))

    both.same(story)


def test_heartbeats_and_leaving(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        for version in every(both, "LeaveGroup"):
            group = f"leave-{version}"
            member = joined(side, group)
            for beat in range(min(version, 4) + 1):
                link.ask("Heartbeat", beat, bodies.heartbeat(group, 1, member))
                link.ask("Heartbeat", beat, bodies.heartbeat(group, 2, member))
                link.ask("Heartbeat", beat, bodies.heartbeat(group, 1, "nobody"))
                link.ask("Heartbeat", beat, bodies.heartbeat("", 1, member))
                link.ask("Heartbeat", beat, bodies.heartbeat(group, 1, member, "unknown"))
            link.ask("LeaveGroup", version, bodies.leave("", member))
            link.ask("LeaveGroup", version, bodies.leave(f"{group}-not", member))
            link.ask("LeaveGroup", version, bodies.leave(group, "nobody"))
            link.ask("LeaveGroup", version, bodies.leave(group, member, instance="unknown"))
            link.ask("LeaveGroup", version, bodies.leave(group, member, member, "nobody"))
            link.ask("LeaveGroup", version, bodies.leave(group))
            link.ask("DescribeGroups", 5, bodies.describe(group))

    both.same(story)


def test_commits(both: Both) -> None:
    def story(side: Side) -> None:
        link, ids = side.connect(), side.topic_ids
        known = {("orders", 0): 5, ("orders", 2): 7, ("payments", 1): 0}
        mixed = {**known, ("orders", 3): 1, ("orders", -1): 1, ("no-such-topic", 0): 1, ("bad name", 0): 1}
        for version in every(both, "OffsetCommit"):
            group = f"commit-{version}"
            member = joined(side, group)
            mine = {"MemberId": member, "GenerationIdOrMemberEpoch": 1}
            link.ask("OffsetCommit", version, bodies.commit(group, known, ids, **mine))
            link.ask("OffsetCommit", version, bodies.commit(group, mixed, ids, **mine))
            link.ask("OffsetCommit", version, bodies.commit(group, mixed, ids, **mine | {"MemberId": "nobody"}))
            link.ask("OffsetCommit", version, bodies.commit(group, {("no-such-topic", 0): 1}, ids, **mine))
            link.ask("OffsetCommit", version, bodies.commit(group, {("orders", 9): 1}, ids, **mine))
            link.ask("OffsetCommit", version, bodies.commit(group, {}, ids, **mine))
            link.ask("OffsetCommit", version, bodies.commit(group, known, ids))
            link.ask("OffsetCommit", version, bodies.commit(group, known, ids, **mine | {"MemberId": "nobody"}))
            link.ask(
                "OffsetCommit", version, bodies.commit(group, known, ids, MemberId=member, GenerationIdOrMemberEpoch=9)
            )
            link.ask("OffsetCommit", version, bodies.commit(f"{group}-not", known, ids, **mine))
            link.ask("OffsetCommit", version, bodies.commit("", mixed, ids))
            link.ask("OffsetCommit", version, bodies.commit(f"{group}-simple", {("orders", 1): -1}, ids))
            link.ask("OffsetCommit", version, bodies.commit(group, known, ids, GroupInstanceId="unknown", **mine))
            twice = bodies.commit(group, known, ids, **mine)
            twice["Topics"] = twice["Topics"] * 2
            link.ask("OffsetCommit", version, twice)
            long = bodies.commit(group, known, ids, **mine)
            long["Topics"][0]["Partitions"][0]["CommittedMetadata"] = "x" * 5000
            long["Topics"][0]["Partitions"][1]["CommittedMetadata"] = None
            link.ask("OffsetCommit", version, long)
            link.ask("OffsetFetch", 7, bodies.fetch({group: None}))
            link.ask("OffsetFetch", 10, bodies.fetch({group: None}))

    both.same(story)


def test_fetching_offsets(both: Both) -> None:
    def story(side: Side) -> None:
        link, ids = side.connect(), side.topic_ids
        link.ask("OffsetCommit", 8, bodies.commit("fetched", {("orders", 0): 5, ("payments", 1): 3}))
        link.ask("OffsetCommit", 8, bodies.commit("fetched-too", {("orders", 2): 9}))
        wanted = {"orders": [0, 1, 7, -1], "payments": [1, 1], "no-such-topic": [0], "bad name": [0]}
        for version in every(both, "OffsetFetch"):
            for is_stable in False, True:
                for group in "fetched", "", "never-seen":
                    link.ask("OffsetFetch", version, bodies.fetch({group: wanted}, ids, is_stable))
                    link.ask("OffsetFetch", version, bodies.fetch({group: {}}, ids, is_stable))
                    if version >= 2:
                        link.ask("OffsetFetch", version, bodies.fetch({group: None}, ids, is_stable))
            if version >= 8:
                several = {"fetched": {"orders": [0]}, "fetched-too": None, "never-seen": {"orders": [1]}, "": None}
                link.ask("OffsetFetch", version, bodies.fetch(several, ids))
                link.ask("OffsetFetch", version, bodies.fetch({}, ids))
                twice = bodies.fetch({"fetched": {"orders": [0]}}, ids)
                twice["Groups"] = twice["Groups"] * 2
                link.ask("OffsetFetch", version, twice)
            if version >= 9:
                as_member = bodies.fetch({"fetched": {"orders": [0]}}, ids)
                as_member["Groups"][0] |= {"MemberId": "nobody", "MemberEpoch": 3}
                link.ask("OffsetFetch", version, as_member)

    both.same(story)


def test_deleting_offsets(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        known = {("orders", 0): 5, ("orders", 1): 6, ("payments", 1): 3}
        link.ask("OffsetCommit", 8, bodies.commit("simple", known))
        member = joined(side, "subscribed")
        mine = {"MemberId": member, "GenerationIdOrMemberEpoch": 1}
        link.ask("OffsetCommit", 8, bodies.commit("subscribed", known, **mine))
        for group in "", "never-seen", "simple", "subscribed":
            for partitions in (
                {"orders": [0, 2, 7, -1], "payments": [0], "no-such-topic": [0, 1], "bad name": [0]},
                {"no-such-topic": [0]},
                {"payments": [1], "orders": []},
                {"payments": [1, 1]},
                {},
            ):
                link.ask("OffsetDelete", 0, bodies.offset_delete(group, partitions))
                link.ask("OffsetFetch", 8, bodies.fetch({group: None}))

    both.same(story)


def test_describing_listing_and_deleting_groups(both: Both) -> None:
    """What is left of other tests is listed too, on both sides."""

    def story(side: Side) -> None:
        link = side.connect()
        member = joined(side, "described")
        joined(side, "described-static", "one")
        link.ask("OffsetCommit", 8, bodies.commit("described-simple", {("orders", 0): 5}))
        groups = ("described", "described-static", "described-simple", "never-seen", "")
        for version in every(both, "DescribeGroups"):
            for has_operations in False, True:
                link.ask("DescribeGroups", version, bodies.describe(*groups, has_operations=has_operations))
            link.ask("DescribeGroups", version, bodies.describe())
            link.ask("DescribeGroups", version, bodies.describe("described", "described"))
        for version in every(both, "ListGroups"):
            for states in (), ("Stable",), ("stable", "Empty"), ("Nonsense",), ("Dead",), ("",):
                for types in (), ("classic",), ("Classic", "consumer"), ("share",), ("nonsense",), ("",):
                    link.ask("ListGroups", version, bodies.list_groups(states, types))
        for version in every(both, "DeleteGroups"):
            link.ask("OffsetCommit", 8, bodies.commit(f"doomed-{version}", {("orders", 0): 5}))
            doomed = [f"doomed-{version}", "described", "never-seen", ""]
            link.ask("DeleteGroups", version, {"GroupsNames": doomed})
            link.ask("DeleteGroups", version, {"GroupsNames": []})
            link.ask("DeleteGroups", version, {"GroupsNames": doomed + doomed})
            link.ask("DescribeGroups", 6, bodies.describe(*doomed))
        link.ask("LeaveGroup", 4, bodies.leave("described", member))
        link.ask("DeleteGroups", 2, {"GroupsNames": ["described"]})

    both.settle()
    both.same(story)


def test_finding_coordinators(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        for version in every(both, "FindCoordinator"):
            for key_type in 0, 1, 2, 3, -1, 99:
                for keys in ("a", "b", "a"), ("",), ():
                    # Transactions and share groups are nobody's here: docs/protocol.md.
                    if (key_type != 1 or not version) and (key_type != 2 or version < 6):
                        link.ask("FindCoordinator", version, bodies.find(*keys, key_type=key_type))

    both.same(story)


def test_what_is_advertised_is_what_kafka_advertises(both: Both) -> None:
    """muster serves fewer APIs; those that it serves, in the same versions."""

    def heard(name: str, version: int) -> dict[int, tuple[int, int]]:
        side = both.side(name)
        answer = side.connect().ask("ApiVersions", version, {"ClientSoftwareName": "raw", "ClientSoftwareVersion": "1"})
        side.close()
        assert answer["ErrorCode"] == 0
        return {each["ApiKey"]: (each["MinVersion"], each["MaxVersion"]) for each in answer["ApiKeys"]}

    for version in both.judge.served("ApiVersions"):
        theirs, ours = heard("Kafka", version), heard("muster", version)
        assert len(ours) >= 20
        assert ours == {key: versions for key, versions in theirs.items() if key in ours}
