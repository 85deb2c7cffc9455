"""Loading, owning and resigning partitions: what the checklist's sections B, N, Q and R say and no other test does."""

from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.codec.partitioning import partition_for
from muster.core.config import GroupConfig
from muster.core.coordinator import Coordinator
from muster.core.events import (
    CommittedPartition,
    DeleteGroup,
    DescribeGroup,
    Event,
    Instant,
    JoinGroup,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
    TxnOffsetCommit,
)
from muster.core.outcome import Outcome
from muster.core.router import GroupRouter
from muster.core.states import State
from tests.scenarios.world import errors_of

E = ErrorCode
NOW = Instant(0, 1_700_000_000_000)
HERE, THERE = partition_for("groupId", 2), partition_for("otherGroup", 2)
THREE = tuple(CommittedPartition("t", partition, 42) for partition in range(3))


class Node:
    """A router, and a log that takes everything."""

    def __init__(self, *active: int, epoch: int = 2) -> None:
        self.router = GroupRouter(2)
        self.log_offset = 0
        for partition in active:
            self.load(partition, epoch)

    def load(self, partition: int, epoch: int) -> None:
        assert self.router.elect(partition, epoch)
        assert self.router.loaded(partition, epoch, Coordinator(GroupConfig()), NOW, Outcome())

    def ask(self, event: Event) -> Any:
        out = Outcome()
        partition = self.router.handle(event, NOW, out)
        for write in out.writes:
            assert partition is not None
            coordinator = self.router.routed[partition].coordinator
            assert coordinator is not None
            coordinator.appended(write, self.log_offset, out)
            self.log_offset += len(write.records)
        return out.replies[0][1] if out.replies else None

    def commit(self, group_id: str) -> list[ErrorCode]:
        return errors_of(self.ask(OffsetCommit(0, group_id, -1, "", THREE)), 3)

    def fetch(self, group_id: str) -> Any:
        return self.ask(OffsetFetch(0, group_id, (("t", 0),)))

    def seat(self, group_id: str) -> None:
        """A group with a member: an old client is seated at once."""
        self.ask(JoinGroup(0, 3, group_id, "", "uuid", "c", "/h", 10_000, 60_000, "consumer", (("range", b""),), None))

    def listed(self) -> tuple[ErrorCode, list[str]]:
        answer = self.ask(ListGroups(0))
        return answer.error, [group.group_id for group in answer.groups]

    def is_gone(self, group_id: str) -> bool:
        """Kafka's check whether a group is known not to exist, as those hear it who want to delete it."""
        return self.ask(DeleteGroup(0, group_id)) is E.GROUP_ID_NOT_FOUND


def loading() -> Node:
    node = Node(THERE)
    assert node.router.elect(HERE, 1)
    return node


def test_032_a_sync_while_loading() -> None:
    """As 4.x answers; before it was REBALANCE_IN_PROGRESS."""
    answer = loading().ask(SyncGroup(0, "groupId", 1, "m"))
    assert (answer.error, answer.assignment) == (E.COORDINATOR_LOAD_IN_PROGRESS, b"")


def test_034_every_partition_of_a_commit_hears_of_the_loading() -> None:
    node = loading()
    assert node.commit("groupId") == [E.COORDINATOR_LOAD_IN_PROGRESS] * 3
    answer = node.ask(TxnOffsetCommit(0, "groupId", 1, 0, THREE))
    assert errors_of(answer, 3) == [E.COORDINATOR_LOAD_IN_PROGRESS] * 3
    assert node.commit("otherGroup") == [E.NONE] * 3


def test_036_no_group_is_listed_while_one_partition_loads() -> None:
    """As 4.x answers; before it listed what was loaded already."""
    node = loading()
    node.commit("otherGroup")
    assert node.listed() == (E.COORDINATOR_LOAD_IN_PROGRESS, [])
    assert node.router.loaded(HERE, 1, Coordinator(), NOW, Outcome())
    assert node.listed() == (E.NONE, ["otherGroup"])


def test_044_a_group_without_a_name() -> None:
    node = Node(HERE, THERE)
    assert node.commit("") == [E.NONE] * 3
    assert node.fetch("").partitions[0].offset == 42
    described = node.ask(DescribeGroup(0, ""))
    assert (described.error, described.state) == (E.NONE, "Empty")
    assert node.ask(DeleteGroup(0, "")) is E.NONE
    fetched = node.fetch("")
    assert (fetched.error, fetched.partitions[0].offset) == (E.NONE, -1)


def test_272_each_group_of_a_fetch_has_its_own_answer() -> None:
    """A request for two groups is two events: one is ours to answer for, the other is not."""
    node = Node(HERE)
    node.commit("groupId")
    ours, theirs = node.fetch("groupId"), node.fetch("otherGroup")
    assert (ours.error, ours.partitions[0].offset) == (E.NONE, 42)
    assert (theirs.error, theirs.partitions) == (E.NOT_COORDINATOR, ())


def test_323_when_a_group_is_known_not_to_exist() -> None:
    assert not Node(THERE).is_gone("groupId")
    node = Node(HERE)
    assert node.is_gone("groupId")
    node.seat("groupId")
    assert not node.is_gone("groupId")
    coordinator = node.router.routed[HERE].coordinator
    assert coordinator is not None
    coordinator.groups["groupId"].seats.state = State.DEAD
    assert node.is_gone("groupId")


def test_326_resigning_at_the_epoch_of_the_load() -> None:
    """As 4.x does: a resignation has a newer epoch than the election it ends, so this one is old news."""
    node = Node(HERE, epoch=2)
    node.commit("groupId")
    assert node.router.resign(HERE, 2, Outcome()) == (0, 0)
    assert node.fetch("groupId").partitions[0].offset == 42
    assert node.router.resign(HERE, 3, Outcome()) == (1, 3)
    assert node.fetch("groupId").error is E.NOT_COORDINATOR


def test_327_epochs_are_forgotten_with_the_partition() -> None:
    """As 4.x does; before, the highest epoch was remembered."""
    node = Node(HERE, epoch=2)
    assert not node.router.elect(HERE, 1)
    node.router.resign(HERE, 3, Outcome())
    assert node.router.elect(HERE, 1)


def test_328_an_old_resignation_leaves_the_groups_alone() -> None:
    node = Node(HERE, epoch=2)
    node.commit("groupId")
    assert node.router.resign(HERE, 1, Outcome()) == (0, 0)
    assert node.fetch("groupId").partitions[0].offset == 42


def test_329_stopped_and_elected_again() -> None:
    node = Node(HERE, epoch=2)
    node.commit("groupId")
    assert node.router.resign(HERE, None, Outcome()) == (1, 3)
    assert node.fetch("groupId").error is E.NOT_COORDINATOR
    node.load(HERE, 3)
    assert node.fetch("groupId").partitions[0].offset == -1  # what it knew is in the log, and only there


def test_332_the_epoch_of_the_active_partition_again() -> None:
    node = Node(HERE, epoch=2)
    node.commit("groupId")
    assert not node.router.elect(HERE, 2)
    assert node.fetch("groupId").partitions[0].offset == 42


def test_333_resigned_while_a_load_is_running() -> None:
    node = loading()
    node.router.resign(HERE, 2, Outcome())
    assert node.fetch("groupId").error is E.NOT_COORDINATOR
    assert not node.router.loaded(HERE, 1, Coordinator(), NOW, Outcome())
    assert node.commit("groupId") == [E.NOT_COORDINATOR] * 3
