"""What grows is bounded, and what an operator should know is told."""

from typing import Any

import pytest

from muster.codec.error_codes import ErrorCode
from muster.codec.partitioning import partition_for
from muster.core.config import GroupConfig
from muster.core.events import (
    CommitAnswer,
    CommittedPartition,
    JoinAnswer,
    JoinGroup,
    OffsetCommit,
    OffsetFetch,
    SyncAnswer,
    SyncGroup,
    TxnOffsetCommit,
    timed_out,
)
from muster.core.offsets import key_prefix
from muster.core.outcome import Notice, NoticeKind, Outcome
from muster.core.router import GroupRouter
from muster.core.states import Cause
from muster.errors import ConfigError
from tests.core.world import World

E = ErrorCode


def commit(world: World, group_id: str = "g", partitions: int = 1) -> Any:
    asked = tuple(CommittedPartition("t", partition, 5) for partition in range(partitions))
    return world.answer(world.ask(OffsetCommit(world.next_number(), group_id, -1, "", asked)))


def txn_commit(world: World, producer_id: int, *partitions: int, group_id: str = "g") -> Any:
    asked = tuple(CommittedPartition("t", partition, 5) for partition in partitions)
    return world.answer(world.ask(TxnOffsetCommit(world.next_number(), group_id, producer_id, 0, asked)))


def test_no_more_groups_than_allowed() -> None:
    world = World(muster_max_groups=2)
    world.stable("a")
    assert commit(world, "h") == CommitAnswer()
    refused = CommitAnswer((E.POLICY_VIOLATION,))
    assert commit(world, "i") == refused
    assert txn_commit(world, 7, 0, group_id="i") == refused
    assert world.answer(world.join("i", client="b")).error is E.POLICY_VIOLATION
    assert set(world.coordinator.groups) == {"g", "h"}
    assert commit(world, "h") == CommitAnswer()  # those that are there go on


def test_no_more_members_than_allowed_in_all_groups_together() -> None:
    world = World(muster_max_members=2)
    (a,) = world.stable("a")
    world.join("h", client="b")  # an id handed out counts
    assert world.coordinator.rebalancing.seat_count == 2
    assert world.answer(world.join("i", client="c")).error is E.GROUP_MAX_SIZE_REACHED
    assert world.answer(world.join("i", client="c", instance="static")).error is E.GROUP_MAX_SIZE_REACHED
    assert world.heartbeat(a, 1) is E.NONE
    world.advance(3_000_000)  # sessions and the unused id run out
    assert world.coordinator.rebalancing.seat_count == 0
    assert world.answer(world.join("i", client="c")).error is E.MEMBER_ID_REQUIRED


def test_a_static_member_that_restarts_needs_no_new_seat() -> None:
    world = World(muster_max_members=1)
    (a,) = world.stable("a", instances=True)
    answer = world.answer(world.join(client="a", instance="a"))
    assert answer.error is E.NONE
    assert answer.member_id != a
    assert world.coordinator.rebalancing.seat_count == 1


def join(world: World, group_id: str, member_id: str, metadata_bytes: int, version: int = 3) -> int:
    number = world.join(group_id, member_id, protocols=(("range", bytes(metadata_bytes)),), version=version)
    world.advance(0)
    return number


def test_a_member_with_too_much_metadata_hears_what_its_sync_would() -> None:
    world = World()
    assert world.answer(join(world, "g", "", 1_200_000)).error is E.NONE, "too large for a record, which its sync hears"
    out = Outcome()
    protocols = (("range", bytes(5 << 20)), ("roundrobin", b""))
    world.coordinator.handle(
        JoinGroup(99, 3, "h", "", "uuid", "client", "/127.0.0.1", 10_000, 10_000, "consumer", protocols), world.now, out
    )
    assert out.replies == [(99, JoinAnswer(E.UNKNOWN_SERVER_ERROR, ""))]
    assert out.notices[0][:2] == (NoticeKind.TOO_LARGE, "h")
    assert "h" not in world.coordinator.groups


def test_the_metadata_of_a_group_is_bounded() -> None:
    world = World(muster_max_group_bytes=1_000_000)
    first = world.answer(join(world, "g", "", 300_000))
    assert first.error is E.NONE
    join(world, "g", "", 300_000)
    assert world.answer(join(world, "g", "", 600_000)).error is E.GROUP_MAX_SIZE_REACHED
    assert world.is_parked(join(world, "g", "", 300_000)), "a smaller one finds its place"
    assert world.coordinator.groups["g"].seats.held_bytes == pytest.approx(900_000, abs=2_000)
    assert world.answer(join(world, "h", "", 600_000)).error is E.NONE, "that is another group"


def test_the_metadata_of_all_groups_together_is_bounded() -> None:
    world = World(muster_max_membership_bytes=1_000_000)
    membership = world.coordinator.rebalancing
    members = [world.answer(join(world, f"g{number}", "", 300_000)) for number in range(3)]
    assert [member.error for member in members] == [E.NONE] * 3
    assert world.answer(join(world, "h", "", 300_000)).error is E.GROUP_MAX_SIZE_REACHED
    rejoined = world.answer(join(world, "g0", members[0].member_id, 290_000))
    assert rejoined.error is E.NONE, "whoever has a place, and brings no more than before, keeps it"
    assert world.answer(join(world, "g0", members[0].member_id, 600_000)).error is E.GROUP_MAX_SIZE_REACHED
    world.advance(0)
    assert world.answer(join(world, "h", "", 300_000)).error is E.NONE, (
        "who brought too much has left, so there is room"
    )
    world.advance(3_000_000)
    assert membership.held_bytes == 0, "sessions have run out, and nothing is left of them"


def test_ids_that_are_handed_out_are_counted() -> None:
    world = World()
    answer = world.answer(join(world, "g", "", 10, version=9))
    assert answer.error is E.MEMBER_ID_REQUIRED
    assert world.coordinator.rebalancing.held_bytes == len(answer.member_id)
    world.advance(3_000_000)
    assert world.coordinator.rebalancing.held_bytes == 0


def test_a_sync_that_waits_keeps_no_assignments() -> None:
    """A follower may send some; nobody looks at them."""
    world = World()
    leader, follower = world.stable("a", "b")
    world.join(member_id=follower, protocols=(("range", b"other"),))
    world.join(member_id=leader)
    generation = world.coordinator.groups["g"].seats.generation
    sync = SyncGroup(world.next_number(), "g", generation, follower, {"x": bytes(1_000_000)})
    assert world.is_parked(world.ask(sync))
    assert sync.assignments == {}
    world.ask(SyncGroup(world.next_number(), "g", generation, leader, {follower: b"yours"}))
    assert world.answer(sync.reply_to).assignment == b"yours"


def test_no_more_pending_offsets_than_allowed() -> None:
    world = World(muster_max_pending_offsets=3)
    assert txn_commit(world, 7, 0, 1) == CommitAnswer()
    assert txn_commit(world, 7, 0) == CommitAnswer()  # the same once more is none more
    assert txn_commit(world, 8, 0, 1) == CommitAnswer((E.POLICY_VIOLATION,) * 2)
    assert world.coordinator.table.pending_offsets == 2
    world.coordinator.table.replay_marker(7, commit=True)
    assert world.coordinator.table.pending_offsets == 0
    assert txn_commit(world, 8, 0, 1) == CommitAnswer()


def test_ids_of_a_great_length_are_not_remembered() -> None:
    """Caches hold thousands of ids; of 32 kB each that is gigabytes."""
    world = World()
    router = GroupRouter(4)
    for cache in (key_prefix, partition_for):  # one that is full grows no further
        cache.cache_clear()
    keys, partitions = key_prefix.cache_info().currsize, partition_for.cache_info().currsize
    for number in range(20):
        long_id = f"{number}-" + "x" * 20_000
        assert commit(world, long_id) == CommitAnswer()
        router.handle(OffsetCommit(0, long_id, -1, "", ()), world.now, Outcome())
    assert (key_prefix.cache_info().currsize, partition_for.cache_info().currsize) == (keys, partitions)
    assert commit(world, "of a usual length") == CommitAnswer()
    assert key_prefix.cache_info().currsize == keys + 1


def test_offsets_asked_for_again_and_again_are_one_text() -> None:
    world = World()
    wordy = CommittedPartition("t", 0, 5, metadata="x" * 4_000)
    world.answer(world.ask(OffsetCommit(world.next_number(), "g", -1, "", (wordy,))))
    answer = world.answer(world.ask(OffsetFetch(world.next_number(), "g", (("t", 0),) * 1_000)))
    assert [each.metadata for each in answer.partitions] == ["x" * 4_000] * 1_000
    assert len({id(each.metadata) for each in answer.partitions}) == 1


def test_deleted_offsets_are_pending_no_longer() -> None:
    world = World()
    txn_commit(world, 7, 0, 1)
    world.coordinator.replay((world.log[0][0].key, None), 9)
    assert world.coordinator.table.pending_offsets == 1


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("group_max_size", 0, "group.max.size is 0; it must be at least 1."),
        ("offsets_commit_required_acks", 2, "offsets.commit.required.acks is 2; it must be between -1 and 1."),
        ("offsets_topic_compression_codec", 5, "offsets.topic.compression.codec is 5; it must be between 0 and 4."),
        ("muster_max_groups", 0, "muster.max.groups is 0; it must be at least 1."),
    ],
)
def test_a_setting_out_of_range(name: str, value: int, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        GroupConfig(**{name: value})  # type: ignore[arg-type]
    assert str(raised.value) == sentence


def test_an_answer_that_is_not_durable_in_time() -> None:
    assert timed_out(CommitAnswer()) == CommitAnswer(E.COORDINATOR_NOT_AVAILABLE)
    assert timed_out(SyncAnswer(E.NONE, b"mine")) == SyncAnswer(E.COORDINATOR_NOT_AVAILABLE)
    assert timed_out(JoinAnswer(E.NONE, "m", 1)) == JoinAnswer(E.COORDINATOR_NOT_AVAILABLE, "")
    told = JoinAnswer(E.UNKNOWN_MEMBER_ID, "m")
    assert timed_out(told) is told  # nothing that could get lost


# What the operator is told.


class Told(World):
    """Keeps the notices of everything asked."""

    def __init__(self, **settings: Any) -> None:
        self.notices: list[Notice] = []
        super().__init__(**settings)

    def _carry_out(self, out: Outcome) -> None:
        self.notices.extend(out.notices)
        out.notices.clear()
        super()._carry_out(out)

    def _append(self, write: Any, later: Outcome) -> None:
        super()._append(write, later)
        self.notices.extend(later.notices)
        later.notices.clear()

    def told(self) -> list[tuple[str, str]]:
        told = [(notice.kind.value, notice.cause.value) for notice in self.notices]
        self.notices.clear()
        return told


def test_the_life_of_a_group_as_an_operator_reads_it() -> None:
    world = Told()
    (a,) = world.stable("a")
    assert world.told() == [
        ("created", ""),
        ("joined", ""),
        ("rebalancing", "member joined"),
        ("stable", "member joined"),
    ]
    world.advance(10_000_000)
    assert world.told() == [("expired", "session expired"), ("rebalancing", "session expired"), ("empty", "")]
    assert a not in world.group("g").members


def test_a_rebalance_says_how_long_it_took() -> None:
    world = Told()
    (a,) = world.stable("a")
    world.notices.clear()
    world.join_new("g", client="b")
    world.advance(40)
    world.join("g", a, client="a")
    world.sync(a, 2, {})
    (stable,) = [notice for notice in world.notices if notice.kind is NoticeKind.STABLE]
    assert stable == Notice(NoticeKind.STABLE, "g", Cause.MEMBER_JOINED, generation=2, size=2, duration_ms=40)


def test_mixed_commits_are_told_once() -> None:
    world = Told()
    commit(world)
    commit(world)
    txn_commit(world, 7, 0)
    txn_commit(world, 7, 0)
    commit(world)
    assert world.told() == [("mixed commits", "")]
