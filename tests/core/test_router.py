"""Which answers come while a partition loads, or is somebody else's; and what epochs do."""

from typing import Any

import pytest

from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import GroupValue, MemberValue
from muster.codec.partitioning import partition_for
from muster.core.config import GroupConfig
from muster.core.coordinator import Coordinator
from muster.core.events import (
    CommittedPartition,
    DeleteGroup,
    DescribeGroup,
    Event,
    Heartbeat,
    Instant,
    JoinGroup,
    LeaveGroup,
    Leaver,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
    TimerKey,
    TimerKind,
    TxnOffsetCommit,
)
from muster.core.outcome import Outcome, SetTimer
from muster.core.router import GroupRouter

E = ErrorCode
NOW = Instant(0, 1_700_000_000_000)
PARTITION = partition_for("groupId", 2)
OTHER = partition_for("otherGroup", 2)


def join(group_id: str = "groupId", instance: str | None = None) -> JoinGroup:
    return JoinGroup(0, 9, group_id, "", "uuid", "c", "/h", 10_000, 60_000, "consumer", (("range", b""),), instance)


ONE = (CommittedPartition("t", 0, 1),)


def ask(router: GroupRouter, event: Event) -> Outcome:
    """Decide, and let a log that takes everything take what was decided."""
    out = Outcome()
    partition = router.handle(event, NOW, out)
    for write in out.writes:
        assert partition is not None
        coordinator = router.routed[partition].coordinator
        assert coordinator is not None
        coordinator.appended(write, 0, out)
    return out


def answer(router: GroupRouter, event: Event) -> Any:
    return ask(router, event).replies[0][1]


def active(*partitions: int) -> GroupRouter:
    router = GroupRouter(2)
    for partition in partitions:
        assert router.elect(partition, 2)
        assert router.loaded(partition, 2, Coordinator(GroupConfig()), NOW, Outcome())
    return router


@pytest.mark.parametrize("instance", [None, "i"])
def test_031_039_joins_while_loading_and_where_the_partition_is_not_ours(instance: str | None) -> None:
    router = GroupRouter(2)
    assert answer(router, join(instance=instance)).error is E.NOT_COORDINATOR
    router.elect(PARTITION, 1)
    assert answer(router, join(instance=instance)).error is E.COORDINATOR_LOAD_IN_PROGRESS


def test_033_heartbeats_while_loading() -> None:
    router = GroupRouter(2)
    assert answer(router, Heartbeat(0, "groupId", 1, "m")) is E.NOT_COORDINATOR
    router.elect(PARTITION, 1)
    assert answer(router, Heartbeat(0, "groupId", 1, "m")) is E.NONE


def test_034_041_042_other_requests_while_loading_and_where_the_partition_is_not_ours() -> None:
    router = GroupRouter(2)
    router.elect(PARTITION, 1)
    loading = E.COORDINATOR_LOAD_IN_PROGRESS
    assert answer(router, OffsetCommit(0, "groupId", -1, "", ONE)).errors[0] is loading
    assert answer(router, TxnOffsetCommit(0, "groupId", 1, 0, ONE)).errors[0] is loading
    assert answer(router, SyncGroup(0, "groupId", 1, "m")).error is loading
    assert answer(router, LeaveGroup(0, "groupId", (Leaver("m"),))).error is loading
    fetched = answer(router, OffsetFetch(0, "otherGroup", (("t", 0),)))
    assert (fetched.error, fetched.partitions) == (E.NOT_COORDINATOR, ())
    assert answer(router, DescribeGroup(0, "otherGroup")).error is E.NOT_COORDINATOR
    assert answer(router, OffsetDelete(0, "otherGroup", ())).error is E.NOT_COORDINATOR
    assert answer(router, DeleteGroup(0, "otherGroup")) is E.NOT_COORDINATOR


def test_036_listing_while_one_partition_loads() -> None:
    router = active(PARTITION)
    router.elect(OTHER, 1)
    assert answer(router, ListGroups(0)).error is E.COORDINATOR_LOAD_IN_PROGRESS


def test_037_038_describing_a_group_of_another_partition() -> None:
    router = active(PARTITION)
    router.elect(OTHER, 1)
    described = answer(router, DescribeGroup(0, "groupId", version=5))
    assert (described.error, described.state) == (E.NONE, "Dead")


def test_043_046_empty_group_ids() -> None:
    router = active(0, 1)
    assert answer(router, join("")).error is E.INVALID_GROUP_ID
    assert answer(router, TxnOffsetCommit(0, "", 1, 0, ONE)).errors[0] is E.INVALID_GROUP_ID


def test_groups_of_two_partitions_are_listed_together() -> None:
    router = active(PARTITION, OTHER)
    for group_id in ("groupId", "otherGroup"):
        ask(router, join(group_id))
    assert {group.group_id for group in answer(router, ListGroups(0)).groups} == {"groupId", "otherGroup"}


def test_327_328_332_loads_and_resignations_at_stale_epochs() -> None:
    router = active(PARTITION)
    assert not router.elect(PARTITION, 1)
    assert not router.elect(PARTITION, 2)
    assert router.resign(PARTITION, 1, Outcome()) == (0, 0)
    assert PARTITION in router.routed


def test_329_a_stop_without_an_epoch() -> None:
    router = active(PARTITION)
    ask(router, join())
    assert router.resign(PARTITION, None, Outcome()) == (1, 0)
    assert answer(router, join()).error is E.NOT_COORDINATOR
    assert router.elect(PARTITION, 3)


def test_333_324_leadership_lost_while_loading() -> None:
    router = GroupRouter(2)
    router.elect(PARTITION, 1)
    router.resign(PARTITION, None, Outcome())
    assert not router.loaded(PARTITION, 1, Coordinator(), NOW, Outcome())
    assert answer(router, join()).error is E.NOT_COORDINATOR
    router.elect(PARTITION, 2)
    router.elect(PARTITION, 3)
    assert not router.loaded(PARTITION, 2, Coordinator(), NOW, Outcome())


def test_a_failed_load_answers_not_here_until_the_next_election() -> None:
    router = GroupRouter(2)
    router.elect(PARTITION, 1)
    router.load_failed(PARTITION, 1)
    assert answer(router, join()).error is E.NOT_COORDINATOR
    assert router.elect(PARTITION, 2)
    assert answer(router, join()).error is E.COORDINATOR_LOAD_IN_PROGRESS


def test_a_failed_load_may_be_tried_again_in_the_same_epoch() -> None:
    router = GroupRouter(2)
    router.elect(PARTITION, 1)
    router.load_failed(PARTITION, 1)
    router.load_failed(PARTITION, 1)
    assert router.loaded(PARTITION, 1, Coordinator(), NOW, Outcome())
    assert not router.loaded(PARTITION, 1, Coordinator(), NOW, Outcome()), "served already"
    router.load_failed(PARTITION, 1)
    assert answer(router, join()).error is not E.NOT_COORDINATOR


def test_the_members_of_a_loaded_partition_have_sessions() -> None:
    coordinator, out = Coordinator(), Outcome()
    member = MemberValue("m", None, "c", "/h", 60_000, 10_000, b"", b"mine")
    coordinator.table.replay_group("groupId", GroupValue("consumer", 1, "range", "m", 5, (member,)))
    coordinator.table.take_seats()
    router = GroupRouter(2)
    router.elect(PARTITION, 1)
    assert router.loaded(PARTITION, 1, coordinator, NOW, out)
    assert out.timers == [SetTimer(TimerKey(TimerKind.SESSION, "groupId", "m"), NOW.monotonic_ms + 10_000)]
